package allocator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lbd.dev/lbd/internal/model"
)

// legal says a second time when two Services may have the same address.
func legal(a, b *Service) bool {
	k, l := a.Annotations["lbd.dev/allow-shared-ip"], b.Annotations["lbd.dev/allow-shared-ip"]
	if k == "" || k != l || a.Local != b.Local || a.Local && a.Selector["app"] != b.Selector["app"] {
		return false
	}
	for _, p := range a.Ports {
		if slices.Contains(b.Ports, p) {
			return false
		}
	}
	return true
}

// twice finds an address in two statuses whose Services may not share it.
func (c *cluster) twice() string {
	for _, a := range c.services {
		for _, b := range c.services {
			if a.Compare(b.Key) >= 0 || legal(a, b) {
				continue
			}
			for _, x := range a.Ingress {
				if slices.Contains(b.Ingress, x) {
					return fmt.Sprintf("%s is of %s and of %s", x.IP, a.Key, b.Key)
				}
			}
		}
	}
	return ""
}

// drawWords draws a change of a Service.
func drawWords(t *rapid.T) []string {
	words := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"share=k", "share=l", "share=", "ports=80", "ports=81", "ports=80,82u", "local=x", "local=y", "local=",
		"families=4 policy=SingleStack", "families=46 policy=PreferDualStack", "families=46 policy=RequireDualStack", "families=64 policy=PreferDualStack",
		"ips=192.0.2.1", "ips=192.0.2.2", "ips=2001:db8::1", "ips=192.0.2.9", "ips=oops", "ips=", "pool=p", "pool=q", "pool=none", "pool=",
		"count=2", "count=", "label=tier:gold", "label=tier:tin", "type=ClusterIP status=", "type=LoadBalancer", "age=5", "age=50",
	}), 1, 3, rapid.ID).Draw(t, "words")
	return strings.Fields(strings.Join(words, " "))
}

func drawPool(t *rapid.T) []string {
	words := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"192.0.2.0/31", "192.0.2.2/32", "192.0.2.0/30", "2001:db8::/127", "192.0.2.8/31", "2001:db8::2-2001:db8::4", "manual", "svclabel=tier:gold", "invalid=x",
	}), 1, 3, rapid.ID).Draw(t, "pool")
	return words
}

// TestNoAddressTwice: whatever users do, and wherever the controller dies, no
// address is ever in the status of two Services that may not share it, a status
// loses nothing by a restart, and in the end it is what was decided.
func TestNoAddressTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		c.opts.Quarantine = rapid.SampledFrom([]time.Duration{0, 5 * time.Second}).Draw(t, "quarantine")
		c.restart()
		c.command([]string{"pool", "p", "192.0.2.0/30"})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")
			switch rapid.SampledFrom([]string{"svc", "svc", "svc", "rm", "pool", "rmpool", "node", "time", "step", "step", "restart"}).Draw(t, "do") {
			case "svc":
				c.user(t, name, drawWords(t))
			case "rm":
				delete(c.services, key(name))
				c.a.RemoveService(key(name))
			case "pool":
				c.pool(rapid.SampledFrom([]string{"p", "q"}).Draw(t, "which"), drawPool(t))
			case "rmpool":
				delete(c.pools, rapid.SampledFrom([]string{"p", "q"}).Draw(t, "which"))
				c.setPools()
			case "node":
				c.nodes = []netip.Addr{netip.MustParseAddr(rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.8", "203.0.113.1"}).Draw(t, "node"))}
				c.a.SetNodes(c.nodes)
			case "time":
				c.now = c.now.Add(time.Duration(rapid.IntRange(1, 6).Draw(t, "seconds")) * time.Second)
			case "step":
				c.crash(t)
			case "restart":
				c.restart()
			}
		}
		c.settle()
		c.final(t)
	})
}

// user changes a Service as a user may: not so that two that share an address
// already no longer may, since that shows it twice until it is put right.
func (c *cluster) user(t *rapid.T, name string, words []string) {
	old := c.services[key(name)]
	a := c.a
	c.a = New(c.opts) // it learns of the change below
	c.service(name, words)
	c.a = a
	if c.twice() != "" {
		if old == nil {
			delete(c.services, key(name))
		} else {
			c.services[key(name)] = old
		}
		return
	}
	c.a.SetService(*c.services[key(name)])
}

// crash makes a decision, carries out some of its writes in any order, and may kill
// the controller before or after any of them.
func (c *cluster) crash(t *rapid.T) {
	r := c.a.Step(c.now)
	c.take(r)
	for _, w := range rapid.Permutation(r.Writes).Draw(t, "order") {
		switch rapid.SampledFrom([]string{"done", "done", "done", "failed", "killed before", "killed after"}).Draw(t, "write") {
		case "done":
			if !c.do(w) {
				t.Fatalf("write %+v does not fit", w)
			}
		case "failed":
			c.a.Retry(w.Service)
		case "killed before":
			c.restart()
			return
		case "killed after":
			c.do(w)
			c.restart()
			return
		}
		if bad := c.twice(); bad != "" {
			t.Fatalf("after a write of %s: %s", w.Service, bad)
		}
	}
	for _, w := range r.Writes { // what failed is tried again
		c.a.Retry(w.Service)
	}
}

