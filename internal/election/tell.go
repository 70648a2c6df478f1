package election

import (
	"slices"

	"lbd.dev/lbd/internal/model"
)

// Tell adds what the group is to do for the VIP of an input: who is asked, who gets heartbeats of
// this node and from whom this node expects some.
func (o *Output) Tell(in *Input, g *model.GroupState) {
	g.Ask = g.Ask || o.Asking
	if o.Next {
		if i, found := slices.BinarySearch(g.Owners, o.Owner); !found {
			g.Owners = slices.Insert(g.Owners, i, o.Owner)
		}
	}
	if o.Claim.Epoch == 0 {
		return
	}
	for _, n := range o.Successors {
		g.HeartbeatFor(n, in.VIP.Addr)
	}
	for _, n := range o.Rivals {
		if !slices.Contains(o.Successors, n) {
			g.HeartbeatFor(n, in.VIP.Addr)
		}
	}
	if e := in.Address.Expires; e.After(g.LeaseEnd) {
		g.LeaseEnd = e
	}
}

// OwnerEpoch is the epoch of the owner's claim. This node may own a VIP before it tells its claim:
// a successor announces first.
func (o *Output) OwnerEpoch(in *Input) uint64 {
	if o.Owner == in.Self {
		return o.Memory.Epoch
	}
	for _, c := range in.Claims {
		if c.Owner == o.Owner {
			return c.Epoch
		}
	}
	return 0
}

// Duplicate is the hardware address that answers for the VIP beside its owner, as the owner says;
// zero if none does.
func (o *Output) Duplicate(in *Input) model.MAC {
	var mac model.MAC
	if o.Owner == in.Self {
		mac = in.Layer2.Duplicate
	}
	for _, c := range in.Claims {
		if c.Owner == o.Owner {
			mac = c.Duplicate
		}
	}
	return mac
}
