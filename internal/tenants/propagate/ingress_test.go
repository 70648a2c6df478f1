package propagate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// ingresses are a tenant cluster and its hub, in which what is decided comes true at once.
type ingresses struct {
	IngressInput
	next int32 // NodePort
	away bool  // the hub takes nothing
}

func at(name string) model.Key { return model.Key{Namespace: "default", Name: name} }

// newIngresses has the Service web of port 80, named http.
func newIngresses() *ingresses {
	w := &ingresses{next: 30000, IngressInput: IngressInput{Class: "lbd", Ingresses: map[model.Key]*Ingress{}, Backends: map[model.Key]*Backend{}, HubRoutes: map[string]HubRoute{},
		Refused: map[model.Key]string{}, Told: map[model.Key]string{}}}
	w.service("web", func(*Backend) {})
	return w
}

func (w *ingresses) service(name string, change func(*Backend)) {
	b := &Backend{UID: name, Type: "ClusterIP", Selector: map[string]string{"app": name}, Ports: []BackendPort{{Name: "http", Protocol: "TCP", Port: 80, TargetPort: "8080"}}}
	change(b)
	w.Backends[at(name)] = b
}

// ingress makes an Ingress whose paths lead to port 80 of Services.
func (w *ingresses) ingress(name string, services ...string) *Ingress {
	i := &Ingress{UID: name, Generation: 1, Class: "lbd", Rules: []IngressRule{{Host: name + ".example.com"}}}
	for _, s := range services {
		i.Rules[0].Paths = append(i.Rules[0].Paths, IngressPath{Path: "/" + s, Type: "Prefix", Service: s, Port: 80})
	}
	w.Ingresses[at(name)] = i
	return i
}

// step decides until nothing is left to be done, and returns all events.
func (w *ingresses) step(t *testing.T) (events []string) {
	t.Helper()
	for range 6 {
		out := StepIngresses(&w.IngressInput)
		for _, c := range out.Copies {
			if c.Backend == nil {
				delete(w.Backends, c.Key)
				continue
			}
			w.copied(t, c)
		}
		if w.away {
			out.Routes = nil
		}
		for _, r := range out.Routes {
			h := w.HubRoutes[r.Name]
			h.UID, h.Spec, h.Generation = r.Name, r.Spec, h.Generation+1
			w.HubRoutes[r.Name] = h
			if r.Spec == nil {
				delete(w.HubRoutes, r.Name)
			}
		}
		for _, s := range out.Statuses {
			w.Ingresses[s.Ingress].Addresses = s.Addresses
		}
		for _, e := range out.Events {
			w.Told[e.Ingress] = e.Why
			events = append(events, e.Ingress.Name+" "+e.Event.Reason+" "+e.Message)
		}
		if len(out.Copies)+len(out.Routes)+len(out.Statuses)+len(out.Events) == 0 {
			return events
		}
	}
	t.Fatal("it does not come to rest")
	return nil
}

// copied makes or changes a copy as the API server does: a port keeps its NodePort, and names differ.
func (w *ingresses) copied(t *testing.T, c Copy) {
	t.Helper()
	made, had, names := *c.Backend, map[int32]int32{}, map[string]bool{}
	made.First = cmp.Or(made.Family, v1alpha1.FamilyIPv4)
	if has := w.Backends[c.Key]; has != nil {
		if made.First = has.First; made.Family != "" && made.Family != has.First {
			t.Errorf("a Service with the first family %s is to have %s alone", has.First, made.Family)
		}
		for _, p := range has.Ports {
			had[p.Port] = p.NodePort
		}
	}
	made.UID, made.Ports = c.Name, nil
	for _, p := range c.Backend.Ports {
		if p.NodePort = had[p.Port]; p.NodePort == 0 {
			w.next++
			p.NodePort = w.next
		}
		if names[p.Name] {
			t.Errorf("two ports of a Service have one name: %v", c.Backend.Ports)
		}
		names[p.Name] = true
		made.Ports = append(made.Ports, p)
	}
	w.Backends[c.Key] = &made
}

// judge is what the hub says of a route.
func (w *ingresses) judge(name string, status v1alpha1.ConditionStatus, reason string, addresses ...string) {
	h := w.HubRoutes["ingress.default."+name]
	h.Addresses, h.Conditions = addresses, []v1alpha1.Condition{{Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, ObservedGeneration: h.Generation}}
	w.HubRoutes["ingress.default."+name] = h
}

