// Package logqueue writes a log without making anybody wait for whoever reads it.
package logqueue

import (
	"io"
	"log/slog"
	"sync"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/wake"
)

const (
	// maxBytes bounds what waits to be written: some thousand lines.
	maxBytes = 1 << 20
	// Flush is how long the end of the process waits for what is not written yet.
	Flush = time.Second
	// stalledAfter is how long a line must have waited for status to say so.
	stalledAfter = 2 * time.Second
)

// Queue writes a log in the background. journald or a container runtime may stop
// reading, on a disk that hangs for example; then the pipe fills up, and whoever logs
// would wait: the loop, the checks, the drivers. So nobody waits. What there is no room
// for is dropped and counted, and the count is logged once writing works again.
type Queue struct {
	// Logger, which writes to the Queue, says how many lines were dropped; nil: nobody does. It is
	// set before the first line.
	Logger *slog.Logger

	out  io.Writer
	wake chan struct{}
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	lines   [][]byte
	size    int       // bytes in lines and in the one being written
	since   time.Time // when the write under way began; zero: none is
	pending uint64    // dropped and not logged yet
	dropped uint64
	closed  bool
}

// New returns a Queue that writes to out, until Close.
func New(out io.Writer) *Queue {
	q := &Queue{out: out, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Write implements io.Writer; slog calls it once for each line. It never waits.
func (q *Queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.size+len(line) > maxBytes {
		q.dropped++
		q.pending++
		return len(line), nil
	}
	q.size += len(line)
	q.lines = append(q.lines, append([]byte(nil), line...))
	wake.Up(q.wake)
	return len(line), nil
}

// run writes until the queue is closed and empty.
func (q *Queue) run() {
	defer close(q.done)
	for range q.wake {
		for line := q.next(); line != nil; line = q.next() {
			_, err := q.out.Write(line)
			q.wrote(line, err)
		}
		if !q.report() {
			return
		}
	}
}

// next takes the next line out, nil if there is none.
func (q *Queue) next() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) == 0 {
		q.lines = nil // what a long stall made it grow to
		return nil
	}
	line := q.lines[0]
	q.lines[0], q.lines = nil, q.lines[1:]
	q.since = time.Now()
	return line
}

// wrote notes what became of a line. One that cannot be written is counted, but not
// logged: that would not be written either.
func (q *Queue) wrote(line []byte, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.size -= len(line)
	q.since = time.Time{}
	if err != nil {
		q.dropped++
	}
}

// report logs how many lines were dropped since the last report. It tells whether
// there is more to come.
func (q *Queue) report() bool {
	q.mu.Lock()
	n, log, closed := q.pending, q.Logger, q.closed && len(q.lines) == 0
	if log != nil && !closed {
		q.pending = 0
	}
	q.mu.Unlock()
	if n > 0 && log != nil && !closed {
		log.Warn("log lines were dropped, since nobody took them", "count", n)
	}
	return !closed
}

// Close ends the queue. It waits Flush at most for what has not been written.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	wake.Up(q.wake)
	select {
	case <-q.done:
	case <-time.After(Flush):
	}
}

// Lost is how many lines were dropped since the start.
func (q *Queue) Lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// Status tells people that nobody reads the log.
func (q *Queue) Status(s *v1alpha1.NodeStatus) {
	if q.Stalled(time.Now()) > 0 {
		s.Drivers = append(s.Drivers, v1alpha1.DriverStatus{Name: "log", Error: "nobody takes its lines: is the disk of journald or of the container runtime full, or does it hang? lbd goes on, and drops lines when too many wait"})
	}
}

// Stalled is for how long a line has waited to be taken, zero unless it is long.
func (q *Queue) Stalled(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.since.IsZero() || now.Sub(q.since) < stalledAfter {
		return 0
	}
	return now.Sub(q.since)
}
