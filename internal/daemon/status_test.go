package daemon

import (
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
)

var now = time.Unix(1000, 0)

// member is another node of the tests; change alters it.
func member(name model.NodeName, state model.MemberState, change func(*model.Member)) model.Member {
	m := model.Member{Name: name, State: state, Known: true, Told: true, Settled: true, Standing: map[netip.Addr]model.Reason{addrA: model.ReasonStandby}}
	if change != nil {
		change(&m)
	}
	return m
}

func viewOf(members ...model.Member) *model.View {
	v := &model.View{Now: now, Self: "m1", Gossip: model.Gossip{Members: map[model.NodeName]model.Member{}}}
	for _, m := range members {
		v.Gossip.Members[m.Name] = m
	}
	return v
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s\n got %+v\nwant %+v", what, got, want)
	}
}

func TestStatus(t *testing.T) {
	v := viewOf(
		member("m3", model.MemberAlive, func(m *model.Member) { m.Addr, m.Weight, m.Version, m.Draining = addrB, 7, "v2", true }),
		member("m2", model.MemberDead, func(m *model.Member) { m.Late = now.Add(-1500 * time.Millisecond) }),
	)
	v.Applied = map[model.SinkName]model.Applied{model.SinkLayer2: {}, model.SinkAddress: {Err: "no space"}, model.SinkBGP: {}}
	v.Health = map[string]model.HealthState{"web": {State: model.HealthUp}, "api": {State: model.HealthDown, Since: now, Detail: "refused"}}
	d := statuses(vipStatus(addrA, "m1", model.ReasonOwner))
	d.Status[0].Successors = []model.NodeName{"m2", "m3"}
	s := status(v, &d)
	same(t, "members", s.Members, []v1alpha1.MemberStatus{
		{Name: "m2", State: "dead", Settled: true, Late: "1.5s"},
		{Name: "m3", Address: "10.0.0.2", State: "alive", Settled: true, Draining: true, Weight: 7, Version: "v2"},
	})
	same(t, "drivers", s.Drivers, []v1alpha1.DriverStatus{{Name: "address", Error: "no space"}, {Name: "bgp"}, {Name: "layer2"}})
	v.Applied[model.SinkGossip], d.Group.Untold = model.Applied{}, 3
	const untold = "no room to tell the group 3 of the hardware addresses of this node: what comes from them is taken for a client's"
	same(t, "gossip that has no room for every hardware address", status(v, &d).Drivers, slices.Insert(slices.Clone(s.Drivers), 2, v1alpha1.DriverStatus{Name: "gossip", Error: untold}))
	v.Applied[model.SinkGossip] = model.Applied{Err: "no socket"}
	same(t, "gossip that fails besides", status(v, &d).Drivers[2], v1alpha1.DriverStatus{Name: "gossip", Error: "no socket"})
	same(t, "health", s.Health, []v1alpha1.HealthStatus{{Name: "api", State: "down", Since: now, Detail: "refused"}, {Name: "web", State: "up"}})
	same(t, "successors that are alive", s.VIPs[0].Successors, []string{"m3"})
	for _, c := range []struct{ draining, stopping, want bool }{{false, false, false}, {true, false, true}, {false, true, true}} {
		v.Draining, v.Stopping = c.draining, c.stopping
		if s := status(v, &d); s.Draining != c.want {
			t.Errorf("draining is %v for %+v", s.Draining, c)
		}
	}
}

// TestMachinesStatus: the node says why it drains with its Machine, and who says so.
func TestMachinesStatus(t *testing.T) {
	v, d := viewOf(), model.Desired{}
	if s := status(v, &d); s.Machines != nil || s.Draining {
		t.Errorf("without Machines: %+v", s.Machines)
	}
	d.Memory.Machine = model.MachineMemory{Drain: &model.MachineDrain{Machine: "ns/cp-1", Reason: "Deleting", Detail: "since noon"}, By: "m2"}
	d.Group.Drained, d.Machines.Writer, v.Machines.Manager = true, true, true
	s := status(v, &d)
	same(t, "machines", s.Machines, &v1alpha1.MachinesStatus{
		Manager: true, Writer: true, Drain: "Machine ns/cp-1: Deleting (since noon), told by m2", Drained: true,
	})
	if !s.Draining {
		t.Error("it does not say that it drains")
	}
	w := newOnlooker(t)
	w.view.Machines = v.Machines
	w.metrics.publish(&w.view, &d)
	got := samples(t, w.reg)
	for _, name := range []string{"draining", "machine_draining", "machines_manager", "machines_writer"} {
		if got[name] != 1 {
			t.Errorf("lbd_%s is %g", name, got[name])
		}
	}
}

