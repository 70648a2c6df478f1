package election

import (
	"slices"
	"strings"

	"lbd.dev/lbd/internal/model"
)

// Tell adds what the group is to do for the VIP of an input: who is asked, who gets heartbeats of
// this node and from whom this node expects some.
func (o *Output) Tell(in *Input, g *model.GroupState) {
	g.Ask = g.Ask || o.Asking
	if o.Next > 0 {
		g.Owners = with(g.Owners, o.Owner)
	}
	if o.Next == 1 && !in.VIP.Unbound {
		g.First = with(g.First, o.Owner)
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

// with adds a name to sorted ones.
func with(all []model.NodeName, n model.NodeName) []model.NodeName {
	if i, found := slices.BinarySearch(all, n); !found {
		return slices.Insert(all, i, n)
	}
	return all
}

// AddDetail adds what is known of the standing of this node to the words of the election.
func (o *Output) AddDetail(detail string) {
	if detail != "" && !strings.Contains(o.Detail, detail) {
		o.Detail = strings.TrimPrefix(o.Detail+": "+detail, ": ")
	}
}

// NodeOf is the Node of a decision.
func NodeOf(v *model.View, d *model.Desired, settled bool) Node {
	distrust := v.Stalls != v.Memory.Stalls
	return Node{
		Now: v.Now, Gen: d.Gen, Self: v.Self, Rules: d.Rules, Weight: v.Weight, Settled: settled,
		Members: v.Gossip.Members, Heaviest: heaviest(v), Fresh: v.Memory.Fresh, Crowd: v.Memory.Waiting / MostProbing,
		Distrust: distrust, Lapsed: distrust || v.Applied[model.SinkLayer2].Lapses != v.Memory.Lapses, Resumed: v.Resumed,
	}
}

// heaviest is the weight that neither this node nor a member exceeds, known or not.
func heaviest(v *model.View) int {
	most := max(v.Weight, model.DefaultWeight)
	for _, m := range v.Gossip.Members {
		most = max(most, m.Weight)
	}
	return most
}

// MostProbing is for how many VIPs that are not bound the wire is asked at once. Each
// of them makes decisions longer, and the answer must not be old when it is used. It
// is a little more than the driver asks for at once. What is bound, which may be the way
// to the API server, waits for none.
const MostProbing = 96

// Count keeps count of the VIPs that await their turn, of those for which the wire is asked, and
// of those that nobody ever owned.
func (o *Output) Count(in *Input, m *model.Counts) {
	m.Fresh += one(o.Fresh)
	m.Suspected += one(o.Suspected)
	m.Waiting += one(o.Memory.Phase == model.PhaseWaiting) - one(in.Memory.Phase == model.PhaseWaiting)
	m.Probing += one(o.Memory.Phase == model.PhaseProbing) - one(in.Memory.Phase == model.PhaseProbing)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
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
