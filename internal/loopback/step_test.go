package loopback

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

var (
	start = time.Unix(10_000, 0)
	vip   = netip.MustParseAddr("10.0.0.200")
)

// scene is m1, which has a VIP on lo and tells two routers of it, with another node that serves
// it, too.
func scene(phase model.BGPPhase) *Input {
	peers := []model.BGPPeer{{Name: "a", GracefulRestart: true, RestartTime: audience.RestartTime}, {Name: "b"}}
	in := &Input{
		Node: &Node{
			Now: start, Started: start.Add(-time.Hour), Gen: 5, Self: "m1", DrainTimeout: 10 * time.Second,
			Members: map[model.NodeName]model.Member{"m2": {Name: "m2", State: model.MemberAlive}},
			Routers: Routers{Peers: peers, Report: model.Applied{Gen: 4, Peers: []model.PeerReport{{Name: "a", State: established}, {Name: "b", State: established}}}},
		},
		VIP: &model.VIP{Addr: vip, Name: "b", Kind: "VirtualIP", BGP: []model.BGPAdvert{{}}},
		Known: Known{
			Memory: model.BGPMemory{Phase: phase, Gen: 4, Epoch: 3}, Remembered: true,
			OnLoopback: model.AppliedVIP{Bound: true, Interface: "lo", Connections: -1, Sockets: -1, Own: -1}, Reported: true,
		},
		Standing: place.Verdict{Reason: model.ReasonStandby}, Health: model.HealthState{State: model.HealthUp},
		Eligible: []model.NodeName{"m2"}, LAN: LAN{Interface: "eth0"},
		AddressGen: 4,
		Audience:   &audience.Audience{Peers: []string{"a", "b"}, Routes: []audience.Route{{Peers: []string{"a", "b"}}}, Delay: 5 * time.Second, Keep: true},
	}
	in.has("a", "b")
	return in
}

// has lets routers have a path to the VIP.
func (in *Input) has(peers ...string) {
	in.Routers.Report.Paths = map[netip.Prefix][]string{model.PrefixOf(vip, 0): peers}
}

// balanced makes the VIP one that is on lo for connections only.
func (in *Input) balanced() *Input {
	in.VIP.L2, in.VIP.Balanced, in.VIP.BGP = true, true, nil
	in.BalancedHere, in.Memory.Balanced, in.Audience = true, true, &audience.Audience{}
	in.Layer2Gen, in.Silent = 4, true
	in.has()
	return in
}

// step decides, and keeps what is remembered for the next step.
func (in *Input) step(later time.Duration) Output {
	in.Now = in.Now.Add(later)
	in.Gen++
	o := Step(in)
	in.Memory, in.Remembered = o.Memory, true
	return o
}

// obey lets the drivers answer to the last decision.
func (in *Input) obey(o *Output) {
	in.AddressGen, in.Layer2Gen, in.Routers.Report.Gen = in.Gen, in.Gen, in.Gen
	in.OnLoopback.Bound, in.Silent = o.Bind.Addr.IsValid(), o.Silent
	if in.has(); o.Advertise {
		in.has("a", "b")
	}
}

func (in *Input) is(t *testing.T, what string, want model.BGPPhase) {
	t.Helper()
	if in.Memory.Phase != want {
		t.Fatalf("%s: phase %d, want %d", what, in.Memory.Phase, want)
	}
}