func TestBGPStatus(t *testing.T) {
	v := viewOf()
	host := func(a netip.Addr) netip.Prefix { return model.PrefixOf(a, 0) }
	wide, both := netip.MustParsePrefix("10.0.0.0/28"), []string{"ebgp", "ibgp"}
	v.Applied = map[model.SinkName]model.Applied{model.SinkBGP: {
		Paths: map[netip.Prefix][]string{host(addrA): {"ebgp"}, host(addrB): {"ebgp", "ibgp"}, wide: {"ibgp"}},
		Peers: []model.PeerReport{{Name: "ebgp", State: established, Since: now, HoldTime: 9 * time.Second, Families: []string{"ipv4"},
			Received: 3, Flaps: 2, LastError: "reset", LastAt: now, BFD: "Up", BFDTransmit: time.Second, BFDReceive: 2 * time.Second, BFDDetect: 3 * time.Second}},
	}}
	d := model.Desired{BGP: model.BGPState{
		Peers: []model.BGPPeer{
			{Name: "ebgp", Address: addrB, LocalASN: 1, PeerASN: 2},
			{Name: "ibgp", Address: addrA, LocalASN: 1, PeerASN: 1},
		},
		Paths: []model.BGPPath{
			{Prefix: host(addrA), To: []model.BGPAudience{{Peers: both, PathAttributes: model.PathAttributes{Communities: []uint32{65001<<16 | 80}, LargeCommunities: [][3]uint32{{1, 2, 3}}, MEDSet: true, Prepend: 2, LocalPref: 50}}}},
			{Prefix: host(addrB), To: []model.BGPAudience{{Peers: both, Shutdown: true, PathAttributes: model.PathAttributes{MED: 9, Prepend: 3, LocalPref: 50}}}},
			{Prefix: wide, To: []model.BGPAudience{
				{Peers: both[:1], PathAttributes: model.PathAttributes{Communities: []uint32{65001<<16 | 1}}},
				{Peers: both[1:], PathAttributes: model.PathAttributes{Communities: []uint32{65001<<16 | 2}}},
			}},
		},
	}}
	zero, usual, low := uint32(0), uint32(100), uint32(50)
	got := bgpStatus(v, &d)
	same(t, "sessions", got, []v1alpha1.BGPStatus{
		{
			Peer: "ebgp", Address: "10.0.0.2", LocalASN: 1, PeerASN: 2, State: "Established", Since: now, HoldTime: "9s", Families: []string{"ipv4"},
			BFD: "Up", BFDTransmit: "1s", BFDReceive: "2s", BFDDetect: "3s", Received: 3, Flaps: 2, Error: "reset", LastErrorAt: now,
			Advertised: []string{"10.0.0.1/32", "10.0.0.2/32"},
			Paths: []v1alpha1.BGPPathStatus{
				{Prefix: "10.0.0.1/32", MED: &zero, Prepend: 2, Communities: []string{"65001:80", "large:1:2:3"}},
				{Prefix: "10.0.0.2/32", Prepend: 3, Communities: []string{"65535:0"}, GracefulShutdown: true},
			},
		},
		{
			Peer: "ibgp", Address: "10.0.0.1", LocalASN: 1, PeerASN: 1, State: "Idle", Advertised: []string{"10.0.0.2/32", "10.0.0.0/28"},
			Paths: []v1alpha1.BGPPathStatus{
				{Prefix: "10.0.0.2/32", LocalPref: &zero, Communities: []string{"65535:0"}, GracefulShutdown: true},
				{Prefix: "10.0.0.0/28", LocalPref: &usual, Communities: []string{"65001:2"}},
			},
		},
	})
	path := model.BGPAudience{}
	same(t, "LOCAL_PREF that is not set", pathStatus("p", &path, &d.BGP.Peers[1]).LocalPref, &usual)
	path.LocalPref = 50
	same(t, "LOCAL_PREF", pathStatus("p", &path, &d.BGP.Peers[1]).LocalPref, &low)
}

