package wire

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// Networks is what is known, in one decision, of the networks that VIPs are on. Each interface
// is decided for when it is first asked about.
type Networks struct {
	v   *model.View
	gen uint64 // of the decision
	all []*network
	// last is the one that was asked about last: most VIPs are on one interface.
	last *network
	say  []Other
}

// network is that of one interface.
type network struct {
	lan string
	in  Input
	out Output
}

// NewNetworks returns what a decision begins with. The View must stay as it is.
func NewNetworks(v *model.View, gen uint64) *Networks { return &Networks{v: v, gen: gen} }

// On is what is known of the network of an interface.
func (n *Networks) On(lan string) *Output { return &n.network(lan).out }

func (n *Networks) network(lan string) *network {
	if n.last != nil && n.last.lan == lan {
		return n.last
	}
	if i := slices.IndexFunc(n.all, func(x *network) bool { return x.lan == lan }); i >= 0 {
		n.last = n.all[i]
		return n.last
	}
	if n.all == nil {
		n.say = sayings(n.v)
	}
	n.last = &network{lan: lan, in: n.input(lan)}
	n.last.out = Step(&n.last.in)
	n.all = append(n.all, n.last)
	return n.last
}

// Dark tells whether nobody answers on the network of an interface, where other nodes hear each
// other.
func (n *Networks) Dark(lan string) bool { return n.On(lan).State == Dark }

// Urge has the network of an interface asked: a VIP is about to come there.
func (n *Networks) Urge(lan string) {
	w := n.network(lan)
	if w.in.Urgent {
		return
	}
	w.in.Urgent, w.in.Memory = true, w.out.Memory
	n.hosts(&w.in, lan) // another wire may have asked for some since
	w.out = Step(&w.in)
}

func (n *Networks) input(lan string) Input {
	in := Input{
		Now: n.v.Now, Gen: n.gen, Own: n.v.Links[lan].Prefixes, Others: n.say, Memory: n.v.Memory.Wires[lan],
		Results: n.v.Applied[model.SinkLayer2].VIPs,
	}
	n.hosts(&in, lan)
	return in
}

// hosts finds whom an interface may ask.
func (n *Networks) hosts(in *Input, lan string) {
	l := n.v.Links[lan]
	if !l.Up || lan == model.LoopbackInterface {
		return
	}
	in.Hosts = n.askable(&l, in.Memory.By)
	if m := &in.Memory; m.All || !m.Silent.IsZero() {
		in.Known = n.known(&l, in.Hosts)
	}
}

// askable are the addresses on a link of nodes that ought to answer there, the one that
// answered last before others. What of a node that is away, or late, is silent says
// nothing of the
func (n *Networks) askable(l *model.Link, first netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, Most+1)
	own := ownOn(l)
	for _, m := range n.v.Gossip.Members {
		if m.State != model.MemberAlive || !m.Late.IsZero() {
			continue
		}
		if a := n.pick(l, m.Addrs, first); a.IsValid() {
			out = Nearest(out, a, own, first)
		}
	}
	return out
}

// pick is the address of a node that is asked for: the one that answered last, else the first
// of IPv4, else the first.
func (n *Networks) pick(l *model.Link, addrs []netip.Addr, first netip.Addr) (out netip.Addr) {
	for _, a := range addrs {
		if better := a == first || !out.IsValid() || a.Is4() && !out.Is4(); better && place.Reaches(l, a) && n.free(l.Name, a) {
			out = a
		}
		if out == first && first.IsValid() {
			break
		}
	}
	return out
}

// known are hosts on a link that answer others, by what those say, beside those that are
// asked anyway.
func (n *Networks) known(l *model.Link, hosts []netip.Addr) (out []netip.Addr) {
	own := ownOn(l)
	for _, o := range n.say {
		for _, a := range o.Hears {
			if place.Reaches(l, a) && !slices.Contains(hosts, a) && !slices.Contains(out, a) && n.free(l.Name, a) {
				out = Nearest(out, a, own, netip.Addr{})
			}
		}
	}
	return out
}

// free tells whether a question for an address on an interface can be put: layer 2 knows an
// address once, so it is no VIP, and nobody else asks for it on another interface in the
// same subnet.
func (n *Networks) free(lan string, a netip.Addr) bool {
	if _, is := model.FindVIP(n.v.VIPs, a); is {
		return false
	}
	if _, had := n.v.Memory.VIPs[a]; had {
		return false // it is being let go
	}
	if p, is := n.v.Memory.Rings[a]; is && p.Interface != lan {
		return false
	}
	return !n.askedElsewhere(lan, a)
}

