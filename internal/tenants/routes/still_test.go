package routes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// portsOfService are those of the Service and of each of its EndpointSlices.
func (w *world) portsOfService(tenant, name string) (texts []string) {
	for id, have := range w.Have {
		ports := objectsIn(have.Body, "ports")
		if id.Kind == KindService {
			ports = objectsAt(have.Body, "spec", "ports")
		}
		if id.Namespace == tenant && strings.HasPrefix(id.Name, name+"-") && id.Kind != KindIngress && id.Kind != KindHTTPRoute {
			var names []string
			for _, p := range ports {
				names = append(names, p["name"].(string))
			}
			texts = append(texts, id.Kind+" "+strings.Join(names, ","))
		}
	}
	slices.Sort(texts)
	return texts
}

// TestStandStill: while HTTPRoutes are not known, nothing is written or deleted and nobody gets a hostname, whatever becomes
// of routes and Tenants. Once they are known all of it counts.
func TestStandStill(t *testing.T) {
	web := model.Key{Namespace: "shop", Name: "httproute.default.web"}
	const unread = "HubNotRead the controller of the hub cannot read its httproutes: what is served stays, and nothing new is"
	for name, change := range map[string]func(*world){
		"nothing":                    func(*world) {},
		"a route is deleted":         func(w *world) { delete(w.Routes, web) },
		"a route has another name":   func(w *world) { w.ask(web).HTTP.Hostnames = []string{"a.shop.example.com"} },
		"a route has another port":   func(w *world) { w.ask(web).HTTP.Rules[0].Backends[0].NodePort = 30099 },
		"a Tenant has no Gateway":    func(w *world) { w.Clusters["shop"].Tenant.Spec.Gateway = "" },
		"it may not have the names":  func(w *world) { w.Clusters["shop"].Tenant.Spec.Hostnames = nil },
		"it has ended":               func(w *world) { delete(w.Clusters, "shop"); delete(w.Routes, web) },
		"it has ended before it":     func(w *world) { delete(w.Clusters, "shop") },
		"an Ingress is deleted":      func(w *world) { delete(w.Routes, keyOf("bank", "has")) },
		"an Ingress has more names":  func(w *world) { w.ask(keyOf("bank", "has")).Rules[0].Host = "www.example.com" },
		"a certificate is not named": func(w *world) { w.Certificates["bank"]["lbd-tls-1"].Old = true; w.ask(keyOf("bank", "has")).TLS = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.secrets(1, "bank")
			w.httpRoute("shop", "web", 1, "www.example.com")
			has := w.route("bank", "has", 2, "a.bank.example.com")
			has.Spec.TLS = []v1alpha1.TenantTLS{{Hosts: []string{"a.bank.example.com"}, Secret: "cert", HubSecret: "lbd-tls-1"}}
			w.Certificates["bank"] = map[string]*Certificate{"lbd-tls-1": {Names: []string{"a.bank.example.com"}}}
			w.step(t)
			if w.uses("bank", "has") != "lbd-tls-1" {
				t.Fatal("the certificate is not used")
			}
			has.Shows = []string{"192.0.2.1"}
			http := w.Have[w.of("shop", "web")]
			delete(w.Have, w.of("shop", "web")) // as after a start of the controller
			w.NotRead = "httproutes"
			w.route("bank", "new", 0, "www.example.com")
			change(w)
			out := Step(&w.Input)
			if len(out.Writes)+len(out.Deletes) > 0 {
				t.Errorf("writes %v, deletes %v", out.Writes, out.Deletes)
			}
			expect(t, says(&out), map[string]string{"bank/ingress.default.new": unread})
			for key, r := range w.Routes {
				v, judged := out.Verdicts[key]
				if judged == r.Judged || judged && (v.Reason != tenants.ReasonNotRead || !slices.Equal(out.Hostnames[key], r.Held) || !slices.Equal(out.Addresses[key], r.Shows)) {
					t.Errorf("%v, judged before: %v, is said %v, has %q, %q", key, r.Judged, v, out.Hostnames[key], out.Addresses[key])
				}
			}
			if len(w.route("bank", "new", 0, "www.example.com").Held) > 0 {
				t.Error("it has a hostname")
			}

			w.NotRead = ""
			w.Certificates["bank"]["lbd-tls-1"].Old = false // that it is deleted does not come true here
			w.Have[w.of("shop", "web")] = http
			out = w.step(t)
			for key, v := range out.Verdicts {
				if v.Reason == tenants.ReasonNotRead {
					t.Errorf("%v: %v", key, v)
				}
			}
			if _, is := out.Verdicts[web]; !is {
				clear(w.Routes)
				if w.step(t); strings.Contains(w.text(), `"namespace":"shop"`) {
					t.Errorf("left: %s", w.text())
				}
			}
		})
	}
}