// TestCandidates: who could own a VIP, in the order in which they would, and why
// not.
func TestCandidates(t *testing.T) {
	v := viewOf(
		member("m2", model.MemberAlive, func(m *model.Member) { m.Weight = 7 }),
		member("m3", model.MemberDead, nil),
		member("m4", model.MemberAlive, func(m *model.Member) { m.Known, m.Standing = false, nil }),
		member("m5", model.MemberAlive, func(m *model.Member) { m.Standing = nil }),
		member("m6", model.MemberAlive, func(m *model.Member) { m.Standing[addrA] = model.ReasonUnhealthy }),
	)
	v.Gossip.Claims = map[netip.Addr][]model.Claim{addrA: {{Owner: "m2", Epoch: 7}, {Owner: "m3", Epoch: 5}}}
	s := vipStatus(addrA, "m2", model.ReasonUnhealthy)
	s.Standing, s.Detail, s.Epoch = model.ReasonUnhealthy, "refused", 7
	e := explain(v, &model.Desired{}, s, &question{})
	var order []string
	for i, c := range e.Candidates {
		order = append(order, c.Node)
		if c.Rank != i+1 {
			t.Errorf("%s has rank %d", c.Node, c.Rank)
		}
		weight := func(n string) int { return v.Gossip.Members[model.NodeName(n)].Weight }
		if i > 0 && !election.Better(s.VIP.Name, election.Candidate{Node: model.NodeName(order[i-1]), Weight: weight(order[i-1])},
			election.Candidate{Node: model.NodeName(c.Node), Weight: weight(c.Node)}) {
			t.Errorf("%s is not better than %s", order[i-1], c.Node)
		}
	}
	slices.SortFunc(e.Candidates, func(a, b v1alpha1.Candidate) int { return strings.Compare(a.Node, b.Node) })
	if note := e.Candidates[2].Note; !strings.Contains(note, "dead") {
		t.Errorf("note of a dead node: %q", note)
	}
	for i := range e.Candidates {
		e.Candidates[i].Rank = 0
	}
	e.Candidates[2].Note = ""
	const usual = model.DefaultWeight
	same(t, "candidates", e.Candidates, []v1alpha1.Candidate{
		{Node: "m1", Reason: "Unhealthy", Alive: true, Weight: usual, Note: "refused"},
		{Node: "m2", Reason: "Standby", Alive: true, Eligible: true, Weight: 7, ClaimEpoch: 7},
		{Node: "m3", Reason: "Standby", Weight: usual, ClaimEpoch: 5},
		{Node: "m4", Reason: "NotSettled", Alive: true, Weight: usual, Note: "nothing heard from it yet"},
		{Node: "m5", Reason: "NotAnnounced", Alive: true, Weight: usual, Note: "its configuration does not have this VIP"},
		{Node: "m6", Reason: "Unhealthy", Alive: true, Weight: usual},
	})
	v.Weight = 3
	s.Owner, s.Standing = "m1", model.ReasonOwner
	same(t, "an owner", selfCandidate(v, s), v1alpha1.Candidate{Node: "m1", Reason: "Owner", Alive: true, Eligible: true, Weight: 3, ClaimEpoch: 7})
}

// tells fails unless there is a sentence for each of the words, in order, and none
// else.
func tells(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		ok = ok && strings.Contains(got[i], want[i])
	}
	if !ok {
		t.Errorf("%s\n got %q\nwant %q", what, got, want)
	}
}

func TestStory(t *testing.T) {
	v := viewOf(member("m2", model.MemberDead, nil), member("m3", model.MemberAlive, nil))
	own := vipStatus(addrA, "m1", model.ReasonOwner)
	own.Interface, own.Epoch, own.Since, own.Successors = "eth0", 9, now.Add(-time.Minute), []model.NodeName{"m2", "m3"}
	memory := func(m model.VIPMemory) *model.Desired {
		return &model.Desired{Memory: model.Memory{VIPs: map[netip.Addr]model.VIPMemory{addrA: m}}}
	}
	const owns = "m1 owns 10.0.0.1 on eth0 with epoch 9, unchanged for 1m0s."
	tells(t, "owner", story(v, memory(model.VIPMemory{Takeover: model.Takeover{From: "m2"}}), own), owns, "took it from m2", "If it fails, m3 takes over")
	own.Successors = own.Successors[:1]
	tells(t, "without successor", story(v, memory(model.VIPMemory{Takeover: model.Takeover{From: "m1"}}), own), owns, "Nobody could take over")
	v.Applied = map[model.SinkName]model.Applied{model.SinkLayer2: {VIPs: map[netip.Addr]model.AppliedVIP{addrA: {Conflicts: 1, Foreign: model.MAC{2, 0, 0, 0, 0, 9}}}}}
	tells(t, "conflict", story(v, memory(model.VIPMemory{}), own), owns, "Nobody could take over", "02:00:00:00:00:09")
	v.Applied = nil

	tells(t, "another owner", story(v, memory(model.VIPMemory{}), vipStatus(addrA, "m3", model.ReasonStandby)), "m3 owns 10.0.0.1")
	tells(t, "no owner", story(v, memory(model.VIPMemory{}), vipStatus(addrA, "", model.ReasonUnhealthy)), "Nobody that m1 knows of owns")
	waits := vipStatus(addrA, "", model.ReasonWaitingForRelease)
	tells(t, "waiting", story(v, memory(model.VIPMemory{Takeover: model.Takeover{From: "m2"}}), waits), "Nobody", "m2 is not heard in gossip")
	for left, more := range map[time.Duration][]string{time.Second: {"drops the address in 1s"}, 0: nil, -time.Second: nil} {
		m := v.Gossip.Members["m2"]
		m.LeaseEnd = now.Add(left)
		v.Gossip.Members["m2"] = m
		tells(t, "lease", story(v, memory(model.VIPMemory{Takeover: model.Takeover{From: "m2"}}), waits), append([]string{"Nobody", "m2 is not heard in gossip"}, more...)...)
	}
}

