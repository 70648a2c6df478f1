// Package unconfigured finds the VIPs that this node still has although they are not configured
// any more. It is pure.
package unconfigured

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// WithRemoved is the View with the VIPs too that this node has, on the LAN or since they are
// Balanced, and that are not configured any more: another node may still have them in its
// configuration. A Service goes on all nodes at once; its VIP is bound on none.
func WithRemoved(v *model.View) *model.View {
	var out []model.VIP
	next := 0
	for i := range v.Memory.Lists.Status {
		s := &v.Memory.Lists.Status[i]
		for next < len(v.VIPs) && v.VIPs[next].Addr.Less(s.VIP.Addr) {
			next++
		}
		if s.BGP || s.VIP.Unbound && !s.VIP.Forwarded() || next < len(v.VIPs) && v.VIPs[next].Addr == s.VIP.Addr {
			continue
		}
		was := v.Memory.VIPs[s.VIP.Addr]
		if was.Phase.OnLAN() || s.VIP.Unbound && v.Now.Before(was.HeldUntil) && ownedElsewhere(v, s.VIP.Addr) || sharedStill(v, s.VIP.Addr) {
			vip := s.VIP
			vip.Barred, vip.BarredDetail = model.ReasonRemoved, ""
			if vip.Balanced = false; !vip.FollowsOwner() { // that is advertised until another node has it
				vip.BGP = nil
			}
			out = append(out, vip)
		}
	}
	if out == nil {
		return v
	}
	with := *v
	with.VIPs = append(out, v.VIPs...)
	slices.SortFunc(with.VIPs, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	return &with
}

// ownedElsewhere tells whether another node has a VIP, and may send the connections here that it
// does not know. What is removed on all nodes has to end.
func ownedElsewhere(v *model.View, a netip.Addr) bool {
	return slices.ContainsFunc(v.Gossip.Claims[a], func(c model.Claim) bool {
		m, known := v.Gossip.Members[c.Owner]
		return known && m.State == model.MemberAlive
	})
}

// sharedStill tells whether this node has connections of a Balanced VIP to keep that others
// still have in their configuration.
func sharedStill(v *model.View, a netip.Addr) bool {
	m := v.Memory.BGP[a]
	return m.KeepsConnections() && slices.ContainsFunc(v.Gossip.Eligible[a], func(n model.NodeName) bool { return n != v.Self })
}

// ByLayer2 lists the VIPs of layer 2 that are not configured any more but not yet let go, given
// how many of those that are configured have a memory.
func ByLayer2(v *model.View, remembered int) []model.VIP {
	if remembered == len(v.Memory.VIPs) {
		return nil
	}
	var out []model.VIP
	for a, m := range v.Memory.VIPs {
		_, configured := model.FindVIP(v.VIPs, a)
		if !configured {
			out = append(out, model.VIP{Addr: a, Interfaces: []string{m.Interface}, Unbound: m.Unbound})
		}
	}
	slices.SortFunc(out, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	return out
}

// OnLoopback lists the VIPs that are not configured any more but still advertised
// or bound for BGP, by this process or one before it. If all that is known belongs
// to those that were seen there are none: so many have a memory, and a report of the kernel.
func OnLoopback(v *model.View, remembered, reported int) []model.VIP {
	loopback := v.Applied[model.SinkAddress].Loopback
	if remembered == len(v.Memory.BGP) && reported == len(loopback) {
		return nil
	}
	var out []model.VIP
	look := func(a netip.Addr, unbound bool) {
		_, configured := model.FindVIP(v.VIPs, a)
		if !configured {
			out = append(out, model.VIP{Addr: a, Unbound: unbound})
		}
	}
	for a, m := range v.Memory.BGP {
		look(a, m.Unbound)
	}
	for a, x := range loopback {
		if _, known := v.Memory.BGP[a]; !known && x.Bound {
			look(a, false)
		}
	}
	slices.SortFunc(out, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	return out
}
