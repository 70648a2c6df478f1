package routes

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// unread has nobody know the HTTPRoutes of the hub any more. What there is of them is served still.
func (w *world) unread() {
	w.HTTPRoutesUnknown = true
	maps.DeleteFunc(w.Have, func(id ID, _ Have) bool { return id.Kind == KindHTTPRoute })
}

// servicePortsOf are those of the Service and of each of its EndpointSlices.
func (w *world) servicePortsOf(tenant, name string) (texts []string) {
	for id, have := range w.Have {
		ports, _ := have.Body["ports"].([]any)
		if spec, is := have.Body["spec"].(map[string]any); is && id.Kind == KindService {
			ports, _ = spec["ports"].([]any)
		}
		if id.Namespace == tenant && strings.HasPrefix(id.Name, name+"-") && id.Kind != KindIngress && id.Kind != KindHTTPRoute {
			var names []string
			for _, p := range ports {
				names = append(names, p.(map[string]any)["name"].(string))
			}
			texts = append(texts, id.Kind+" "+strings.Join(names, ","))
		}
	}
	slices.Sort(texts)
	return texts
}

// TestUnknownHostnames: while HTTPRoutes are not known, no hostname that one may have goes to another tenant, whatever
// becomes of the TenantRoute or the Tenant.
func TestUnknownHostnames(t *testing.T) {
	const kept = "HostnameUnknown the controller of the hub cannot read HTTPRoutes, and one of another tenant may have www.example.com"
	key := model.Key{Namespace: "shop", Name: "httproute.default.web"}
	for name, change := range map[string]func(*world){
		"the route is deleted":                  func(w *world) { delete(w.Routes, key) },
		"it has another hostname":               func(w *world) { w.Routes[key].Spec.HTTP.Hostnames = []string{"a.shop.example.com"} },
		"the Tenant has no Gateway":             func(w *world) { w.Clusters["shop"].Tenant.Spec.Gateway = "" },
		"nor has it a route":                    func(w *world) { w.Clusters["shop"].Tenant.Spec.Gateway = ""; delete(w.Routes, key) },
		"it may not have the hostname":          func(w *world) { w.Clusters["shop"].Tenant.Spec.Hostnames = nil },
		"the Tenant has ended":                  func(w *world) { delete(w.Clusters, "shop"); delete(w.Routes, key) },
		"the Tenant has ended before its route": func(w *world) { delete(w.Clusters, "shop") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.httpRoute("shop", "web", 1, "www.example.com")
			w.Clusters["bank"].Tenant.Spec.Gateway = ""
			w.route("bank", "has", 2, "a.bank.example.com")
			w.step(t)
			before := len(w.Have)
			w.unread()
			w.route("bank", "ingress", 0, "www.example.com")
			change(w)
			for range 3 {
				out := w.step(t)
				got := says(&out)["bank/ingress.default.ingress"]
				if taken := strings.HasPrefix(got, "HostnameTaken www.example.com"); got != kept && !taken {
					t.Errorf("the Ingress: %s", got)
				}
				expect(t, says(&out), map[string]string{"bank/ingress.default.has": "Accepted"})
			}
			if len(w.Have) != before-1 {
				t.Errorf("%d objects are left of %d", len(w.Have), before-1)
			}
			// Once it is known that there is no HTTPRoute any more, all of it goes.
			w.HTTPRoutesUnknown = false
			delete(w.Routes, key)
			out := w.step(t)
			expect(t, says(&out), map[string]string{"bank/ingress.default.ingress": "Accepted"})
			if left := w.servicePortsOf("shop", "web"); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestUnknownOthers: hostnames that no tenant with a Gateway may have go to whoever asks for them, and its own are no
// obstacle to a tenant.
func TestUnknownOthers(t *testing.T) {
	w := newWorld()
	w.httpRoute("shop", "web", 1, "a.shop.example.com")
	w.Clusters["bank"].Tenant.Spec.Gateway = ""
	w.unread()
	w.route("shop", "own", 2, "www.example.com")
	w.route("bank", "other", 2, "a.bank.example.com", "*.bank.example.com")
	out := w.step(t)
	expect(t, says(&out), map[string]string{"shop/ingress.default.own": "Accepted", "bank/ingress.default.other": "Accepted", "shop/httproute.default.web": "Accepted"})
	if left := w.servicePortsOf("shop", "web"); len(left) > 0 {
		t.Errorf("no HTTPRoute leads to %q", left)
	}
	w.Clusters["bank"].Tenant.Spec.Hostnames = []string{"*.example.com"}
	w.route("bank", "wild", 3, "*.example.com")
	out = w.step(t)
	expect(t, says(&out), map[string]string{
		"bank/ingress.default.wild": "HostnameTaken *.example.com is taken: another tenant had a rule for a.shop.example.com first"})
	w.route("bank", "below", 3, "b.shop.example.com")
	out = w.step(t)
	expect(t, says(&out), map[string]string{
		"bank/ingress.default.below": "HostnameUnknown the controller of the hub cannot read HTTPRoutes, and one of another tenant may have b.shop.example.com"})
}

// TestUnknownCertificate: a certificate for a hostname that an HTTPRoute of another may have is not used.
func TestUnknownCertificate(t *testing.T) {
	w := newWorld()
	w.httpRoute("shop", "web", 1, "a.shop.example.com")
	w.Clusters["bank"].Tenant.Spec.Gateway = ""
	w.Clusters["bank"].Tenant.Spec.Limits.TLSSecrets = 5
	w.unread()
	r := w.route("bank", "other", 2, "a.bank.example.com")
	secret := "lbd-tls-1"
	r.Spec.TLS = append(r.Spec.TLS, v1alpha1.TenantTLS{HubSecret: secret})
	w.Certificates = map[string]map[string]*Certificate{"bank": {secret: {Names: []string{"a.bank.example.com", "www.example.com"}}}}
	out := w.step(t)
	v := out.Certificates[model.Key{Namespace: "bank", Name: "ingress.default.other"}]
	if v.Reason != ReasonUnknown {
		t.Errorf("it says %v", v)
	}
}

// TestUnknownPorts: a Service keeps the ports that HTTPRoutes lead to while nobody can change these, and its endpoints
// are those of the nodes. What Ingresses need of it they get.
func TestUnknownPorts(t *testing.T) {
	w := newWorld()
	r := w.httpRoute("shop", "web", 1, "www.example.com")
	w.step(t)
	expectPorts := func(when, want string) {
		t.Helper()
		w.step(t)
		if got, want := w.servicePortsOf("shop", "web"), []string{"EndpointSlice " + want, "EndpointSlice " + want, "Service " + want}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	expectPorts("at first", "p30080")
	known := maps.Clone(w.Have)
	w.unread()
	r.Spec.HTTP.Rules[0].Backends[0].NodePort = 30099
	expectPorts("with another NodePort", "p30080")
	w.Clusters["shop"].Nodes[0].Addrs[0] = w.Clusters["shop"].Nodes[1].Addrs[0].Next()
	if w.step(t); !strings.Contains(w.text(), "10.1.0.3") || strings.Contains(w.text(), "10.1.0.1") {
		t.Error("the endpoints are not those of the nodes")
	}
	delete(w.Routes, model.Key{Namespace: "shop", Name: "httproute.default.web"})
	expectPorts("without the route", "p30080")
	w.route("shop", "web", 2, "a.shop.example.com").Spec.Rules[0].Paths[0].NodePort = 30090
	expectPorts("with an Ingress", "p30080,p30090")
	w.Routes[model.Key{Namespace: "shop", Name: "httproute.default.web"}] = r

	// Once it is known again it leads to the new port, and the old one ends after that.
	w.HTTPRoutesUnknown = false
	w.Have[w.of("shop", "web")] = known[w.of("shop", "web")]
	for _, o := range Step(&w.Input).Writes {
		spec, _ := o.Body["spec"].(map[string]any)
		if ports, _ := spec["ports"].([]any); o.Kind == KindService && len(ports) != 3 {
			t.Errorf("its HTTPRoute leads to 30080 yet: %v", ports)
		}
	}
	expectPorts("known again", "p30090,p30099")
	delete(w.Routes, model.Key{Namespace: "shop", Name: "httproute.default.web"})
	expectPorts("without the HTTPRoute", "p30090")
	if strings.Contains(w.text(), portsKey) {
		t.Error("a mark is left")
	}
}

// TestUnknownWrites: of HTTPRoutes that were known once none is written or deleted.
func TestUnknownWrites(t *testing.T) {
	w := newWorld()
	w.httpRoute("shop", "web", 1, "www.example.com")
	gone := w.httpRoute("shop", "gone", 1, "a.shop.example.com")
	w.step(t)
	w.HTTPRoutesUnknown = true
	w.Routes[model.Key{Namespace: "shop", Name: "httproute.default.web"}].Spec.HTTP.Hostnames = []string{"b.shop.example.com"}
	delete(w.Routes, model.Key{Namespace: "shop", Name: tenants.HTTPRouteName("default", gone.Spec.Origin.Name)})
	if out := Step(&w.Input); len(out.Writes)+len(out.Deletes) > 0 {
		t.Errorf("writes %v, deletes %v", out.Writes, out.Deletes)
	}
}

// TestServiceStaysWithHTTPRoute: what an HTTPRoute of the hub leads to goes after it, so that one that is left has
// Services by which the next controller knows of it.
func TestServiceStaysWithHTTPRoute(t *testing.T) {
	for _, ended := range []bool{false, true} {
		w := newWorld()
		w.httpRoute("shop", "web", 1, "www.example.com")
		w.step(t)
		clear(w.Routes)
		if ended {
			delete(w.Clusters, "shop")
		}
		out := Step(&w.Input)
		if id := w.of("shop", "web"); len(out.Writes) > 0 || len(out.Deletes) != 1 || out.Deletes[0].ID != id {
			t.Errorf("writes %v, deletes %v, want to delete %v alone", out.Writes, out.Deletes, id)
		}
		if w.step(t); len(w.Have) > 0 {
			t.Errorf("left: %s", w.text())
		}
	}
}

// TestUnknownButListed: while all HTTPRoutes are known, or there is no such kind, they have the hostnames and the ports
// that they have, and no others. None is written or deleted.
func TestUnknownButListed(t *testing.T) {
	w := newWorld()
	w.httpRoute("shop", "web", 1, "a.shop.example.com")
	w.Clusters["bank"].Tenant.Spec.Gateway = ""
	w.step(t)
	w.HTTPRoutesUnknown, w.HTTPRoutesListed = true, true
	w.Clusters["bank"].Tenant.Spec.Hostnames = []string{"*.example.com"}
	w.route("bank", "has", 0, "a.shop.example.com")
	w.route("bank", "free", 2, "www.example.com")
	w.httpRoute("shop", "new", 3, "b.shop.example.com")
	delete(w.Routes, model.Key{Namespace: "shop", Name: "httproute.default.web"})
	w.Clusters["bank"].Tenant.Spec.Gateway = ""
	out := w.step(t)
	expect(t, says(&out), map[string]string{
		"bank/ingress.default.has":  "HostnameTaken a.shop.example.com is taken: another tenant had a rule for a.shop.example.com first",
		"bank/ingress.default.free": "Accepted", "shop/httproute.default.new": "Accepted",
	})
	if has := w.Have[w.of("shop", "web")].Body; has == nil || w.Have[w.of("shop", "new")].Body != nil || len(w.servicePortsOf("shop", "web")) == 0 {
		t.Errorf("the hub has %s", w.text())
	}
	delete(w.Have, w.of("shop", "web")) // by somebody
	out = w.step(t)
	expect(t, says(&out), map[string]string{"bank/ingress.default.has": "Accepted"})
	if left := w.servicePortsOf("shop", "web"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestUnknownHoldsNothingNew: an HTTPRoute that is not written has no hostname that it would keep from others later.
func TestUnknownHoldsNothingNew(t *testing.T) {
	w := newWorld()
	has := w.httpRoute("shop", "has", 1, "www.example.com")
	w.step(t)
	w.unread()
	r := w.httpRoute("shop", "new", 2, "a.shop.example.com")
	if w.step(t); len(r.Held) > 0 || !slices.Equal(has.Held, []string{"www.example.com"}) {
		t.Errorf("the new one has %q, the old one %q", r.Held, has.Held)
	}
	w.HTTPRoutesUnknown = false
	if w.step(t); !slices.Equal(r.Held, []string{"a.shop.example.com"}) {
		t.Errorf("once it is written it has %q", r.Held)
	}
}

// TestUnknownKeepsUnmarked: a Service without a mark stays with the HTTPRoute that led to it when that was known last,
// and a hostname that this may have goes to nobody else.
func TestUnknownKeepsUnmarked(t *testing.T) {
	w := newWorld()
	w.httpRoute("shop", "web", 1, "a.shop.example.com")
	w.step(t)
	for id, have := range w.Have {
		if meta := have.Body["metadata"].(map[string]any); id.Kind == KindService {
			delete(meta["annotations"].(map[string]any), portsKey)
		}
	}
	before := len(w.Have)
	w.HTTPRoutesUnknown = true
	clear(w.Routes)
	w.Clusters["shop"].Tenant.Spec.Gateway, w.Clusters["bank"].Tenant.Spec.Gateway = "", ""
	w.route("bank", "steal", 0, "www.example.com")
	out := w.step(t)
	if len(w.Have) != before || len(w.servicePortsOf("shop", "web")) != 3 {
		t.Errorf("the hub has %s", w.text())
	}
	expect(t, says(&out), map[string]string{
		"bank/ingress.default.steal": "HostnameUnknown the controller of the hub cannot read HTTPRoutes, and one of another tenant may have www.example.com"})
}
