package allocator

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestStaleAddressGoesFirst: an address that a status shows and that counts for nothing is taken out of it. Nobody else
// is told of it before, however long that fails.
func TestStaleAddressGoesFirst(t *testing.T) {
	c := newCluster(t)
	c.command([]string{"pool", "p", "192.0.2.0/32"})
	c.service("e", []string{"age=50", "share=k", "ports=81"})
	c.service("a", []string{"share=k", "ports=82"})
	c.settle()
	if c.status("e") != "192.0.2.0" || c.status("a") != "192.0.2.0" {
		t.Fatalf("e has %s, a %s", c.status("e"), c.status("a"))
	}
	s := *c.services[key("a")] // it is not to share the address any more, and gets no other
	s.Ingress, s.Stale = nil, []netip.Addr{netip.MustParseAddr("192.0.2.0")}
	s.Annotations = map[string]string{AllocatedFrom: "", "lbd.dev/allow-shared-ip": "l", "lbd.dev/loadBalancerIPs": "192.0.2.9"}
	c.set(&s)
	told := func(name string) bool {
		r := c.a.Step(c.now)
		c.take(r)
		for _, w := range r.Writes {
			c.a.Retry(w.Service) // it fails
		}
		return slices.ContainsFunc(r.Writes, func(w Write) bool { return w.Service == key(name) })
	}
	if !told("a") {
		t.Error("the address stays in the status of a")
	}
	delete(c.services, key("e"))
	c.a.RemoveService(key("e"))
	told("")
	c.now = c.now.Add(2 * time.Minute) // it has rested
	c.service("b", []string{"ports=80"})
	for range 3 {
		if told("b") {
			t.Fatal("b is told of an address that the status of a shows")
		}
	}
	c.settle()
	if c.status("a") != "-" || c.status("b") != "192.0.2.0" {
		t.Errorf("in the end a has %s and b %s", c.status("a"), c.status("b"))
	}
}

// TestStaleAddressOfOthers: the status of what asks for nothing is left to others, and nobody is told of an address that
// it shows. A status whose address is of no pool stays: it may count again.
func TestStaleAddressOfOthers(t *testing.T) {
	c := newCluster(t)
	c.command([]string{"pool", "p", "192.0.2.0/32"})
	shown := Service{Key: key("refused"), Stale: []netip.Addr{netip.MustParseAddr("192.0.2.0")}}
	c.set(&shown)
	c.service("a", []string{"age=50", "ips=198.51.100.1"})
	a := *c.services[key("a")]
	a.Stale = []netip.Addr{netip.MustParseAddr("203.0.113.1")}
	c.set(&a)
	c.service("b", []string{"ports=80"})
	for range 3 {
		if r := c.a.Step(c.now); len(r.Writes) > 0 {
			t.Fatalf("%+v", r.Writes)
		}
	}
	delete(c.services, shown.Key)
	c.a.RemoveService(shown.Key)
	c.settle()
	if c.status("b") != "192.0.2.0" || len(c.services[key("a")].Stale) != 1 {
		t.Errorf("b has %s, and a %+v", c.status("b"), c.services[key("a")])
	}
}

// TestStaleAddressOfNoPool: a Service keeps an address that no pool has any more. One whose status shows it, and that does
// not share it now, is not in its way.
func TestStaleAddressOfNoPool(t *testing.T) {
	c := newCluster(t)
	c.command([]string{"pool", "p", "192.0.2.0/32"})
	c.service("e", []string{"age=50", "share=k", "ports=81"})
	c.service("a", []string{"share=k", "ports=82"})
	c.settle()
	delete(c.pools, "p")
	c.stale("a")
	c.restart()
	c.settle()
	c.service("e", []string{"status="}) // which is put right
	c.settle()
	if c.status("e") != "192.0.2.0" || c.status("a") != "-" || len(c.services[key("a")].Stale) > 0 {
		t.Errorf("in the end e has %s, and a %+v", c.status("e"), c.services[key("a")])
	}
}
