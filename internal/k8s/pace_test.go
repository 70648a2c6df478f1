package k8s_test

import (
	"testing"
	"time"

	"lbd.dev/lbd/internal/k8s"
)

func TestPace(t *testing.T) {
	var p k8s.Pace
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	if w := p.Wait(begin); w != 0 {
		t.Errorf("the first one waits %v", w)
	}
	for _, c := range []struct{ took, waits int }{{1, 250}, {12, 250}, {13, 260}, {350, 7000}} {
		p.Done(at(0), at(c.took))
		if got := p.Wait(at(c.took)); got != time.Duration(c.waits)*time.Millisecond {
			t.Errorf("after one of %d ms the next waits %v, want %d ms", c.took, got, c.waits)
		}
		if p.Wait(at(c.took+c.waits-1)) == 0 || p.Wait(at(c.took+c.waits)) != 0 {
			t.Errorf("after one of %d ms the wait does not end after %d ms", c.took, c.waits)
		}
	}
}
