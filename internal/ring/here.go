package ring

import (
	"time"

	"lbd.dev/lbd/internal/model"
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
	// From is who had the VIP before, and To who was named to have it, while the group may not have
	// said so yet.
	From, To model.NodeName
	// Epoch is the highest epoch that was heard of or given.
	Epoch uint64
	// ToRouters: BGP advertises it, or is about to.
	ToRouters bool
	// Serves: it is the VIP of a Service, and this node holds connections to it.
	Serves bool
	// Unwell: the server of this node fails its check.
	Unwell bool

	Before
}

// Before is what the decision before remembered of a VIP on lo.
type Before struct {
	// Known: there is a memory.
	Known, Balanced bool
	Phase           model.BGPPhase
	HeldUntil       time.Time
	// OnLoopback: the kernel has the address there, as last reported.
	OnLoopback bool
}

// ConnectionsOnLoopback tells whether the address is on lo for connections, and is to stay there.
func (b *Before) ConnectionsOnLoopback() bool {
	m := model.BGPMemory{Balanced: b.Balanced, Phase: b.Phase}
	return b.OnLoopback && m.KeepsConnections()
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
func (all *All) balancedStill(vip *model.VIP, here *Here) bool {
	return here.Before.Balanced || all.Balanced(vip, here.Interface)
}

// OnLoopbackForBalancing tells whether the address is on lo for no other reason than that it is,
// or was, Balanced. What BGP has there is told apart.
func (b *Before) OnLoopbackForBalancing(vip *model.VIP) bool {
	return len(vip.BGP) == 0 && b.Balanced && b.OnLoopback
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
		From: here.From, To: here.To, Epoch: here.Epoch, Standing: here.Standing, Was: was,
	}
	if vip.Unbound {
		// Who has connections to it, or just had new ones, sends on those that it does not know.
		r.Kept = model.LoopbackLifetime
		if len(vip.BGP) == 0 || vip.FollowsOwner() {
			r.Interface = here.Interface
		}
		if !here.Serves && here.From == "" && !all.Retries(vip) {
			return "", nil
		}
		return all.Of(&r)
	}
	if r.Interface = here.BoundOn; r.Interface == "" {
		r.Interface = all.ringOn(vip, here)
	}
	onLoopback := all.mayBeOnLoopback(vip, here) && (here.ToRouters || all.phase(vip, here) >= model.BGPBinding) ||
		all.BalancedIfFit(vip) && !all.Balanced(vip, here.Interface)
	if here.BoundOn == "" && !onLoopback || !all.Retries(vip) && !all.Keeps(vip, r.Interface) {
		return "", nil
	}
	if !vip.L2 {
		r.Kept = model.LoopbackLifetime
	}
	r.Unwell = here.Unwell
	r.Shared, r.Spreads = all.balancedStill(vip, here), here.OwnsOnLAN && all.Balanced(vip, here.Interface)
	return all.Of(&r)
}

// Holds tells whether the connections to a VIP that this node has are to be found by a ring, given
// the memory of layer 2.
func (all *All) Holds(vip *model.VIP, here *Here, m *model.VIPMemory) bool {
	if vip.Unbound {
		here.Serves = all.holdsService(vip, here.Interface, here, m)
		return here.Serves
	}
	if all.holdsOnLoopback(vip, here) {
		return true
	}
	// With Resume the address is away for a moment, the connections are not.
	return here.Keeps && (m.Resume || m.Phase.OnLAN() && all.address.VIPs[vip.Addr].Bound)
}

// HoldsByBGP is Holds for a VIP that only BGP announces.
func (all *All) HoldsByBGP(vip *model.VIP, here *Here) bool {
	if vip.Unbound {
		here.Serves = all.holdsService(vip, "", here, &model.VIPMemory{})
		return here.Serves
	}
	return all.holdsOnLoopback(vip, here)
}

// holdsOnLoopback is Holds for what is bound for BGP, or is Balanced, by the decision before.
func (all *All) holdsOnLoopback(vip *model.VIP, here *Here) bool {
	return all.mayBeOnLoopback(vip, here) && all.Keeps(vip, all.ringOn(vip, here)) && all.phase(vip, here) >= model.BGPAdvertised && all.bound(vip, here)
}

func (all *All) holdsService(vip *model.VIP, iface string, here *Here, m *model.VIPMemory) bool {
	serves := m.Phase.Serves() || len(vip.BGP) > 0 && here.Phase >= model.BGPAdvertised
	return all.HoldsService(vip, iface, serves, model.Latest(m.HeldUntil, here.HeldUntil))
}

// mayBeOnLoopback tells whether a VIP may be bound on lo, for BGP or since it is Balanced.
func (all *All) mayBeOnLoopback(vip *model.VIP, here *Here) bool {
	return len(vip.BGP) > 0 || all.balancedStill(vip, here)
}

// ringOn is the interface on which the ring has to be of a VIP that is bound on lo, or would be;
// "": any.
func (all *All) ringOn(vip *model.VIP, here *Here) string {
	if all.balancedStill(vip, here) || len(vip.BGP) == 0 {
		return here.Interface
	}
	return ""
}

// phase is how far BGP was with a VIP. What an earlier process of this node left bound was
// advertised: a node that is back is in the ring from its first decision on.
func (all *All) phase(vip *model.VIP, here *Here) model.BGPPhase {
	if !here.Known && all.bound(vip, here) {
		return model.BGPAdvertised
	}
	return here.Phase
}

// bound tells whether the kernel has the address, on lo or on an interface.
func (all *All) bound(vip *model.VIP, here *Here) bool {
	return here.OnLoopback || all.address.VIPs[vip.Addr].Bound
}
