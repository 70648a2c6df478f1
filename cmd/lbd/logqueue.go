package main

import (
	"io"
	"log/slog"
	"sync"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

const (
	// logQueueBytes bounds what waits to be written: some thousand lines.
	logQueueBytes = 1 << 20
	// logFlush is how long the end of the process waits for what is not written yet.
	logFlush = time.Second
	// logStalled is how long a line must have waited for status to say so.
	logStalled = 2 * time.Second
)

// logQueue writes a log in the background. journald or a container runtime may stop
// reading, on a disk that hangs for example; then the pipe fills up, and whoever logs
// would wait: the loop, the checks, the drivers. So nobody waits. What there is no room
// for is dropped and counted, and the count is logged once writing works again.
type logQueue struct {
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
	logger  *slog.Logger // says how many were dropped
}

func newLogQueue(out io.Writer) *logQueue {
	q := &logQueue{out: out, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// Write implements io.Writer; slog calls it once for each line. It never waits.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.size+len(line) > logQueueBytes {
		q.dropped++
		q.pending++
		return len(line), nil
	}
	q.size += len(line)
	q.lines = append(q.lines, append([]byte(nil), line...))
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return len(line), nil
}

// run writes until the queue is closed and empty.
func (q *logQueue) run() {
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
func (q *logQueue) next() []byte {
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
func (q *logQueue) wrote(line []byte, err error) {
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
func (q *logQueue) report() bool {
	q.mu.Lock()
	n, log, closed := q.pending, q.logger, q.closed && len(q.lines) == 0
	if log != nil && !closed {
		q.pending = 0
	}
	q.mu.Unlock()
	if n > 0 && log != nil && !closed {
		log.Warn("log lines were dropped, since nobody took them", "count", n)
	}
	return !closed
}

// close ends the queue. It waits logFlush at most for what has not been written.
func (q *logQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
	select {
	case <-q.done:
	case <-time.After(logFlush):
	}
}

// lost is how many lines were dropped since the start.
func (q *logQueue) lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// status tells people that nobody reads the log.
func (q *logQueue) status(s *v1alpha1.NodeStatus) {
	if q.stalled(time.Now()) > 0 {
		s.Drivers = append(s.Drivers, v1alpha1.DriverStatus{Name: "log", Error: "nobody takes its lines: is the disk of journald or of the container runtime full, or does it hang? lbd goes on, and drops lines when too many wait"})
	}
}

// stalled is for how long a line has waited to be taken, zero unless it is long.
func (q *logQueue) stalled(now time.Time) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.since.IsZero() || now.Sub(q.since) < logStalled {
		return 0
	}
	return now.Sub(q.since)
}