func TestBGPStory(t *testing.T) {
	owner := func(m *model.Member) { m.Standing[addrA] = model.ReasonOwner }
	v := viewOf(member("m2", model.MemberDead, owner), member("m3", model.MemberAlive, nil))
	v.Gossip.Eligible = map[netip.Addr][]model.NodeName{addrA: {"m2", "m3"}}
	s := vipStatus(addrA, "", model.ReasonAdvertised)
	s.BGP = true
	phase := func(p model.BGPPhase) *model.Desired {
		return &model.Desired{Memory: model.Memory{BGP: map[netip.Addr]model.BGPMemory{addrA: {Phase: p, Until: now.Add(time.Second)}}}}
	}
	tells(t, "nobody", story(v, phase(model.BGPAdvertised), s), "Every node", "m1 advertises it to nobody", "No other node")
	v.Gossip.Members["m4"] = member("m4", model.MemberAlive, owner)
	v.Gossip.Eligible[addrA] = []model.NodeName{"m2", "m3", "m4"}
	s.Peers = []string{"a", "b"}
	tells(t, "peers", story(v, phase(model.BGPAdvertised), s), "Every node", "m1 advertises it to a, b", "Of the other nodes m4 advertise it")
	tells(t, "shutdown", story(v, phase(model.BGPShutdown), s), "Every node", "to a, b", "the path is withdrawn in 1s", "Of the other nodes")
	waits := phase(model.BGPShutdown)
	waits.Memory.BGP[addrA] = model.BGPMemory{Phase: model.BGPShutdown}
	tells(t, "shutdown without end", story(v, waits, s), "Every node", "to a, b", "the path stays until they hear of the owner", "Of the other nodes")
	s.Peers = nil
	for _, p := range []model.BGPPhase{model.BGPKept, model.BGPLingering} {
		tells(t, "lingering", story(v, phase(p), s), "Every node", "nobody", "under way for 1s at most", "Of the other nodes")
	}
	tells(t, "unbinding", story(v, phase(model.BGPUnbinding), s), "Every node", "nobody", "Of the other nodes")
}

