package routes

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// world is a hub in which what is decided comes true at once.
type world struct{ Input }

func newWorld() *world {
	w := &world{Input{Clusters: map[string]tenants.Cluster{}, Routes: map[model.Key]*Route{}, Have: map[ID]Have{}, Gateways: map[model.Key][]string{}}}
	w.tenant("shop", "*.shop.example.com", "www.example.com")
	w.tenant("bank", "*.bank.example.com", "www.example.com")
	return w
}

func (w *world) tenant(name string, hostnames ...string) *v1alpha1.Tenant {
	t := &v1alpha1.Tenant{Metadata: v1alpha1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Hostnames: hostnames, IngressClass: "traefik"}}
	t.Default()
	w.Clusters[name] = tenants.Cluster{Tenant: t, NodePorts: v1alpha1.PortRange{First: 30000, Last: 32767}, Nodes: []tenants.Node{
		{Name: "a", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd10::1")}, State: v1alpha1.TenantNodeServing},
		{Name: "b", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.2")}, State: v1alpha1.TenantNodeServing},
	}}
	return t
}

// route makes a TenantRoute of an Ingress of the name in the namespace default, made so many seconds after
// the first one.
func (w *world) route(tenant, name string, age int, hosts ...string) *Route {
	r := &Route{TenantRoute: &v1alpha1.TenantRoute{}, Created: time.Unix(int64(age), 0)}
	r.Spec.Origin = v1alpha1.TenantOrigin{Kind: v1alpha1.OriginIngress, Namespace: "default", Name: name}
	for _, h := range hosts {
		r.Spec.Rules = append(r.Spec.Rules, v1alpha1.TenantRule{Host: h, Paths: []v1alpha1.TenantPath{{Path: "/", Type: v1alpha1.PathPrefix, Service: name, NodePort: 30080}}})
	}
	w.Routes[model.Key{Namespace: tenant, Name: tenants.IngressName("default", name)}] = r
	return r
}

// step decides until nothing is left to be done.
func (w *world) step(t *testing.T) Output {
	t.Helper()
	for range 6 {
		out := Step(&w.Input)
		for _, o := range out.Writes {
			have := Have{Body: jsonOf(o.Body)}
			if o.Kind == KindService {
				have.Body["spec"].(map[string]any)["ipFamilies"] = []any{"IPv4", "IPv6"}
			}
			w.Have[o.ID] = have
		}
		for _, id := range out.Deletes {
			delete(w.Have, id.ID)
		}
		for k, r := range w.Routes {
			if _, judged := out.Verdicts[k]; judged {
				r.Held, r.Judged = out.Hostnames[k], true
			}
		}
		if len(out.Writes)+len(out.Deletes) == 0 {
			return out
		}
	}
	t.Fatal("it does not come to rest")
	return Output{}
}

func jsonOf(v any) (out map[string]any) {
	data, _ := json.Marshal(v)
	d := json.NewDecoder(strings.NewReader(string(data)))
	_ = d.Decode(&out)
	return integers(out).(map[string]any)
}

// integers are int64, as a client has them.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = integers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case float64:
		return int64(v)
	}
	return v
}

// says are the verdicts, in short.
func says(out *Output) map[string]string {
	all := map[string]string{}
	for k, v := range out.Verdicts {
		all[k.String()] = strings.TrimSpace(string(v.Reason) + " " + v.Message)
	}
	return all
}

func expect(t *testing.T, got map[string]string, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %q, want %q", k, got[k], v)
		}
	}
}

// text is all that the hub has, in short.
func (w *world) text() string {
	data, _ := json.Marshal(slices.Collect(maps.Values(w.Have)))
	return string(data)
}

