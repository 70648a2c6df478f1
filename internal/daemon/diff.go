package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// equal tells whether two decisions ask a driver for the same. Generation and times
// that pass by themselves do not count.
func equal(driver model.SinkName, a, b *model.Desired) bool {
	if a.Synced != b.Synced || a.Lapses != b.Lapses {
		return false
	}
	switch driver {
	case model.SinkAddress:
		return sameBind(a, b)
	case model.SinkLayer2:
		return sameList(a.L2, b.L2)
	case model.SinkBGP:
		return reflect.DeepEqual(a.BGP, b.BGP)
	case model.SinkRelay:
		return sameRelay(a, b)
	case model.SinkForward:
		return a.Forward.Same(&b.Forward)
	case model.SinkRoute:
		return a.Routes.Same(&b.Routes)
	case model.SinkGossip:
		return sameGroup(&a.Group, &b.Group)
	case model.SinkMachines:
		return a.Machines.Equal(&b.Machines)
	case model.SinkNotify:
		return model.SameList(a.Status, b.Status) && a.Group.Leave == b.Group.Leave
	}
	return sameBind(a, b) && sameList(a.L2, b.L2) && reflect.DeepEqual(a.BGP, b.BGP) &&
		sameRelay(a, b) && sameGroup(&a.Group, &b.Group) &&
		a.Forward.Same(&b.Forward) && a.Routes.Same(&b.Routes) && a.Machines.Equal(&b.Machines)
}

func sameRelay(a, b *model.Desired) bool {
	return a.Rings == b.Rings && a.Hearing == b.Hearing && a.Track == b.Track && a.Services.Asked == b.Services.Asked &&
		a.Services.Kept == b.Services.Kept && sameList(a.Relay, b.Relay)
}

func sameBind(a, b *model.Desired) bool {
	return sameList(a.Bind, b.Bind) && reflect.DeepEqual(a.Elsewhere, b.Elsewhere) && slices.Equal(a.Spared, b.Spared)
}

// sameLinks tells whether the interfaces are those of the last decision, as far as it
// looked at them. The source makes a new map for each change.
func (d *Daemon) sameLinks() bool {
	return reflect.ValueOf(d.links).Pointer() == reflect.ValueOf(d.view.Links).Pointer() ||
		d.links != nil && place.SameLinks(d.view.VIPs, d.links, d.view.Links)
}

// glance is up to how many VIPs reports are compared one by one. Drivers of more
// return the same map as before if there is no news.
const glance = 64

// sameReport tells whether two reports of a driver say the same.
func sameReport(a, b *model.Applied) bool {
	return a.Err == b.Err && a.Lapses == b.Lapses && a.Ring.Same(b.Ring) && sameTruth(a.VIPs, b.VIPs) && sameTruth(a.Loopback, b.Loopback) &&
		sameTruth(a.Paths, b.Paths) && sameTruth(a.Routes, b.Routes) && reflect.DeepEqual(a.Peers, b.Peers) &&
		slices.Equal(a.Learned, b.Learned) && slices.Equal(a.Masters, b.Masters)
}

func sameTruth[K comparable, V any](a, b map[K]V) bool {
	if len(a) != len(b) {
		return false
	}
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() || len(a) <= glance && reflect.DeepEqual(a, b)
}

// sameList compares two lists, at a glance if the decision took over the one of
// before.
func sameList[T comparable](a, b []T) bool { return model.SameList(a, b) || slices.Equal(a, b) }

func sameGroup(a, b *model.GroupState) bool {
	return a.Draining == b.Draining && a.Manager == b.Manager && a.Drained == b.Drained && model.SameDrains(a.Drains, b.Drains) &&
		a.Settled == b.Settled && a.Weight == b.Weight && a.Leave == b.Leave && a.Unready == b.Unready && a.Ask == b.Ask && slices.Equal(a.Witnesses, b.Witnesses) &&
		a.LeaseEnd.Equal(b.LeaseEnd) && reflect.DeepEqual(a.MACs, b.MACs) && a.Untold == b.Untold && slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.Hears, b.Hears) && sameList(a.VIPs, b.VIPs) &&
		reflect.DeepEqual(a.Heartbeats, b.Heartbeats) && slices.Equal(a.Owners, b.Owners) && slices.Equal(a.First, b.First)
}

// moved tells whether a phase began with the newer memory: it waits for reports
// of that generation, so the drivers must see it even if they are asked for the
// same as before.
func moved(a, b model.Memory) bool {
	return movedIn(a.VIPs, b.VIPs, func(x, y model.VIPMemory) bool { return x.Gen != y.Gen || x.Phase != y.Phase }) ||
		movedIn(a.BGP, b.BGP, func(x, y model.BGPMemory) bool { return x.Gen != y.Gen || x.Phase != y.Phase })
}

func movedIn[M any](a, b map[netip.Addr]M, moved func(x, y M) bool) bool {
	if len(a) == len(b) && reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() {
		return false
	}
	for k, m := range b {
		if moved(a[k], m) {
			return true
		}
	}
	return len(a) != len(b)
}

