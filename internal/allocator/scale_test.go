package allocator

import (
	"fmt"
	"testing"
	"time"
)

// crowd is a cluster of n Services that have addresses of a pool of 2^24, of both
// families.
func crowd(t tester, n int) *cluster {
	c := newCluster(t)
	c.pool("p", []string{"10.0.0.0/8", "2001:db8::/64"})
	for i := range n {
		c.service(fmt.Sprint("s", i), []string{"families=46", "policy=RequireDualStack", "ports=80"})
	}
	c.settle()
	return c
}

// TestScale: what 5000 Services take, at first and when another leader begins. The
// bounds are wide, for slow machines; the log says more.
func TestScale(t *testing.T) {
	const n = 5000
	took := func(what string, limit time.Duration, do func()) {
		t.Helper()
		begun := time.Now()
		do()
		d := time.Since(begun)
		t.Logf("%s: %v", what, d.Round(100*time.Microsecond))
		if d > limit {
			t.Errorf("%s took %v, at most %v", what, d, limit)
		}
	}
	var c *cluster
	took("5000 Services get addresses", 5*time.Minute, func() { c = crowd(t, n) })
	if c.writes != n || len(c.a.Assignments()) != n {
		t.Fatalf("%d writes, %d assignments", c.writes, len(c.a.Assignments()))
	}
	c.writes = 0
	took("5000 Services are restored", 5*time.Minute, func() { c.restart(); c.settle() })
	took("a pool changes", 5*time.Minute, func() { c.pool("q", []string{"192.0.2.0/24"}); c.settle() })
	took("one more", time.Minute, func() { c.service("more", nil); c.settle() })
	if c.writes != 1 {
		t.Errorf("%d writes", c.writes)
	}
}

func BenchmarkOneOf5000(b *testing.B) {
	c := crowd(b, 5000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprint("x", i)
		c.service(name, []string{"ports=80"})
		c.settle()
		delete(c.services, key(name))
		c.a.RemoveService(key(name))
	}
}
