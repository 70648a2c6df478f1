package membership

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// A node drains with its Machine wherever that stands in the list, and with nobody else's.
func TestDrainOfThisNodeAmongOthers(t *testing.T) {
	drain := func(n model.NodeName, machine string) model.MachineDrain {
		return model.MachineDrain{Node: n, Machine: machine}
	}
	for _, c := range []struct {
		name   string
		drains []model.MachineDrain
		want   string
	}{
		{"first", []model.MachineDrain{drain("m1", "a"), drain("m2", "b")}, "a"},
		{"second", []model.MachineDrain{drain("m2", "b"), drain("m1", "a")}, "a"},
		{"last of three", []model.MachineDrain{drain("m3", "c"), drain("m2", "b"), drain("m1", "a")}, "a"},
		{"of others only", []model.MachineDrain{drain("m2", "b"), drain("m3", "c")}, ""},
	} {
		v := &model.View{Self: "m1", Machines: model.Machines{Manager: true, Drains: c.drains}}
		m := Step(v).Memory
		got := ""
		if m.Machine.Drain != nil {
			got = m.Machine.Drain.Machine
		}
		if got != c.want {
			t.Errorf("%s: it drains with %q, want %q", c.name, got, c.want)
		}
	}
}

// Of two nodes that have an address of the Machine, all members tell the same one that it drains.
func TestDrainOfNodesThatShareAnAddress(t *testing.T) {
	shared := netip.MustParseAddr("10.0.0.9")
	v := &model.View{Self: "m1", Machines: model.Machines{Drains: []model.MachineDrain{{Machine: "a", Addrs: []netip.Addr{shared}}}}}
	v.Gossip.Members = map[model.NodeName]model.Member{}
	for _, n := range []model.NodeName{"m5", "m2", "m4", "m3"} {
		v.Gossip.Members[n] = model.Member{Name: n, State: model.MemberAlive, Addr: shared}
	}
	for range 20 { // the order in which Go walks a map changes
		if got := Drains(v); len(got) != 1 || got[0].Node != "m2" {
			t.Fatalf("told of %+v, want m2", got)
		}
	}
}

// A member that has not said anything of itself is none that a node has heard of, and the node
// waits for it.
func TestSettlesWhenAllHaveSaidSomething(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		name string
		m3   model.Member
		want bool
	}{
		{"all have", model.Member{Known: true}, true},
		{"one has not", model.Member{}, false},
		{"one is dead", model.Member{Known: true, State: model.MemberDead}, false},
	} {
		v := &model.View{
			Self: "m1", Started: start, Now: start.Add(100 * time.Millisecond),
			Synced: map[model.SourceName]bool{model.SourceGossip: true, model.SourceLink: true},
			Gossip: model.Gossip{Peers: 2, Exchanged: start.Add(50 * time.Millisecond), Members: map[model.NodeName]model.Member{"m2": {Known: true}, "m3": c.m3}},
		}
		m := Step(v).Memory
		if m.Settled != c.want {
			t.Errorf("%s: settled is %v, want %v", c.name, m.Settled, c.want)
		}
	}
}