// observe compares two decisions and turns the difference into logs, events and metrics.
// What may be the cause of another change comes before it.
func (d *Daemon) observe(want *model.Desired) {
	if was := d.last.Memory.Settled; want.Memory.Settled != was {
		d.log.Info("group", "settled", want.Memory.Settled, "members", len(d.view.Gossip.Members)+1)
		d.note(v1alpha1.Event{Kind: v1alpha1.EventGroup, From: either(was, "settled", "not settled"), To: either(!was, "settled", "not settled")})
	}
	if want.Rules != d.last.Rules && d.last.Rules != 0 {
		d.log.Info("group", "rules", want.Rules)
		d.note(v1alpha1.Event{Kind: v1alpha1.EventGroup, From: fmt.Sprintf("rules %d", d.last.Rules), To: fmt.Sprintf("rules %d", want.Rules)})
	}
	d.services(&want.Services)
	d.members()
	d.silent(want)
	d.sessions()
	d.noteDrain(want)
	d.noteBackends()
	if !model.SameList(d.last.Status, want.Status) {
		d.compare(want)
	}
	d.noted.vips.due(d.view.Now, func(s *model.VIPStatus, c vipChange) {
		d.logVIP(s, c.passed)
		d.noteChange(want, s, &c, false)
	})
	d.noteConflicts(want)
	d.metrics.publish(&d.view, want)
}

// services logs whether connections to Services are kept, once that is known.
func (d *Daemon) services(is *model.Services) {
	if was := &d.noted.services; !is.Known || was.Known && was.Works == is.Works && was.Why() == is.Why() {
		return
	}
	d.noted.services = *is
	d.log.Info("services", "connections", either(is.Works, "keep", "reset"), "reason", is.Why())
}

// compare finds the VIPs that have changed. Both lists are sorted by address, layer
// 2 before BGP.
func (d *Daemon) compare(want *model.Desired) {
	old, none := d.last.Status, &model.VIPStatus{}
	for i := range want.Status {
		s, was := &want.Status[i], none
		for len(old) > 0 && before(&old[0], s) {
			d.forget(&old[0])
			old = old[1:]
		}
		if len(old) > 0 && !before(s, &old[0]) {
			was, old = &old[0], old[1:]
		}
		stood := was != none && d.noteStanding(was, s)
		if was == none || was.Owner != s.Owner || was.Reason != s.Reason {
			if c, say := d.noted.vips.changed(s, d.view.Now); say {
				d.logVIP(s, c.passed)
				d.noteChange(want, s, &c, stood)
			}
			d.metrics.moved.count(s)
		}
		if !s.BGP && was.Duplicate != s.Duplicate {
			d.noteVIP(s, v1alpha1.Event{Kind: v1alpha1.EventDuplicate, From: was.Duplicate, To: s.Duplicate})
		}
		if !s.BGP && s.Owner == d.opts.Node && s.Announced && !was.Announced {
			d.tookOver(want, *s)
		}
	}
	for i := range old {
		d.forget(&old[i])
	}
}

// forget drops a VIP that is configured no more.
func (d *Daemon) forget(s *model.VIPStatus) {
	d.metrics.moved.forget(s)
	d.noted.vips.forget(s)
	delete(d.noted.clashes, s.VIP.Addr)
	d.noteVIP(s, v1alpha1.Event{Kind: v1alpha1.EventVIP, From: "configured"})
}

// logVIP logs where a VIP is now. What a person should look at is a warning, so
// that a log without the usual does not hide it. Passed is how often it was on its way
// for a moment since the last line, and then as before.
func (d *Daemon) logVIP(s *model.VIPStatus, passed int) {
	level := slog.LevelInfo
	if s.Reason.Look() {
		level = slog.LevelWarn
	}
	with := []any{"vip", s.VIP.Name, "address", s.VIP.Addr, "mode", mode(s), "reason", s.Reason.String(), "owner", string(s.Owner)}
	if s.Epoch != 0 { // nobody's claim, or BGP's, has none
		with = append(with, "epoch", s.Epoch)
	}
	if passed > 0 {
		with = append(with, "passed", passed)
	}
	d.log.Log(context.Background(), level, "vip", append(with, "iface", s.Interface, "detail", s.Detail)...)
}

// before orders statuses.
func before(a, b *model.VIPStatus) bool {
	if c := a.VIP.Addr.Compare(b.VIP.Addr); c != 0 {
		return c < 0
	}
	return !a.BGP && b.BGP
}

// mode is how a status says that its VIP is announced.
func mode(s *model.VIPStatus) string {
	if s.BGP {
		return "bgp"
	}
	return "l2"
}

