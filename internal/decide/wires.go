package decide

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
	"lbd.dev/lbd/internal/wire"
)

// wires is what is known of the networks of the VIPs.
type wires struct {
	all  []*watched
	last *watched     // most VIPs are on one interface
	say  []wire.Other // of all interfaces
	// changed: the memory is not that of the decision before.
	changed bool
}

// watched is the network of one interface.
type watched struct {
	lan string
	in  wire.Input
	out wire.Output
}

// wire is what is known of the network of an interface.
func (f *facts) wire(lan string) *wire.Output { return &f.watched(lan).out }

func (f *facts) watched(lan string) *watched {
	w := &f.wires
	if w.last != nil && w.last.lan == lan {
		return w.last
	}
	if i := slices.IndexFunc(w.all, func(x *watched) bool { return x.lan == lan }); i >= 0 {
		w.last = w.all[i]
		return w.last
	}
	if w.all == nil {
		w.say = words(f.v)
	}
	w.last = &watched{lan: lan, in: f.wireInput(lan)}
	w.last.out = wire.Step(&w.last.in)
	w.all = append(w.all, w.last)
	return w.last
}

// urge has the network of an interface asked: a VIP is about to come there.
func (f *facts) urge(lan string) {
	w := f.watched(lan)
	if w.in.Urgent {
		return
	}
	w.in.Urgent, w.in.Memory = true, w.out.Memory
	f.hosts(&w.in, lan) // another wire may have asked for some since
	w.out = wire.Step(&w.in)
}

func (f *facts) wireInput(lan string) wire.Input {
	l := f.v.Links[lan]
	in := wire.Input{
		Now: f.v.Now, Gen: f.gen, Own: l.Prefixes, Others: f.wires.say, Memory: f.v.Memory.Wires[lan],
		Results: f.layer2.VIPs,
	}
	f.hosts(&in, lan)
	return in
}

// hosts finds whom an interface may ask.
func (f *facts) hosts(in *wire.Input, lan string) {
	l := f.v.Links[lan]
	if !l.Up || lan == model.LoopbackInterface {
		return
	}
	in.Hosts = f.askable(&l, in.Memory.By)
	if m := &in.Memory; m.All || !m.Silent.IsZero() {
		in.Known = f.known(&l, in.Hosts)
	}
}

// askable are the addresses on a link of nodes that ought to answer there, the one that
// answered last before others. What of a node that is away, or late, is silent says
// nothing of the wire.
func (f *facts) askable(l *model.Link, first addr) []addr {
	out := make([]addr, 0, wire.Most+1)
	own := ownOn(l)
	for _, m := range f.v.Gossip.Members {
		if m.State != model.MemberAlive || !m.Late.IsZero() {
			continue
		}
		if a := f.pick(l, m.Addrs, first); a.IsValid() {
			out = wire.Nearest(out, a, own, first)
		}
	}
	return out
}

