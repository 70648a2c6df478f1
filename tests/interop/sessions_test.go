package interop_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// unheard is how long new connections may fail if the owner loses its session: it is noticed by BFD, after
// 0.6 s another balancer is told, and its path has to get to the router.
const unheard = 1100 * time.Millisecond

// rested is for how long an owner keeps a VIP that it has just taken, whatever happens to its session, and
// a while more.
const rested = 5500 * time.Millisecond

// TestBalancersLoseSessions: an owner that loses its session with the router gives its VIPs to a balancer
// that has one, and open connections go on. They stay there when the session is back, and stay where they
// are if no balancer has one.
func TestBalancersLoseSessions(t *testing.T) {
	t.Parallel()
	s := &interop.LBD{}
	f := balancers(t, s, interop.NewToR)
	for _, c := range []move{
		{fault: interop.Shut(), vip: interop.VIP4(), outage: unheard, watched: true},
		{fault: interop.Block(), vip: interop.VIP6(), outage: unheard, watched: true},
	} {
		patient(t, func() []string { return lost(t, f, s, &c) })
	}
	patient(t, func() []string { return deserted(t, f, s, interop.VIP4()) })
	patient(t, func() []string { return flapped(t, f, s, interop.VIP4()) })
}

// lost has the owner of a VIP lose its session, and get it back.
func lost(t *testing.T, f *interop.Fabric, s *interop.LBD, c *move) []string {
	ctx := t.Context()
	if _, err := f.Ready(ctx, s, c.vip); err != nil {
		t.Fatal(err)
	}
	interop.Pause(ctx, rested)
	broken := moved(t, f, s, c)
	owner, err := f.Ready(ctx, s, c.vip) // the session is back
	if err != nil {
		t.Fatal(err)
	}
	from := measure.Now()
	interop.Pause(ctx, rested)
	return append(broken, stays(t, f, c.vip, owner, c.fault.Name+", and back", from, 0)...)
}

