package decide

import (
	"lbd.dev/lbd/internal/loopback"
	"lbd.dev/lbd/internal/model"
)

// balancedHere tells whether this node takes part in a Balanced VIP: one on which a ring would
// work, since it would reset, or lose, what others send to it. It then has the address on lo,
// silently, by the rules for what BGP announces, with nobody to announce it to; the one on the
// LAN, which the owner has, comes and goes beside it. So a node that becomes the owner, or is it
// no more, has the address all the time, and its connections do not notice.
func (t *turn) balancedHere(vip *model.VIP) bool {
	return t.balancedIfFit(vip) && t.rings.Keeps(vip, t.iface)
}

// balancedIfFit is balancedHere if a ring would work here.
func (f *facts) balancedIfFit(vip *model.VIP) bool {
	return vip.Balanced && vip.L2 && !vip.Unbound && !f.v.NoRelay
}

// balancedHereOrBefore tells whether the address is bound here since the VIP is Balanced, or was,
// or is about to be.
func (t *turn) balancedHereOrBefore(vip *model.VIP) bool {
	return t.v.Memory.BGP[vip.Addr].Balanced || t.balancedHere(vip)
}

// mayBeOnLoopback tells whether a VIP may be bound on lo, for BGP or since it is Balanced.
func (t *turn) mayBeOnLoopback(vip *model.VIP) bool {
	return len(vip.BGP) > 0 || t.balancedHereOrBefore(vip)
}

// ringOn is the interface on which the ring has to be of a VIP that is bound on lo, or would be;
// "": any.
func (t *turn) ringOn(vip *model.VIP) string {
	if t.balancedHereOrBefore(vip) || len(vip.BGP) == 0 {
		return t.iface
	}
	return ""
}

// connectionsOnLoopback tells whether the address is on lo for connections, as last reported, and
// is to stay there.
func (f *facts) connectionsOnLoopback(a addr) bool {
	return loopback.KeepsConnections(f.v.Memory.BGP[a]) && f.address.Loopback[a].Bound
}

// onLoopbackForBalancing tells whether the address is on lo for no other reason than that it is,
// or was, Balanced. What BGP has there is told apart.
func (f *facts) onLoopbackForBalancing(vip *model.VIP) bool {
	return len(vip.BGP) == 0 && f.v.Memory.BGP[vip.Addr].Balanced && f.address.Loopback[vip.Addr].Bound
}

// even is why this node, as the owner, takes all new connections to a Balanced VIP itself,
// by what its relay driver says; empty if it does not, or for want of other nodes.
func (t *turn) even(vip *model.VIP) string {
	if !t.ownsOnLAN || !t.balancedHere(vip) {
		return ""
	}
	if err := t.v.Applied[model.SinkRelay].VIPs[vip.Addr].Err; err != "" {
		return "it takes all new connections itself: " + err
	}
	return ""
}
