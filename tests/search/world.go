// Package search walks every state that a small group can get into, with the real
// decision code and a model of everything around it: gossip as copies of records
// that arrive late, never, or in any order relative to other events; a wire that
// answers probes; kernels whose addresses outlive their daemons; clocks that run at
// any speed relative to each other.
//
// What the model leaves out: the time between a probe series and the binding
// (bounded by Binding.AddBefore and tested in package address), lost probes
// (three are sent), and drivers that lag behind their daemon (see Lag).
package search

import (
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/decide"
	"lbd.dev/lbd/internal/model"
)

// N is the number of nodes.
const N = 3

var (
	names = [N]model.NodeName{"a", "b", "c"}
	vip   = netip.MustParseAddr("10.0.0.200")
	macs  = [N]model.MAC{{2, 0, 0, 0, 0, 3}, {2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}} // not in order of rank
	// epoch0 is the present of every node; timers are either past or future.
	epoch0 = time.Unix(1_000_000, 0)
)

const (
	future = time.Hour
	drain  = 30 * time.Minute
)

// record is what a node tells the others about the VIP.
type record struct {
	standing model.Reason
	claim    model.Claim
	seen     uint64
	settled  bool
	known    bool
}

// node is one machine.
type node struct {
	up       bool // daemon runs
	draining bool
	sick     bool // health check fails
	degraded bool // the required part of it passes, the preferred one fails
	mem      model.VIPMemory
	// Kernel: survives the daemon until the lifetime ends.
	bound, silent bool
	// For a VIP that BGP advertises too: lo is whether it is on lo, path whether the
	// router has a path, exposed that it may have answered on the wire from lo while
	// one driver was slower than the other.
	bgp               model.BGPMemory
	lo, path, exposed bool
	// For a VIP that is not bound: responds is whether the daemon answers for it, frozen
	// that it does not run; lapse is 1 after that, and 2 once its layer 2 has told it.
	responds, frozen bool
	lapse            uint8
	// waits are words of others in the socket of a node that is frozen: not the last ones
	// when it reads them. resumed: it has not heard all of what they have said since.
	waits   [N]record
	resumed bool
	// Probe series: 0 none, 1 first probe sent, 2 last probe sent.
	probe    uint8
	answered bool
	by       model.MAC // who answered; only in doubt
	rivals   uint8     // who else asked, a bit each
	// What it tells and what it knows.
	tells record
	knows [N]record
	dead  [N]bool // the failure detector's word
	late  [N]bool // heartbeats overdue
	// missed: heartbeats are missed, but for less long.
	missed [N]bool
	seen   uint64
	// open: connections to the VIP are open here.
	open bool
	// foreign is who else announced the VIP while this node did; zero if nobody.
	foreign model.MAC
}

// World is one state of everything.
type World struct {
	n [N]node
	// offWire and offGossip cut one node from all others; -1 is nobody.
	offWire, offGossip int8
	// healed: two sides with an owner each have just met; until that is resolved
	// two may answer.
	healed bool
	faults uint8 // left to happen
	// deaf: the cut of gossip does not heal, and of faults only nodes may die, or there would
	// be too many states.
	deaf bool
	// both: BGP advertises the VIP too. Then there are two nodes only.
	both bool
	// unbound: nothing is bound, the daemons answer for the VIP.
	unbound bool
	// open: whoever answers for the VIP gets connections, which stay open for as long as
	// they like, so that nodes keep the address, silently, and have it back. Then there
	// are two nodes only.
	open bool
	// levels: nodes become degraded, and are up again, each of which counts as a fault.
	// There are no others.
	levels bool
	// nervous: successors ask the wire long before they know that the owner is late. Then there
	// are two nodes only.
	nervous bool
}

// kind is what is special about the VIP.
type kind struct{ both, unbound, open, levels, nervous bool }

// Start is the state in which all daemons have just begun to run.
func Start(faults uint8) World { return start(faults, kind{}) }

func start(faults uint8, k kind) World {
	w := World{offWire: -1, offGossip: -1, faults: faults, both: k.both, unbound: k.unbound, open: k.open, levels: k.levels, nervous: k.nervous}
	for i := range w.size() {
		w.n[i].up = true
	}
	for i := range w.size() {
		w.decide(i, epoch0)
	}
	return w
}

// Settled is the state in which all know each other and one owns the VIP.
func Settled(faults uint8) World { return settled(faults, kind{}) }

