package balance

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// sources are what servers see as clients of a VIP. What is said to a source comes to its owner. So
// one that this node cannot have, that belongs to another node than the VIP does, or that a foreign
// host answers for, is replaced by the VIP, and the connections of the others stay where they are. All
// nodes come to the same. Of the VIPs of the object, here are those that this node can have.
func sources(v *model.View, w *wanted, here []netip.Addr, vip netip.Addr) (out []netip.Addr) {
	vips := w.configured.VIPs
	if !slices.Contains(vips, vip) { // it is this node's alone now, and has what it had while it was configured
		vips = w.VIPs
	}
	out = turned(w.Sources, vips, vip)
	for i, s := range out {
		if by := owner(v, s); by != "" && by != owner(v, vip) || !slices.Contains(here, s) || foreign(v, s, by) {
			out[i] = vip
		}
	}
	if !slices.ContainsFunc(out, func(s netip.Addr) bool { return s != vip }) {
		return nil
	}
	return out
}

// turned are the sources of the family of a VIP, beginning elsewhere for each VIP. A client may connect
// to several VIPs from one port, and the hash does not tell these connections apart: with one source
// they would be the same connection to a server. One balancer would see that, but in a planned move
// one has the old connection, and another one opens the new one.
func turned(sources, vips []netip.Addr, vip netip.Addr) (out []netip.Addr) {
	at := 0
	for _, other := range vips {
		if other.Is4() == vip.Is4() && other.Less(vip) {
			at++
		}
	}
	for _, s := range sources {
		if s.Is4() == vip.Is4() {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil
	}
	at %= len(out)
	return slices.Concat(out[at:], out[:at])
}

// foreign tells whether a host that is no member answers for a VIP: beside its owner, which tells the
// group so, or while nobody can own it for that.
func foreign(v *model.View, vip netip.Addr, by model.NodeName) bool {
	if by == v.Self {
		return v.Applied[model.SinkLayer2].VIPs[vip].Duplicate != model.MAC{}
	}
	c, is := claimOf(v, vip)
	return is && c.Duplicate != model.MAC{} || by == "" && v.Memory.VIPs[vip].Reason == model.ReasonConflict
}

// owner is the node that has a VIP, as far as this one knows; "" if none does. In a handover that is
// the former owner until this node has announced the VIP: what servers say goes there until then.
func owner(v *model.View, vip netip.Addr) model.NodeName {
	if m := v.Memory.VIPs[vip]; m.Phase.Holds() && m.Consented {
		return m.From
	} else if m.Phase.Holds() {
		return v.Self
	}
	c, _ := claimOf(v, vip)
	return c.Owner
}

// claimOf is the claim of the other node that has a VIP.
func claimOf(v *model.View, vip netip.Addr) (c model.Claim, is bool) {
	for _, c := range v.Gossip.Claims[vip] { // the highest first
		if m, is := v.Gossip.Members[c.Owner]; is && m.State == model.MemberAlive && m.Late.IsZero() {
			return c, true
		}
	}
	return model.Claim{}, false
}
