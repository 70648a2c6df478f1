package daemon

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// conflictEvery is how often there is an event of a conflict that goes on. A hostile host
// may send thousands of frames a second.
const conflictEvery = time.Minute

// note adds an event at the time of this decision, of this node unless it names another.
func (d *Daemon) note(e v1alpha1.Event) {
	e.Node, e.Time = cmp.Or(e.Node, string(d.opts.Node)), d.view.Now
	d.events.add(e)
}

// noteVIP adds an event of a VIP, at the time of this decision unless it has one.
func (d *Daemon) noteVIP(s *model.VIPStatus, e v1alpha1.Event) {
	e.VIP, e.Address, e.Mode, e.Node = s.VIP.Name, s.VIP.Addr.String(), mode(s), string(d.opts.Node)
	if e.Time.IsZero() {
		e.Time = d.view.Now
	}
	d.events.addVIP(e, d.view.Now)
}

// noteChange adds an event for a change that was logged: of the owner, or else of the reason,
// unless that of the standing, which is noted, says the same.
func (d *Daemon) noteChange(want *model.Desired, s *model.VIPStatus, c *vipChange, stood bool) {
	switch {
	case c.first:
		d.noteVIP(s, v1alpha1.Event{Kind: v1alpha1.EventVIP, To: "configured", Reason: s.Reason.String(), Detail: s.Detail})
		if s.Owner != "" {
			d.noteVIP(s, v1alpha1.Event{Kind: v1alpha1.EventOwner, To: string(s.Owner)})
		}
	case c.owner != s.Owner:
		why, detail := d.cause(want, s, c.owner)
		d.noteVIP(s, v1alpha1.Event{
			Kind: v1alpha1.EventOwner, Time: c.at, From: string(c.owner), To: string(s.Owner), Reason: why, Detail: detail, Gap: gap(c.gap),
		})
	case c.reason != s.Reason && !(stood && s.Reason == mayOwn(s.Standing)):
		d.noteVIP(s, v1alpha1.Event{Kind: v1alpha1.EventReason, Time: c.at, From: c.reason.String(), To: s.Reason.String(), Detail: s.Detail})
	}
}

// noteStanding adds an event if this node may own a VIP and could not before, or the other
// way round, or for another reason.
func (d *Daemon) noteStanding(was, is *model.VIPStatus) bool {
	from, to := mayOwn(was.Standing), mayOwn(is.Standing)
	if from == to {
		return false
	}
	d.noteVIP(is, v1alpha1.Event{Kind: v1alpha1.EventStanding, From: from.String(), To: to.String(), Detail: d.standingDetail(is)})
	return true
}

// mayOwn is a standing for which it does not matter whether the node owns the VIP now.
func mayOwn(r model.Reason) model.Reason {
	if r == model.ReasonOwner {
		return model.ReasonStandby
	}
	return r
}

// standingDetail says more about the standing of this node: the status itself may be about
// something else, such as the handover that follows.
func (d *Daemon) standingDetail(s *model.VIPStatus) string {
	switch {
	case s.Standing == s.Reason:
		return s.Detail
	case s.Standing == model.ReasonUnhealthy, s.Standing == model.ReasonDegraded:
		return d.view.Health[s.VIP.Check].Detail
	}
	return ""
}

// cause says why a VIP left its owner, as far as this node knows: in one word, and in more.
func (d *Daemon) cause(want *model.Desired, s *model.VIPStatus, from model.NodeName) (reason, detail string) {
	if from == d.opts.Node {
		m := want.Memory.VIPs[s.VIP.Addr]
		switch {
		case !s.Standing.Eligible(), s.Standing == model.ReasonDegraded:
			return s.Standing.String(), d.standingDetail(s)
		case m.Lost != model.ReasonOwner: // which is none
			return m.Lost.String(), m.LostDetail
		case s.Reason == model.ReasonStandby: // which says nothing of before
			return "", ""
		}
		return s.Reason.String(), s.Detail
	}
	m, known := d.view.Gossip.Members[from]
	stand := m.Standing[s.VIP.Addr]
	switch {
	case from == "":
		return "", ""
	case !known:
		return "Forgotten", ""
	case m.State == model.MemberDead:
		return "Dead", ""
	case m.State == model.MemberLeft:
		return "Left", ""
	case !m.Late.IsZero():
		return "Late", "heartbeats overdue for " + late(&d.view, m)
	case !m.Suspect.IsZero():
		m.Late = m.Suspect
		return "Late", "heartbeats overdue for " + late(&d.view, m)
	case stand != model.ReasonOwner && stand != model.ReasonStandby:
		return stand.String(), ""
	case m.Draining:
		return model.ReasonDraining.String(), ""
	}
	return "", ""
}

// noteDrain adds an event if this node began or ended to drain.
func (d *Daemon) noteDrain(want *model.Desired) {
	is := draining(&d.view, want)
	if is == d.noted.drains {
		return
	}
	e := v1alpha1.Event{Kind: v1alpha1.EventDrain, From: drains(d.noted.drains), To: drains(is)}
	machine := want.Memory.Machine.Words(d.opts.Node)
	switch {
	case d.view.Stopping:
		e.Reason, e.Detail = model.ReasonDraining.String(), "the daemon is stopping"
	case machine != "":
		e.Reason, e.Detail = model.ReasonMachineDraining.String(), machine
	case is:
		e.Reason, e.Detail = model.ReasonDraining.String(), "asked for by lbd drain"
	}
	d.noted.drains = is
	d.note(e)
}