// An address is advertised, drained and gone, one phase after the other, and each waits for the
// word of the drivers.
func TestOnePhaseAfterTheOther(t *testing.T) {
	in := scene(model.BGPIdle)
	in.Memory, in.Remembered, in.OnLoopback.Bound = model.BGPMemory{}, false, false
	in.has()
	o := in.step(0)
	in.is(t, "wanted", model.BGPBinding)
	if o.Bind.Lifetime != model.LoopbackLifetime || o.Bind.Linger || o.Advertise || o.Silent || o.Status.Bound || o.Status.Reason != model.ReasonBinding {
		t.Fatalf("binding: %+v", o)
	}
	in.OnLoopback.Bound = true // reported of an earlier decision
	in.step(0)
	in.is(t, "an old report", model.BGPBinding)
	in.obey(&o)
	o = in.step(0)
	in.is(t, "bound", model.BGPAdvertised)
	if !o.Advertise || o.Shutdown || o.Status.Reason != model.ReasonNoSession || o.Status.Standing != model.ReasonStandby {
		t.Fatalf("bound: %+v", o)
	}
	in.obey(&o)
	if o = in.step(0); o.Status.Reason != model.ReasonAdvertised || o.Status.Standing != model.ReasonOwner || o.Status.Owner != "m1" {
		t.Fatalf("advertised: %+v", o.Status)
	}
	in.Standing = place.Verdict{Reason: model.ReasonDraining}
	o = in.step(0)
	in.is(t, "drains", model.BGPShutdown)
	if !o.Advertise || !o.Shutdown || !o.Wake.Equal(in.Now.Add(5*time.Second)) {
		t.Fatalf("asked to leave: %+v", o)
	}
	in.obey(&o)
	o = in.step(5 * time.Second)
	in.is(t, "routers had their time", model.BGPWithdrawing)
	if o.Advertise || !o.Bind.Addr.IsValid() || o.Bind.Linger || !slices.Equal(o.Status.Peers, []string{"a", "b"}) {
		t.Fatalf("withdrawing: %+v", o)
	}
	in.obey(&o)
	if o = in.step(0); !o.Wake.Equal(in.Now.Add(WithdrawLinger)) || len(o.Status.Peers) > 0 {
		t.Fatalf("withdrawn: %+v", o)
	}
	o = in.step(WithdrawLinger)
	in.is(t, "has connections", model.BGPLingering)
	if !o.Bind.Linger || !o.Wake.Equal(in.Memory.DrainEnd) || o.Status.Reason != model.ReasonWithdrawn {
		t.Fatalf("lingering: %+v", o)
	}
	in.obey(&o)
	in.OnLoopback.Connections = 1
	in.step(0)
	in.is(t, "has one", model.BGPLingering)
	in.OnLoopback.Connections = 0
	if o = in.step(0); o.Memory.Phase != model.BGPIdle || o.Bind.Addr.IsValid() || o.Status.Interface != "" {
		t.Fatalf("none: %+v", o)
	}
}

// Where layer 2 may have the address, this host is silent until the kernel has it no more.
func TestUnbindingIsSilent(t *testing.T) {
	in := scene(model.BGPLingering).balanced()
	in.Memory.Until, in.Standing = start, place.Verdict{Reason: model.ReasonUnhealthy}
	o := in.step(0)
	in.is(t, "the time is over", model.BGPUnbinding)
	if o.Bind.Addr.IsValid() || !o.Silent || !o.Wake.IsZero() {
		t.Fatalf("unbinding: %+v", o)
	}
	in.OnLoopback.Bound = false // reported of an earlier decision
	in.step(0)
	in.is(t, "an old report", model.BGPUnbinding)
	in.AddressGen = in.Gen
	if o = in.step(0); o.Memory.Phase != model.BGPIdle || o.Silent {
		t.Fatalf("gone: %+v", o)
	}
	in = scene(model.BGPUnbinding).balanced()
	in.step(0)
	in.is(t, "wanted again, still bound", model.BGPAdvertised)
	in = scene(model.BGPUnbinding).balanced()
	in.OnLoopback.Bound = false
	in.step(0)
	in.is(t, "wanted again, not bound", model.BGPBinding)
}