// TestExplainNames: the error of a VIP that is not there names each one once.
func TestExplainNames(t *testing.T) {
	w := newOnlooker(t)
	a, b := vipStatus(addrA, "", 0), vipStatus(addrB, "", 0)
	a.VIP.Name, b.VIP.Name = "cp", "cp"
	w.last = statuses(a, b)
	go func() {
		for change := range w.changes {
			change(&w.view)
		}
	}()
	defer close(w.changes)
	if _, err := w.Explain(t.Context(), "no", ""); err == nil || err.Error() != `there is no VIP "no"; the VIPs are ["cp"]` {
		t.Errorf("error %v", err)
	}
	if e, err := w.Explain(t.Context(), "10.0.0.2", ""); err != nil || len(e) != 1 || e[0].Address != "10.0.0.2" {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := w.Explain(t.Context(), "cp", ""); err != nil || len(e) != 2 {
		t.Errorf("%+v, %v", e, err)
	}
}

// samples are the values of all metrics by name and values of labels in order of
// their names.
func samples(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "lbd_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// TestGauges holds each value of a snapshot, all of them different where they could
// be mistaken for each other.
func TestGauges(t *testing.T) {
	w := newOnlooker(t)
	w.view.Gossip.Members = viewOf(member("m2", model.MemberDead, nil), member("m3", model.MemberDead, nil), member("m4", model.MemberLeft, nil)).Gossip.Members
	w.view.Applied = map[model.SinkName]model.Applied{
		model.SinkLayer2:  {VIPs: map[netip.Addr]model.AppliedVIP{addrA: {Conflicts: 5}, addrB: {Conflicts: 1}}},
		model.SinkAddress: {Err: "no space"},
		model.SinkBGP: {Peers: []model.PeerReport{
			{Name: "tor1", State: established, Paths: 1, Received: 2, Flaps: 3, UpdatesOut: 4, UpdatesIn: 5, KeepalivesOut: 6, KeepalivesIn: 7, NotificationsOut: 8, NotificationsIn: 9, BFD: "Up"},
			{Name: "tor2", State: "Active", BFD: "Down"},
			{Name: "tor3", State: "Active"},
		}},
	}
	bound, own, both := vipStatus(addrA, "m2", model.ReasonStandby), vipStatus(addrB, "m1", model.ReasonOwner), vipStatus(addrB, "m1", model.ReasonAdvertised)
	bound.Bound, own.Announced, own.Healthy, both.BGP = true, true, true, true
	want := statuses(bound, own, both)
	w.metrics.publish(&w.view, &want)
	got := samples(t, w.reg)
	for name, x := range map[string]float64{
		"vip_owner 10.0.0.1 l2 vip10.0.0.1": 0, "vip_owner 10.0.0.2 l2 vip10.0.0.2": 1, "vip_owner 10.0.0.2 bgp vip10.0.0.2": 1,
		"vip_announced 10.0.0.1 l2 vip10.0.0.1": 0, "vip_announced 10.0.0.2 l2 vip10.0.0.2": 1,
		"vip_healthy 10.0.0.1 l2 vip10.0.0.1": 0, "vip_healthy 10.0.0.2 l2 vip10.0.0.2": 1,
		"vip_conflicts_total 10.0.0.1 vip10.0.0.1": 5, "vip_conflicts_total 10.0.0.2 vip10.0.0.2": 1,
		"members alive": 0, "members dead": 2, "members left": 1,
		"driver_error address": 1, "driver_error layer2": 0, "driver_error bgp": 0, "settled": 0, "draining": 0,
		"bgp_session_up tor1": 1, "bgp_session_up tor2": 0, "bfd_session_up tor1": 1, "bfd_session_up tor2": 0,
		"bgp_announced_prefixes_total tor1": 1, "bgp_received_prefixes_total tor1": 2, "bgp_session_flaps_total tor1": 3,
		"bgp_updates_total tor1": 4, "bgp_updates_total_received tor1": 5, "bgp_keepalives_sent tor1": 6, "bgp_keepalives_received tor1": 7,
		"bgp_notifications_sent tor1": 8, "bgp_notifications_received tor1": 9,
	} {
		if y, ok := got[name]; !ok || x != y {
			t.Errorf("%s is %g, there %v; want %g", name, y, ok, x)
		}
	}
	if _, ok := got["bfd_session_up tor3"]; ok {
		t.Error("a session without BFD has a state of BFD")
	}
	for _, c := range []struct {
		draining, stopping bool
		want               float64
	}{{true, false, 1}, {false, true, 1}, {false, false, 0}} {
		w.view.Draining, w.view.Stopping = c.draining, c.stopping
		want.Memory.Settled = true
		w.metrics.publish(&w.view, &want)
		if got := samples(t, w.reg); got["draining"] != c.want || got["settled"] != 1 {
			t.Errorf("draining %g, settled %g for %+v", got["draining"], got["settled"], c)
		}
	}
	fresh := newOnlooker(t) // a scrape before the first decision
	if got := samples(t, fresh.reg); got["stalls_total"] != 0 || len(got) > 5 {
		t.Errorf("before the first decision %v", got)
	}
}

// TestNamesInAnError: each once, and of thousands the first few.
func TestNamesInAnError(t *testing.T) {
	var all []model.VIPStatus
	for i := range 3 * mostNames {
		name := "vip" + strconv.Itoa(i)
		all = append(all, model.VIPStatus{VIP: model.VIP{Name: name}}, model.VIPStatus{VIP: model.VIP{Name: name}, BGP: true})
	}
	if got := vipNames(all[:3]); !slices.Equal(got, []string{"vip0", "vip1"}) {
		t.Errorf("%q", got)
	}
	if got := vipNames(all); len(got) != mostNames+1 || got[mostNames] != "..." {
		t.Errorf("%d names: %q", len(got), got)
	}
}
