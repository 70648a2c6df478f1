package daemon

import (
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// TestServicesAreToldOnce: the log says whether connections to Services are kept once that is known,
// and again only when it changes; the status and the gauge say it all the time, and nothing where it
// is not known or nobody asks.
func TestServicesAreToldOnce(t *testing.T) {
	w := newOnlooker(t)
	const none = "no rules"
	for _, c := range []struct {
		is     model.Services
		lines  []string
		status *v1alpha1.ServiceConnectionsStatus
	}{
		{model.Services{}, nil, nil},
		{model.Services{Asked: true, Kept: true}, nil, nil},
		{model.Services{Asked: true, Known: true, NoProxy: none}, []string{`level=INFO msg=services connections=reset reason="no rules"`}, &v1alpha1.ServiceConnectionsStatus{Reason: none}},
		{model.Services{Asked: true, Known: true, NoProxy: none}, nil, &v1alpha1.ServiceConnectionsStatus{Reason: none}},
		{model.Services{Asked: true, Known: true, Kept: true, Works: true}, []string{`level=INFO msg=services connections=keep reason=""`}, &v1alpha1.ServiceConnectionsStatus{Kept: true}},
		{model.Services{Asked: true, Kept: true}, nil, nil},
		{model.Services{Asked: true, Known: true, Kept: true, Works: true}, nil, &v1alpha1.ServiceConnectionsStatus{Kept: true}},
		{model.Services{Asked: true, Known: true, Kept: true, Works: true, Unfit: "output drops"}, []string{`connections=keep reason="output drops"`}, &v1alpha1.ServiceConnectionsStatus{Kept: true, Reason: "output drops"}},
		{model.Services{Asked: true, Known: true, Kept: true, Unfit: "output drops"}, []string{`connections=reset reason="output drops"`}, &v1alpha1.ServiceConnectionsStatus{Reason: "output drops"}},
	} {
		d := model.Desired{Services: c.is}
		w.see(d, c.lines...)
		same(t, "the status", status(&w.view, &d).ServiceConnections, c.status)
		kept, there := samples(t, w.reg)["service_connections_kept"]
		if there != (c.status != nil) || there && (kept == 1) != c.status.Kept {
			t.Errorf("%+v: the gauge is %g, there: %v", c.is, kept, there)
		}
	}
}

// TestExplainTellsWhyServicesAreReset: also where that is no problem.
func TestExplainTellsWhyServicesAreReset(t *testing.T) {
	v := viewOf()
	s := vipStatus(addrA, "m1", model.ReasonOwner)
	s.Resets = "no rules"
	d := statuses(s)
	if got := explain(v, &d, s, &question{}).Ring; got != "no rules" {
		t.Errorf("explained by %q", got)
	}
	if got := status(v, &d).VIPs[0].Ring; got != "" {
		t.Errorf("a problem of the status: %q", got)
	}
}
