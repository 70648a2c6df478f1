package membership

import (
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// Tell completes what the group is told with what does not depend on a VIP.
func Tell(v *model.View, d *model.Desired) {
	g := &d.Group
	g.Draining = v.Draining || v.Stopping || d.Memory.Machine.Drain != nil
	g.Drained = g.Draining && drained(d)
	g.Settled = d.Memory.Settled
	// Before the node knows the group, a list without a node says nothing of it.
	g.Manager = v.Machines.Manager && g.Settled
	g.Drains = Drains(v)
	g.Weight = v.Weight
	place.TellMACs(v, g)
	g.Addrs = place.LANAddresses(v)
}

// drained tells whether this node has nothing left to hand over, withdraw or wait for.
func drained(d *model.Desired) bool {
	if !d.Synced || !d.Memory.Settled {
		return false
	}
	for _, m := range d.Memory.VIPs {
		if m.Phase >= model.PhaseTaking {
			return false
		}
	}
	for _, m := range d.Memory.BGP {
		if m.Phase != model.BGPIdle {
			return false
		}
	}
	return true
}