// A configured peer is seen when whoever has one of its addresses, or its name, is alive: a
// host that was installed anew may have another name.
func TestQuorumIsOfTheConfiguredPeers(t *testing.T) {
	at := func(s string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(s)} }
	peers := []model.Peer{{Host: "10.0.0.12", Addrs: at("10.0.0.12")}, {Host: "10.0.0.13", Addrs: at("10.0.0.13")}, {Host: "m4"}, {Host: "m5.example", Addrs: at("10.0.0.15")}}
	alive := func(name, a string) model.Member {
		return model.Member{Name: model.NodeName(name), Addr: netip.MustParseAddr(a), State: model.MemberAlive}
	}
	dead := func(name, a string) model.Member {
		m := alive(name, a)
		m.State = model.MemberDead
		return m
	}
	for _, c := range []struct {
		name    string
		members []model.Member
		want    string
	}{
		{"hosts that were replaced do not count", []model.Member{
			dead("old2", "10.0.0.12"), dead("old3", "10.0.0.99"), dead("old4", "10.0.0.98"), alive("new2", "10.0.0.12"), alive("m4", "10.0.0.14"),
		}, ""},
		{"nor do members that nobody has configured", []model.Member{
			alive("w1", "10.0.1.1"), alive("w2", "10.0.1.2"), alive("w3", "10.0.1.3"), alive("m4", "10.0.0.14"),
		}, "2 of 5 configured nodes seen, 3 needed"},
		{"half of them", []model.Member{alive("m4", "10.9.9.9")}, "2 of 4 configured nodes seen, 3 needed"},
		{"by name or by address", []model.Member{alive("x", "10.0.0.15"), alive("m4", "10.9.9.9")}, ""},
		{"dead ones", []model.Member{dead("x", "10.0.0.15"), alive("m4", "10.9.9.9")}, "2 of 5 configured nodes seen, 3 needed"},
	} {
		v := &model.View{Self: "m1"}
		if v.Gossip.Configured = peers; c.name == "half of them" {
			v.Gossip.Configured = peers[:3]
		}
		v.Gossip.Members = map[model.NodeName]model.Member{}
		for _, m := range c.members {
			v.Gossip.Members[m.Name] = m
		}
		if ok, detail := most(v); ok != (c.want == "") || detail != c.want {
			t.Errorf("%s: %v %q, want %q", c.name, ok, detail, c.want)
		}
	}
}