// TestServed: an Ingress of a tenant becomes objects in the namespace of its cluster alone, with names that
// nobody chose, and ends with it.
func TestServed(t *testing.T) {
	w := newWorld()
	r := w.route("shop", "web", 1, "a.shop.example.com")
	r.Spec.TLS = []v1alpha1.TenantTLS{{Secret: "kube-root"}}
	out := w.step(t)
	expect(t, says(&out), map[string]string{"shop/ingress.default.web": "Accepted"})
	service := tenants.HubName("shop", "Service", "default", "web")
	if len(w.Have) != 4 || !strings.HasPrefix(service, "web-") || len(service) != len("web-")+20 {
		t.Fatalf("%d objects, Service %s", len(w.Have), service)
	}
	for id, have := range w.Have {
		if id.Namespace != "shop" || have.Body["metadata"].(map[string]any)["labels"].(map[string]any)[Label] != LabelValue {
			t.Errorf("%v: %v", id, have.Body)
		}
		if id.Kind == KindIngress {
			want := jsonOf(map[string]any{"ingressClassName": "traefik", "tls": []any{map[string]any{"hosts": []any{"a.shop.example.com"}, "secretName": SecretName("shop", "default", "kube-root")}},
				"rules": []any{map[string]any{"host": "a.shop.example.com", "http": map[string]any{"paths": []any{map[string]any{"path": "/", "pathType": "Prefix",
					"backend": map[string]any{"service": map[string]any{"name": service, "port": map[string]any{"number": 30080}}}}}}}}})
			if !covers(have.Body["spec"], want) || !covers(want, have.Body["spec"]) {
				t.Errorf("the Ingress is\n%v\nwant\n%v", have.Body["spec"], want)
			}
		}
	}
	id := ID{KindIngress, model.Key{Namespace: "shop", Name: tenants.HubName("shop", "Ingress", "default", "web")}}
	w.Have[id].Body["status"] = map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "192.0.2.1"}, map[string]any{"hostname": "lb.example.com"}}}}
	if out = w.step(t); !slices.Equal(out.Addresses[model.Key{Namespace: "shop", Name: "ingress.default.web"}], []string{"192.0.2.1", "lb.example.com"}) {
		t.Error(out.Addresses)
	}
	w.Have[id].Body["spec"].(map[string]any)["ingressClassName"] = "other" // by somebody
	if out := Step(&w.Input); len(out.Writes) != 1 || out.Writes[0].ID != id {
		t.Errorf("what was changed is not put right: %v", out.Writes)
	}
	clear(w.Routes)
	if out = w.step(t); len(w.Have) != 0 {
		t.Errorf("left: %s", w.text())
	}
}

// TestHostnames: of two claims of tenants the older counts, and stays with who has it, whatever is written
// into an older object.
func TestHostnames(t *testing.T) {
	w := newWorld()
	old := w.route("bank", "old", 1, "x.bank.example.com")
	w.route("shop", "web", 2, "www.example.com")
	w.route("shop", "more", 9, "www.example.com") // of the same tenant
	w.step(t)
	w.route("bank", "steal", 3, "www.example.com")
	old.Spec.Rules = append(old.Spec.Rules, v1alpha1.TenantRule{Host: "www.example.com", Paths: old.Spec.Rules[0].Paths})
	out := w.step(t)
	const taken = "HostnameTaken www.example.com is taken: another tenant had a rule for www.example.com first"
	expect(t, says(&out), map[string]string{"shop/ingress.default.web": "Accepted", "shop/ingress.default.more": "Accepted", "bank/ingress.default.steal": taken, "bank/ingress.default.old": taken})
	if got := w.Routes[model.Key{Namespace: "bank", Name: "ingress.default.old"}].Held; !slices.Equal(got, []string{"x.bank.example.com"}) {
		t.Errorf("what it had is %q", got)
	}
	old.Spec.Rules = old.Spec.Rules[:1]
	old.Spec.TLS = []v1alpha1.TenantTLS{{Hosts: []string{"www.example.com"}}} // a certificate is a claim, too
	out = w.step(t)
	expect(t, says(&out), map[string]string{"bank/ingress.default.old": taken})
	delete(w.Routes, model.Key{Namespace: "shop", Name: "ingress.default.web"})
	delete(w.Routes, model.Key{Namespace: "shop", Name: "ingress.default.more"})
	w.step(t)
	out = w.step(t)
	expect(t, says(&out), map[string]string{"bank/ingress.default.steal": "Accepted", "bank/ingress.default.old": "Accepted"})
}

