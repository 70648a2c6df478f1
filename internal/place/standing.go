package place

import "lbd.dev/lbd/internal/model"

// Verdict is why this node may not serve a VIP, with more words. The zero Verdict says nothing.
type Verdict struct {
	Reason model.Reason
	Detail string
}

// Standing says whether this node may serve a VIP, however the VIP is announced, and if not the
// first reason in the order in which an operator would want to hear them. where says whether
// there is a way to announce it; leaves is why the node gives it to others although nothing is
// wrong.
func Standing(v *model.View, vip *model.VIP, where, leaves Verdict) Verdict {
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
	switch h := Health(v, vip); h.State {
	case model.HealthDown:
		return Verdict{model.ReasonUnhealthy, h.Detail}
	case model.HealthUnknown:
		return Verdict{model.ReasonHealthPending, h.Detail}
	}
	switch {
	case leaves != (Verdict{}):
		return leaves
	case vip.Barred != model.ReasonOwner:
		return Verdict{vip.Barred, vip.BarredDetail}
	}
	return Verdict{Reason: model.ReasonStandby}
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