// noteBFD adds an event if a BFD session came up or went down.
func (d *Daemon) noteBFD(p *model.PeerReport, was string) {
	const up = "Up"
	if (p.BFD == up) != (was == up) {
		d.note(v1alpha1.Event{Kind: v1alpha1.EventBFD, Peer: p.Name, Address: text(p.Address), From: was, To: p.BFD})
	}
}

// clash is what was last noted of a conflict.
type clash struct {
	count uint64
	at    time.Time
}

// noteConflicts adds events of hosts that use a VIP which is announced here.
func (d *Daemon) noteConflicts(want *model.Desired) {
	now := d.view.Applied[model.SinkLayer2].VIPs
	if sameMap(d.noted.contested, now) {
		return
	}
	d.noted.contested = now
	for i := range want.Status {
		s := &want.Status[i]
		is := now[s.VIP.Addr]
		if s.BGP || is.Conflicts == 0 || d.ofMember(is.Foreign) { // a successor may announce before its claim is heard
			continue
		}
		// The driver counts from 0 whenever the node takes the VIP.
		if was, noted := d.noted.clashes[s.VIP.Addr]; noted && (is.Conflicts == was.count || d.view.Now.Sub(was.at) < conflictEvery) {
			continue
		}
		d.noted.clashes[s.VIP.Addr] = clash{is.Conflicts, d.view.Now}
		d.noteVIP(s, v1alpha1.Event{Kind: v1alpha1.EventConflict, To: is.Foreign.String(), Detail: fmt.Sprintf("frames so far: %d", is.Conflicts)})
	}
}

// ofMember tells whether a member has this hardware address.
func (d *Daemon) ofMember(mac model.MAC) bool {
	for _, m := range d.view.Gossip.Members {
		if slices.Contains(m.MACs, mac) {
			return true
		}
	}
	return false
}

// NoteConfiguration notes which configuration is in force, and why a newer one was refused,
// "" if none was. It is no reason to decide.
func (d *Daemon) NoteConfiguration(generation uint64, refused string) {
	d.hand(func(*model.View) {
		was := d.noted.configured
		d.noted.configured = configured{generation, refused}
		e := v1alpha1.Event{
			Kind: v1alpha1.EventConfig, Node: string(d.opts.Node), Time: time.Now(), To: fmt.Sprintf("generation %d", generation),
		}
		switch {
		case was.refused != "":
			e.From = "refused"
		case was.generation > 0:
			e.From = fmt.Sprintf("generation %d", was.generation)
		}
		switch {
		case refused != "" && refused != was.refused:
			e.To, e.Detail = "refused", refused
		case refused != "", generation == was.generation && was.refused == "":
			return
		}
		d.events.add(e)
	})
}

// configured is what was last noted of the configuration.
type configured struct {
	generation uint64
	refused    string
}

func gap(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.Round(time.Millisecond).String()
}

func drains(is bool) string { return either(is, "draining", "") }

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// backendKey is a server of a LoadBalancer.
type backendKey struct {
	balancer string
	server   netip.AddrPort
}

// backendNotes are the states of the backends, as last noted.
type backendNotes struct {
	balancers []model.LoadBalancer
	health    map[string]model.HealthState
	states    map[backendKey]string
}

// noteBackends adds events of backends that count as up or down now and did not before, or were
// taken out of service. A backend is not noted before it is known how it does.
func (d *Daemon) noteBackends() {
	n, v := &d.noted.backends, &d.view
	if sameMap(n.health, v.Health) && model.SameList(n.balancers, v.LoadBalancers) {
		return
	}
	n.balancers, n.health = v.LoadBalancers, v.Health
	was := n.states
	n.states = make(map[backendKey]string, len(was))
	for i := range v.LoadBalancers {
		lb := &v.LoadBalancers[i]
		for j := range lb.Servers {
			x := &lb.Servers[j]
			k := backendKey{lb.Name, netip.AddrPortFrom(x.Addr, x.Port)}
			is, detail := backendState(x, v.Health)
			if is == "" {
				is = was[k] // it is checked anew
			}
			if n.states[k] = is; is == was[k] {
				continue
			}
			d.events.addVIP(v1alpha1.Event{
				Kind: v1alpha1.EventBackend, Time: v.Now, Node: string(d.opts.Node), VIP: lb.Name, Address: backend(x.Addr, x.Port), From: was[k], To: is, Detail: detail,
			}, v.Now)
		}
	}
	var gone []backendKey
	for k := range was {
		if _, is := n.states[k]; !is && was[k] != "" {
			gone = append(gone, k)
		}
	}
	slices.SortFunc(gone, func(a, b backendKey) int { return a.server.Compare(b.server) })
	for _, k := range gone {
		d.events.addVIP(v1alpha1.Event{
			Kind: v1alpha1.EventBackend, Time: v.Now, Node: string(d.opts.Node), VIP: k.balancer, Address: backend(k.server.Addr(), k.server.Port()), From: was[k],
		}, v.Now)
	}
}

// backendState is how a server counts: "" while it is not known.
func backendState(x *model.Server, health map[string]model.HealthState) (state, detail string) {
	if x.Weight == 0 {
		return "out of service", "its weight is 0"
	}
	if x.Check == "" {
		return model.HealthUp.String(), ""
	}
	switch h := health[x.Check]; h.State {
	case model.HealthUnknown:
		return "", ""
	case model.HealthDown:
		return h.State.String(), h.Detail
	}
	return model.HealthUp.String(), ""
}