// What an earlier process left bound is gone on with, kept for routers that may have its path, or
// let go.
func TestAdopt(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Input)
		phase  model.BGPPhase
		gen    uint64
		until  time.Duration
	}{
		{"well", func(*Input) {}, model.BGPAdvertised, 0, AdoptPending},
		{"not known yet", func(in *Input) { in.Standing.Reason = model.ReasonHealthPending }, model.BGPAdvertised, 0, AdoptPending},
		{"not well", func(in *Input) { in.Standing.Reason, in.Routers.Report.Peers = model.ReasonUnhealthy, nil }, model.BGPKept, 0, audience.RestartTime},
		{"not asked for", func(in *Input) { in.Gone, in.Routers.Report.Peers = true, nil }, model.BGPKept, 0, audience.RestartTime},
		{"routers know", func(in *Input) { in.Standing.Reason = model.ReasonUnhealthy }, model.BGPIdle, 0, 0},
		{"routers know, on the LAN, too", func(in *Input) { in.Standing.Reason, in.VIP.L2 = model.ReasonUnhealthy, true }, model.BGPUnbinding, 6, 0},
		{"balanced", func(in *Input) { in.balanced().Standing.Reason = model.ReasonUnhealthy }, model.BGPLingering, 6, 10 * time.Second},
	} {
		in := scene(model.BGPIdle)
		in.Memory, in.Remembered = model.BGPMemory{}, false
		c.change(in)
		m := in.step(0).Memory
		until := m.Until
		if c.until != 0 {
			until = until.Add(-c.until)
		}
		if m.Phase != c.phase || m.Gen != c.gen || c.until != 0 && !until.Equal(in.Now) || c.until == 0 && !m.Until.IsZero() {
			t.Errorf("%s: %+v", c.name, m)
		}
	}
	in := scene(model.BGPIdle)
	in.Memory, in.Remembered, in.VIP.Unbound = model.BGPMemory{}, false, true
	in.Standing.Reason = model.ReasonUnhealthy
	in.step(0)
	in.is(t, "bound on no node", model.BGPIdle)
}

// An address is kept until the router of the path of before is there, or has given it up.
func TestKept(t *testing.T) {
	kept := func() *Input {
		in := scene(model.BGPKept)
		in.Gone, in.Memory.Gen, in.Memory.Until = true, 0, start.Add(audience.RestartTime)
		in.Routers.Report.Peers[0].State = "Active"
		in.has()
		return in
	}
	in := kept()
	in.OnLoopback.Connections, in.OnLoopback.Sockets = 0, 0
	if o := in.step(0); o.Memory.Phase != model.BGPKept || !o.Bind.Linger || !o.Wake.Equal(in.Memory.Until) {
		t.Errorf("no session yet: %+v", o)
	}
	in.step(audience.RestartTime)
	in.is(t, "over", model.BGPIdle)
	in = kept()
	in.Routers.Report.Peers[0].State = established
	in.step(0)
	in.is(t, "the session is there", model.BGPIdle)
	in = kept()
	in.Routers.Peers[0].GracefulRestart = false
	in.step(0)
	in.is(t, "no graceful restart", model.BGPIdle)
}

// A path is gone when the driver says so, of this phase, and no router keeps it over the loss of
// a session.
func TestPathGone(t *testing.T) {
	withdrawing := func() *Input {
		in := scene(model.BGPWithdrawing)
		in.Standing.Reason, in.Memory.Lost = model.ReasonUnhealthy, model.ReasonUnhealthy
		in.Memory.Reason, in.Memory.Since = model.ReasonUnhealthy, start
		in.has()
		return in
	}
	for _, c := range []struct {
		name   string
		change func(*Input)
		gone   bool
		wake   time.Duration
	}{
		{"gone", func(*Input) {}, true, WithdrawLinger},
		{"a report of before", func(in *Input) { in.Routers.Report.Gen = 3 }, false, WithdrawLate},
		{"one has it", func(in *Input) { in.has("b") }, false, WithdrawLate},
		{"a lost session", func(in *Input) {
			in.Routers.Report.Peers[0] = model.PeerReport{Name: "a", State: "Active", Since: start.Add(time.Second - audience.RestartTime)}
		}, false, time.Second},
		{"lost for long", func(in *Input) {
			in.Routers.Report.Peers[0] = model.PeerReport{Name: "a", State: "Active", Since: start.Add(-audience.RestartTime)}
		}, true, WithdrawLinger},
		{"lost, without graceful restart", func(in *Input) {
			in.Routers.Report.Peers[1] = model.PeerReport{Name: "b", State: "Active", Since: start}
		}, true, WithdrawLinger},
		{"within a network of another VIP", func(in *Input) {
			p := model.PrefixOf(vip, 24)
			in.Routers.Report.Paths = map[netip.Prefix][]string{p: {"a"}}
			in.Routers.Aggregates = []model.BGPPath{{Prefix: p, To: []model.BGPAudience{{Peers: []string{"a"}}}}}
		}, true, WithdrawLinger},
		{"within a network, and another VIP does not want it there", func(in *Input) {
			p := model.PrefixOf(vip, 24)
			in.Routers.Report.Paths = map[netip.Prefix][]string{p: {"a", "b"}}
			in.Routers.Aggregates = []model.BGPPath{{Prefix: p, To: []model.BGPAudience{{Peers: []string{"a"}}}}}
		}, false, WithdrawLate},
	} {
		in := withdrawing()
		c.change(in)
		o := in.step(0)
		if gone := !o.Memory.Until.IsZero(); gone != c.gone || !o.Wake.Equal(in.Now.Add(c.wake)) {
			t.Errorf("%s: gone %v, wake after %v", c.name, gone, o.Wake.Sub(in.Now))
		}
	}
	in := withdrawing()
	in.has("a")
	if o := in.step(WithdrawLate - 1); o.Status.Detail != "" {
		t.Errorf("told early: %q", o.Status.Detail)
	}
	if o := in.step(1); o.Status.Detail != "routers may still have the path" || !o.Wake.IsZero() {
		t.Errorf("late: %q, wake %v", o.Status.Detail, o.Wake)
	}
}