// stays tells what has changed for a VIP since a moment at which the node had it, but for an outage.
func stays(t *testing.T, f *interop.Fabric, vip netip.Addr, owner *lab.Node, what string, from measure.Time, outage time.Duration) (broken []string) {
	t.Helper()
	now, err := f.Balancer(t.Context(), vip, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Traffic(from, measure.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s had %s, and has it still; new connections %+v", what, owner.Name, vip, r)
	if ways := ways(t, f, vip, from); now != owner || slices.ContainsFunc(ways, func(w string) bool { return w != owner.Name }) {
		broken = append(broken, fmt.Sprintf("%s: %s has gone from %s to %s, by way of %v", what, vip, owner.Name, now.Name, ways))
	}
	if r.Outage > slack*outage || outage == 0 && r.Failed > 0 {
		broken = append(broken, fmt.Sprintf("%s: %+v", what, r))
	}
	return broken
}

// ways are the nodes to which routers have led a VIP since a moment, one after the other. One of two routers
// may lead to the other one meanwhile.
func ways(t *testing.T, f *interop.Fabric, vip netip.Addr, from measure.Time) (out []string) {
	t.Helper()
	for _, h := range f.ToRs {
		events, err := f.Events(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range measure.Changes(events, interop.Prefix(vip), from, measure.Now()) {
			for _, m := range f.Nodes {
				if slices.Contains(e.Via, interop.Gateway(&m.Host, vip)) && (len(out) == 0 || out[len(out)-1] != m.Name) {
					out = append(out, m.Name)
				}
			}
		}
	}
	return out
}

// deserted ends the sessions of all balancers. The owner keeps its VIP, for who is on its LAN: here the
// router itself, which is given a route to that.
func deserted(t *testing.T, f *interop.Fabric, s *interop.LBD, vip netip.Addr) (broken []string) {
	ctx := t.Context()
	owner, err := f.Ready(ctx, s, vip)
	if err != nil {
		t.Fatal(err)
	}
	interop.Pause(ctx, rested)
	shut := interop.Shut()
	for _, m := range append(f.Others(owner), owner) {
		err = errors.Join(err, shut.Inject(ctx, f, m))
	}
	err = errors.Join(err, interop.Eventually(ctx, 10*time.Second, "both are degraded", func() error {
		for _, m := range f.Nodes {
			if x, err := f.OnLAN(ctx, s, m, vip); err != nil || x.Standing != "Degraded" || x.Owner != owner.Name {
				return fmt.Errorf("%s: %+v, %v", m.Name, x, err)
			}
		}
		return nil
	}))
	onLAN := "route %s " + interop.Prefix(vip) + " dev eth0 proto static metric 5000"
	err = errors.Join(err, f.IP(ctx, f.ToRs[0], fmt.Sprintf(onLAN, "add")))
	if err != nil {
		t.Fatal(err)
	}
	interop.Pause(ctx, time.Second)
	from := measure.Now()
	interop.Pause(ctx, rested)
	r := f.Eyes.Reach(vip, from, measure.Now())
	t.Logf("no session: %s has %s; from its LAN %+v", owner.Name, vip, r)
	if r.Failed > 0 || r.Attempts == 0 {
		broken = append(broken, fmt.Sprintf("no session: from the LAN %+v", r))
	}
	for _, m := range f.Nodes {
		if x, err := f.OnLAN(ctx, s, m, vip); err != nil || x.Owner != owner.Name || x.Standing != "Degraded" {
			broken = append(broken, fmt.Sprintf("no session: %s says %+v, %v", m.Name, x, err))
		}
	}
	err = f.IP(ctx, f.ToRs[0], fmt.Sprintf(onLAN, "del"))
	for _, m := range append([]*lab.Node{owner}, f.Others(owner)...) { // another one would get it 0.6 s after its session is back
		if err = errors.Join(err, shut.Undo(ctx, f, m)); err != nil {
			t.Fatal(err)
		}
		if now, err := f.Balancer(ctx, vip, nil); err != nil || now != owner {
			t.Fatal(now, err)
		}
	}
	if now, err := f.Ready(ctx, s, vip); err != nil || now != owner {
		broken = append(broken, fmt.Sprintf("the sessions are back: %s has it, %v", now.Name, err))
	}
	return broken
}

// flapped has the session of the owner come and go for 20 s. The VIP moves once.
func flapped(t *testing.T, f *interop.Fabric, s *interop.LBD, vip netip.Addr) (broken []string) {
	ctx := t.Context()
	owner, err := f.Ready(ctx, s, vip)
	if err != nil {
		t.Fatal(err)
	}
	const held = 60
	if err := f.Eyes.OpenConns(ctx, vip, held); err != nil {
		t.Fatal(err)
	}
	defer f.Eyes.CloseConns()
	interop.Pause(ctx, rested)
	shut, from, losses := interop.Shut(), measure.Now(), 0
	for ; losses < 3 || measure.Since(from) < 20*time.Second; losses++ {
		if err := shut.Inject(ctx, f, owner); err != nil {
			t.Fatal(err)
		}
		interop.Pause(ctx, time.Second)
		err := errors.Join(shut.Undo(ctx, f, owner), interop.Eventually(ctx, 10*time.Second, "the session is back", func() error {
			return established(t, f, s, owner)
		}))
		if err != nil {
			t.Fatal(err)
		}
		interop.Pause(ctx, time.Second)
	}
	conns := measure.ConnsIn(f.Eyes.ConnEvents(), from, measure.Now())
	r, err := f.Traffic(from, measure.Now())
	if err != nil {
		t.Fatal(err)
	}
	ways := ways(t, f, vip, from)
	t.Logf("the session of %s was lost %d times in %v: %s went by %v; connections %+v; new ones %+v", owner.Name, losses, measure.Since(from), vip, ways, conns, r)
	if now, err := f.Balancer(ctx, vip, nil); err != nil || len(ways) != 1 || now == owner || now.Name != ways[0] {
		broken = append(broken, fmt.Sprintf("a session that came and went: %s went by %v, %v", vip, ways, err))
	}
	if conns.Open != held || conns.Survived() != held || r.Outage > slack*unheard {
		broken = append(broken, fmt.Sprintf("a session that came and went: %+v of the connections, new ones %+v", conns, r))
	}
	return broken
}

// established is an error unless a node has all its sessions.
func established(t *testing.T, f *interop.Fabric, s *interop.LBD, m *lab.Node) error {
	is, err := s.Status(t.Context(), f.Net, m)
	if err != nil {
		return err
	}
	for _, b := range is.BGP {
		if b.State != "Established" {
			return fmt.Errorf("%s: the session with %s is %s", m.Name, b.Peer, b.State)
		}
	}
	return nil
}

// TestBalancersTwoRouters: one of two sessions is enough to keep a VIP.
func TestBalancersTwoRouters(t *testing.T) {
	t.Parallel()
	s := &interop.LBD{}
	f := balancers(t, s, interop.NewTwin)
	patient(t, func() (broken []string) {
		ctx, vip := t.Context(), interop.VIP4()
		owner, err := f.Ready(ctx, s, vip)
		if err != nil {
			t.Fatal(err)
		}
		interop.Pause(ctx, rested)
		one, from := interop.Shut(0), measure.Now()
		if err := one.Inject(ctx, f, owner); err != nil {
			t.Fatal(err)
		}
		interop.Pause(ctx, rested)
		hops, err := f.Hops(ctx, f.ToRs[0], vip)
		if err != nil || slices.Contains(hops, interop.Gateway(&owner.Host, vip)) { // but by way of the other router
			broken = append(broken, fmt.Sprintf("the router without a session leads to %v, %v", hops, err))
		}
		if x, err := f.OnLAN(ctx, s, owner, vip); err != nil || x.Reason != "Owner" || x.Standing != "Owner" {
			broken = append(broken, fmt.Sprintf("one session is lost: %+v, %v", x, err))
		}
		if err := one.Undo(ctx, f, owner); err != nil {
			t.Fatal(err)
		}
		return append(broken, stays(t, f, vip, owner, "one of two sessions is lost", from, unheard)...)
	})
	patient(t, func() []string {
		return lost(t, f, s, &move{fault: interop.Shut(), vip: interop.VIP4(), outage: unheard, watched: true})
	})
}

// TestBalancersInternal: the routers are in the AS of the balancers, and backends see several addresses of
// the object as clients. The client goes on to connect from all its ports, to all addresses: no backend is to
// take such a connection for one that the former owner still has.
func TestBalancersInternal(t *testing.T) {
	t.Parallel()
	s := &interop.LBD{IBGP: true, Sources: true, Addresses: []netip.Addr{interop.VIP4(), interop.VIP4().Next(), interop.VIP6()}}
	f := balancers(t, s, interop.NewToR)
	if err := f.Sysctl(f.Client, map[string]string{"ipv4/ip_local_port_range": "40000 40499"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []move{
		{fault: interop.Drain(), vip: interop.VIP4(), watched: true, more: 3 * time.Second},
		{fault: interop.Shut(), vip: interop.VIP4(), outage: unheard, watched: true},
	} {
		patient(t, func() []string { return lost(t, f, s, &c) })
	}
}