func settled(faults uint8, k kind) World {
	w := start(faults, k)
	for range 20 {
		w.calm()
	}
	return w
}

// size is the number of nodes.
func (w *World) size() int {
	if w.both || w.open || w.nervous {
		return 2
	}
	return N
}

// wired tells whether frames of i reach j.
func (w *World) wired(i, j int) bool {
	return i != j && int8(i) != w.offWire && int8(j) != w.offWire
}

// linked tells whether gossip of i reaches j.
func (w *World) linked(i, j int) bool {
	return w.wired(i, j) && int8(i) != w.offGossip && int8(j) != w.offGossip
}

// answers tells whether the kernel of i answers for the VIP, or its daemon.
func (w *World) answers(i int) bool {
	n := &w.n[i]
	if w.unbound {
		return n.runs() && n.responds
	}
	return (n.bound || n.lo) && !n.silent
}

// runs tells whether the daemon does.
func (n *node) runs() bool { return n.up && !n.frozen }

// view builds what node i may look at.
func (w *World) view(i int, now time.Time) model.View {
	n := &w.n[i]
	v := model.View{
		Now: now, Started: epoch0.Add(-2 * future), Self: names[i], Draining: n.draining, DrainTimeout: drain,
		Synced: map[model.SourceName]bool{
			model.SourceConfig: true, model.SourceGossip: true, model.SourceHealth: true, model.SourceLink: true,
		},
		VIPs:   []model.VIP{{Addr: vip, Name: "vip", Kind: "VirtualIP", L2: true, Check: "vip"}},
		Links:  map[string]model.Link{"eth0": {Name: "eth0", Index: 2, Up: true, MAC: macs[i], IPv6: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.9/24")}, Since: epoch0.Add(-2 * future)}},
		Health: map[string]model.HealthState{"vip": {State: model.HealthUp}},
		Gossip: model.Gossip{
			Peers: w.size() - 1, Members: map[model.NodeName]model.Member{}, Claims: map[netip.Addr][]model.Claim{},
			Eligible: map[netip.Addr][]model.NodeName{}, Seen: map[netip.Addr]uint64{vip: n.seen},
		},
		Applied: map[model.SinkName]model.Applied{},
		Memory: model.Memory{
			Gen: 10, Membership: model.Membership{Settled: true, SettleBase: epoch0.Add(-2 * future)}, VIPs: map[netip.Addr]model.VIPMemory{vip: n.mem},
		},
	}
	v.VIPs[0].Unbound = w.unbound
	if n.resumed {
		v.Resumed = epoch0
	}
	if w.both {
		v.VIPs[0].BGP = []model.BGPAdvert{{}}
		v.Peers = []model.BGPPeer{{Name: "tor", LocalASN: 1, PeerASN: 2, IPv4: true, ShutdownDelay: future}}
		v.Memory.BGP = map[netip.Addr]model.BGPMemory{}
		if n.bgp != (model.BGPMemory{}) {
			v.Memory.BGP[vip] = n.bgp
		}
	}
	if n.sick {
		v.Health["vip"] = model.HealthState{State: model.HealthDown}
	}
	if n.degraded && !n.sick {
		v.Health["vip"] = model.HealthState{State: model.HealthDegraded}
	}
	for j := range w.n {
		if j != i {
			w.tell(&v.Gossip, i, j, now)
		}
	}
	return v
}

// tell adds what node i knows of j.
func (w *World) tell(g *model.Gossip, i, j int, now time.Time) {
	n := &w.n[i]
	k := n.knows[j]
	if !k.known {
		if w.linked(i, j) && w.n[j].runs() { // memberlist knows of it
			g.Members[names[j]] = model.Member{Name: names[j], Heard: now}
		}
		return
	}
	m := model.Member{Name: names[j], Known: true, Told: true, Settled: true, MACs: []model.MAC{macs[j]},
		Standing: map[netip.Addr]model.Reason{vip: k.standing}}
	if !w.unbound {
		m.Names = map[netip.Addr]string{vip: "vip"}
	}
	if n.dead[j] {
		m.State = model.MemberDead
	}
	if w.linked(i, j) && w.n[j].runs() {
		m.Heard = now // it answers at once
	}
	if n.late[j] {
		m.Late = epoch0.Add(-time.Millisecond)
	}
	if n.missed[j] {
		m.Suspect, m.Missing = epoch0, true
	}
	g.Members[names[j]] = m
	if k.claim.Epoch > 0 {
		g.Claims[vip] = append(g.Claims[vip], k.claim)
	}
	if k.standing.Eligible() {
		g.Eligible[vip] = append(g.Eligible[vip], names[j])
	}
}

// decide lets node i decide and its drivers obey until nothing changes any more.
func (w *World) decide(i int, now time.Time) {
	n := &w.n[i]
	if !n.runs() {
		return
	}
	was := w.answers(i)
	key := w.local(i, now)
	if done, ok := decided[string(key)]; ok {
		*n = done
	} else {
		if alone := w.settle(i, now); alone {
			decided[string(key)] = *n
		}
	}
	w.announce(i, was)
	w.normalise()
}

// decided are the decisions that were made, by all that they depend on: in the states of
// a group the same ones are met again and again.
var decided = map[string]node{}

// local is what the decision of a node depends on.
func (w *World) local(i int, now time.Time) []byte {
	b := append(make([]byte, 0, 128), byte(i), bit(now.After(epoch0)), bit(w.both)|bit(w.unbound)<<1|bit(w.open)<<2|bit(w.levels)<<3)
	for j := range w.n {
		b = append(b, bit(w.linked(i, j) && w.n[j].runs()))
	}
	return w.n[i].key(b, w.open)
}

// settle makes decisions until they are all carried out, and tells whether that concerned
// the node alone: a probe is heard by others.
func (w *World) settle(i int, now time.Time) (alone bool) {
	n := &w.n[i]
	alone = true
	v := w.view(i, now)
	var probe model.ProbeResult
	if n.probe == 3 {
		probe = model.ProbeResult{Series: n.mem.Series, Done: true, Answered: n.answered, By: n.by, At: now}
		for j := range w.n {
			if n.rivals&(1<<j) != 0 {
				probe.Meet(macs[j])
			}
		}
	}
	for gen := uint64(10); gen < 30; gen++ {
		v.Memory.Gen = gen
		n.reports(&v, gen, probe)
		if w.both {
			n.report(&v, gen)
		}
		d := decide.Decide(&v)
		before := *n
		n.mem = d.Memory.VIPs[vip]
		n.bound = len(d.Bind) > 0 && d.Bind[0].Interface != model.LoopbackInterface
		if before.mem.Phase != n.mem.Phase {
			n.foreign = model.MAC{}
		}
		n.mem.Conflicts = 0
		n.silent = len(d.L2) > 0 && d.L2[0].Mode == model.L2Silent && (n.bound || before.bound)
		n.open = n.open || w.open && n.bound && !n.silent
		n.responds = len(d.L2) > 0 && d.L2[0].Respond && d.Lapses == uint64(n.lapse+1)/2
		if w.both {
			n.obey(&d, &before)
		}
		probing := len(d.L2) > 0 && d.L2[0].Mode == model.L2Probe
		if probing && (n.probe == 0 || n.mem.Series != before.mem.Series) {
			w.startProbe(i)
			alone = false
			probe = model.ProbeResult{}
		} else if !probing {
			n.probe, n.answered, n.by, n.rivals = 0, false, model.MAC{}, 0
		}
		g := d.Group.VIPs[0]
		n.tells = record{standing: g.Standing, claim: g.Claim, seen: g.Seen, settled: true, known: true}
		n.seen = max(n.seen, g.Seen, g.Claim.Epoch)
		v.Gossip.Seen[vip] = n.seen
		same := v.Memory.VIPs[vip].Phase == n.mem.Phase && before.bound == n.bound && before.silent == n.silent && before.probe == n.probe && v.Memory.VIPs[vip].Gen == n.mem.Gen && before.tells == n.tells && before.responds == n.responds &&
			before.lo == n.lo && before.path == n.path && before.bgp.Phase == n.bgp.Phase && before.bgp.Gen == n.bgp.Gen
		v.Memory = d.Memory
		if same {
			break
		}
	}
	if n.lapse == 2 {
		n.lapse = 0
	}
	return alone
}

// reports says what the drivers of addresses and of layer 2 do.
func (n *node) reports(v *model.View, gen uint64, probe model.ProbeResult) {
	l2 := model.AppliedVIP{Probe: probe, Silent: n.silent, Announcing: (n.bound && !n.silent || n.responds) && (n.mem.Phase == model.PhaseOwner || n.mem.Phase == model.PhaseHandover)}
	if n.foreign != (model.MAC{}) {
		l2.Conflicts, l2.Foreign = 1, n.foreign
	}
	address := model.AppliedVIP{Bound: n.bound, Connections: 0, Sockets: int(bit(n.open))}
	if n.bound {
		address.Interface = "eth0"
	}
	v.Applied[model.SinkAddress] = model.Applied{Gen: gen, VIPs: map[netip.Addr]model.AppliedVIP{vip: address}, Loopback: n.loopback()}
	v.Applied[model.SinkLayer2] = model.Applied{Gen: gen, Lapses: uint64(n.lapse / 2), VIPs: map[netip.Addr]model.AppliedVIP{vip: l2}}
}

// loopback is what the address driver says of lo.
func (n *node) loopback() map[netip.Addr]model.AppliedVIP {
	if !n.lo {
		return nil
	}
	return map[netip.Addr]model.AppliedVIP{vip: {Bound: true, Interface: model.LoopbackInterface}}
}

// report is reports of the BGP driver; the session is always there.
func (n *node) report(v *model.View, gen uint64) {
	a := model.Applied{Gen: gen, Peers: []model.PeerReport{{Name: "tor", State: "Established"}}}
	if n.path {
		a.Paths = map[netip.Prefix][]string{model.PrefixOf(vip, 0): {"tor"}}
	}
	v.Applied[model.SinkBGP] = a
}

// obey does what is asked for lo and for BGP. The drivers of addresses and of layer
// 2 work at the same time: whichever is faster, the address must not answer from lo.
func (n *node) obey(d *model.Desired, before *node) {
	n.bgp = d.Memory.BGP[vip]
	n.lo = len(d.Bind) > 0 && d.Bind[len(d.Bind)-1].Interface == model.LoopbackInterface
	n.path = len(d.BGP.Paths) > 0
	n.silent = len(d.L2) > 0 && (d.L2[0].Mode == model.L2Silent || d.L2[0].Quiet)
	n.exposed = n.exposed || n.lo && !n.bound && !before.silent || before.lo && !before.bound && !n.silent
}

// announce reaches everybody on the wire; whoever hands over takes note. For owners see
// fights.
func (w *World) announce(i int, was bool) {
	if was || !w.answers(i) {
		return
	}
	for j := range w.n {
		if w.wired(i, j) && w.n[j].up && w.answers(j) && w.n[j].mem.Phase != model.PhaseOwner {
			w.n[j].foreign = macs[i]
			w.decide(j, epoch0)
		}
	}
}

// startProbe sends the first probe of a series and notes who else is asking.
func (w *World) startProbe(i int) {
	n := &w.n[i]
	n.probe, n.answered, n.by, n.rivals = 1, false, model.MAC{}, 0
	w.sendProbe(i)
}

// sendProbe asks the wire once: holders answer, rivals take note of each other.
func (w *World) sendProbe(i int) {
	n := &w.n[i]
	for j := range w.n {
		if !w.wired(i, j) {
			continue
		}
		if w.answers(j) {
			n.answered = true
			if n.mem.Phase == model.PhaseDoubt && (n.by == model.MAC{} || macs[j].Compare(n.by) < 0) {
				n.by = macs[j]
			}
		}
		if p := w.n[j].probe; p == 1 || p == 2 {
			n.rivals |= 1 << j
			w.n[j].rivals |= 1 << i
		}
	}
}

// calm lets one round of messages, timers and probes happen.
func (w *World) calm() {
	for i := range w.n {
		n := &w.n[i]
		if !n.up {
			n.bound, n.lo, n.silent = false, false, false
			continue
		}
		w.thaw(i)
		w.told(i)
		for j := range w.n {
			if i == j {
				continue
			}
			reach := w.n[j].up && w.linked(i, j)
			if n.knows[j].known {
				n.dead[j] = !reach
			}
			n.missed[j] = n.missed[j] && !reach
			n.late[j] = !reach && n.knows[j].claim.Epoch > 0
			if reach {
				w.deliver(j, i)
			}
		}
		w.decide(i, epoch0)
		w.finish(i)
		// Turns are further apart than a series is long, so that one timer and what
		// follows from it come before the next node's.
		w.timer(i)
		w.finish(i)
		w.dispute(i)
		w.finish(i)
	}
}

// finish lets a running probe series come to its end.
func (w *World) finish(i int) {
	n := &w.n[i]
	if n.probe == 1 {
		n.probe = 2
		w.sendProbe(i)
	}
	if n.probe == 2 {
		n.probe = 3
		w.decide(i, epoch0)
	}
}
