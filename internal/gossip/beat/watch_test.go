package beat

import (
	"log/slog"
	"testing"
	"time"

	"lbd.dev/lbd/internal/gossip/record"
)

// TestOvertaken: what has come already counts once, and a new life begins to count anew.
func TestOvertaken(t *testing.T) {
	w := NewWatches(50*time.Millisecond, slog.New(slog.DiscardHandler))
	last := record.Beat{Name: "a", Inc: 7, Seq: 5, Interval: 50}
	if w.Overtaken(&last) {
		t.Error("the first heartbeat comes too late")
	}
	w.Take(&last, time.Now())
	for _, c := range []struct {
		inc, seq uint64
		want     bool
	}{{7, 4, true}, {7, 5, true}, {7, 6, false}, {8, 1, false}} {
		if got := w.Overtaken(&record.Beat{Name: "a", Inc: c.inc, Seq: c.seq}); got != c.want {
			t.Errorf("number %d of life %d: overtaken %v", c.seq, c.inc, got)
		}
	}
	if w.Overtaken(&record.Beat{Name: "b", Inc: 7, Seq: 4}) {
		t.Error("a heartbeat of another node is overtaken")
	}
}
