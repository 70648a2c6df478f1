package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
)

// Status is what this node sees, taken on the loop so that it is of one moment.
func (d *Daemon) Status(ctx context.Context) (v1alpha1.NodeStatus, error) {
	var s v1alpha1.NodeStatus
	err := d.do(ctx, func() {
		s = status(&d.view, &d.last)
		s.LoadBalancers = balancerStatus(&d.view, &d.last)
		s.Version = d.opts.Version
		for _, f := range d.opts.Extras {
			f(&s)
		}
		s.Config.Warnings = slices.Concat(s.Config.Warnings, membership.Mismatches(&d.view))
	})
	return s, err
}

// draining tells whether everything is handed over, for whatever reason.
func draining(v *model.View, d *model.Desired) bool {
	return v.Draining || v.Stopping || d.Memory.Machine.Drain != nil
}

// machinesStatus is nil where Machines play no part.
func machinesStatus(v *model.View, d *model.Desired) *v1alpha1.MachinesStatus {
	drain := d.Memory.Machine.Words(v.Self)
	if _, reads := v.Synced[model.SourceMachines]; !reads && !v.Machines.Manager && drain == "" {
		return nil
	}
	return &v1alpha1.MachinesStatus{
		Manager: v.Machines.Manager, Writer: d.Machines.Writer, Drain: drain, Drained: drain != "" && d.Group.Drained,
	}
}

// servicesStatus is nil where there are no Services, or their connections are not to be kept.
func servicesStatus(s *model.Services) *v1alpha1.ServiceConnectionsStatus {
	if !s.Asked || !s.Known {
		return nil
	}
	return &v1alpha1.ServiceConnectionsStatus{Kept: s.Works, Reason: s.Why()}
}