// TestWildcards: they overlap what is below them, on either side.
func TestWildcards(t *testing.T) {
	for _, tt := range []struct{ first, second, over string }{
		{"*.example.com", "a.example.com", "*.example.com"}, {"*.example.com", "a.b.example.com", "*.example.com"}, {"*.example.com", "*.b.example.com", "*.example.com"},
		{"a.b.example.com", "*.example.com", "a.b.example.com"}, {"a.b.example.com", "*.b.example.com", "a.b.example.com"}, {"*.b.example.com", "*.example.com", "*.b.example.com"},
		{"a.example.com", "b.example.com", ""}, {"*.a.example.com", "a.example.com", ""}, {"xexample.com", "*.example.com", ""}, {"*.a.com", "*.b.com", ""},
	} {
		w := newWorld()
		w.tenant("shop", "*.com")
		w.tenant("bank", "*.com")
		w.route("shop", "web", 1, tt.first)
		w.route("bank", "web", 2, tt.second)
		out := w.step(t)
		want := "Accepted"
		if tt.over != "" {
			want = fmt.Sprintf("HostnameTaken %s is taken: another tenant had a rule for %s first", tt.second, tt.over)
		}
		expect(t, says(&out), map[string]string{"shop/ingress.default.web": "Accepted", "bank/ingress.default.web": want})
	}
}

// TestRouteAttacks: what a tenant may not have is refused as a whole, with the rule, and nothing of it is in
// the hub.
func TestRouteAttacks(t *testing.T) {
	w := newWorld()
	w.route("shop", "web", 1, "a.shop.example.com")
	w.step(t)
	before := w.text()
	w.route("bank", "host", 2, "x.bank.example.com", "a.shop.example.com")
	w.route("bank", "near", 2, "xbank.example.com")
	w.route("bank", "port", 2, "x.bank.example.com").Spec.Rules[0].Paths[0].NodePort = 10250
	w.route("nobody", "web", 2, "x.bank.example.com")
	w.tenant("poor", "*.poor.example.com").Spec.IngressClass = ""
	w.route("poor", "web", 2, "x.poor.example.com")
	w.tenant("late", "*.late.example.com").Spec.Suspended = true
	w.route("late", "web", 2, "x.late.example.com")
	out := w.step(t)
	const bounds = `; it may have ["*.bank.example.com" "www.example.com"]`
	expect(t, says(&out), map[string]string{
		"shop/ingress.default.web":   "Accepted",
		"bank/ingress.default.host":  "HostnameNotAllowed the Tenant bank may not have the hostname a.shop.example.com" + bounds,
		"bank/ingress.default.near":  "HostnameNotAllowed the Tenant bank may not have the hostname xbank.example.com" + bounds,
		"bank/ingress.default.port":  "NodePortNotAllowed 10250 is in no range of NodePorts of the cluster, which has 30000-32767",
		"nobody/ingress.default.web": "NoTenant no Tenant that is accepted has the namespace nobody",
		"poor/ingress.default.web":   "IngressNotAllowed the Tenant poor has no ingressClass: no Ingress of it is served",
		"late/ingress.default.web":   "Suspended the Tenant late is suspended: what it has stays, and it gets nothing new, such as x.late.example.com",
	})
	if len(w.Have) != 4 || len(w.text()) != len(before) {
		t.Errorf("the hub has\n%s\nbefore\n%s", w.text(), before)
	}
	// Who is suspended keeps what it has, and gets nothing new for it.
	w.Clusters["shop"].Tenant.Spec.Suspended = true
	out = w.step(t)
	expect(t, says(&out), map[string]string{"shop/ingress.default.web": "Accepted"})
	spec := &w.Routes[model.Key{Namespace: "shop", Name: "ingress.default.web"}].Spec
	had := spec.Rules
	spec.Rules = append(slices.Clone(had), v1alpha1.TenantRule{Host: "b.shop.example.com", Paths: had[0].Paths})
	out = w.step(t)
	expect(t, says(&out), map[string]string{"shop/ingress.default.web": "Suspended the Tenant shop is suspended: what it has stays, and it gets nothing new, such as b.shop.example.com"})
	spec.Rules = had
	out = w.step(t)
	expect(t, says(&out), map[string]string{"shop/ingress.default.web": "Accepted"})
}

