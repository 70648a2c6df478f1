package routes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/tenants"
)

// served is a hub in which nobody knows the HTTPRoutes, and a tenant without a Gateway has an Ingress that is served.
func served(t *testing.T) (*world, *Route) {
	t.Helper()
	w := newWorld()
	w.secrets(1, "bank")
	w.Clusters["shop"].Tenant.Spec.Gateway = "edge/public"
	r := w.route("bank", "has", 2, "a.bank.example.com")
	r.Spec.TLS = []v1alpha1.TenantTLS{{Hosts: []string{"a.bank.example.com"}, Secret: "cert", HubSecret: "lbd-tls-1"}}
	w.Certificates["bank"] = map[string]*Certificate{
		"lbd-tls-1": {Names: []string{"a.bank.example.com"}}, "lbd-tls-2": {Names: []string{"a.bank.example.com", "www.example.com"}}, "lbd-tls-3": {Names: []string{"b.bank.example.com"}},
	}
	w.step(t)
	w.Have[routeID("bank", r.TenantRoute)].Body["status"] = map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "192.0.2.1"}}}}
	w.HTTPRoutesUnknown = true
	return w, r
}

// asks has a route ask for one more hostname, by another NodePort.
func asks(r *Route, host string) {
	r.Spec.Rules = append(r.Spec.Rules, v1alpha1.TenantRule{Host: host, Paths: []v1alpha1.TenantPath{{Path: "/", Type: v1alpha1.PathPrefix, Service: "new", NodePort: 30081}}})
}

// TestUnknownKeepsServed: a route that asks for one more hostname while nobody knows whose that is stays served as it
// was, with the nodes that there are now, and has the hostname once nobody else has.
func TestUnknownKeepsServed(t *testing.T) {
	w, r := served(t)
	before := w.text()
	asks(r, "www.example.com")
	for range 3 {
		out := Step(&w.Input)
		expect(t, says(&out), map[string]string{"bank/ingress.default.has": "HostnameUnknown the controller of the hub cannot read HTTPRoutes, and one of another tenant may have www.example.com"})
		if len(out.Writes)+len(out.Deletes) > 0 {
			t.Errorf("writes %v, deletes %v", out.Writes, out.Deletes)
		}
		if key := keyOf("bank", "has"); !slices.Equal(out.Addresses[key], []string{"192.0.2.1"}) || !slices.Equal(out.Hostnames[key], []string{"a.bank.example.com"}) {
			t.Errorf("addresses %q, hostnames %q", out.Addresses[key], out.Hostnames[key])
		}
		w.step(t)
	}
	if len(w.text()) != len(before) {
		t.Errorf("the hub has\n%s\nand had\n%s", w.text(), before)
	}
	w.Clusters["bank"].Nodes[0].Addrs[0] = w.Clusters["bank"].Nodes[1].Addrs[0].Next()
	if w.step(t); !strings.Contains(w.text(), "10.1.0.3") || strings.Contains(w.text(), "10.1.0.1") {
		t.Error("the endpoints are not those of the nodes")
	}
	w.HTTPRoutesUnknown = false
	out := w.step(t)
	expect(t, says(&out), map[string]string{"bank/ingress.default.has": "Accepted"})
	if !strings.Contains(w.text(), "www.example.com") {
		t.Error("the hostname is not served")
	}
}

