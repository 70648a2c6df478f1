package ring

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
)

const (
	// ServiceHolds is how long a node that has let go of the VIP of a Service is in its ring
	// whatever is known of its connections: longer than the relay driver rests between two looks
	// for them, and than routers go on to send to a node after a withdrawal.
	ServiceHolds = time.Minute
	// RelayWait is how long a new owner waits at most with its announcement until its kernel
	// relays to the former one, which still has the address meanwhile; and a node with that to
	// routers. The rules take some milliseconds, as the address does, each family; on a machine
	// without time many. A planned move has that time: see election.HandoverTimeout.
	RelayWait = 150 * time.Millisecond
)

// HeldUntil is until when this node counts as one that has connections to the VIP of a Service:
// ServiceHolds from the moment at which new ones come in here no more, else as was remembered.
func (all *All) HeldUntil(vip *model.VIP, before, now bool, was time.Time) time.Time {
	if all.tracks(vip) && vip.Unbound && before && !now {
		return all.v.Now.Add(ServiceHolds)
	}
	return was
}

// HoldsService tells whether this node has connections to the VIP of a Service, or is about to
// get some: new ones come in here, or did until a moment ago. Its rules and those of kube-proxy
// are there without lbd, so it needs nothing to keep them.
func (all *All) HoldsService(vip *model.VIP, iface string, serves bool, until time.Time) bool {
	switch {
	case !all.KeepsService(vip, iface):
		return false
	case serves:
		return true
	case all.v.Now.Before(until):
		all.by(until)
		return true
	}
	// Until the driver has looked an earlier process may have left some.
	return all.seen == nil || all.seen.Tracks(vip.Addr)
}

// Waits tells whether the driver has yet to answer to the ring of a planned move.
func (all *All) Waits(m *model.VIPMemory) bool {
	relay, works := all.v.Applied[model.SinkRelay]
	end := m.RelayUntil.Add(RelayWait - election.RelayFor)
	if m.Phase != model.PhaseTaking || m.RelayUntil.IsZero() || !works || relay.Gen >= m.Gen || !all.v.Now.Before(end) {
		return false
	}
	all.by(end)
	return true
}

// WaitsService is Waits in the decision that takes the VIP of a Service over: nothing has to be
// bound, so it would be announced at once.
func (all *All) WaitsService(vip *model.VIP, iface string) bool {
	if _, works := all.v.Applied[model.SinkRelay]; !works || !all.KeepsService(vip, iface) {
		return false
	}
	named := slices.ContainsFunc(all.v.Gossip.Claims[vip.Addr], func(c model.Claim) bool { return c.To == all.v.Self })
	if named {
		all.by(all.v.Now.Add(RelayWait))
	}
	return named
}
