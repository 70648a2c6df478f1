package record

import (
	"testing"
	"time"
)

// TestHeard: a node that memberlist counts as dead takes part for as long as its heartbeats
// arrive, and the View hears of each change.
func TestHeard(t *testing.T) {
	now := time.Unix(10_000, 0)
	tab := NewTable("x")
	tab.Member("a", at(1), false, now)
	for i, c := range []struct {
		what  string
		do    func()
		alive bool
	}{
		{"dead", func() {}, false},
		{"beats", func() { tab.Beating("a", true) }, true},
		{"late", func() { tab.Late("a", now, now.Add(time.Second)) }, false},
		{"in time", func() { tab.InTime("a", now.Add(time.Second), time.Time{}) }, false},
		{"beats again", func() { tab.Beating("a", true) }, true},
		{"has left", func() { tab.NotAwaited("a") }, false},
		{"answers", func() { tab.Heard("a", now) }, false},
	} {
		tab.Flush()
		c.do()
		if got := tab.Node("a").Alive(); got != c.alive {
			t.Errorf("%s: alive %v", c.what, got)
		}
		if changed := tab.Flush() != nil; changed != (i > 0) {
			t.Errorf("%s: told %v", c.what, changed)
		}
	}
	if m := viewOf(tab).Members["a"]; !m.Late.IsZero() || !m.Back.Equal(now.Add(time.Second)) || !m.Heard.Equal(now) {
		t.Errorf("%+v", m)
	}
}