// TestAnnotations: the engine sees those that the Tenant may have, and never a snippet or a class.
func TestAnnotations(t *testing.T) {
	w := newWorld()
	w.Clusters["shop"].Tenant.Spec.Annotations.Allow = []string{"nginx.ingress.kubernetes.io/*", "cert-manager.io/issuer", "kubernetes.io/*", "lbd.dev/*"}
	r := w.route("shop", "web", 1, "a.shop.example.com")
	r.Spec.Annotations = map[string]string{
		"nginx.ingress.kubernetes.io/rewrite-target": "/", "cert-manager.io/issuer": "x", "cert-manager.io/issuers": "x", "nginx.ingress.kubernetes.io/Server-Snippet": "x",
		"nginx.ingress.kubernetes.io/configuration-snippet": "x", "kubernetes.io/ingress.class": "other", "lbd.dev/written": "x", "other": "x",
	}
	out := w.step(t)
	expect(t, says(&out), map[string]string{"shop/ingress.default.web": "Accepted the Tenant may not have these annotations, which are left out: cert-manager.io/issuers, kubernetes.io/ingress.class, " +
		"lbd.dev/written, nginx.ingress.kubernetes.io/Server-Snippet, nginx.ingress.kubernetes.io/configuration-snippet and 1 more"})
	for id, have := range w.Have {
		if id.Kind != KindIngress {
			continue
		}
		got := have.Body["metadata"].(map[string]any)["annotations"].(map[string]any)
		delete(got, hashKey)
		if fmt.Sprint(got) != "map[cert-manager.io/issuer:x nginx.ingress.kubernetes.io/rewrite-target:/]" {
			t.Error(got)
		}
	}
	// One that is not allowed any more goes.
	w.Clusters["shop"].Tenant.Spec.Annotations.Allow = nil
	w.step(t)
	if strings.Contains(w.text(), "rewrite-target") {
		t.Error(w.text())
	}
}

// TestWideAnnotations: what gives hostnames or names objects of others has to be allowed by its own name, and
// a message names annotations in short.
func TestWideAnnotations(t *testing.T) {
	w := newWorld()
	r := w.route("shop", "web", 1, "a.shop.example.com")
	r.Spec.Annotations = map[string]string{"nginx.ingress.kubernetes.io/rewrite-target": "/", "nginx.ingress.kubernetes.io/no key": "x"}
	wide := []string{
		"nginx.ingress.kubernetes.io/server-alias", "nginx.ingress.kubernetes.io/Server-Alias", "haproxy-ingress.github.io/server-alias-regex", "external-dns.alpha.kubernetes.io/hostname",
		"external-dns.alpha.kubernetes.io/internal-hostname", "cert-manager.io/common-name", "cert-manager.io/alt-names", "haproxy-ingress.github.io/config-backend", "haproxy-ingress.github.io/config-frontend-late",
		"traefik.ingress.kubernetes.io/router.middlewares", "traefik.ingress.kubernetes.io/router.tls.options", "traefik.ingress.kubernetes.io/service.serverstransport",
		"traefik.ingress.kubernetes.io/router.entrypoints", "traefik.ingress.kubernetes.io/router.tls.domains.0.main", "traefik.ingress.kubernetes.io/router.tls.domains.1.sans",
		"nginx.ingress.kubernetes.io/from-to-www-redirect", "nginx.ingress.kubernetes.io/auth-url", "nginx.ingress.kubernetes.io/mirror-target", "nginx.ingress.kubernetes.io/auth-proxy-set-headers",
		"nginx.ingress.kubernetes.io/custom-headers", "nginx.ingress.kubernetes.io/fastcgi-params-configmap", "cert-manager.io/ip-sans", "cert-manager.io/uri-sans", "cert-manager.io/cluster-issuer",
		"haproxy-ingress.github.io/redirect-from", "haproxy-ingress.github.io/auth-url", "nginx.konghq.com/host-aliases", "nginx.konghq.com/plugins", "nginx.haproxy.org/route-acl",
		"nginx.ingress.kubernetes.io/auth-tls-secret", "nginx.ingress.kubernetes.io/server-snippet",
	}
	for _, key := range wide {
		r.Spec.Annotations[key] = "x"
	}
	seen := func() (list []string) {
		w.step(t)
		for id, have := range w.Have {
			if id.Kind == KindIngress {
				list = slices.Sorted(maps.Keys(have.Body["metadata"].(map[string]any)["annotations"].(map[string]any)))
			}
		}
		return slices.DeleteFunc(list, func(key string) bool { return key == hashKey })
	}
	allow := &w.Clusters["shop"].Tenant.Spec.Annotations.Allow
	*allow = []string{"nginx.*", "haproxy-ingress.github.io/*", "external-dns.alpha.kubernetes.io/*", "cert-manager.io/*", "traefik.ingress.kubernetes.io/*"}
	if got := seen(); !slices.Equal(got, []string{"nginx.ingress.kubernetes.io/rewrite-target"}) {
		t.Errorf("with wildcards: %q", got)
	}
	*allow = wide
	if got := seen(); len(got) != len(wide)-1 || slices.Contains(got, "nginx.ingress.kubernetes.io/server-snippet") {
		t.Errorf("by name: %q", got)
	}
	r.Spec.Annotations = map[string]string{strings.Repeat("a", 250) + "/b": "x"}
	out := w.step(t)
	expect(t, says(&out), map[string]string{"shop/ingress.default.web": "Accepted the Tenant may not have these annotations, which are left out: " + strings.Repeat("a", 63)})
}