// TestQuorumIsOnlyAReasonWhereItIsAsked: a VIP that nothing else keeps from this node, and that
// needs most of the group.
func TestQuorumIsOnlyAReasonWhereItIsAsked(t *testing.T) {
	v := &model.View{Self: "m1", Gossip: model.Gossip{Configured: []model.Peer{{Host: "m2"}, {Host: "m3"}}}}
	quorum, here, nowhere := &model.VIP{Partition: model.PartitionQuorum}, place.Verdict{Reason: model.ReasonStandby}, place.Verdict{Reason: model.ReasonNoSubnet}
	var o Output
	for what, c := range map[string]struct {
		vip         *model.VIP
		where, want place.Verdict
	}{
		"needs it":            {quorum, here, place.Verdict{Reason: model.ReasonNoQuorum, Detail: "1 of 3 configured nodes seen, 2 needed"}},
		"does not need it":    {&model.VIP{}, here, here},
		"has no place at all": {quorum, nowhere, nowhere},
	} {
		if got := o.Where(v, c.vip, c.where); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
	v.Gossip.Members = map[model.NodeName]model.Member{"m2": {}}
	if got := (&Output{}).Where(v, quorum, here); got != here {
		t.Errorf("with most of the group: %+v", got)
	}
}

// TestWaits: how long a node waits to settle, and for what all have connections, and that it
// asks to be woken then.
func TestWaits(t *testing.T) {
	start := time.Unix(1000, 0)
	after := func(d time.Duration) time.Time { return start.Add(d) }
	for _, c := range []struct {
		name    string
		change  func(*model.View)
		settled bool
		hearing bool
		wake    time.Duration // after the start
	}{
		{"nobody is heard", func(*model.View) {}, false, true, SettleAlone},
		{"some, and more are to come", func(v *model.View) {
			v.Gossip.Members = map[model.NodeName]model.Member{"m2": {Known: true}}
			v.Gossip.Exchanged = after(time.Second)
		}, false, true, time.Second + SettleSome},
		{"somebody says something all the time", func(v *model.View) {
			v.Now, v.Memory.Heard = after(2900*time.Millisecond), true
			v.Gossip.Members = map[model.NodeName]model.Member{"m2": {Known: true}}
			v.Gossip.Exchanged = v.Now
			v.Memory.SettleBase = start
		}, false, false, SettleAlone},
		{"the objects of the cluster", func(v *model.View) {
			v.Gossip.Peers, v.Synced[model.SourceKube] = 0, false
			v.Memory.SettleBase = start
		}, false, true, time.Second + HearAll},
		{"peers that the cluster has just told of", func(v *model.View) {
			v.Now, v.Memory.Awaited = after(3*time.Second), after(2*time.Second)
			v.Memory.Settled, v.Memory.SettleBase = true, start
		}, true, true, 2*time.Second + HearAll},
		{"for long enough", func(v *model.View) { v.Now = after(SettleAlone) }, true, false, -1},
	} {
		v := &model.View{
			Self: "m1", Started: start, Now: after(time.Second), Gossip: model.Gossip{Peers: 2},
			Synced: map[model.SourceName]bool{model.SourceGossip: true, model.SourceLink: true, model.SourceHealth: true},
		}
		c.change(v)
		want := time.Time{}
		if c.wake >= 0 {
			want = after(c.wake)
		}
		if got := Step(v); got.Memory.Settled != c.settled || got.Hearing != c.hearing || !got.Wake.Equal(want) {
			t.Errorf("%s: settled %v, hearing %v, wake %v after the start", c.name, got.Memory.Settled, got.Hearing, got.Wake.Sub(start))
		}
	}
	v := &model.View{Started: start, Now: start, Synced: map[model.SourceName]bool{model.SourceKube: false, model.SourceGossip: true, model.SourceLink: true}}
	v.Memory.Heard = true // nothing else is waited for
	if got := Step(v).Wake; !got.Equal(after(ClusterPatience)) {
		t.Errorf("a node without peers that waits for its cluster wakes %v after its start", got.Sub(start))
	}
}

// TestSettledBy: who knows its group waits for nothing.
func TestSettledBy(t *testing.T) {
	v := &model.View{Started: time.Unix(1000, 0)}
	if got := (&Output{}).SettledBy(v); !got.Equal(v.Started.Add(SettleAlone)) {
		t.Errorf("a node that has just started settles by %v", got)
	}
	if got := (&Output{Memory: model.Membership{Settled: true}}).SettledBy(v); !got.IsZero() {
		t.Errorf("a node that has settled does so by %v", got)
	}
}

// TestAwaitsServicesOnlyWithConnections: a node that has just begun says nothing before it knows its
// Services, for a while, since an earlier process may have told of their connections. Without any
// connection that is translated there was nothing to tell.
func TestAwaitsServicesOnlyWithConnections(t *testing.T) {
	start, a := time.Unix(1000, 0), netip.MustParseAddr("10.0.0.200")
	for _, c := range []struct {
		name  string
		mode  model.ServiceConnections
		seen  *model.RingHost
		after time.Duration
		bound bool
		want  bool
	}{
		{"nobody has looked", model.ServicesAuto, nil, 0, false, false},
		{"not for kube-proxy", model.ServicesAuto, &model.RingHost{}, 0, false, false},
		{"it has connections", model.ServicesAuto, &model.RingHost{Proxy: model.ProxyNFTables, Tracked: []netip.Addr{a}}, 0, false, false},
		{"as was asked for", model.ServicesKeep, &model.RingHost{Proxy: model.ProxyNFTables, Tracked: []netip.Addr{a}}, ServiceWord - 1, false, false},
		{"for long enough", model.ServicesAuto, &model.RingHost{Proxy: model.ProxyNFTables, Tracked: []netip.Addr{a}}, ServiceWord, false, true},
		{"it has none", model.ServicesAuto, &model.RingHost{Proxy: model.ProxyNFTables}, 0, false, true},
		{"nobody can tell", model.ServicesAuto, &model.RingHost{Proxy: model.ProxyNFTables, Untold: "no"}, 0, false, false},
		{"it can have none", model.ServicesAuto, &model.RingHost{Proxy: model.ProxyNone}, 0, false, true},
		{"it does not keep them", model.ServicesReset, nil, 0, false, true},
		{"the way to the API server is here", model.ServicesAuto, nil, 0, true, true},
	} {
		v := &model.View{
			Self: "m1", Started: start, Now: start.Add(c.after), ServiceConnections: c.mode,
			Synced:  map[model.SourceName]bool{model.SourceConfig: true, model.SourceLink: true, model.SourceKube: false},
			Applied: map[model.SinkName]model.Applied{model.SinkAddress: {VIPs: map[netip.Addr]model.AppliedVIP{a: {Bound: c.bound}}}, model.SinkLayer2: {}, model.SinkRelay: {Ring: c.seen}},
		}
		if got := Step(v); got.Ready != c.want {
			t.Errorf("%s: ready %v, want %v", c.name, got.Ready, c.want)
		}
	}
}
