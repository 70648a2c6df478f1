package decide

import (
	"net/netip"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
	"lbd.dev/lbd/internal/wire"
)

type addr = netip.Addr

// standing says whether this node may own the VIP on an interface and, if not, why.
func (f *facts) standing(vip *model.VIP, lan string, where place.Verdict, m *model.VIPMemory) place.Verdict {
	v := f.v
	if !vip.L2 {
		return place.Verdict{Reason: model.ReasonNotAnnounced}
	}
	if vip.Partition == model.PartitionQuorum && where.Reason.Eligible() {
		if quorum, missing := f.quorum(); !quorum {
			where = place.Verdict{Reason: model.ReasonNoQuorum, Detail: missing}
		}
	}
	if why := place.Standing(v, vip, where, f.group.Leaves(vip.Addr, false)); !why.Reason.Eligible() {
		return why
	}
	h := place.Health(v, vip)
	switch {
	case !f.group.Memory.Settled:
		return place.Verdict{Reason: model.ReasonNotSettled}
	case f.networks.On(lan).State == wire.Dark:
		return place.Verdict{Reason: model.ReasonWireDark, Detail: "nobody answers on " + lan + ", where other nodes hear each other: is its VLAN missing on a port of the switch?"}
	case m.Lost == model.ReasonDriverError && (m.Phase == model.PhaseIdle || m.Phase == model.PhaseUnbinding) && v.Now.Before(m.Deferred):
		f.w.by(m.Deferred)
		return place.Verdict{Reason: model.ReasonDriverError, Detail: m.LostDetail}
	case f.leveled && h.State == model.HealthDegraded:
		return place.Verdict{Reason: model.ReasonDegraded, Detail: h.Detail}
	}
	return place.Verdict{Reason: model.ReasonStandby}
}