// TestUnknownKeepsWhatIsAllowed: what is kept goes as it does at other times once the Tenant may not have it, or
// another rule refuses the route, and it counts against the limits.
func TestUnknownKeepsWhatIsAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, spec *v1alpha1.TenantSpec)
		says   string
		has    bool
	}{
		"nothing": {func(*world, *v1alpha1.TenantSpec) {}, "HostnameUnknown", true},
		"a hostname": {func(_ *world, s *v1alpha1.TenantSpec) {
			s.Hostnames = []string{"www.example.com", "b.bank.example.com"}
		}, "HostnameUnknown", false},
		"a NodePort": {func(w *world, _ *v1alpha1.TenantSpec) {
			b := w.Clusters["bank"]
			b.NodePorts.First = 30081
			w.Clusters["bank"] = b
		}, "HostnameUnknown", false},
		"suspended":    {func(_ *world, s *v1alpha1.TenantSpec) { s.Suspended = true }, "Suspended", false},
		"taken":        {func(w *world, _ *v1alpha1.TenantSpec) { asks(w.Routes[keyOf("bank", "has")], "x.shop.example.com") }, "HostnameTaken", false},
		"not a limit":  {func(_ *world, s *v1alpha1.TenantSpec) { s.Limits.Ports = 1 }, "HostnameUnknown", true},
		"a limit":      {func(_ *world, s *v1alpha1.TenantSpec) { s.Limits.Ports = 0 }, "HostnameUnknown", false},
		"without name": {func(w *world, _ *v1alpha1.TenantSpec) { w.HTTPRoutesUnknown = false }, "Accepted", true},
	} {
		w, r := served(t)
		w.Clusters["bank"].Tenant.Spec.Hostnames = []string{"*.example.com"}
		w.route("shop", "x", 1, "x.shop.example.com")
		w.step(t)
		asks(r, "www.example.com")
		r.Spec.Rules = r.Spec.Rules[1:] // so that it asks for nothing that is not allowed
		r.Spec.TLS = nil
		for i := range r.Spec.Rules {
			r.Spec.Rules[i].Paths[0].NodePort = 30081
		}
		c.change(w, &w.Clusters["bank"].Tenant.Spec)
		out := w.step(t)
		_, has := w.Have[routeID("bank", r.TenantRoute)]
		if got := string(out.Verdicts[keyOf("bank", "has")].Reason); got != c.says || has != c.has {
			t.Errorf("%s: %s, it has an Ingress: %v", name, got, has)
		}
	}

	w, r := served(t)
	asks(r, "www.example.com")
	s := &w.Clusters["bank"].Tenant.Spec
	s.Limits.Routes = 1
	w.route("bank", "more", 3, "b.bank.example.com")
	out := w.step(t)
	if v := out.Verdicts[keyOf("bank", "more")]; v.Reason != tenants.ReasonLimit {
		t.Errorf("one more route: %v", v)
	}
	s.Limits.Routes, s.IngressClass = 2, "other"
	s.Annotations.Allow = nil
	w.Have[routeID("bank", r.TenantRoute)].Body["metadata"].(map[string]any)["annotations"].(map[string]any)["example.com/x"] = "had"
	more := w.Routes[keyOf("bank", "more")]
	more.Spec.TLS = []v1alpha1.TenantTLS{{HubSecret: "lbd-tls-3"}}
	out = w.step(t)
	if got := judged(&out, "bank", "more"); !strings.HasPrefix(got, "true TenantLimit") || w.uses("bank", "has") != "lbd-tls-1" {
		t.Errorf("one more certificate: %s, that of the route is %q", got, w.uses("bank", "has"))
	}
	if text := fmt.Sprint(w.Have[routeID("bank", r.TenantRoute)].Body); strings.Contains(text, "example.com/x") || !strings.Contains(text, "ingressClassName:other") {
		t.Errorf("the Ingress is %s", text)
	}
	s.Limits.TLSSecrets = 0
	if w.step(t); w.uses("bank", "has") != "" {
		t.Error("a certificate is used without a limit")
	}
}

// TestUnknownRenewal: a certificate that is renewed for one more hostname that another may have is shown as it was.
func TestUnknownRenewal(t *testing.T) {
	for _, kept := range []bool{false, true} { // the route, too
		w, r := served(t)
		r.Spec.TLS[0].HubSecret = "lbd-tls-2"
		if kept {
			asks(r, "www.example.com")
		}
		more := w.route("bank", "more", 3, "b.bank.example.com")
		more.Spec.TLS = []v1alpha1.TenantTLS{{HubSecret: "lbd-tls-3"}}
		w.Certificates["bank"]["lbd-tls-1"].Old = true
		for range 2 {
			out := w.step(t)
			if got := judged(&out, "bank", "has"); w.uses("bank", "has") != "lbd-tls-1" || !kept && !strings.HasPrefix(got, "true HostnameUnknown") {
				t.Errorf("route kept %v: %s, it shows %q", kept, got, w.uses("bank", "has"))
			}
			if got := judged(&out, "bank", "more"); !strings.HasPrefix(got, "true TenantLimit") {
				t.Errorf("route kept %v: one more: %s", kept, got)
			}
		}
		*w.Certificates["bank"]["lbd-tls-1"] = Certificate{Broken: "it is broken"}
		if w.step(t); w.uses("bank", "has") == "lbd-tls-1" {
			t.Errorf("route kept %v: it shows one that is broken", kept)
		}
		w.HTTPRoutesUnknown, w.Certificates["bank"]["lbd-tls-1"].Broken = false, ""
		if w.step(t); w.uses("bank", "has") != "lbd-tls-2" {
			t.Errorf("route kept %v: known again it shows %q", kept, w.uses("bank", "has"))
		}
	}
}