// askedElsewhere tells whether another wire asks for an address, by this decision or by the
// one before.
func (n *Networks) askedElsewhere(lan string, a netip.Addr) bool {
	for _, w := range n.all {
		if w.lan != lan && slices.Contains(w.out.Memory.Asked, a) {
			return true
		}
	}
	for name, m := range n.v.Memory.Wires {
		decided := name == lan || slices.ContainsFunc(n.all, func(w *network) bool { return w.lan == name })
		// One that is watched no more has asked for nothing since.
		if !decided && n.v.Now.Sub(m.At) < 2*Every && slices.Contains(m.Asked, a) {
			return true
		}
	}
	return false
}

// ownOn is the lowest address of this node in a subnet of the link.
func ownOn(l *model.Link) (own netip.Addr) {
	for _, p := range l.Prefixes {
		if a := p.Addr(); a.IsGlobalUnicast() && !p.IsSingleIP() && (!own.IsValid() || a.Less(own)) {
			own = a
		}
	}
	return own
}

// sayings are what the other nodes that are alive say of their networks.
func sayings(v *model.View) []Other {
	out := make([]Other, 0, len(v.Gossip.Members))
	for _, m := range v.Gossip.Members {
		if m.State == model.MemberAlive && len(m.Hears) > 0 {
			out = append(out, Other{Hears: m.Hears, Heard: m.Heard})
		}
	}
	return out
}

// Settle tells Desired and the group what follows for all networks that were asked about:
// the questions, but for addresses that layer 2 is told of already, and whom the node hears. It
// returns when to decide again at the latest, zero if there is no need.
func (n *Networks) Settle(d *model.Desired, told func(netip.Addr) bool) (wake time.Time) {
	slices.SortFunc(n.all, func(a, b *network) int { return cmp.Compare(a.lan, b.lan) })
	for _, w := range n.all {
		m := w.out.Memory
		if at := w.out.Wake; wake.IsZero() || !at.IsZero() && at.Before(wake) {
			wake = at
		}
		if w.out.Ask {
			d.Group.Ask, d.Group.Witnesses = true, n.witnesses(d.Group.Witnesses, w.lan)
		}
		if w.out.State == Lit {
			d.Group.Hears = append(d.Group.Hears, m.By)
		}
		for _, a := range m.Asked {
			if !told(a) { // nor is a node of a ring asked twice
				d.L2 = append(d.L2, model.L2Advert{Addr: a, From: from(w.in.Own, a), Interface: w.lan, Mode: model.L2Probe, Series: m.Series, Lasts: For(&m)})
			}
		}
	}
	n.keep(d)
	slices.SortFunc(d.Group.Hears, netip.Addr.Compare)
	return wake
}

// keep hands the memories to the next decision, in the map of the one before as long as that
// holds.
func (n *Networks) keep(d *model.Desired) {
	copied := false
	for _, w := range n.all {
		if was, had := d.Memory.Wires[w.lan]; had && w.out.Memory.Same(&was) {
			continue
		}
		if !copied {
			copied = true
			next := make(map[string]model.WireMemory, len(d.Memory.Wires)+1)
			maps.Copy(next, d.Memory.Wires)
			d.Memory.Wires = next
		}
		d.Memory.Wires[w.lan] = w.out.Memory
	}
}

// from is the address of this node that asks for another on a link. Switches and hosts may
// drop a question without a sender, and no VIP is asked for.
func from(own []netip.Prefix, a netip.Addr) netip.Addr {
	i := slices.IndexFunc(own, func(p netip.Prefix) bool { return a.Is4() && !p.IsSingleIP() && p.Contains(a) })
	if i < 0 {
		return netip.Addr{}
	}
	return own[i].Addr()
}

// mostWitnesses bounds who is asked whether it is there; one answer is enough.
const mostWitnesses = 8

// witnesses adds those that hear somebody on a network, beginning after this node, so that
// not all nodes ask the same ones.
func (n *Networks) witnesses(out []model.NodeName, lan string) []model.NodeName {
	l := n.v.Links[lan]
	var names []model.NodeName
	for n, m := range n.v.Gossip.Members {
		if m.State == model.MemberAlive && slices.ContainsFunc(m.Hears, func(a netip.Addr) bool { return place.Reaches(&l, a) }) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	i, _ := slices.BinarySearch(names, n.v.Self)
	names = slices.Concat(names[i:], names[:i])
	out = append(out, names[:min(len(names), mostWitnesses)]...)
	slices.Sort(out)
	return slices.Compact(out)
}
