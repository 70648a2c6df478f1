package logqueue

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

// stuckPipe is a pipe that is full, which nobody reads until the returned function is called;
// that returns everything that was written to it, but for what filled it.
func stuckPipe(t *testing.T) (w *os.File, read func() func() string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if err := w.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	filler := bytes.Repeat([]byte("."), 1<<20)
	if _, err := w.Write(filler); err == nil {
		t.Fatal("the pipe took a megabyte")
	}
	if err := w.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	return w, func() func() string {
		var mu sync.Mutex
		var text []byte
		go func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := r.Read(buf)
				mu.Lock()
				text = append(text, buf[:n]...)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		}()
		return func() string { mu.Lock(); defer mu.Unlock(); return strings.TrimLeft(string(text), ".") }
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + ": not within 30 s")
		}
	}
}

// TestLogThatNobodyReadsStopsNobody: whoever logs goes on, memory is bounded, and the
// reader that comes back is told how much is missing.
func TestLogThatNobodyReadsStopsNobody(t *testing.T) {
	w, read := stuckPipe(t)
	q := New(w)
	log := slog.New(slog.NewTextHandler(q, nil))
	q.Logger = log

	const lines = 50_000
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		for i := range lines {
			log.Info("something happened", "number", i, "text", strings.Repeat("x", 50))
		}
	}()
	select {
	case <-logged:
	case <-time.After(30 * time.Second):
		t.Fatal("whoever logs waits for the reader of the log")
	}
	if q.size > maxBytes {
		t.Errorf("%d bytes wait, want %d at most", q.size, maxBytes)
	}
	lost := q.Lost()
	if lost == 0 || lost >= lines {
		t.Fatalf("%d of %d lines dropped, want some", lost, lines)
	}
	eventually(t, "the stall shows", func() bool { return len(statusOfLog(q)) > 0 })
	if got := statusOfLog(q); len(got) != 1 || got[0].Name != "log" || !strings.HasPrefix(got[0].Error, "nobody takes its lines") {
		t.Errorf("status of the stall: %+v", got)
	}

	text := read()
	eventually(t, "the count is logged", func() bool {
		return strings.Contains(text(), "log lines were dropped, since nobody took them")
	})
	log.Info("the last word")
	q.Close()
	eventually(t, "the last line is written", func() bool { return strings.Contains(text(), "the last word") })
	got := text()
	if n := strings.Count(got, "something happened"); uint64(n)+lost != lines {
		t.Errorf("%d written and %d dropped, want %d together", n, lost, lines)
	}
	if !strings.Contains(got, "count=") || strings.Count(got, "log lines were dropped") != 1 {
		t.Errorf("the count is not logged once: %s", got[max(0, len(got)-500):])
	}
	if got := statusOfLog(q); len(got) != 0 {
		t.Errorf("still stalled: %+v", got)
	}
}

// statusOfLog is what `lbd status` gets of the log.
func statusOfLog(q *Queue) []v1alpha1.DriverStatus {
	var s v1alpha1.NodeStatus
	q.Status(&s)
	return s.Drivers
}

// TestEndDoesNotWaitForTheLog: a daemon that stops does so although nobody reads.
func TestEndDoesNotWaitForTheLog(t *testing.T) {
	w, _ := stuckPipe(t)
	q := New(w)
	log := slog.New(slog.NewTextHandler(q, nil))
	log.Info("lbd ends")
	began := time.Now()
	q.Close()
	if d := time.Since(began); d > 20*Flush {
		t.Errorf("it took %v", d)
	}
	log.Info("too late") // somebody may still log
	if q.Lost() != 1 {
		t.Errorf("%d dropped, want the one after the end", q.Lost())
	}
}

// TestLogWithoutAReader: a pipe that is closed at the other end costs lines and nothing else.
func TestLogWithoutAReader(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	q := New(w)
	log := slog.New(slog.NewTextHandler(q, nil))
	q.Logger = log
	for range 100 {
		log.Info("line")
	}
	q.Close()
	if q.Lost() != 100 {
		t.Errorf("%d dropped, want 100", q.Lost())
	}
}
