package layer2

import "testing"

// TestTurnComesOnce: a series that was asked for anew while it waited is in the backlog twice, and
// begins once.
func TestTurnComesOnce(t *testing.T) {
	b := newBacklog()
	e := &entry{want: probeVIP(vip4, 2), series: series{number: 2, waits: true}}
	b.add(e)
	b.add(e)
	if got := b.next(); len(got) != 1 || got[0] != e || e.series.waits {
		t.Errorf("begins %d times, waits %v", len(got), e.series.waits)
	}
	if got := b.next(); len(got) != 0 {
		t.Errorf("begins %d times more", len(got))
	}
}
