package notify

import (
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// TestLook walks one address through what decisions say of it.
func TestLook(t *testing.T) {
	is := func(owner model.NodeName, why, standing model.Reason, announced bool) model.VIPStatus {
		return model.VIPStatus{VIP: model.VIP{Addr: addr4}, Owner: owner, Reason: why, Standing: standing, Announced: announced}
	}
	bgp := func(s model.VIPStatus) model.VIPStatus { s.BGP = true; return s }
	target := &target{addr: addr4}
	for i, step := range []struct {
		want     v1alpha1.NotifyState
		statuses []model.VIPStatus
	}{
		{"", nil}, // the decision does not know the VIP yet
		{"", []model.VIPStatus{is("", model.ReasonNotSettled, model.ReasonNotSettled, false)}},
		{"", []model.VIPStatus{is("", model.ReasonHealthPending, model.ReasonHealthPending, false)}},
		{"standby", []model.VIPStatus{is("m2", model.ReasonStandby, model.ReasonStandby, false)}},
		{"standby", []model.VIPStatus{is("", model.ReasonProbing, model.ReasonStandby, false)}},
		{"standby", []model.VIPStatus{is("", model.ReasonWaitingForRelease, model.ReasonStandby, false)}},
		{"standby", []model.VIPStatus{is("m1", model.ReasonTakingOver, model.ReasonOwner, false)}},
		{"standby", []model.VIPStatus{is("m1", model.ReasonOwner, model.ReasonOwner, false)}}, // nothing has left the host yet
		{"owner", []model.VIPStatus{is("m1", model.ReasonOwner, model.ReasonOwner, true)}},
		{"owner", []model.VIPStatus{is("m1", model.ReasonProbing, model.ReasonOwner, false)}}, // in doubt
		{"owner", []model.VIPStatus{is("m1", model.ReasonHandingOver, model.ReasonDraining, true)}},
		{"owner", []model.VIPStatus{is("m1", model.ReasonNoSuccessor, model.ReasonDraining, true)}},
		{"standby", []model.VIPStatus{is("m2", model.ReasonReleasing, model.ReasonDraining, false)}},
		{"standby", []model.VIPStatus{is("m2", model.ReasonDraining, model.ReasonDraining, false)}},
		{"standby", []model.VIPStatus{is("m2", model.ReasonNotSelected, model.ReasonNotSelected, false)}},
		{"standby", []model.VIPStatus{is("m2", model.ReasonDegraded, model.ReasonDegraded, false)}}, // it may have it
		{"owner", []model.VIPStatus{is("m1", model.ReasonOwner, model.ReasonDegraded, true)}},
		{"fault", []model.VIPStatus{is("m1", model.ReasonReleasing, model.ReasonUnhealthy, false)}},
		{"fault", []model.VIPStatus{is("m2", model.ReasonLinkDown, model.ReasonLinkDown, false)}},
		{"owner", []model.VIPStatus{is("m1", model.ReasonOwner, model.ReasonNotSettled, true)}},
		{"standby", []model.VIPStatus{is("m2", model.ReasonLostElection, model.ReasonNotSettled, false)}},
		{"owner", []model.VIPStatus{bgp(is("m1", model.ReasonAdvertised, model.ReasonOwner, true))}},
		{"standby", []model.VIPStatus{bgp(is("", model.ReasonNoSession, model.ReasonStandby, false))}},
		{"fault", []model.VIPStatus{bgp(is("", model.ReasonNoPeer, model.ReasonNoPeer, false))}},
		{"owner", []model.VIPStatus{is("m2", model.ReasonStandby, model.ReasonStandby, false), bgp(is("m1", model.ReasonAdvertised, model.ReasonOwner, true))}},
		{"standby", []model.VIPStatus{is("m2", model.ReasonStandby, model.ReasonStandby, false), bgp(is("", model.ReasonNoPeer, model.ReasonNoPeer, false))}},
		{"owner", []model.VIPStatus{is("m1", model.ReasonOwner, model.ReasonOwner, true), bgp(is("", model.ReasonNoPeer, model.ReasonNoPeer, false))}},
		{"standby", nil}, // taken out
	} {
		beside := []model.VIPStatus{{VIP: model.VIP{Addr: addr4.Prev()}, Owner: "m1", Announced: true}}
		beside = append(append(beside, step.statuses...), model.VIPStatus{VIP: model.VIP{Addr: addr4.Next()}, Owner: "m1", Announced: true})
		f := look(&model.Desired{Status: beside}, "m1", target)
		if f.state != step.want {
			t.Errorf("step %d: %q, want %q", i, f.state, step.want)
		}
		if f.state != "" && len(step.statuses) == 1 && (f.reason != step.statuses[0].Reason || f.owner != step.statuses[0].Owner) {
			t.Errorf("step %d: %+v", i, f)
		}
		target.fact = f
	}
}