// final holds statuses against what was decided, and restarts once more.
func (c *cluster) final(t *rapid.T) {
	if bad := c.twice(); bad != "" {
		t.Fatalf("in the end %s", bad)
	}
	before := map[model.Key]string{}
	for name, s := range c.services {
		x, _ := c.a.ipam.Get(name)
		if has := addrsOf(x); !sameSet(has, statusOf(s.Ingress)) {
			t.Fatalf("%s has %v, its status %v", name, has, s.Ingress)
		}
		before[name] = c.status(name.String())
	}
	c.restart()
	c.settle()
	for name := range c.services {
		for ip := range strings.FieldsSeq(before[name]) {
			if ip != "-" && !strings.Contains(" "+c.status(name.String())+" ", " "+ip+" ") {
				t.Fatalf("%s had %s, and after a restart %s", name, before[name], c.status(name.String()))
			}
		}
	}
}

// TestNothingIsGivenBeforeItIsLetGo: an older Service joins an address that is shared,
// and its first holder changes its key before the next decision, so that it moves. The
// older one is told of the address only when the other's status has it no more, also
// if writes fail in between.
func TestNothingIsGivenBeforeItIsLetGo(t *testing.T) {
	c := newCluster(t)
	c.strict = true
	c.command([]string{"pool", "p", "192.0.2.0/30"})
	c.service("b", []string{"ports=80"})
	c.service("a", []string{"share=k", "ports=81"})
	c.settle()
	if c.status("b") != "192.0.2.0" || c.status("a") != "192.0.2.1" {
		t.Fatalf("b has %s, a %s", c.status("b"), c.status("a"))
	}
	c.service("b", []string{"share=k", "ips=192.0.2.1"})
	c.service("a", []string{"share=l"})
	for range 3 { // the writes fail
		for _, w := range c.a.Step(c.now).Writes {
			if w.Service == key("b") {
				t.Fatalf("b is given %v while the status of a is %s", w.Ingress, c.status("a"))
			}
			c.a.Retry(w.Service)
		}
	}
	c.settle()
	if c.status("b") != "192.0.2.1" || c.status("a") == "192.0.2.1" {
		t.Errorf("in the end b has %s and a %s", c.status("b"), c.status("a"))
	}
}

// exchange has c and a exchange their addresses, and stops before the first decision about it.
func exchange(t *testing.T) *cluster {
	c := newCluster(t)
	c.opts.Quarantine = 0
	c.restart()
	c.command([]string{"pool", "p", "192.0.2.0/30"})
	c.service("c", []string{"ports=80"})
	c.settle()
	c.service("e", []string{"age=50", "share=l", "ports=82"})
	c.service("a", []string{"share=l", "ports=81"})
	c.settle()
	if c.status("c") != "192.0.2.0" || c.status("a") != "192.0.2.1" {
		t.Fatalf("c has %s, a %s", c.status("c"), c.status("a"))
	}
	c.service("e", []string{"type=ClusterIP", "status="})
	c.service("a", []string{"local=x"})
	c.service("c", []string{"share=l", "ips=192.0.2.1"})
	return c
}

// TestTwoThatExchangeAddresses: a Service that shared its address changes so that it loses it
// to another one, whose own it gets. Neither waits for the other: each lets go, then both are
// told of their new ones.
func TestTwoThatExchangeAddresses(t *testing.T) {
	c := exchange(t)
	for range 3 {
		for _, w := range c.a.Step(c.now).Writes {
			if !c.do(w) {
				t.Fatalf("write %+v does not fit", w)
			}
			if told := slices.ContainsFunc(w.Events, func(e Event) bool { return e.Reason == EventAllocated }); told != (len(w.Ingress) > 0) {
				t.Errorf("%s is written %v with events %+v", w.Service, w.Ingress, w.Events)
			}
			if bad := c.twice(); bad != "" {
				t.Fatalf("after a write of %s: %s", w.Service, bad)
			}
		}
	}
	if c.status("c") != "192.0.2.1" || c.status("a") != "192.0.2.0" {
		t.Errorf("in the end c has %s and a %s", c.status("c"), c.status("a"))
	}
}

// TestOneThatExchangesIsChangedMeanwhile: somebody puts the address that a Service has let go
// of back into its status, again and again, while the other one's cannot be written. That is
// put right, but not each time at once.
func TestOneThatExchangesIsChangedMeanwhile(t *testing.T) {
	c, writes := exchange(t), 0
	step := func() {
		for _, w := range c.a.Step(c.now).Writes {
			if w.Service == key("a") {
				c.a.Retry(w.Service)
				continue
			}
			if c.do(w); w.Service == key("c") {
				writes++
			}
		}
	}
	for range 10 {
		step()
		step() // it sees what it has written
		c.service("c", []string{"status=192.0.2.0"})
	}
	if writes < 1 || writes > 2 {
		t.Errorf("the status of c was written %d times within a second", writes)
	}
	c.settle()
	c.now = c.now.Add(repairFirst)
	c.settle()
	if c.status("c") != "192.0.2.1" || c.status("a") != "192.0.2.0" {
		t.Errorf("in the end c has %s and a %s", c.status("c"), c.status("a"))
	}
}

// sameSet tells whether both lists have the same addresses, in whatever order.
func sameSet(x, y []netip.Addr) bool {
	if len(x) != len(y) {
		return false
	}
	return !slices.ContainsFunc(x, func(addr netip.Addr) bool { return !slices.Contains(y, addr) })
}