// TestRouteLimits: the older routes count, and so do the Services behind them.
func TestRouteLimits(t *testing.T) {
	w := newWorld()
	w.Clusters["shop"].Tenant.Spec.Limits.Routes = 2
	w.route("shop", "a", 1, "a.shop.example.com")
	two := w.route("shop", "b", 2, "b.shop.example.com")
	for _, s := range []string{"c", "d"} {
		two.Spec.Rules[0].Paths = append(two.Spec.Rules[0].Paths, v1alpha1.TenantPath{Path: "/" + s, Type: v1alpha1.PathExact, Service: s, NodePort: 30081})
	}
	w.route("shop", "c", 3, "c.shop.example.com")
	w.route("shop", "d", 4, "d.shop.example.com")
	out := w.step(t)
	expect(t, says(&out), map[string]string{
		"shop/ingress.default.a": "Accepted", "shop/ingress.default.b": "TenantLimit with it the Tenant shop has 4 Services behind routes of 2 that it may have",
		"shop/ingress.default.c": "Accepted", "shop/ingress.default.d": "TenantLimit with it the Tenant shop has 3 routes of 2 that it may have",
	})
	// One Service can have many ports; those of two routes that are the same count once.
	w = newWorld()
	w.Clusters["shop"].Tenant.Spec.Limits.Ports = 3
	for _, r := range []*Route{w.route("shop", "a", 1, "a.shop.example.com"), w.route("shop", "b", 2, "b.shop.example.com"), w.route("shop", "c", 3, "c.shop.example.com")} {
		first := r.Spec.Rules[0].Paths[0]
		first.Service = "web"
		r.Spec.Rules[0].Paths = nil
		for i := range 3 {
			first.NodePort = int32(30080 + i)
			if r.Spec.Origin.Name == "c" {
				first.NodePort++
			}
			r.Spec.Rules[0].Paths = append(r.Spec.Rules[0].Paths, first)
		}
	}
	out = w.step(t)
	expect(t, says(&out), map[string]string{
		"shop/ingress.default.a": "Accepted", "shop/ingress.default.b": "Accepted",
		"shop/ingress.default.c": "TenantLimit with it the Tenant shop has 4 ports behind routes of 3 that it may have",
	})
}

