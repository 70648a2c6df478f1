package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// beyond is forwarded, for a client on another network, whose address servers see or not.
func beyond(t *testing.T, s *lab.LBD) *lab.Cluster {
	t.Helper()
	s.Forwarded = true
	return wired(t, s,
		func(c *lab.Cluster) error { return c.AddBackends(t.Context(), 3) },
		func(c *lab.Cluster) error { return c.ClientBeyond(t.Context()) })
}

// mixed is a scenario with connections that echo, that only listen, and of UDP. The servers of the
// last two say whom they see: the address that is wanted.
func mixed(t *testing.T, s lab.Scenario, want netip.Addr) lab.Scenario {
	s.Mixed = true
	s.End = func(_ context.Context, c *lab.Cluster, _ *lab.Outcome) error {
		seen := 0
		for _, words := range c.Eyes.Servers() {
			if server, client, says := strings.Cut(words, " "); says && client == want.String() {
				seen++
			} else if says {
				t.Errorf("%s sees %s, want %s", server, client, want)
			}
		}
		if seen != held*2/3 {
			t.Errorf("%d servers say whom they see, want %d", seen, held*2/3)
		}
		return nil
	}
	return s
}

// client is the address of the client of the family of a VIP.
func client(c *lab.Cluster, vip netip.Addr) netip.Addr {
	if vip.Is4() {
		return c.Client.IP4
	}
	return c.Client.IP6
}

// TestClientsMove: servers see the address of the client. The owner is drained, and stopped: what
// the servers say comes to the new owner, too, and goes round the ring. Without that it would not
// be heard: clients may know those that speak unasked by either of two ports.
func TestClientsMove(t *testing.T) { // P18
	t.Parallel()
	c := beyond(t, &lab.LBD{Source: "client", Aliased: true})
	for _, s := range []lab.Scenario{lab.Drain(), lab.Terminate()} {
		for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
			kept(t, c, mixed(t, s, client(c, vip)), vip, noneFails)
		}
	}
}

// TestClientsCrash: the new owner has never heard of the connections. A server that goes on to
// speak is heard, although its client says nothing.
func TestClientsCrash(t *testing.T) { // P18
	t.Parallel()
	c := beyond(t, &lab.LBD{Source: "client"})
	promise := lab.PromiseFor("linkdown", false)
	s := lab.LinkDown()
	s.Hold = 4 * time.Second // servers say again what was lost after times that double
	for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
		kept(t, c, mixed(t, s, client(c, vip)), vip, func(o *lab.Outcome) []string { return promise.Broken([]*lab.Outcome{o}, slack) })
	}
}

// TestSourceVIPCrash: servers see the VIP. A client that only listens hears nothing after a crash
// until it has said a word.
func TestSourceVIPCrash(t *testing.T) { // P18
	t.Parallel()
	c := beyond(t, &lab.LBD{Source: "vip"})
	for _, vip := range []netip.Addr{lab.VIP4(), lab.VIP6()} {
		s := mixed(t, lab.LinkDown(), vip)
		s.Hold, s.Conns = 3*time.Second, held
		sees := s.End
		s.End = func(ctx context.Context, c *lab.Cluster, o *lab.Outcome) error {
			if err := sees(ctx, c, o); err != nil {
				return err
			}
			t.Logf("%s: %+v, and then they say a word", vip, o.Conns)
			if o.Conns.Lost > 0 || o.Conns.Hanging > held/3 {
				t.Errorf("%s: %+v, want %d alive, and %d silent", vip, o.Conns, held*2/3, held/3)
			}
			if err := c.Eyes.Speak(); err != nil {
				return err
			}
			return lab.Wait(ctx, 20*time.Second, 100*time.Millisecond, "connections that go on", func() error {
				if is := c.Eyes.Conns(o.Fault, measure.Now()); is.Open != held || is.Survived() != held {
					return fmt.Errorf("%+v", is)
				}
				return nil
			})
		}
		if _, err := c.Run(t.Context(), s, vip); err != nil {
			t.Fatal(err)
		}
	}
}

// sourced is what backends see as clients of connections that are opened now, and how often.
func sourced(t *testing.T, c *lab.Cluster) map[string]int {
	t.Helper()
	if err := c.Eyes.OpenMixed(t.Context(), lab.VIP4(), held); err != nil {
		t.Fatal(err)
	}
	defer c.Eyes.CloseConns()
	seen := make(map[string]int)
	for _, words := range c.Eyes.Servers() {
		if _, source, says := strings.Cut(words, " "); says {
			seen[source]++
		}
	}
	return seen
}

// TestSourceOfAForeignHost: backends see no source that a host outside of the group has had before all
// nodes.
func TestSourceOfAForeignHost(t *testing.T) { // P18
	t.Parallel()
	need(t)
	ctx, l := t.Context(), &lab.LBD{Forwarded: true, Sourced: true}
	c, err := lab.NewIdle(ctx, bin, l, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCluster(t, c) })
	foreign, err := c.AddHost(ctx, "foreign", 66)
	if err != nil {
		t.Fatal(err)
	}
	taken := lab.VIP4().Next()
	if err := errors.Join(c.AddBackends(ctx, 3), c.AddAddr(ctx, foreign, taken)); err != nil {
		t.Fatal(err)
	}
	startAll(t, c)
	err = lab.Wait(ctx, 20*time.Second, 200*time.Millisecond, "the conflict", func() error {
		owner, err := c.Owner(lab.VIP4())
		if err != nil {
			return err
		}
		if text := asked(t, c, l, owner, "explain", taken.String()); !strings.Contains(text, foreign.MAC+" answers for it") {
			return errors.New(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen := sourced(t, c); len(seen) != 3 || seen[taken.String()] > 0 {
		t.Errorf("a foreign host has %s, and backends see %v", taken, seen)
	}
}

// TestSourceDuplicate: backends see no source for which a foreign host answers, too, until it lets go.
func TestSourceDuplicate(t *testing.T) { // P18
	t.Parallel()
	l := &lab.LBD{Forwarded: true, Sourced: true}
	var foreign *lab.Host
	c := wired(t, l, func(c *lab.Cluster) (err error) {
		foreign, err = c.AddHost(t.Context(), "foreign", 66)
		return errors.Join(err, c.AddBackends(t.Context(), 3))
	})
	taken := lab.VIP4().Next()
	for _, x := range []struct {
		mac     string
		change  func() error
		sources int
	}{
		{"", func() error { return nil }, 4},
		{foreign.MAC, func() error { return c.AddAddr(t.Context(), foreign, taken) }, 3},
		{"", func() error { return c.RemoveAddr(t.Context(), foreign, netip.PrefixFrom(taken, 32).String()) }, 4},
	} {
		if err := x.change(); err != nil {
			t.Fatal(err)
		}
		marked(t, c, l, taken, x.mac)
		if seen := sourced(t, c); len(seen) != x.sources || x.mac != "" && seen[taken.String()] > 0 {
			t.Errorf("%q answers for %s, too, and backends see %v", x.mac, taken, seen)
		}
	}
}
