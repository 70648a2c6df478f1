package ring

import (
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// Here is what layer 2 and BGP of this node do with a VIP.
type Here struct {
	// Interface is where layer 2 has the VIP, or would have it.
	Interface string
	// BoundOn is the interface on which layer 2 has bound it, or is to bind it; else "".
	BoundOn string
	// OwnsOnLAN: this node owns it by layer 2. Standing says whether it may, and if not why.
	OwnsOnLAN bool
	Standing  model.Reason
	// Keeps: connections that came in by layer 2 are found by a ring.
	Keeps bool
	// From is who had the VIP before, while the group may not have said so yet.
	From model.NodeName
	// Epoch is the highest epoch that was heard of or given.
	Epoch uint64
	// ToRouters: BGP advertises it, or is about to.
	ToRouters bool
	// Serves: it is the VIP of a Service, and this node holds connections to it.
	Serves bool
}

// BalancedIfFit tells whether this node takes part in a Balanced VIP if a ring works here.
func (all *All) BalancedIfFit(vip *model.VIP) bool {
	return vip.Balanced && vip.L2 && !vip.Unbound && !all.v.NoRelay
}

// Balanced tells whether this node takes part in a Balanced VIP: one on which a ring works, since
// it would reset, or lose, what others send to it otherwise. It has the address on lo, silently,
// by the rules for what BGP announces, with nobody to announce it to. The address on the LAN,
// which the owner has, comes and goes beside it. So a node that becomes the owner, or is it no
// more, has the address all the time, and its connections do not notice.
func (all *All) Balanced(vip *model.VIP, iface string) bool {
	return all.BalancedIfFit(vip) && all.Keeps(vip, iface)
}

// balancedStill tells whether the address is bound here since the VIP is Balanced, or was, or is
// about to be.
func (all *All) balancedStill(vip *model.VIP, iface string) bool {
	return all.before(vip).balanced || all.Balanced(vip, iface)
}

// OnLoopbackForBalancing tells whether the address is on lo for no other reason than that it is,
// or was, Balanced. What BGP has there is told apart.
func (all *All) OnLoopbackForBalancing(vip *model.VIP) bool {
	return len(vip.BGP) == 0 && all.before(vip).balanced && all.onLoopback(vip).Bound
}

// Uneven is why this node, as the owner, takes all new connections to a Balanced VIP itself, by
// what the relay driver says; empty if it does not, or for want of other nodes.
func (all *All) Uneven(vip *model.VIP, here *Here) string {
	if !here.OwnsOnLAN || !all.Balanced(vip, here.Interface) {
		return ""
	}
	if err := all.v.Applied[model.SinkRelay].VIPs[vip.Addr].Err; err != "" {
		return "it takes all new connections itself: " + err
	}
	return ""
}

// Relay makes the ring of a VIP that this node has, or is about to have, and says on which
// interface it is. was is the ring of the decision before. The ring is nil if there is none.
func (all *All) Relay(vip *model.VIP, here *Here, was *model.Ring) (string, *model.Ring) {
	r := Request{
		VIP: vip, Terms: Terms{Is4: vip.Addr.Is4()},
		From: here.From, Epoch: here.Epoch, Standing: here.Standing, Was: was,
	}
	if vip.Unbound {
		// Who has connections to it, or just had new ones, sends on those that it does not know.
		r.Kept = model.LoopbackLifetime
		if len(vip.BGP) == 0 {
			r.Interface = here.Interface
		}
		if !here.Serves && here.From == "" && !all.Retries(vip) {
			return "", nil
		}
		return all.Of(&r)
	}
	if r.Interface = here.BoundOn; r.Interface == "" {
		r.Interface = all.ringOn(vip, here.Interface)
	}
	onLoopback := all.mayBeOnLoopback(vip, here.Interface) && (here.ToRouters || all.phase(vip) >= model.BGPBinding) ||
		all.BalancedIfFit(vip) && !all.Balanced(vip, here.Interface)
	if here.BoundOn == "" && !onLoopback || !all.Retries(vip) && !all.Keeps(vip, r.Interface) {
		return "", nil
	}
	if !vip.L2 {
		r.Kept = model.LoopbackLifetime
	}
	r.Unwell = place.Health(all.v, vip).State == model.HealthDown
	r.Shared, r.Spreads = all.balancedStill(vip, here.Interface), here.OwnsOnLAN && all.Balanced(vip, here.Interface)
	return all.Of(&r)
}

// Holds tells whether the connections to a VIP that this node has are to be found by a ring, given
// the memory of layer 2.
func (all *All) Holds(vip *model.VIP, here *Here, m *model.VIPMemory) bool {
	if vip.Unbound {
		here.Serves = all.holdsService(vip, here.Interface, m)
		return here.Serves
	}
	if all.holdsOnLoopback(vip, here.Interface) {
		return true
	}
	// With Resume the address is away for a moment, the connections are not.
	return here.Keeps && (m.Resume || m.Phase.OnLAN() && all.address.VIPs[vip.Addr].Bound)
}

// HoldsByBGP is Holds for a VIP that only BGP announces.
func (all *All) HoldsByBGP(vip *model.VIP, here *Here) bool {
	if vip.Unbound {
		here.Serves = all.holdsService(vip, "", &model.VIPMemory{})
		return here.Serves
	}
	return all.holdsOnLoopback(vip, here.Interface)
}

// holdsOnLoopback is Holds for what is bound for BGP, or is Balanced, by the decision before.
func (all *All) holdsOnLoopback(vip *model.VIP, iface string) bool {
	return all.mayBeOnLoopback(vip, iface) && all.Keeps(vip, all.ringOn(vip, iface)) && all.phase(vip) >= model.BGPAdvertised && all.bound(vip)
}

// holdsService is Holds for the VIP of a Service.
func (all *All) holdsService(vip *model.VIP, iface string, m *model.VIPMemory) bool {
	bgp := all.v.Memory.BGP[vip.Addr]
	serves := m.Phase.Serves() || len(vip.BGP) > 0 && bgp.Phase >= model.BGPAdvertised
	return all.HoldsService(vip, iface, serves, later(m.HeldUntil, bgp.HeldUntil))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ConnectionsOnLoopback tells whether the address is on lo for connections, as last reported, and
// is to stay there.
func (all *All) ConnectionsOnLoopback(vip *model.VIP) bool {
	m := all.v.Memory.BGP[vip.Addr]
	return m.KeepsConnections() && all.onLoopback(vip).Bound
}

// mayBeOnLoopback tells whether a VIP may be bound on lo, for BGP or since it is Balanced.
func (all *All) mayBeOnLoopback(vip *model.VIP, iface string) bool {
	return len(vip.BGP) > 0 || all.balancedStill(vip, iface)
}

// ringOn is the interface on which the ring has to be of a VIP that is bound on lo, or would be;
// "": any.
func (all *All) ringOn(vip *model.VIP, iface string) string {
	if all.balancedStill(vip, iface) || len(vip.BGP) == 0 {
		return iface
	}
	return ""
}

// phase is how far BGP was with a VIP. What an earlier process of this node left bound was
// advertised: a node that is back is in the ring from its first decision on.
func (all *All) phase(vip *model.VIP) model.BGPPhase {
	b := all.before(vip)
	if !b.known && all.bound(vip) {
		return model.BGPAdvertised
	}
	return b.phase
}

// before is what the decision before remembered of a VIP on lo. Several questions about one VIP
// follow each other, and to look it up each time took a twentieth of a decision.
type before struct {
	addr     netip.Addr
	known    bool
	balanced bool
	phase    model.BGPPhase
}

func (all *All) before(vip *model.VIP) *before {
	if b := &all.remembered; b.addr != vip.Addr {
		m, known := all.v.Memory.BGP[vip.Addr]
		*b = before{vip.Addr, known, m.Balanced, m.Phase}
	}
	return &all.remembered
}

// bound tells whether the kernel has the address, on lo or on an interface.
func (all *All) bound(vip *model.VIP) bool {
	return all.onLoopback(vip).Bound || all.address.VIPs[vip.Addr].Bound
}

func (all *All) onLoopback(vip *model.VIP) model.AppliedVIP {
	return all.address.Loopback[vip.Addr]
}