// paths are those that the hub has of an Ingress.
func (w *ingresses) paths(name string) string {
	s := w.HubRoutes["ingress.default."+name].Spec
	if s == nil {
		return ""
	}
	var all []string
	for _, r := range s.Rules {
		for _, p := range r.Paths {
			all = append(all, fmt.Sprintf("%s%s %s %s:%d", r.Host, p.Path, p.Type, p.Service, p.NodePort))
		}
	}
	return strings.Join(all, ", ")
}

func wants(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestIngress: from an Ingress to the addresses of the engine, and back to nothing.
func TestIngress(t *testing.T) {
	w := newIngresses()
	i := w.ingress("a", "web")
	i.Annotations = map[string]string{"x/y": "z", "kubectl.kubernetes.io/last-applied-configuration": "{}", "lbd.dev/x": "", "kubernetes.io/ingress.class": "other"}
	i.TLS = []v1alpha1.TenantTLS{{Hosts: []string{"a.example.com"}, Secret: "cert"}}
	w.ingress("other", "web").Class = "nginx"
	w.step(t)
	wants(t, "the hub", w.paths("a"), "a.example.com/web Prefix web:30001")
	spec := w.HubRoutes["ingress.default.a"].Spec
	wants(t, "annotations", fmt.Sprint(spec.Annotations), "map[x/y:z]")
	wants(t, "TLS", fmt.Sprint(spec.TLS), "[{[a.example.com] cert }]")
	wants(t, "routes", fmt.Sprint(len(w.HubRoutes)), "1")
	copied := *w.Backends[at(tenants.CopyName("default", "web"))]
	wants(t, "the copy", fmt.Sprint(copied.Type, copied.Selector, copied.Ports), "NodePortmap[app:web] [{port-80 TCP 8080  80 30001}]")
	w.judge("a", "True", "Accepted", "192.0.2.1", "lb.example.com")
	w.step(t)
	wants(t, "addresses", fmt.Sprint(i.Addresses), "[192.0.2.1 lb.example.com]")
	// The class of another: its address is taken out before the hub forgets whose it was.
	i.Class = "nginx"
	out := StepIngresses(&w.IngressInput)
	if len(out.Statuses) != 1 || len(out.Routes) != 0 {
		t.Errorf("%+v", out)
	}
	w.step(t)
	if len(i.Addresses)+len(w.HubRoutes) != 0 || len(w.Backends) != 1 {
		t.Errorf("left: %v %v %v", i.Addresses, w.HubRoutes, w.Backends)
	}
	i.Addresses = []string{"203.0.113.1"} // of the other engine
	w.step(t)
	wants(t, "the address of another engine", fmt.Sprint(i.Addresses), "[203.0.113.1]")
}

// TestCopies: two Ingresses share the copy of a Service, which goes with the last of them, and follows what
// they need of it.
func TestCopies(t *testing.T) {
	w := newIngresses()
	w.service("web", func(b *Backend) {
		b.Ports = append(b.Ports, BackendPort{Name: "admin", Protocol: "TCP", Port: 81, TargetPort: "admin"}, BackendPort{Name: "u", Protocol: "UDP", Port: 80, TargetPort: "8080"})
	})
	w.service("np", func(b *Backend) { b.Type, b.Ports[0].NodePort = "NodePort", 31000 })
	w.service("local", func(b *Backend) { b.Type, b.Local, b.Ports[0].NodePort = "LoadBalancer", true, 31001 })
	w.ingress("a", "web", "np", "local")
	b := w.ingress("b", "web")
	b.Rules[0].Paths[0].Type = "ImplementationSpecific"
	b.Rules[0].Paths = append(b.Rules[0].Paths, IngressPath{Path: "", Type: "Exact", Service: "web", PortName: "admin"})
	w.step(t)
	wants(t, "a", strings.ReplaceAll(w.paths("a"), "a.example.com", ""), "/web Prefix web:30001, /np Prefix np:31000, /local Prefix local:30003")
	wants(t, "b", strings.ReplaceAll(w.paths("b"), "b.example.com", ""), "/web Prefix web:30001, / Exact web:30002")
	copied := at(tenants.CopyName("default", "web"))
	w.service("web", func(b *Backend) {
		b.Selector = map[string]string{"app": "new"}
		b.Ports = append(b.Ports, BackendPort{Name: "admin", Protocol: "TCP", Port: 81, TargetPort: "admin"})
	})
	w.step(t)
	wants(t, "the selector", fmt.Sprint(w.Backends[copied].Selector), "map[app:new]")
	delete(w.Ingresses, at("a"))
	w.step(t)
	if w.Backends[copied] == nil || w.Backends[at(tenants.CopyName("default", "local"))] != nil {
		t.Errorf("with one Ingress: %v", w.Backends)
	}
	delete(w.Ingresses, at("b"))
	w.step(t)
	if w.Backends[copied] != nil || w.Backends[at("web")] == nil || len(w.HubRoutes) != 0 {
		t.Errorf("without an Ingress: %v, %v", w.Backends, w.HubRoutes)
	}
}

// TestCopyKept: a copy, and each port of it, lives for as long as the hub leads to it, whatever became of the
// Ingress or the Service, and follows the Service meanwhile. Then it goes.
func TestCopyKept(t *testing.T) {
	renumber := func(w *ingresses, _ *Ingress) { w.Backends[at("web")].Ports[0].Port = 8080 }
	for name, tt := range map[string]struct {
		away   bool // so that the hub would hear of it otherwise
		change func(*ingresses, *Ingress)
	}{
		"defaultBackend":          {false, func(_ *ingresses, i *Ingress) { i.Default = true }},
		"a resource":              {false, func(_ *ingresses, i *Ingress) { i.Rules[0].Paths[0].Service = "" }},
		"no such Service":         {false, func(_ *ingresses, i *Ingress) { i.Rules[0].Paths[0].Service = "gone" }},
		"the Service is gone":     {false, func(w *ingresses, _ *Ingress) { delete(w.Backends, at("web")) }},
		"no selector":             {false, func(w *ingresses, _ *Ingress) { w.Backends[at("web")].Selector = nil }},
		"another number":          {false, renumber},
		"an own NodePort":         {true, func(w *ingresses, _ *Ingress) { w.Backends[at("web")].Ports[0].NodePort = 31000 }},
		"another number, by name": {true, func(w *ingresses, i *Ingress) { i.Rules[0].Paths[0].PortName = "http"; renumber(w, i) }},
		"another number, in both": {true, func(w *ingresses, i *Ingress) { i.Rules[0].Paths[0].Port = 8080; renumber(w, i) }},
		"no Ingress":              {true, func(w *ingresses, _ *Ingress) { delete(w.Ingresses, at("a")) }},
		"another class":           {true, func(_ *ingresses, i *Ingress) { i.Class = "nginx" }},
		"another Service": {true, func(w *ingresses, i *Ingress) {
			w.service("new", func(*Backend) {})
			i.Rules[0].Paths[0].Service = "new"
		}},
		"an Ingress that is not served": {true, func(_ *ingresses, i *Ingress) { i.Rules = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newIngresses()
			i := w.ingress("a", "web")
			w.step(t)
			before, key := w.paths("a"), at(tenants.CopyName("default", "web"))
			w.away = tt.away
			tt.change(w, i)
			w.step(t)
			wants(t, "the hub", w.paths("a"), before)
			if b := w.Backends[key]; b == nil || b.Ports[0].NodePort != 30001 {
				t.Fatalf("the hub leads to what is gone: %+v", b)
			}
			if b := w.Backends[at("web")]; b != nil && b.Selector != nil {
				b.Selector = map[string]string{"app": "new"}
				w.step(t)
				wants(t, "the selector", fmt.Sprint(w.Backends[key].Selector), "map[app:new]")
			}
			w.away = false
			delete(w.Ingresses, at("a"))
			out := StepIngresses(&w.IngressInput)
			frees := slices.ContainsFunc(out.Copies, func(c Copy) bool { return c.Key == key && (c.Backend == nil || c.Backend.Ports[0].Port != 80) })
			if len(out.Routes) != 1 || frees {
				t.Errorf("not the route first: %+v", out)
			}
			w.step(t)
			if w.Backends[key] != nil {
				t.Error("the copy is left")
			}
		})
	}
}

// TestCopyReplaced: the hub leads to the new NodePort before the old one is freed.
func TestCopyReplaced(t *testing.T) {
	w := newIngresses()
	i, key := w.ingress("a", "web"), at(tenants.CopyName("default", "web"))
	i.Rules[0].Paths[0].PortName = "http"
	w.step(t)
	w.Backends[at("web")].Ports[0].Port = 8080
	w.away = true
	w.step(t)
	wants(t, "meanwhile", fmt.Sprint(w.Backends[key].Ports), "[{port-80 TCP 8080  80 30001} {port-8080 TCP 8080  8080 30002}]")
	w.away = false
	w.step(t)
	wants(t, "the hub", w.paths("a"), "a.example.com/web Prefix web:30002")
	wants(t, "then", fmt.Sprint(w.Backends[key].Ports), "[{port-8080 TCP 8080  8080 30002}]")
	w.Backends[at("web")].Ports[0].NodePort = 31000
	if out := StepIngresses(&w.IngressInput); len(out.Routes) != 1 || len(out.Copies) != 0 {
		t.Errorf("not the route first: %+v", out)
	}
	w.step(t)
	wants(t, "an own NodePort", w.paths("a"), "a.example.com/web Prefix web:31000")
	if w.Backends[key] != nil {
		t.Error("the copy is left")
	}
}

// TestIngressRefused: what cannot be propagated is told once, with the reason, and the hub keeps what it has.
func TestIngressRefused(t *testing.T) {
	for _, tt := range []struct {
		why    string
		change func(*ingresses, *Ingress)
	}{
		{"NotSupported: spec.defaultBackend would answer", func(_ *ingresses, i *Ingress) { i.Default = true }},
		{"InvalidIngress: spec.rules: must have at least one rule", func(_ *ingresses, i *Ingress) { i.Rules = nil }},
		{"InvalidIngress: spec.rules: must have at least one rule", func(_ *ingresses, i *Ingress) { i.Rules = []IngressRule{{Host: "x.example.com"}} }},
		{"InvalidIngress: spec.rules[0].host", func(_ *ingresses, i *Ingress) { i.Rules[0].Host = "" }},
		{"InvalidIngress: spec.rules[0].paths[0].path", func(_ *ingresses, i *Ingress) { i.Rules[0].Paths[0].Path = "/(.*)" }},
		{"NotSupported: the path /web has a backend that is no Service", func(_ *ingresses, i *Ingress) { i.Rules[0].Paths[0].Service = "" }},
		{"ServiceNotFound: there is no Service gone", func(_ *ingresses, i *Ingress) { i.Rules[0].Paths[0].Service = "gone" }},
		{"ServiceNotFound: the Service web has no TCP port 81", func(_ *ingresses, i *Ingress) { i.Rules[0].Paths[0].Port = 81 }},
		{"ServiceNotFound: the Service web has no TCP port x", func(_ *ingresses, i *Ingress) { i.Rules[0].Paths[0].PortName = "x" }},
		{"NoSelector: the Service web has no selector", func(w *ingresses, _ *Ingress) { w.service("web", func(b *Backend) { b.Selector = nil }) }},
		{"NoSelector: the Service web has no selector", func(w *ingresses, _ *Ingress) { w.service("web", func(b *Backend) { b.Type = "ExternalName" }) }},
		{"NotSupported: the Service lbd-", func(w *ingresses, _ *Ingress) {
			w.Backends[at(tenants.CopyName("default", "web"))] = &Backend{UID: "somebody's", Type: "ClusterIP"}
		}},
	} {
		w := newIngresses()
		i := w.ingress("a", "web")
		tt.change(w, i)
		if told := w.step(t); len(told) != 1 || !strings.HasPrefix(told[0], "a HubRefused "+tt.why) || len(w.HubRoutes) != 0 {
			t.Errorf("%q: told %q, routes %v", tt.why, told, w.HubRoutes)
		}
		w = newIngresses()
		i = w.ingress("a", "web")
		w.step(t)
		w.judge("a", "True", "Accepted", "192.0.2.1")
		w.step(t)
		before := w.paths("a")
		tt.change(w, i)
		if told := w.step(t); len(told) != 1 || !strings.HasPrefix(told[0], "a HubRefused "+tt.why) || !strings.HasSuffix(told[0], "the hub keeps what it has") || w.paths("a") != before || len(i.Addresses) != 1 {
			t.Errorf("%q: told %q, the hub has %q, the Ingress %v", tt.why, told, w.paths("a"), i.Addresses)
		}
	}
}

// TestIngressTold: what the hub says is told once for each reason; an API server that takes nothing takes
// nothing away.
func TestIngressTold(t *testing.T) {
	w := newIngresses()
	i := w.ingress("a", "web")
	w.step(t)
	w.judge("a", "True", "Accepted", "192.0.2.1")
	if told := w.step(t); len(told) != 0 {
		t.Errorf("that all is well is no news: %q", told)
	}
	w.judge("a", "False", "HostnameTaken")
	wants(t, "refused", fmt.Sprint(w.step(t), i.Addresses), "[a HubRefused HostnameTaken: ] []")
	w.judge("a", "False", "HubNotRead", "192.0.2.1")
	wants(t, "refused for now", fmt.Sprint(w.step(t), i.Addresses), "[a HubRefused HubNotRead: ] [192.0.2.1]")
	w.judge("a", "True", "Accepted", "192.0.2.1")
	wants(t, "accepted", fmt.Sprint(w.step(t), i.Addresses), "[a HubAccepted the hub serves the Ingress: 192.0.2.1] [192.0.2.1]")
	w.Refused[at("a")] = "quota"
	wants(t, "the API server", fmt.Sprint(w.step(t), i.Addresses), "[a HubRefused HubRefused: quota] [192.0.2.1]")
	delete(w.Refused, at("a"))
	i.Generation++ // nothing is said of that yet
	w.HubRoutes["ingress.default.a"] = HubRoute{UID: "u", Generation: 9, Spec: w.HubRoutes["ingress.default.a"].Spec, Addresses: []string{"192.0.2.1"}, Conditions: w.HubRoutes["ingress.default.a"].Conditions}
	w.step(t)
	wants(t, "meanwhile", fmt.Sprint(i.Addresses), "[192.0.2.1]")
	if out := StepIngresses(&w.IngressInput); out.Counts != (Counts{Waiting: 1}) {
		t.Errorf("%+v", out.Counts)
	}
}

// TestOneFamily: nodes answer at the NodePort of a Service of one family by that family alone. The copy of such a Service is of
// that family too, since its Pods need not listen by the other, and follows the Service. It is made anew if that is not its first
// family, which a Service keeps.
func TestOneFamily(t *testing.T) {
	w := newIngresses()
	w.service("port", func(b *Backend) {
		b.Type, b.Family, b.Ports[0].NodePort = "NodePort", v1alpha1.FamilyIPv4, 31000
	})
	w.service("both", func(b *Backend) { b.Type, b.Ports[0].NodePort = "NodePort", 31001 })
	w.ingress("a", "port", "both", "web")
	copied := at(tenants.CopyName("default", "web"))
	for _, family := range []v1alpha1.AddressFamily{"", v1alpha1.FamilyIPv4, v1alpha1.FamilyIPv6, "", v1alpha1.FamilyIPv4, "", v1alpha1.FamilyIPv6} {
		w.Backends[at("web")].Family = family
		w.step(t)
		var got []string
		for _, p := range w.HubRoutes["ingress.default.a"].Spec.Rules[0].Paths {
			got = append(got, fmt.Sprintf("%s:%s", p.Service, p.Family))
		}
		wants(t, "families", strings.Join(got, " "), "port:ipv4 both: web:"+string(family))
		wants(t, "the copy", string(w.Backends[copied].Family), string(family))
	}
	w.Backends[at("web")].Family = v1alpha1.FamilyIPv4
	w.step(t)
	w.Backends[at("web")].Family = v1alpha1.FamilyIPv6
	out := StepIngresses(&w.IngressInput)
	if len(out.Copies) != 1 || out.Copies[0].Backend != nil || out.Copies[0].UID == "" {
		t.Errorf("%+v, want that the copy goes: a Service keeps its first family", out.Copies)
	}
}

// TestExternalNameKeepsCopy: the copy that the hub leads to stays as it is when its Service becomes an ExternalName, which has no family,
// whatever selector that keeps.
func TestExternalNameKeepsCopy(t *testing.T) {
	w := newIngresses()
	w.service("web", func(b *Backend) { b.Family = v1alpha1.FamilyIPv4 })
	w.ingress("shop", "web")
	w.step(t)
	copied := at(tenants.CopyName("default", "web"))
	before := w.Backends[copied]
	w.service("web", func(b *Backend) { b.Type = "ExternalName" })
	w.step(t)
	if after := w.Backends[copied]; before == nil || after == nil || after.UID != before.UID || after.Family != v1alpha1.FamilyIPv4 {
		t.Errorf("the copy was %+v, and is %+v", before, after)
	}
}
