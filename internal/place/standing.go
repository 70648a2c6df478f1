package place

import (
	"time"

	"lbd.dev/lbd/internal/model"
)

// Verdict is why this node may not serve a VIP, with more words. The zero Verdict says nothing.
type Verdict struct {
	Reason model.Reason
	Detail string
}

// Standing says whether this node may serve a VIP, however the VIP is announced, and if not the
// first reason in the order in which an operator would want to hear them. health is that of the VIP
// on this node; where says whether
// there is a way to announce it; leaves is why the node gives it to others although nothing is
// wrong.
func Standing(v *model.View, vip *model.VIP, health *model.HealthState, where, leaves Verdict) Verdict {
	switch {
	case v.Unable != "":
		return Verdict{model.ReasonDriverError, v.Unable}
	case !model.Matches(vip.NodeSelector, v.Labels):
		return Verdict{Reason: model.ReasonNotSelected}
	case !where.Reason.Eligible():
		return where
	case vip.Barred.LetsGo():
		return Verdict{vip.Barred, vip.BarredDetail}
	}
	switch health.State {
	case model.HealthDown:
		return Verdict{model.ReasonUnhealthy, health.Detail}
	case model.HealthUnknown:
		return Verdict{model.ReasonHealthPending, health.Detail}
	}
	switch {
	case leaves != (Verdict{}):
		return leaves
	case vip.Barred != model.ReasonOwner:
		return Verdict{vip.Barred, vip.BarredDetail}
	}
	return Verdict{Reason: model.ReasonStandby}
}

// LAN is what the standing of a node at layer 2 depends on beside the View.
type LAN struct {
	// Interface is where the VIP belongs; Where says whether there is such an interface, and
	// Leaves is that of Standing.
	Interface     string
	Where, Leaves Verdict
	Settled       bool // the node knows its group
	// TellsDegraded: the group tells what is degraded from what is well.
	TellsDegraded bool
	// Unheard is why no router hears of the VIP from this node; empty: one does, or none is to.
	Unheard string
	Memory  *model.VIPMemory
}

// StandingOnLAN says whether this node may own a VIP on an interface, and if not why. The second
// result is when the answer changes by itself; zero: never. dark tells whether nobody answers on the
// interface, where other nodes hear each other. It is asked only if that would be the reason, since
// a question has the wire asked.
func StandingOnLAN(v *model.View, vip *model.VIP, health *model.HealthState, lan *LAN, dark func() bool) (Verdict, time.Time) {
	if !vip.L2 {
		return Verdict{Reason: model.ReasonNotAnnounced}, time.Time{}
	}
	if why := Standing(v, vip, health, lan.Where, lan.Leaves); !why.Reason.Eligible() {
		return why, time.Time{}
	}
	m := lan.Memory
	switch {
	case !lan.Settled:
		return Verdict{Reason: model.ReasonNotSettled}, time.Time{}
	case dark():
		return Verdict{Reason: model.ReasonWireDark, Detail: "nobody answers on " + lan.Interface + ", where other nodes hear each other: is its VLAN missing on a port of the switch?"}, time.Time{}
	case m.Lost == model.ReasonDriverError && (m.Phase == model.PhaseIdle || m.Phase == model.PhaseUnbinding) && v.Now.Before(m.Deferred):
		return Verdict{Reason: model.ReasonDriverError, Detail: m.LostDetail}, m.Deferred
	case lan.TellsDegraded && health.State == model.HealthDegraded:
		return Verdict{Reason: model.ReasonDegraded, Detail: health.Detail}, time.Time{}
	case lan.TellsDegraded && lan.Unheard != "": // better here than nowhere: clients of the LAN need no router
		return Verdict{Reason: model.ReasonDegraded, Detail: lan.Unheard}, time.Time{}
	}
	return Verdict{Reason: model.ReasonStandby}, time.Time{}
}

// Health is how the service of a VIP does on this node; one without a check is well, unless its
// source says otherwise.
func Health(v *model.View, vip *model.VIP) model.HealthState {
	switch {
	case vip.Barred == model.ReasonUnhealthy:
		return model.HealthState{State: model.HealthDown, Detail: vip.BarredDetail}
	case vip.Barred == model.ReasonHealthPending:
		return model.HealthState{State: model.HealthUnknown, Detail: vip.BarredDetail}
	case vip.Check == "":
		return model.HealthState{State: model.HealthUp}
	}
	return v.Health[vip.Check]
}
