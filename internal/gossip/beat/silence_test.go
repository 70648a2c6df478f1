package beat

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/gossip/record"
)

// TestLogOfLateHeartbeats: heartbeats that come late for a moment, many times a minute,
// make one line a minute; a silence that lasts makes a line, and so does its end.
func TestLogOfLateHeartbeats(t *testing.T) {
	var log bytes.Buffer
	w := NewWatches(50*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)))
	now, seq := time.Now(), uint64(0)
	beat := func() {
		seq++
		w.Take(&record.Beat{Name: "m2", Inc: 2, Interval: 50, Seq: seq}, now)
	}
	// pause looks as often as the loop does: at each deadline.
	pause := func(d time.Duration) {
		for end := now.Add(d); ; {
			_, next := w.Deadlines(now)
			if next.IsZero() || next.After(end) {
				now = end
				return
			}
			now = next
		}
	}
	logged := func(want ...string) {
		t.Helper()
		lines := regexp.MustCompile(`msg=.*`).FindAllString(log.String(), -1)
		log.Reset()
		if strings.Join(lines, "\n") != strings.Join(want, "\n") {
			t.Errorf("logged\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	}
	beat()
	for range 60 { // late 160 ms after the last one, for 340 ms
		pause(500 * time.Millisecond)
		beat()
		pause(100 * time.Millisecond)
		beat()
	}
	logged(`msg="heartbeats came late" peer=m2 times=1 longest=340ms`)
	pause(1500 * time.Millisecond)
	beat()
	for range 60 {
		pause(500 * time.Millisecond)
		beat()
		pause(100 * time.Millisecond)
		beat()
	}
	logged(`msg="heartbeats came late" peer=m2 times=99 longest=1.34s`)

	for range 2 { // each long one is told
		pause(2100 * time.Millisecond)
		logged()
		pause(60 * time.Millisecond)
		logged(`msg="heartbeats are overdue" peer=m2 last=2.16s`)
		pause(time.Minute)
		beat()
		logged(`msg="heartbeats arrive again" peer=m2 after=1m2s`)
	}
}