// pick is the address of a node that is asked for: the one that answered last, else the first
// of IPv4, else the first.
func (f *facts) pick(l *model.Link, addrs []addr, first addr) (out addr) {
	for _, a := range addrs {
		if better := a == first || !out.IsValid() || a.Is4() && !out.Is4(); better && place.Reaches(l, a) && f.free(l.Name, a) {
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
func (f *facts) known(l *model.Link, hosts []addr) (out []addr) {
	own := ownOn(l)
	for _, o := range f.wires.say {
		for _, a := range o.Hears {
			if place.Reaches(l, a) && !slices.Contains(hosts, a) && !slices.Contains(out, a) && f.free(l.Name, a) {
				out = wire.Nearest(out, a, own, addr{})
			}
		}
	}
	return out
}

// free tells whether a question for an address on an interface can be put: layer 2 knows an
// address once, so it is no VIP, and nobody else asks for it on another interface in the
// same subnet.
func (f *facts) free(lan string, a addr) bool {
	if _, is := slices.BinarySearchFunc(f.v.VIPs, a, func(v model.VIP, a addr) int { return v.Addr.Compare(a) }); is {
		return false
	}
	if _, had := f.v.Memory.VIPs[a]; had {
		return false // it is being let go
	}
	if p, is := f.v.Memory.Rings[a]; is && p.Interface != lan {
		return false
	}
	return !f.askedElsewhere(lan, a)
}

// askedElsewhere tells whether another wire asks for an address, by this decision or by the
// one before.
func (f *facts) askedElsewhere(lan string, a addr) bool {
	for _, w := range f.wires.all {
		if w.lan != lan && slices.Contains(w.out.Memory.Asked, a) {
			return true
		}
	}
	for name, m := range f.v.Memory.Wires {
		decided := name == lan || slices.ContainsFunc(f.wires.all, func(w *watched) bool { return w.lan == name })
		// One that is watched no more has asked for nothing since.
		if !decided && f.v.Now.Sub(m.At) < 2*wire.Every && slices.Contains(m.Asked, a) {
			return true
		}
	}
	return false
}

// ownOn is the lowest address of this node in a subnet of the link.
func ownOn(l *model.Link) (own addr) {
	for _, p := range l.Prefixes {
		if a := p.Addr(); a.IsGlobalUnicast() && !p.IsSingleIP() && (!own.IsValid() || a.Less(own)) {
			own = a
		}
	}
	return own
}

// words are what the other nodes that are alive say of their networks.
func words(v *model.View) []wire.Other {
	out := make([]wire.Other, 0, len(v.Gossip.Members))
	for _, m := range v.Gossip.Members {
		if m.State == model.MemberAlive && len(m.Hears) > 0 {
			out = append(out, wire.Other{Hears: m.Hears, Heard: m.Heard})
		}
	}
	return out
}

// keepWire hands the memory of a network to the next decision, in the map of the one before
// as long as that holds.
func (f *facts) keepWire(d *model.Desired, w *watched) {
	if was, had := d.Memory.Wires[w.lan]; had && w.out.Memory.Same(&was) {
		return
	}
	if d.Memory.Wires == nil || !f.wires.changed {
		f.wires.changed = true
		d.Memory.Wires = maps.Clone(d.Memory.Wires)
		if d.Memory.Wires == nil {
			d.Memory.Wires = make(map[string]model.WireMemory)
		}
	}
	d.Memory.Wires[w.lan] = w.out.Memory
}

// watchWires adds the questions for all networks, and what the group is told of them.
func (f *facts) watchWires(d *model.Desired) {
	slices.SortFunc(f.wires.all, func(a, b *watched) int { return strings.Compare(a.lan, b.lan) })
	for _, w := range f.wires.all {
		m := w.out.Memory
		f.w.by(w.out.Wake)
		f.keepWire(d, w)
		if w.out.Ask {
			d.Group.Ask, d.Group.Witnesses = true, f.witnesses(d.Group.Witnesses, w.lan)
		}
		if w.out.State == wire.Lit {
			d.Group.Hears = append(d.Group.Hears, m.By)
		}
		for _, a := range m.Asked {
			if !f.isVIP(d, a) { // nor is a node of a ring asked twice
				d.L2 = append(d.L2, model.L2Advert{Addr: a, From: from(w.in.Own, a), Interface: w.lan, Mode: model.L2Probe, Series: m.Series, Lasts: wire.For(&m)})
			}
		}
	}
	slices.SortFunc(d.Group.Hears, netip.Addr.Compare)
}

// from is the address of this node that asks for another on a link. Switches and hosts may
// drop a question without a sender, and no VIP is asked for.
func from(own []netip.Prefix, a addr) addr {
	i := slices.IndexFunc(own, func(p netip.Prefix) bool { return a.Is4() && !p.IsSingleIP() && p.Contains(a) })
	if i < 0 {
		return addr{}
	}
	return own[i].Addr()
}

// mostWitnesses bounds who is asked whether it is there; one answer is enough.
const mostWitnesses = 8

// witnesses adds those that hear somebody on a network, beginning after this node, so that
// not all nodes ask the same ones.
func (f *facts) witnesses(out []model.NodeName, lan string) []model.NodeName {
	l := f.v.Links[lan]
	var names []model.NodeName
	for n, m := range f.v.Gossip.Members {
		if m.State == model.MemberAlive && slices.ContainsFunc(m.Hears, func(a addr) bool { return place.Reaches(&l, a) }) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	i, _ := slices.BinarySearch(names, f.v.Self)
	names = slices.Concat(names[i:], names[:i])
	out = append(out, names[:min(len(names), mostWitnesses)]...)
	slices.Sort(out)
	return slices.Compact(out)
}