// ask is what a route asks for, which is to change.
func (w *world) ask(key model.Key) *v1alpha1.TenantRouteSpec {
	w.Routes[key].Judged = false
	return &w.Routes[key].Spec
}

// TestStandStillEndpoints: the endpoints of all Services follow the nodes while HTTPRoutes are not known, but for those of a
// Tenant that has ended. An EndpointSlice that is of no use any more goes.
func TestStandStillEndpoints(t *testing.T) {
	w := newWorld()
	w.httpRoute("shop", "web", 1, "www.example.com")
	w.route("shop", "web", 2, "a.shop.example.com").Spec.Rules[0].Paths[0].NodePort = 30090
	w.route("bank", "has", 2, "a.bank.example.com")
	w.step(t)
	w.NotRead = "httproutes"
	shop, bank := w.Clusters["shop"], w.Clusters["bank"]
	shop.Nodes[0].Addrs, shop.Nodes[1].Addrs[0] = shop.Nodes[0].Addrs[:1], shop.Nodes[1].Addrs[0].Next()
	bank.Nodes[0].State = v1alpha1.TenantNodeDraining
	delete(w.Clusters, "shop")
	if out := Step(&w.Input); len(out.Writes) != 1 || len(out.Deletes) > 0 || out.Writes[0].Namespace != "bank" {
		t.Errorf("writes %v, deletes %v", out.Writes, out.Deletes)
	}
	w.Clusters["shop"] = shop
	w.step(t)
	want := []string{"EndpointSlice p30080,p30090", "EndpointSlice p30080,p30090", "Service p30080,p30090"} // one has no endpoints
	if got := w.portsOfService("shop", "web"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q: %s", got, want, w.text())
	}
	if text := fmt.Sprint(w.Have); !strings.Contains(text, "10.1.0.3") || !strings.Contains(text, "terminating:true") {
		t.Error("the endpoints are not those of the nodes")
	}
}