func status(v *model.View, d *model.Desired) v1alpha1.NodeStatus {
	s := v1alpha1.NodeStatus{
		Node: string(v.Self), Time: v.Now, Draining: draining(v, d), Settled: d.Memory.Settled,
	}
	for _, m := range v.Gossip.Members {
		ms := v1alpha1.MemberStatus{
			Name: string(m.Name), Address: text(m.Addr), State: m.State.String(),
			Draining: m.Draining, Settled: m.Settled, Weight: m.Weight, Version: m.Version,
		}
		ms.Late = late(v, m)
		s.Members = append(s.Members, ms)
	}
	slices.SortFunc(s.Members, func(a, b v1alpha1.MemberStatus) int { return cmp.Compare(a.Name, b.Name) })
	for _, x := range d.Status {
		s.VIPs = append(s.VIPs, v1alpha1.VIPStatus{
			Name: x.VIP.Name, Kind: x.VIP.Kind, Address: x.VIP.Addr.String(), Mode: mode(&x), Interface: x.Interface,
			Owner: string(x.Owner), Reason: x.Reason.String(), Detail: cmp.Or(x.Detail, spreadDetail(v, d, x)), Standing: x.Standing.String(),
			Healthy: x.Healthy, Bound: x.Bound, Announced: x.Announced, Epoch: x.Epoch, Since: x.Since,
			Successors: alive(v, x.Successors), Peers: x.Peers, Ring: x.Ring, Duplicate: x.Duplicate,
		})
	}
	s.BGP, s.Listeners = bgpStatus(v, d), listenerStatus(v, d)
	s.Machines, s.ServiceConnections = machinesStatus(v, d), servicesStatus(&d.Services)
	for n, a := range v.Applied {
		if n == model.SinkGossip && a.Err == "" && d.Group.Untold > 0 {
			a.Err = fmt.Sprintf("no room to tell the group %d of the hardware addresses of this node: what comes from them is taken for a client's", d.Group.Untold)
		}
		s.Drivers = append(s.Drivers, v1alpha1.DriverStatus{Name: string(n), Error: a.Err})
	}
	slices.SortFunc(s.Drivers, func(a, b v1alpha1.DriverStatus) int { return cmp.Compare(a.Name, b.Name) })
	for n, h := range v.Health {
		s.Health = append(s.Health, v1alpha1.HealthStatus{Name: n, State: h.State.String(), Since: h.Since, Detail: h.Detail})
	}
	slices.SortFunc(s.Health, func(a, b v1alpha1.HealthStatus) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// late is how long the heartbeats of a member have been overdue; empty while they
// are not.
func late(v *model.View, m model.Member) string {
	if m.Late.IsZero() {
		return ""
	}
	return v.Now.Sub(m.Late).Round(time.Millisecond).String()
}

// bgpStatus tells of each session and what goes through it.
func bgpStatus(v *model.View, d *model.Desired) []v1alpha1.BGPStatus {
	applied := v.Applied[model.SinkBGP]
	reports := make(map[string]model.PeerReport, len(applied.Peers))
	for _, r := range applied.Peers {
		reports[r.Name] = r
	}
	var out []v1alpha1.BGPStatus
	for i := range d.BGP.Peers {
		p := &d.BGP.Peers[i]
		r := reports[p.Name]
		b := v1alpha1.BGPStatus{
			Peer: p.Name, Address: p.Address.String(), LocalASN: p.LocalASN, PeerASN: cmp.Or(p.PeerASN, r.PeerASN),
			State: cmp.Or(r.State, "Idle"), Since: r.Since, HoldTime: duration(r.HoldTime), Families: r.Families,
			BFD: r.BFD, BFDTransmit: duration(r.BFDTransmit), BFDReceive: duration(r.BFDReceive), BFDDetect: duration(r.BFDDetect),
			Received: r.Received, Flaps: r.Flaps, Error: r.LastError, LastErrorAt: r.LastAt,
		}
		for j := range d.BGP.Paths {
			path := &d.BGP.Paths[j]
			if to := path.For(p.Name); to != nil && slices.Contains(applied.Paths[path.Prefix], p.Name) {
				prefix := path.Prefix.String()
				b.Advertised = append(b.Advertised, prefix)
				b.Paths = append(b.Paths, pathStatus(prefix, to, p))
			}
		}
		out = append(out, b)
	}
	return out
}

// pathStatus names the attributes as the peer gets them.
func pathStatus(prefix string, path *model.BGPAudience, p *model.BGPPeer) v1alpha1.BGPPathStatus {
	s := v1alpha1.BGPPathStatus{Prefix: prefix, GracefulShutdown: path.Shutdown}
	if path.Shutdown {
		s.Communities = append(s.Communities, "65535:0")
	}
	for _, c := range path.Communities {
		s.Communities = append(s.Communities, fmt.Sprintf("%d:%d", c>>16, c&0xffff))
	}
	for _, c := range path.LargeCommunities {
		s.Communities = append(s.Communities, fmt.Sprintf("large:%d:%d:%d", c[0], c[1], c[2]))
	}
	if path.MEDSet {
		s.MED = new(path.MED)
	}
	if p.External() {
		s.Prepend = path.Prepend
	} else {
		s.LocalPref = new(cmp.Or(path.LocalPref, 100))
		if path.Shutdown {
			s.LocalPref = new(uint32(0))
		}
	}
	return s
}

// duration is a time as text, or nothing for none.
func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// text is the address, or nothing while it is not known.
func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// alive are those of the successors that could take over now; heartbeats go to
// dead ones too.
func alive(v *model.View, in []model.NodeName) []string {
	var out []string
	for _, n := range in {
		if m := v.Gossip.Members[n]; m.State == model.MemberAlive && m.Late.IsZero() {
			out = append(out, string(n))
		}
	}
	return out
}

// ErrUnknownVIP is the error of Explain for a VIP that is not configured.
var ErrUnknownVIP = errors.New("there is no VIP")

// Explain tells why the VIP with this name or address is where it is. Those of a LoadBalancer
// may be asked with a port, and about the connection of a client, both as text; "": none.
func (d *Daemon) Explain(ctx context.Context, vip, client string) ([]v1alpha1.Explanation, error) {
	var out []v1alpha1.Explanation
	var known []string
	q, err := ask(vip, client)
	if err != nil {
		return nil, err
	}
	err = d.do(ctx, func() {
		for _, s := range d.last.Status {
			if q.vip == "" || named(&s.VIP, q.vip) {
				out = append(out, explain(&d.view, &d.last, s, &q))
			}
		}
		if len(out) == 0 {
			known = vipNames(d.last.Status)
		}
	})
	switch {
	case err != nil:
	case len(out) == 0:
		err = fmt.Errorf("%w %q; the VIPs are %q", ErrUnknownVIP, q.vip, known)
	case (q.port != 0 || q.client.IsValid()) && !slices.ContainsFunc(out, func(e v1alpha1.Explanation) bool { return len(e.Backends) > 0 }):
		err = questionError(fmt.Sprintf("%q forwards nothing to other machines: ask without a port and without --client", q.vip))
	}
	return out, err
}

// named tells whether a VIP is meant by its name or address; one of a TenantService also by
// NAMESPACE/NAME of that.
func named(v *model.VIP, by string) bool {
	key, of := model.TenantKey(v.Name)
	return v.Name == by || v.Addr.String() == by || of && key.String() == by
}

// mostNames is how many VIPs an error names.
const mostNames = 20

// vipNames are the names of VIPs, each once, and of many the first.
func vipNames(all []model.VIPStatus) (names []string) {
	seen := make(map[string]bool)
	for i := range all {
		name := all[i].VIP.Name
		if seen[name] {
			continue
		}
		if seen[name] = true; len(names) == mostNames {
			return append(names, "...")
		}
		names = append(names, name)
	}
	return names
}

func explain(v *model.View, d *model.Desired, s model.VIPStatus, q *question) v1alpha1.Explanation {
	e := v1alpha1.Explanation{
		Name: s.VIP.Name, Address: s.VIP.Addr.String(), Mode: mode(&s), Node: string(v.Self), Owner: string(s.Owner),
		Time: v.Now, Reason: s.Reason.String(), Detail: s.Detail, Ring: cmp.Or(s.Ring, s.Resets), Duplicate: s.Duplicate, Epoch: s.Epoch,
	}
	type ranked struct {
		c election.Candidate
		x v1alpha1.Candidate
	}
	all := []ranked{{election.Candidate{Node: v.Self, Weight: v.Weight, Preference: s.VIP.Preference.Of(v.Self), Degraded: s.Standing == model.ReasonDegraded}, selfCandidate(v, s)}}
	for n, m := range v.Gossip.Members {
		all = append(all, ranked{election.Candidate{Node: n, Weight: m.Weight, Preference: s.VIP.Preference.Of(n), Degraded: m.Standing[s.VIP.Addr] == model.ReasonDegraded}, candidate(v, m, s)})
	}
	slices.SortFunc(all, func(a, b ranked) int {
		if election.Better(s.VIP.Name, a.c, b.c) {
			return -1
		}
		return 1
	})
	for i, r := range all {
		r.x.Rank = i + 1
		e.Candidates = append(e.Candidates, r.x)
	}
	e.Story = story(v, d, s)
	if s.VIP.Forwarded() && !s.BGP {
		list, more := backends(v, d, &s.VIP, q)
		e.Backends, e.Story = list, append(e.Story, more...)
	}
	if s.VIP.Learned() {
		e.Story = append(e.Story, masters(v, d, &s.VIP)...)
	}
	return e
}

func selfCandidate(v *model.View, s model.VIPStatus) v1alpha1.Candidate {
	c := v1alpha1.Candidate{
		Node: string(v.Self), Eligible: s.Standing.Eligible(), Reason: s.Standing.String(), Alive: true,
		Weight: cmp.Or(v.Weight, model.DefaultWeight),
	}
	if s.Owner == v.Self {
		c.ClaimEpoch = s.Epoch
	}
	if s.Standing.Class() != model.ClassMayServe {
		c.Note = s.Detail
	}
	return c
}

func candidate(v *model.View, m model.Member, s model.VIPStatus) v1alpha1.Candidate {
	stand, known := m.Standing[s.VIP.Addr]
	c := v1alpha1.Candidate{
		Node: string(m.Name), Alive: m.State == model.MemberAlive, Eligible: known && stand.Eligible() && m.State == model.MemberAlive,
		Reason: stand.String(), Weight: cmp.Or(m.Weight, model.DefaultWeight),
	}
	switch {
	case !m.Known:
		c.Reason, c.Note = "NotSettled", "nothing heard from it yet"
	case !known:
		c.Reason, c.Note = "NotAnnounced", "its configuration does not have this VIP"
	}
	for _, cl := range v.Gossip.Claims[s.VIP.Addr] {
		if cl.Owner == m.Name {
			c.ClaimEpoch = cl.Epoch
		}
	}
	if m.State != model.MemberAlive {
		c.Note = "it is " + m.State.String()
		if m.State == model.MemberLeft {
			c.Note = "it has left"
		}
	} else if c.Late = late(v, m); c.Late != "" {
		c.Note = silence(v, m, &s.VIP)
	}
	return c
}

// silence says of a member whose heartbeats are overdue for how long, and what
// becomes of its addresses.
func silence(v *model.View, m model.Member, vip *model.VIP) string {
	text := "heartbeats overdue for " + late(v, m)
	switch left := m.LeaseEnd.Sub(v.Now); {
	case m.LeaseEnd.IsZero() || vip.Unbound:
		return text
	case left > 0:
		return text + "; unless its daemon runs, its kernel drops the address in " + left.Round(10*time.Millisecond).String()
	}
	return text + "; unless its daemon runs, its kernel has dropped the address"
}

// story tells in sentences what holds now and what would happen next.
func story(v *model.View, d *model.Desired, s model.VIPStatus) []string {
	var out []string
	say := func(f string, a ...any) { out = append(out, fmt.Sprintf(f, a...)) }
	m := d.Memory.VIPs[s.VIP.Addr]
	since := v.Now.Sub(s.Since).Round(time.Second)
	if s.BGP {
		return bgpStory(v, d, s)
	}
	switch {
	case s.Owner == v.Self:
		say("%s owns %s on %s with epoch %d, unchanged for %s.", v.Self, s.VIP.Addr, s.Interface, s.Epoch, since)
		if m.From != "" && m.From != v.Self {
			say("It took it from %s.", m.From)
		}
		switch {
		case s.VIP.Forwarded():
			say("The address is not bound: the daemon answers for it while it runs, and the kernel forwards what comes to it.")
		case s.VIP.Unbound:
			say("The address is not bound: the daemon answers for it while it runs, and the rules of another program take its packets.")
		}
		if next := alive(v, s.Successors); len(next) > 0 {
			say("If it fails, %s takes over.", next[0])
		} else {
			say("Nobody could take over: no other node is eligible.")
		}
	case !v.Gossip.Members[s.Owner].Late.IsZero():
		say("%s claims %s with epoch %d: %s.", s.Owner, s.VIP.Addr, s.Epoch, silence(v, v.Gossip.Members[s.Owner], &s.VIP))
	case s.Owner != "":
		say("%s owns %s with epoch %d; the owner keeps it as long as it is alive and healthy.", s.Owner, s.VIP.Addr, s.Epoch)
	default:
		say("Nobody that %s knows of owns %s.", v.Self, s.VIP.Addr)
	}
	out = append(out, spreadStory(v, d, s)...)
	if s.Reason == model.ReasonWaitingForRelease {
		say("%s is not heard in gossip, but the address still answers on the wire, so nobody else takes it.", cmp.Or(m.From, "The owner"))
		if end := v.Gossip.Members[m.From].LeaseEnd; s.Owner == "" && end.After(v.Now) && !s.VIP.Unbound {
			say("If its daemon does not come back, its kernel drops the address in %s.", end.Sub(v.Now).Round(10*time.Millisecond))
		}
	}
	if c := v.Applied[model.SinkLayer2].VIPs[s.VIP.Addr]; c.Conflicts > 0 {
		say("A host with hardware address %s, which is not a member, has used the address %d times.", c.Foreign, c.Conflicts)
	}
	return out
}

// bgpStory tells what holds for a VIP that every eligible node advertises.
func bgpStory(v *model.View, d *model.Desired, s model.VIPStatus) []string {
	var out []string
	say := func(f string, a ...any) { out = append(out, fmt.Sprintf(f, a...)) }
	since := v.Now.Sub(s.Since).Round(time.Second)
	if s.VIP.FollowsOwner() {
		say("The owner of %s at layer 2 advertises it, and no other node.", s.VIP.Addr)
	} else {
		say("Every node that is healthy advertises %s; routers spread connections over all of them.", s.VIP.Addr)
	}
	if len(s.Peers) > 0 {
		say("%s advertises it to %s, unchanged for %s.", v.Self, strings.Join(s.Peers, ", "), since)
	} else {
		say("%s advertises it to nobody.", v.Self)
	}
	switch m := d.Memory.BGP[s.VIP.Addr]; m.Phase {
	case model.BGPShutdown:
		if m.Until.IsZero() {
			say("Routers are asked to prefer other nodes; the path stays until they hear of the owner.")
			break
		}
		say("Routers are asked to prefer other nodes; the path is withdrawn in %s.", m.Until.Sub(v.Now).Round(100*time.Millisecond))
	case model.BGPKept, model.BGPLingering:
		say("The address stays bound for packets under way for %s at most.", m.Until.Sub(v.Now).Round(100*time.Millisecond))
	}
	var others []string
	for _, n := range v.Gossip.Eligible[s.VIP.Addr] {
		if x := v.Gossip.Members[n]; x.State == model.MemberAlive && x.Standing[s.VIP.Addr] == model.ReasonOwner {
			others = append(others, string(n))
		}
	}
	if s.VIP.FollowsOwner() {
		return out
	}
	if len(others) > 0 {
		say("Of the other nodes %s advertise it.", strings.Join(others, ", "))
	} else {
		say("No other node is known to advertise it.")
	}
	return out
}
