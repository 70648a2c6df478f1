package health

import "testing"

// TestDroppedIsAskedAnew: a request that was given up is over: it may be given up again, and the
// next probe sends one of its own.
func TestDroppedIsAskedAnew(t *testing.T) {
	a, _, p := newAPIServer(t)
	a.set(func() { a.hangs = true })
	if level, text := verdict(t, p, soon); level != "degraded" {
		t.Fatal(level, text)
	}
	p.drop()
	if p.preferred.open != nil {
		p.preferred.open = nil // Cleanup would wait for it
		t.Fatal("the request that was given up still counts")
	}
	p.drop()
	if level, text := verdict(t, p, long); level != "up" {
		t.Errorf("%s %q, want up by a new request", level, text)
	}
	if full, required := a.asked(); full != 2 || required != 1 {
		t.Errorf("%d requests for the preferred page and %d for the other, want 2 and 1", full, required)
	}
}