// tookOver measures how long the VIP was without this owner. It is a warning if
// another owner was lost without having named this node.
func (d *Daemon) tookOver(want *model.Desired, s model.VIPStatus) {
	m := want.Memory.VIPs[s.VIP.Addr]
	if m.LostAt.IsZero() {
		return
	}
	took := d.view.Now.Sub(m.LostAt)
	d.metrics.takeover.Observe(took.Seconds())
	level := slog.LevelInfo
	if was := d.view.Memory.VIPs[s.VIP.Addr]; unplanned(d.opts.Node, &m, &was) {
		level = slog.LevelWarn
	}
	d.log.Log(context.Background(), level, "announced", "vip", s.VIP.Name, "address", s.VIP.Addr, "from", string(m.From), "after", took)
	d.noteVIP(&s, v1alpha1.Event{Kind: v1alpha1.EventAnnounced, From: string(m.From), To: string(d.opts.Node), Gap: gap(took)})
}

// unplanned tells of a VIP that this node has begun to announce whether another
// owner was lost, by the memories of this decision and of the one before.
func unplanned(self model.NodeName, is, was *model.VIPMemory) bool {
	return !was.Consented && is.From != "" && is.From != self
}

// noted is what was last logged, or noted as an event, of each thing: only a change of it is
// told.
type noted struct {
	members    map[model.NodeName]lastSeen
	sessions   map[string]session
	vips       vipLog
	drains     bool
	contested  map[netip.Addr]model.AppliedVIP
	clashes    map[netip.Addr]clash
	backends   backendNotes
	configured configured
	services   model.Services
}

// session is what was last logged of one.
type session struct {
	state string
	bfd   string
	addr  netip.Addr
}

// sessions logs which BGP sessions came up and went down.
func (d *Daemon) sessions() {
	peers := d.view.Applied[model.SinkBGP].Peers
	for i := range peers {
		p := &peers[i]
		was, known := d.noted.sessions[p.Name]
		d.noteBFD(p, was.bfd)
		up := p.State == established
		if known && (was.state == established) == up {
			d.noted.sessions[p.Name] = session{was.state, p.BFD, p.Address}
			continue
		}
		d.noted.sessions[p.Name] = session{p.State, p.BFD, p.Address}
		why := ""
		switch {
		case up:
			d.log.Info("bgp", "peer", p.Name, "address", p.Address, "state", p.State, "hold", p.HoldTime)
		case p.LastError != "":
			d.log.Warn("bgp", "peer", p.Name, "address", p.Address, "state", p.State, "reason", p.LastError)
			why = p.LastError
		default:
			d.log.Info("bgp", "peer", p.Name, "address", p.Address, "state", p.State)
		}
		d.note(v1alpha1.Event{Kind: v1alpha1.EventBGP, Peer: p.Name, Address: text(p.Address), From: was.state, To: p.State, Detail: why})
	}
	for name, was := range d.noted.sessions {
		if !slices.ContainsFunc(peers, func(p model.PeerReport) bool { return p.Name == name }) {
			d.note(v1alpha1.Event{Kind: v1alpha1.EventBGP, Peer: name, Address: text(was.addr), From: was.state})
			delete(d.noted.sessions, name)
		}
	}
}

// lastSeen is what was last logged of a member.
type lastSeen struct {
	state    model.MemberState
	draining bool
}

// members logs who came and went.
func (d *Daemon) members() {
	for n, m := range d.view.Gossip.Members {
		was, ok := d.noted.members[n]
		if !ok && m.State != model.MemberAlive {
			continue // known from others, perhaps before it is met
		}
		if !ok || was.state != m.State {
			d.log.Info("member", "peer", string(n), "state", m.State.String(), "address", m.Addr)
			e := v1alpha1.Event{Kind: v1alpha1.EventMember, Node: string(n), Address: text(m.Addr), To: m.State.String()}
			if ok {
				e.From = was.state.String()
			}
			d.note(e)
		}
		if was.draining != m.Draining {
			d.note(v1alpha1.Event{Kind: v1alpha1.EventDrain, Node: string(n), Address: text(m.Addr), From: drains(was.draining), To: drains(m.Draining)})
		}
		if is := (lastSeen{m.State, m.Draining}); !ok || is != was {
			d.noted.members[n] = is
		}
	}
	for n, was := range d.noted.members {
		if _, ok := d.view.Gossip.Members[n]; !ok {
			d.log.Info("member", "peer", string(n), "state", forgotten)
			d.note(v1alpha1.Event{Kind: v1alpha1.EventMember, Node: string(n), From: was.state.String(), To: forgotten})
			delete(d.noted.members, n)
		}
	}
}

// forgotten is the state of a node that is no member any more, not even a dead one.
const forgotten = "forgotten"

// silent logs which nodes of rings the wire says are gone, before the group does, and
// which of them answer again.
func (d *Daemon) silent(want *model.Desired) {
	for a, p := range want.Memory.Rings {
		if was := d.last.Memory.Rings[a]; was.Silent != p.Silent {
			d.log.Info("ring", "peer", string(p.Node), "address", a, "iface", p.Interface, "answers", !p.Silent)
			d.note(v1alpha1.Event{Kind: v1alpha1.EventRing, Node: string(p.Node), Address: text(a), From: either(was.Silent, "silent", "answers"), To: either(p.Silent, "silent", "answers")})
		}
	}
}
