package box

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// open makes connections to the VIPs in turn; each must work at once.
func (s *site) open(n int) (all []conn) {
	s.t.Helper()
	for i := range n {
		vip := s.vips[i%len(s.vips)]
		c, err := s.dial(vip, 5*time.Second)
		if err != nil {
			s.t.Fatalf("connect to %s: %v", vip, err)
		}
		s.t.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	return all
}

// kept tells which connections do not work.
func kept(all []conn) (lost []string, of int) {
	for _, c := range all {
		if err := c.lives(5 * time.Second); err != nil {
			lost = append(lost, fmt.Sprintf("%s, %s: %v", c.RemoteAddr(), c.master, err))
		}
	}
	return lost, len(all)
}

// spread counts connections by master.
func spread(all []conn) string {
	count := map[string]int{}
	for _, c := range all {
		count[c.master]++
	}
	var parts []string
	for _, master := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d with %s", count[master], master))
	}
	return strings.Join(parts, ", ")
}

// TestSite: boxes that name no master route to those that come, and to no others; what is open
// with a master is kept while others join, leave, return and die, and while a box dies. It is the
// story that make demo-box tells, too.
func TestSite(t *testing.T) {
	s := newSite(t)
	s.start("b1", "b2")
	for _, vip := range s.vips {
		if out, err := s.dial(vip, 300*time.Millisecond); err == nil {
			t.Fatalf("%s: %s answers without a master", vip, out.master)
		}
	}
	s.tell("Two boxes run, whose files name no master. The masters s1 and s2 start, whose files name the boxes.")
	s.start("s1", "s2")
	s.await("s1 s2", "b1", "b2")
	first := s.owner(siteVIP, "b1", "b2")
	for _, a := range []string{siteVIP, siteVIP6} {
		s.tell("%s has the VIP %s, to which clients connect.", s.owner(a, "b1", "b2"), a)
	}
	for _, a := range []string{gateway, gateway6} {
		s.tell("%s has the gateway %s of the masters.", s.owner(a, "b1", "b2"), a)
	}
	all := s.open(40)
	s.tell("A client opens 40 connections: %s.", spread(all))
	if n := strings.Count(spread(all), ","); n < 1 {
		t.Errorf("all connections went to one master: %s", spread(all))
	}
	for _, c := range []struct {
		what    string
		do      func()
		masters string
		most    time.Duration // three times what is promised; the commands take a part of it
		but     string        // whose connections may end
	}{
		{"The master s3 is added", func() { s.start("s3") }, "s1 s2 s3", 0, ""},
		// lbd drain waits for the connections, undrain ends it.
		{"s2 is drained", func() { go func() { _, _ = s.lbd("s2", "drain") }() }, "s1 s3", 0, ""},
		{"s2 returns", func() { s.must("s2", "undrain") }, "s1 s2 s3", 0, ""},
		{"The cable of s3 is pulled", func() { s.Exec("ip", "link", "set", cable("s3", "br0"), "down") }, "s1 s2", 960 * time.Millisecond, "s3"},
		{"The cable of s3 is plugged in", func() { s.Exec("ip", "link", "set", cable("s3", "br0"), "up") }, "s1 s2 s3", 0, "s3"},
		{"The daemon of s2 is killed", func() { s.kill("s2") }, "s1 s3", 960 * time.Millisecond, "s2"},
		{"The daemon of s2 starts again", func() { s.start("s2") }, "s1 s2 s3", 0, "s2"},
	} {
		if c.most > 0 {
			all = append(all, s.open(20)...)
			s.tell("The client opens 20 more: %s.", spread(all))
			time.Sleep(3 * time.Second) // BFD comes up a while after BGP
		}
		begin := time.Now()
		c.do()
		at := s.await(c.masters, "b1", "b2").Sub(begin)
		all = slices.DeleteFunc(all, func(x conn) bool { return x.master == c.but })
		lost, of := kept(all)
		others := ""
		if c.but != "" {
			others = " of the others"
		}
		s.tell("%s: in the kernels of both boxes after %d ms, %d of %d connections%s lost.", c.what, at.Milliseconds(), len(lost), of, others)
		if len(lost) > 0 {
			t.Errorf("%s: lost %d of %d: %q", c.what, len(lost), of, lost)
		}
		if c.most > 0 && at > c.most {
			t.Errorf("%s: the kernels followed after %v, more than %v", c.what, at, c.most)
		}
	}
	s.boxDies(first)
}

// tell adds a sentence to the story.
func (s *site) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(s.t.Output(), format+"\n", args...)
}

// must runs a command that succeeds.
func (s *site) must(name string, args ...string) string {
	s.t.Helper()
	out, err := s.lbd(name, args...)
	if err != nil {
		s.t.Fatalf("%s: lbd %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// boxDies: the other one has the VIP and the gateway, and what was open goes on.
func (s *site) boxDies(first string) {
	t := s.t
	other := map[string]string{"b1": "b2", "b2": "b1"}[first]
	all := s.open(60)
	begin := time.Now()
	for _, br := range []string{"br0", "up0"} {
		s.Exec("ip", "link", "set", cable(first, br), "down")
	}
	for _, vip := range s.vips {
		for c, err := s.dial(vip, 200*time.Millisecond); ; c, err = s.dial(vip, 200*time.Millisecond) {
			if err == nil {
				_ = c.Close()
				break
			}
			if time.Since(begin) > patience {
				t.Fatalf("no connection to %s after %s died", vip, first)
			}
		}
	}
	back := time.Since(begin)
	for _, a := range []string{siteVIP, siteVIP6, gateway, gateway6} {
		s.owner(a, other)
	}
	lost, of := kept(all)
	s.tell("The box %s dies: %s has all addresses, and connections to all of them open after %d ms, %d of %d lost.", first, other, back.Milliseconds(), len(lost), of)
	if len(lost) > 0 {
		t.Errorf("%s dies: lost %d of %d: %q", first, len(lost), of, lost)
	}
	if back > 1800*time.Millisecond {
		t.Errorf("%s dies: a new connection only after %v", first, back)
	}
}