// A process that ends has no time for a long farewell, and stays with routers that keep its path.
func TestProcessEnds(t *testing.T) {
	in := scene(model.BGPShutdown)
	in.Standing.Reason, in.Stopping, in.Memory.Until = model.ReasonDraining, "the daemon is stopping", start.Add(time.Minute)
	if o := in.step(0); !o.Wake.Equal(start.Add(StopShutdown)) || o.Status.Detail != in.Stopping {
		t.Errorf("%+v", o)
	}
	for _, c := range []struct {
		name   string
		change func(*Input)
		want   bool
	}{
		{"it ends", func(*Input) {}, true},
		{"it does not", func(in *Input) { in.Stopping = "" }, false},
		{"it drains", func(in *Input) { in.Draining = true }, false},
		{"one would forget", func(in *Input) { in.Audience.Keep = false }, false},
		{"nobody is told", func(in *Input) { in.Audience.Peers = nil }, false},
		{"on the LAN, too", func(in *Input) { in.VIP.L2 = true }, false},
		{"on the LAN, bound on no node", func(in *Input) { in.VIP.L2, in.VIP.Unbound = true, true }, true},
	} {
		in := scene(model.BGPAdvertised)
		in.Stopping = "the daemon is stopping"
		c.change(in)
		if got := in.StaysWithRouters(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// What keeps an address from lo is told in the order in which it can be mended.
func TestWhere(t *testing.T) {
	in := scene(model.BGPIdle)
	in.VIP.Addr, in.NoIPv6, in.OwnInterface, in.Audience.Peers = netip.MustParseAddr("fd00::200"), true, "eth1", nil
	is := func(want model.Reason) {
		t.Helper()
		if got := in.Where().Reason; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	is(model.ReasonLocalAddress)
	in.OwnInterface = ""
	is(model.ReasonFamilyDisabled)
	in.NoIPv6 = false
	is(model.ReasonNoPeer)
	in.balanced()
	is(model.ReasonOwner)
	in.Interface = ""
	is(model.ReasonNoInterface)
	in.BalancedHere, in.Memory.Balanced = false, false
	is(model.ReasonNoPeer)
}

// Routers hear of a VIP once the kernel relays what others have, or does not in time.
func TestRingIsWaitedFor(t *testing.T) {
	binding := func() *Input {
		in := scene(model.BGPBinding)
		in.Ring = Ring{Keeps: true, Driver: true, Gen: 3, Patience: 150 * time.Millisecond, Others: true}
		return in
	}
	in := binding()
	if o := in.step(0); o.Memory.Phase != model.BGPBinding || !o.HoldSessions || !o.Wake.Equal(start.Add(in.Ring.Patience)) {
		t.Errorf("%+v", o)
	}
	in.step(in.Ring.Patience)
	in.is(t, "patience is over", model.BGPAdvertised)
	for name, change := range map[string]func(*Input){
		"it relays": func(in *Input) { in.Ring.Gen = 4 }, "nobody else": func(in *Input) { in.Ring.Others = false },
		"no driver": func(in *Input) { in.Ring.Driver = false }, "no ring": func(in *Input) { in.Ring.Keeps = false },
		"no ring on the LAN": func(in *Input) { in.VIP.L2, in.BalancedHere, in.Silent = true, true, true },
	} {
		in := binding()
		change(in)
		if o := in.step(0); o.Memory.Phase != model.BGPAdvertised || o.HoldSessions {
			t.Errorf("%s: %+v", name, o)
		}
	}
	in = binding()
	in.VIP.Unbound, in.Memory.Unbound, in.Started, in.SettledBy = true, true, start, start.Add(3*time.Second)
	if o := in.step(SessionsWait - 1); o.Memory.Phase != model.BGPBinding || !o.HoldSessions || !o.Wake.Equal(start.Add(SessionsWait)) {
		t.Errorf("it knows nobody yet: %+v", o)
	}
	if o := in.step(1); o.Memory.Phase != model.BGPBinding || o.HoldSessions || !o.Wake.Equal(in.SettledBy) {
		t.Errorf("other VIPs wait no longer: %+v", o)
	}
}

// Connections to a Balanced VIP keep the address on lo; which ones count depends on whether the
// others relay what is not theirs.
func TestLingersForConnections(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Input)
		stays  bool
	}{
		{"one gets packets", func(in *Input) { in.OnLoopback.Connections = 1 }, true},
		{"one gets none", func(in *Input) { in.OnLoopback.Sockets = 1 }, false},
		{"one gets none, with a ring", func(in *Input) { in.OnLoopback.Sockets, in.Ring.KeepsOnLAN = 1, true }, true},
		{"one gets none, with a ring elsewhere", func(in *Input) { in.OnLoopback.Sockets, in.Ring.Keeps = 1, true }, false},
		{"of before", func(in *Input) { in.AddressGen = 3 }, true},
		{"of this host, to a dead server", func(in *Input) { in.OnLoopback.Connections, in.OnLoopback.Own = 1, 1 }, false},
		{"the owner", func(in *Input) { in.OwnsOnLAN, in.WantsOnLAN, in.OnLAN.Bound = true, true, true }, true},
	} {
		in := scene(model.BGPLingering).balanced()
		in.Standing.Reason, in.Memory.Until = model.ReasonUnhealthy, start.Add(time.Second)
		in.OnLoopback.Connections, in.OnLoopback.Sockets, in.OnLoopback.Own = 0, 0, 0
		c.change(in)
		if in.step(0); (in.Memory.Phase == model.BGPLingering) != c.stays {
			t.Errorf("%s: phase %d", c.name, in.Memory.Phase)
		}
	}
	for p, want := range []bool{false, false, true, true, true, true, true, false} {
		if got := (&model.BGPMemory{Balanced: true, Phase: model.BGPPhase(p)}).KeepsConnections(); got != want {
			t.Errorf("phase %d: %v", p, got)
		}
		if (&model.BGPMemory{Phase: model.BGPPhase(p)}).KeepsConnections() {
			t.Errorf("phase %d, for routers", p)
		}
	}
}

// An address that another node answers for on the LAN is bound once this host is silent there.
func TestSilenceComesFirst(t *testing.T) {
	in := scene(model.BGPBinding).balanced()
	in.OnLoopback.Bound, in.Layer2Gen = false, 3
	if o := in.step(0); !o.Silent || o.Bind.Addr.IsValid() {
		t.Errorf("not silent yet: %+v", o)
	}
	in.Layer2Gen = 4
	if o := in.step(0); !o.Silent || !o.Bind.Addr.IsValid() || o.Bind.Lifetime != 0 || o.Bind.Epoch != 3 {
		t.Errorf("silent: %+v", o)
	}
	in.OwnsOnLAN, in.WantsOnLAN, in.OnLAN = true, true, model.AppliedVIP{Bound: true, Interface: "eth0"}
	if o := in.step(0); o.Silent || o.Bind.Addr.IsValid() || o.Memory.Phase != model.BGPAdvertised {
		t.Errorf("it is the owner: %+v", o)
	}
	in.OwnsOnLAN = false // and lets it go, while it is bound there
	if o := in.step(0); !o.Silent || o.Memory.Phase != model.BGPAdvertised {
		t.Errorf("it was the owner: %+v", o)
	}
	in.OnLAN.Expires = start
	in.step(0)
	in.is(t, "nowhere any more", model.BGPBinding)
}

// A node that passes the required check only leaves to one that is better, and after a while.
func TestDegradedLeavesToTheBetter(t *testing.T) {
	degraded := func(phase model.BGPPhase) *Input {
		in := scene(phase)
		in.Leveled, in.Health = true, model.HealthState{State: model.HealthDegraded, Detail: "etcd"}
		in.Members["m2"] = model.Member{Name: "m2", State: model.MemberAlive, Standing: map[netip.Addr]model.Reason{vip: model.ReasonOwner}}
		return in
	}
	in := degraded(model.BGPAdvertised)
	if o := in.step(0); o.Memory.Phase != model.BGPAdvertised || o.Status.Standing != model.ReasonDegraded || !o.Wake.Equal(start.Add(election.DegradedGrace)) {
		t.Errorf("at once: %+v", o)
	}
	if o := in.step(election.DegradedGrace); o.Memory.Phase != model.BGPShutdown || o.Status.Detail != "etcd" || !o.Memory.DrainEnd.Equal(in.Now.Add(election.DegradedDrain)) {
		t.Errorf("after a while: %+v", o)
	}
	in = degraded(model.BGPIdle)
	if o := in.step(0); o.Memory.Phase != model.BGPIdle || o.Status.Standing != model.ReasonDegraded {
		t.Errorf("it does not begin: %+v", o)
	}
	in = degraded(model.BGPIdle)
	in.Leveled = false
	in.step(0)
	in.is(t, "the group knows of no degrees", model.BGPBinding)
	in = degraded(model.BGPAdvertised)
	in.Eligible = nil
	in.step(time.Hour)
	in.is(t, "nobody is better", model.BGPAdvertised)
}

// TestRoutersThatHaveAPath: where a VIP is advertised by itself to some routers and within a
// network to others, the status names those that have one of the two, and no other.
func TestRoutersThatHaveAPath(t *testing.T) {
	for _, c := range []struct{ self, network, want []string }{
		{[]string{"a", "b"}, []string{"c", "d"}, []string{"a", "b", "c", "d"}},
		{[]string{"a"}, []string{"c", "d"}, []string{"a", "c", "d"}},
		{[]string{"b"}, []string{"d"}, []string{"b", "d"}},
		{nil, []string{"a"}, nil}, // of another VIP
	} {
		in := scene(model.BGPAdvertised)
		in.Audience = &audience.Audience{Peers: []string{"a", "b", "c", "d"}, Routes: []audience.Route{{Peers: []string{"a", "b"}}, {Length: 24, Peers: []string{"c", "d"}}}}
		in.Routers.Report.Paths = map[netip.Prefix][]string{model.PrefixOf(vip, 0): c.self, model.PrefixOf(vip, 24): c.network}
		if got := Step(in).Status.Peers; !slices.Equal(got, c.want) {
			t.Errorf("%v and %v: %v, want %v", c.self, c.network, got, c.want)
		}
	}
}

// VIPs share the words about routers without a path only if these are the same.
func TestWordsOfMissingRouters(t *testing.T) {
	r := &Routers{Report: model.Applied{Peers: []model.PeerReport{{Name: "a", State: established}, {Name: "b", State: "Active", LastError: "refused"}, {Name: "c", State: established, LastError: "of before"}}}}
	ab, cd, none := []string{"a", "b"}, []string{"c", "d"}, []string(nil)
	for range 2 {
		for _, c := range []struct {
			peers, has []string
			want       string
		}{
			{ab, none, "not to a (Established); not to b (Active, refused)"}, {ab, ab[:1], "not to b (Active, refused)"}, {ab, ab, ""},
			{cd, none, "not to c (Established); not to d (no session yet)"}, {cd, none, "not to c (Established); not to d (no session yet)"}, {none, none, ""},
		} {
			if got := r.missing(c.peers, c.has); got != c.want {
				t.Errorf("%v of %v: %q, want %q", c.has, c.peers, got, c.want)
			}
		}
	}
}