// TestNodes: new connections go to nodes that serve, and to the others only while none does.
func TestNodes(t *testing.T) {
	w := newWorld()
	w.route("shop", "web", 1, "a.shop.example.com")
	set := func(states ...v1alpha1.TenantNodeState) {
		for i, s := range states {
			w.Clusters["shop"].Nodes[i].State = s
		}
	}
	// ready are the addresses that get new connections, and those that keep theirs.
	ready := func() string {
		var all []string
		for id, have := range w.Have {
			list, _ := have.Body["endpoints"].([]any)
			for _, x := range list {
				e := x.(map[string]any)
				all = append(all, fmt.Sprint(e["addresses"].([]any)[0], "=", e["conditions"].(map[string]any)["ready"]))
			}
			if id.Kind == KindSlice && have.Body["metadata"].(map[string]any)["labels"].(map[string]any)[labelOfSlice] != tenants.HubName("shop", "Service", "default", "web") {
				t.Error(have.Body)
			}
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	const serving, draining, out = v1alpha1.TenantNodeServing, v1alpha1.TenantNodeDraining, v1alpha1.TenantNodeOut
	for _, tt := range []struct {
		a, b v1alpha1.TenantNodeState
		want string
	}{
		{serving, serving, "10.1.0.1=true 10.1.0.2=true fd10::1=true"},
		{serving, draining, "10.1.0.1=true 10.1.0.2=false fd10::1=true"},
		{serving, out, "10.1.0.1=true fd10::1=true"},
		{out, serving, "10.1.0.2=true fd10::1=true"}, // no other one has IPv6
		{draining, out, "10.1.0.1=true 10.1.0.2=true fd10::1=true"},
	} {
		set(tt.a, tt.b)
		w.step(t)
		if got := ready(); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.a, tt.b, got, tt.want)
		}
	}
	c := w.Clusters["shop"]
	c.Nodes = nil
	w.Clusters["shop"] = c
	w.step(t)
	if got := ready(); got != "" {
		t.Error("without nodes:", got)
	}
	c.Nodes = slices.Repeat([]tenants.Node{{Name: "a", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.1")}, State: serving}}, maxEndpoints+1)
	w.Clusters["shop"] = c
	w.step(t)
	if n := len(w.Have); n != 4 { // Service, Ingress, and two slices
		t.Errorf("%d objects", n)
	}
}

// TestNames: they are short, of known form, and those of two objects differ.
func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, parts := range [][4]string{{"shop", "Service", "a-b", "c"}, {"shop", "Service", "a", "b-c"}, {"bank", "Service", "a", "b-c"}, {"shop", "Ingress", "a", "b-c"}, {"shop", "Ingress", "a", strings.Repeat("a", 253)},
		{"shop", "Ingress", "a", strings.Repeat("a", 39) + ".b"}, {"shop", "Ingress", "a", strings.Repeat("a", 43)}, {"shop", "Ingress", "aa", strings.Repeat("a", 42)}} {
		name := tenants.HubName(parts[0], parts[1], parts[2], parts[3])
		if other, is := seen[name]; is || len(name) > 61 || strings.Contains(name, ".-") {
			t.Errorf("%v has the name %s, %s too", parts, name, other)
		}
		seen[name] = fmt.Sprint(parts)
	}
	if a, b := tenants.CopyName("a-b", "c"), tenants.CopyName("a", "b-c"); a == b || !strings.HasPrefix(a, "lbd-") {
		t.Error(a, b)
	}
}

// TestOneOwner: of two TenantRoutes of one Ingress the older one counts, and the hub comes to rest.
func TestOneOwner(t *testing.T) {
	w := newWorld()
	w.route("shop", "web", 1, "a.shop.example.com")
	second := w.route("shop", "other", 2, "b.shop.example.com")
	second.Spec.Origin.Name = "web"
	out := w.step(t)
	expect(t, says(&out), map[string]string{"shop/ingress.default.web": "Accepted", "shop/ingress.default.other": "Conflict the older TenantRoute ingress.default.web is of the same Ingress"})
	if !strings.Contains(w.text(), "a.shop.example.com") || strings.Contains(w.text(), "b.shop.example.com") {
		t.Error(w.text())
	}
	delete(w.Routes, model.Key{Namespace: "shop", Name: "ingress.default.web"})
	out = w.step(t)
	expect(t, says(&out), map[string]string{"shop/ingress.default.other": "Accepted"})
}

// TestHostnameUntilGone: a hostname passes to another tenant once the Ingress that had it is gone, also that
// of a Tenant that is.
func TestHostnameUntilGone(t *testing.T) {
	for what, end := range map[string]func(w *world){
		"the route is deleted": func(w *world) { delete(w.Routes, model.Key{Namespace: "shop", Name: "ingress.default.web"}) },
		"the Tenant is deleted": func(w *world) {
			delete(w.Routes, model.Key{Namespace: "shop", Name: "ingress.default.web"})
			delete(w.Clusters, "shop")
		},
		"the route asks for another one": func(w *world) {
			w.Routes[model.Key{Namespace: "shop", Name: "ingress.default.web"}].Spec.Rules[0].Host = "a.shop.example.com"
		},
	} {
		w := newWorld()
		w.route("shop", "web", 2, "www.example.com")
		w.step(t)
		w.route("bank", "web", 1, "www.example.com")
		end(w)
		out := Step(&w.Input)
		expect(t, says(&out), map[string]string{"bank/ingress.default.web": "HostnameTaken www.example.com is taken: another tenant had a rule for www.example.com first"})
		if slices.ContainsFunc(out.Writes, func(o Object) bool { return o.Namespace == "bank" }) {
			t.Errorf("%s: the other one is written before it is gone", what)
		}
		out = w.step(t)
		expect(t, says(&out), map[string]string{"bank/ingress.default.web": "Accepted"})
	}
}