// TestServiceStaysWithHTTPRoute: what an HTTPRoute of the hub leads to goes after it, so that one that is left has
// Services by which the next controller knows of it. So does a port.
func TestServiceStaysWithHTTPRoute(t *testing.T) {
	for _, ended := range []bool{false, true} {
		w := newWorld()
		w.httpRoute("shop", "web", 1, "www.example.com")
		if first := Step(&w.Input).Writes[0]; !LedTo(first.ID, Have{Body: first.Body}, KindHTTPRoute) {
			t.Errorf("before its HTTPRoute is there it is %v", first)
		}
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

	w := newWorld()
	r := w.httpRoute("shop", "web", 1, "www.example.com")
	w.route("shop", "web", 2, "a.shop.example.com").Spec.Rules[0].Paths[0].NodePort = 30090
	w.step(t)
	r.Spec.HTTP.Rules[0].Backends[0].NodePort = 30099
	for _, o := range Step(&w.Input).Writes {
		if n := len(objectsAt(o.Body, "spec", "ports")); o.Kind == KindService && n != 3 {
			t.Errorf("its HTTPRoute leads to 30080 yet, and it has %d ports", n)
		}
	}
	expectPorts := func(when, want string) {
		t.Helper()
		w.step(t)
		if got, want := w.portsOfService("shop", "web"), []string{"EndpointSlice " + want, "EndpointSlice " + want, "Service " + want}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	expectPorts("of both kinds", "p30090,p30099")
	if !strings.Contains(w.text(), marks[KindHTTPRoute]) {
		t.Error("no mark")
	}
	delete(w.Routes, model.Key{Namespace: "shop", Name: "httproute.default.web"})
	expectPorts("without the HTTPRoute", "p30090")
	if strings.Contains(w.text(), marks[KindHTTPRoute]) {
		t.Error("a mark is left")
	}
}

// TestHTTPRoutesLacking: in a hub that has no such kind none is written, and all else is as ever.
func TestHTTPRoutesLacking(t *testing.T) {
	w := newWorld()
	w.Lacking = map[string]bool{KindHTTPRoute: true}
	r := w.httpRoute("shop", "web", 1, "www.example.com")
	w.route("bank", "has", 2, "a.bank.example.com")
	w.route("bank", "taken", 3, "www.example.com")
	out := w.step(t)
	expect(t, says(&out), map[string]string{"shop/httproute.default.web": "Accepted", "bank/ingress.default.has": "Accepted",
		"bank/ingress.default.taken": "HostnameTaken www.example.com is taken: another tenant had a rule for www.example.com first"})
	if text := w.text(); strings.Contains(text, `"kind":"HTTPRoute"`) || !strings.Contains(text, `"kind":"Ingress"`) {
		t.Error(text)
	}
	if got := out.Pending[model.Key{Namespace: "shop", Name: tenants.RouteName(KindHTTPRoute, "default", r.Spec.Origin.Name)}]; got != "the hub has no HTTPRoutes that its controller can read: it needs them in v1 of the Gateway API, and the roles of this version" {
		t.Error(got)
	}
}

// TestStandStillFamilies: while nobody knows the HTTPRoutes of the hub, endpoints have the families that they had, whatever
// becomes of the route.
func TestStandStillFamilies(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"another port":   func(w *world) { w.ask(keyOf("shop", "web")).Rules[0].Paths[0].NodePort = 30099 },
		"another family": func(w *world) { w.ask(keyOf("shop", "web")).Rules[0].Paths[0].Family = v1alpha1.FamilyIPv6 },
		"deleted":        func(w *world) { delete(w.Routes, keyOf("shop", "web")) },
		"no nodes, and nodes again": func(w *world) {
			c := w.Clusters["shop"]
			nodes := c.Nodes
			c.Nodes = nil
			w.Clusters["shop"] = c
			w.step(t)
			for id, have := range w.Have {
				if list, is := have.Body["endpoints"].([]any); id.Kind == KindSlice && is && len(list) == 0 {
					have.Body["endpoints"] = nil // so an API server has it
				}
			}
			c.Nodes = nil
			if out := Step(&w.Input); len(out.Writes) > 0 {
				t.Errorf("it is written again: %v", out.Writes)
			}
			c.Nodes = nodes
			w.Clusters["shop"] = c
			w.step(t)
		},
	} {
		w := newWorld()
		w.route("shop", "web", 1, "a.shop.example.com").Spec.Rules[0].Paths[0].Family = v1alpha1.FamilyIPv4
		w.route("shop", "both", 1, "b.shop.example.com")
		w.step(t)
		before := w.text()
		w.NotRead = "httproutes"
		change(w)
		if out := Step(&w.Input); len(out.Writes)+len(out.Deletes) > 0 || len(w.text()) != len(before) {
			t.Errorf("%s: writes %v, deletes %v, it was %s, and is %s", name, out.Writes, out.Deletes, before, w.text())
		}
	}
}
