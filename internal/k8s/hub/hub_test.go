package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
)

const (
	resTenants  = "lbd.dev/v1alpha1/tenants"
	resNodes    = "lbd.dev/v1alpha1/tenantnodes"
	resServices = "lbd.dev/v1alpha1/tenantservices"
	resRoutes   = "lbd.dev/v1alpha1/tenantroutes"
	resSpaces   = "v1/namespaces"
	resAccounts = "v1/serviceaccounts"
	resBindings = "rbac.authorization.k8s.io/v1/rolebindings"
	resRoles    = "rbac.authorization.k8s.io/v1/roles"
	resQuotas   = "v1/resourcequotas"
	resPods     = "v1/pods"
	resSecrets  = "v1/secrets"
	resLeases   = "coordination.k8s.io/v1/leases"
)

// bed is an API server with the tenants shop, of two Services, and bank.
func bed(t *testing.T) (*apitest.Server, *k8s.Client) {
	t.Helper()
	api := apitest.New(t, map[string]string{resTenants: "Tenant", resNodes: "TenantNodes", resServices: "TenantService", resRoutes: "TenantRoute", resSpaces: "Namespace",
		resAccounts: "ServiceAccount", resBindings: "RoleBinding", resRoles: "Role", resQuotas: "ResourceQuota", resPods: "Pod", resLeases: "Lease"})
	tenant(api, "shop", "2026-01-01T00:00:00Z", "lbd-shop-main", "10.1.0.0/24", true)
	tenant(api, "bank", "2026-01-02T00:00:00Z", "lbd-bank-main", "10.2.0.0/24", true)
	for _, name := range []string{"shop", "bank"} {
		space(api, "lbd-"+name+"-main", name)
		service(api, "lbd-"+name+"-main", "default.web", "Accepted", "192.0.2.1")
	}
	service(api, "lbd-shop-main", "default.more", "TenantLimit")
	api.Put(resNodes, object("lbd-shop-main", "nodes-0", map[string]any{"nodes": []any{
		map[string]any{"name": "a1", "addresses": []any{"10.1.0.1"}}, map[string]any{"name": "a2", "addresses": []any{"10.9.0.1"}, "state": "Draining"}}},
		map[string]any{"conditions": []any{condition("Accepted", "False", "RefusedNodes", "a2: 10.9.0.1 is in none of the nodeCIDRs of the cluster")}}))
	api.Put(resRoutes, object("lbd-shop-main", "ingress.default.web", map[string]any{"origin": map[string]any{"kind": "Ingress", "namespace": "default", "name": "web"},
		"rules": []any{map[string]any{"host": "a.example.com", "paths": []any{map[string]any{"path": "/", "service": "web", "nodePort": 30080}}}}},
		map[string]any{"addresses": []any{"192.0.2.9"}, "conditions": []any{condition("Accepted", "True", "Accepted", ""), condition("AddressAssigned", "True", "Assigned", "")}}))
	c, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return api, c
}

func condition(kind, status, reason, message string) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}
}

// object was last written by the agent at 12:00, but for its status.
func object(namespace, name string, spec, status map[string]any) map[string]any {
	meta := map[string]any{"name": name, "uid": "uid-" + name, "managedFields": []any{
		map[string]any{"manager": "lbd-agent", "operation": "Update", "time": "2026-01-03T12:00:00Z"},
		map[string]any{"manager": "lbd-agent", "operation": "Update", "time": "2026-01-03T12:30:00Z", "subresource": "status"},
		map[string]any{"manager": "kubectl", "operation": "Update", "time": "2026-01-03T13:00:00Z"}}}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	return map[string]any{"metadata": meta, "spec": spec, "status": status}
}

func tenant(api *apitest.Server, name, created, namespace, cidr string, accepted bool) {
	verdict := condition("Accepted", "True", "Accepted", "")
	if !accepted {
		verdict = condition("Accepted", "False", "NamespaceTaken", "the namespace is that of an older Tenant")
	}
	o := object("", name, map[string]any{"pools": []any{"public"}, "clusters": []any{map[string]any{"name": "main", "namespace": namespace, "nodeCIDRs": []any{cidr}}}},
		map[string]any{"conditions": []any{verdict}})
	o["metadata"].(map[string]any)["creationTimestamp"] = created
	api.Put(resTenants, o)
}

func space(api *apitest.Server, name, tenant string) {
	labels := map[string]any{}
	if tenant != "" {
		labels[labelTenant] = tenant
	}
	api.Put(resSpaces, map[string]any{"metadata": map[string]any{"name": name, "uid": "uid-" + name, "labels": labels}})
	sign := object(name, "agent", map[string]any{"leaseDurationSeconds": 180}, nil)
	sign["metadata"].(map[string]any)["labels"] = map[string]any{labelComponent: component}
	api.Put(resLeases, sign)
	for res, what := range map[string]string{resBindings: "lbd-agent", resRoles: "lbd-agent", resAccounts: "agent", resQuotas: "lbd"} {
		api.Put(res, map[string]any{"metadata": map[string]any{"namespace": name, "name": what, "uid": "uid-" + what, "labels": map[string]any{labelComponent: component}}})
	}
}

func service(api *apitest.Server, namespace, name, reason string, addresses ...string) {
	status := map[string]any{"conditions": []any{condition("Accepted", "False", reason, "too much"), condition("AddressAssigned", "False", "NotAccepted", "see")}}
	if reason == "Accepted" {
		status["conditions"] = []any{condition("Accepted", "True", reason, ""), condition("AddressAssigned", "True", "Assigned", "")}
	}
	list := []any{}
	for _, a := range addresses {
		list = append(list, map[string]any{"address": a, "pool": "public"})
	}
	status["addresses"] = list
	api.Put(resServices, object(namespace, name, map[string]any{"ports": []any{map[string]any{"port": 80, "nodePort": 30080}}}, status))
}

func TestRead(t *testing.T) {
	api, c := bed(t)
	// It names the namespace of another: nothing there is its own.
	tenant(api, "thief", "2025-01-01T00:00:00Z", "lbd-shop-main", "10.3.0.0/24", false)
	all, err := Read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range all {
		got = append(got, fmt.Sprintf("%s %v %+v", x.Name, x.Accepted.OK, x.Use))
	}
	want := []string{
		"bank true {Services:1 Ports:1 Addresses:1 Nodes:0 Routes:0 Problems:0}",
		"shop true {Services:1 Ports:1 Addresses:1 Nodes:2 Routes:1 Problems:2}",
		"thief false {Services:0 Ports:0 Addresses:0 Nodes:0 Routes:0 Problems:1}",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	shop := all[1].Clusters[0]
	if at := shop.AgentHeard.Format(time.TimeOnly); at != "12:00:00" || !all[2].Clusters[0].AgentHeard.IsZero() {
		t.Errorf("heard at %s; %+v", at, all[2].Clusters)
	}
	if at := shop.AgentWrote.Format(time.TimeOnly); at != "12:00:00" || all[2].Clusters[0].Owner != "shop" || len(all[2].Clusters[0].Services) != 0 {
		t.Errorf("written at %s; %+v", at, all[2].Clusters)
	}
	if s := shop.Services; len(s) != 2 || s[0].Name != "default.more" || s[0].Verdict.Reason != "TenantLimit" || !s[1].Verdict.OK || s[1].Addresses[0].Address != "192.0.2.1" {
		t.Errorf("services %+v", s)
	}
	if n := shop.Nodes; len(n) != 1 || n[0].Verdict.Reason != "RefusedNodes" || len(n[0].Nodes) != 2 || n[0].Nodes[1].State != "Draining" {
		t.Errorf("nodes %+v", n)
	}
	if r := shop.Routes; len(r) != 1 || !r[0].Verdict.OK || fmt.Sprint(r[0].Hosts, r[0].Addresses) != "[a.example.com] [192.0.2.9]" {
		t.Errorf("routes %+v", r)
	}
	api.Withdraw(resRoutes) // a hub of an earlier version has none
	if all, err := Read(t.Context(), c); err != nil || len(all) != 3 || all[1].Use.Routes != 0 {
		t.Errorf("without the kind: %v, %v", all, err)
	}
	if _, err := Find(t.Context(), c, "shoe"); !errors.Is(err, ErrNoTenant) || !strings.Contains(err.Error(), `["bank" "shop" "thief"]`) {
		t.Error(err)
	}
	api.Withdraw(resTenants)
	if _, err := Read(t.Context(), c); err == nil || !strings.Contains(err.Error(), "it is no hub") {
		t.Error(err)
	}
}

// end ends a tenant as `lbd tenant delete` does, and returns what it says. The controller takes the
// addresses back if there is one.
func end(t *testing.T, api *apitest.Server, c *k8s.Client, name string, wait time.Duration) (*End, []string) {
	t.Helper()
	e, err := Ending(t.Context(), c, name)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	before := len(api.Requests())
	if err := e.Run(t.Context(), c, wait, func(line string) { said = append(said, line) }); err != nil {
		t.Fatal(err)
	}
	for _, r := range api.Requests()[before:] {
		if method, path, _ := strings.Cut(r, " "); method == "DELETE" {
			said = append(said, path[strings.LastIndexByte(path, '/')+1:])
		}
	}
	return e, said
}

func TestDelete(t *testing.T) {
	api, c := bed(t)
	e, said := end(t, api, c, "shop", 10*time.Millisecond)
	if !e.Exists || len(e.Namespaces) != 1 || !e.Namespaces[0].Whole || e.Namespaces[0].Services != 2 || !slices.Equal(e.Namespaces[0].Addresses, []string{"192.0.2.1"}) {
		t.Errorf("%+v", e)
	}
	want := []string{"Tenant shop: deleted", "the controller has not taken all addresses back within 10ms; they do not rest, and Services of the tenant keep them in their status",
		"namespace lbd-shop-main: deleted, and ends once all in it has", "shop", "lbd-agent", "lbd-shop-main"}
	if !slices.Equal(said, want) {
		t.Errorf("said %q\nwant %q", said, want)
	}
	if api.Get(resTenants, "", "bank") == nil || api.Get(resSpaces, "", "lbd-bank-main") == nil || api.Get(resServices, "lbd-bank-main", "default.web") == nil {
		t.Error("the other tenant lost something")
	}
	if e, said := end(t, api, c, "shop", 0); e.Exists || len(e.Namespaces) != 0 || len(said) != 0 {
		t.Errorf("again: %+v, %q", e, said)
	}
}

// TestDeleteGoesOnByTheAccount: so it is by the account of the agent, if the namespace has lost the label.
// What has neither is named in the error.
func TestDeleteGoesOnByTheAccount(t *testing.T) {
	for name, marked := range map[string]bool{"the account has the label": true, "nothing has": false} {
		t.Run(name, func(t *testing.T) {
			api, c := bed(t)
			const ns = "lbd-shop-main"
			space(api, ns, "")
			if marked {
				o := api.Get(resAccounts, ns, Account)
				o["metadata"].(map[string]any)["labels"].(map[string]any)[labelTenant] = "shop"
				api.Put(resAccounts, o)
			}
			api.Put(resAccounts, map[string]any{"metadata": map[string]any{"namespace": "default", "name": Account, "labels": map[string]any{labelTenant: "shop"}}}) // of somebody else
			api.Put(resSpaces, map[string]any{"metadata": map[string]any{"name": "default"}})
			api.Gate(func(r *http.Request) int { // it fails before the account goes
				if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/resourcequotas/lbd") {
					return http.StatusServiceUnavailable
				}
				return 0
			})
			e, err := Ending(t.Context(), c, "shop")
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Run(t.Context(), c, time.Millisecond, func(string) {}); err == nil || strings.Contains(err.Error(), ns) == marked {
				t.Errorf("the first call says %v", err)
			}
			api.Gate(nil)
			e, _ = end(t, api, c, "shop", time.Millisecond)
			if e.Exists || (len(e.Namespaces) == 1) != marked || api.Get(resSpaces, "", ns) == nil {
				t.Errorf("the second call ends %+v", e)
			}
			if !marked {
				return
			}
			for res, what := range map[string]string{resNodes: "nodes-0", resServices: "default.web", resBindings: "lbd-agent", resRoles: "lbd-agent", resAccounts: Account, resQuotas: "lbd", resLeases: "agent"} {
				if api.Get(res, ns, what) != nil {
					t.Errorf("%s %s is there", res, what)
				}
			}
			if e, said := end(t, api, c, "shop", 0); len(e.Namespaces) != 0 {
				t.Errorf("the third call: %+v, %q", e, said)
			}
		})
	}
}

// TestDeleteNobody: namespaces without a label are not those of a Tenant without a name.
func TestDeleteNobody(t *testing.T) {
	_, c := bed(t)
	if e, err := Ending(t.Context(), c, ""); err == nil {
		t.Errorf("%+v", e)
	}
	if u := new(unstructured.Unstructured); has(u, labelTenant, "") {
		t.Error("a label that is not there has an empty value")
	}
}

// TestDeleteGoesOn: what an interrupted deletion left is found by the label.
func TestDeleteGoesOn(t *testing.T) {
	api, c := bed(t)
	api.Delete(resTenants, "", "shop")
	e, said := end(t, api, c, "shop", time.Millisecond)
	if e.Exists || len(e.Namespaces) != 1 || api.Get(resSpaces, "", "lbd-shop-main") != nil {
		t.Errorf("%+v, %q", e, said)
	}
}

// TestDeleteKeeps: a namespace that has another tenant, or Pods, or no label, is not deleted.
func TestDeleteKeeps(t *testing.T) {
	api, c := bed(t)
	tenant(api, "thief", "2025-01-01T00:00:00Z", "lbd-shop-main", "10.3.0.0/24", false)
	if e, _ := end(t, api, c, "thief", time.Millisecond); !e.Exists || len(e.Namespaces) != 0 || api.Get(resSpaces, "", "lbd-shop-main") == nil || api.Get(resServices, "lbd-shop-main", "default.web") == nil {
		t.Errorf("thief: %+v", e)
	}
	for name, change := range map[string]func(){
		"shop": func() { // a Pod
			api.Put(resPods, map[string]any{"metadata": map[string]any{"namespace": "lbd-shop-main", "name": "x"}})
		},
		"bank": func() { space(api, "lbd-bank-main", "") }, // no label
	} {
		change()
		ns := "lbd-" + name + "-main"
		api.Put(resQuotas, map[string]any{"metadata": map[string]any{"namespace": ns, "name": "lbd"}}) // without the label
		e, said := end(t, api, c, name, time.Millisecond)
		if len(e.Namespaces) != 1 || e.Namespaces[0].Whole || api.Get(resSpaces, "", ns) == nil {
			t.Errorf("%s: %+v, %q", name, e, said)
		}
		for res, what := range map[string]string{resServices: "default.web", resRoutes: "ingress.default.web", resBindings: "lbd-agent", resRoles: "lbd-agent", resAccounts: "agent", resLeases: "agent"} {
			if api.Get(res, ns, what) != nil {
				t.Errorf("%s: %s %s is there", name, res, what)
			}
		}
		if api.Get(resQuotas, ns, "lbd") == nil {
			t.Errorf("%s: what is not lbd's is gone", name)
		}
	}
}

// TestDeleteWaits: the namespace goes only once the controller has taken the addresses back.
func TestDeleteWaits(t *testing.T) {
	api, c := bed(t)
	var looks atomic.Int32
	api.Gate(func(r *http.Request) int {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/namespaces/lbd-shop-main/tenantservices") {
			if api.Get(resTenants, "", "shop") != nil || api.Get(resSpaces, "", "lbd-shop-main") == nil {
				t.Error("it waits before the Tenant is deleted, or after the namespace is")
			}
			switch looks.Add(1) {
			case 2:
				service(api, "lbd-shop-main", "default.web", "NoTenant")
			case 3:
				api.Put(resRoutes, object("lbd-shop-main", "ingress.default.web", map[string]any{}, map[string]any{"addresses": []any{}}))
			}
		}
		return 0
	})
	e, err := Ending(t.Context(), c, "shop")
	if err != nil {
		t.Fatal(err)
	}
	e.look, e.tell = time.Millisecond, time.Millisecond
	if err := e.Run(t.Context(), c, time.Minute, func(string) {}); err != nil || looks.Load() != 3 || api.Get(resSpaces, "", "lbd-shop-main") != nil {
		t.Errorf("%v after %d looks", err, looks.Load())
	}
	api.Gate(nil)
	e, err = Ending(t.Context(), c, "bank")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := e.Run(ctx, c, time.Minute, func(string) {}); err == nil || api.Get(resSpaces, "", "lbd-bank-main") == nil {
		t.Errorf("interrupted: %v", err)
	}
}

// TestDeleteWaitsForTheEngine: it waits for what the engine reads, also if nothing has an address, and says
// what is left.
func TestDeleteWaitsForTheEngine(t *testing.T) {
	api, c := bed(t)
	api.Serve("networking.k8s.io/v1/ingresses", "Ingress")
	api.Serve("v1/services", "Service")
	api.Serve("discovery.k8s.io/v1/endpointslices", "EndpointSlice")
	api.Serve("gateway.networking.k8s.io/v1/httproutes", "HTTPRoute")
	api.Serve("gateway.networking.k8s.io/v1/grpcroutes", "GRPCRoute")
	const ns = "lbd-shop-main"
	api.Delete(resServices, ns, "default.web")
	api.Delete(resRoutes, ns, "ingress.default.web")
	put := func(res, name, manager string) {
		api.Put(res, map[string]any{"metadata": map[string]any{"namespace": ns, "name": name, "labels": map[string]any{"app.kubernetes.io/managed-by": manager}}})
	}
	put("networking.k8s.io/v1/ingresses", "web-1", "lbd-tenant-routes")
	put("networking.k8s.io/v1/ingresses", "own", "helm")
	put("gateway.networking.k8s.io/v1/httproutes", "web-3", "lbd-tenant-routes")
	put("gateway.networking.k8s.io/v1/grpcroutes", "web-4", "lbd-tenant-routes")
	put("v1/services", "web-2", "lbd-tenant-routes")
	put("discovery.k8s.io/v1/endpointslices", "web-2-ipv4-0", "lbd-tenant-routes")
	api.Put(resPods, map[string]any{"metadata": map[string]any{"namespace": ns, "name": "x"}}) // it stays
	e, err := Ending(t.Context(), c, "shop")
	if err != nil {
		t.Fatal(err)
	}
	e.look, e.tell = time.Millisecond, time.Millisecond
	var said []string
	if err := e.Run(t.Context(), c, 50*time.Millisecond, func(line string) { said = append(said, line) }); err != nil {
		t.Fatal(err)
	}
	const left = "the controller has not deleted within 50ms what the engine reads; in a namespace that stays it serves the tenant until you delete: " +
		"ingresses lbd-shop-main/web-1, httproutes lbd-shop-main/web-3, grpcroutes lbd-shop-main/web-4, services lbd-shop-main/web-2, endpointslices lbd-shop-main/web-2-ipv4-0"
	if !slices.Equal(said, []string{"Tenant shop: deleted", left, "namespace lbd-shop-main: stays; what lbd has in it is deleted"}) {
		t.Errorf("said %q", said)
	}
	// The controller deletes it.
	api.Delete("v1/services", ns, "web-2")
	api.Delete("gateway.networking.k8s.io/v1/httproutes", ns, "web-3")
	api.Delete("gateway.networking.k8s.io/v1/grpcroutes", ns, "web-4")
	api.Delete("discovery.k8s.io/v1/endpointslices", ns, "web-2-ipv4-0")
	e = &End{Tenant: "shop", Namespaces: e.Namespaces, look: time.Millisecond, tell: time.Millisecond}
	time.AfterFunc(20*time.Millisecond, func() { api.Delete("networking.k8s.io/v1/ingresses", ns, "web-1") })
	said = nil
	began := time.Now()
	if err := e.Run(t.Context(), c, time.Minute, func(line string) { said = append(said, line) }); err != nil || len(said) != 1 || time.Since(began) < 20*time.Millisecond {
		t.Errorf("%v, said %q", err, said)
	}
}

// TestRotate: the account is another one afterwards, with the labels of the former, and the token is of
// the new one.
func TestRotate(t *testing.T) {
	api, _ := bed(t)
	inner := api.Config().Host
	var asked []string
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/token") {
			body, _ := io.ReadAll(r.Body)
			uid := api.Get(resAccounts, "lbd-shop-main", "agent")["metadata"].(map[string]any)["uid"]
			asked = append(asked, string(body))
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{"token": fmt.Sprint("of ", uid)}})
			return
		}
		out, err := http.NewRequestWithContext(r.Context(), r.Method, inner+r.URL.String(), r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		out.Header = r.Header
		resp, err := http.DefaultClient.Do(out)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	defer front.Close()
	c, err := k8s.NewFor(&rest.Config{Host: front.URL}, k8s.Options{QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the second time the account is missing, as after a failure half way
		token, err := Rotate(t.Context(), c, "lbd-shop-main", time.Hour)
		o := api.Get(resAccounts, "lbd-shop-main", "agent")
		if err != nil || o == nil || token == "of uid-agent" || token != fmt.Sprint("of ", o["metadata"].(map[string]any)["uid"]) {
			t.Fatalf("%d: %q, %v, %v", i, token, err, o)
		}
		if o["automountServiceAccountToken"] != false || o["metadata"].(map[string]any)["labels"].(map[string]any)[labelComponent] != component {
			t.Errorf("%d: %v", i, o)
		}
		api.Delete(resAccounts, "lbd-shop-main", "agent")
	}
	if len(asked) != 2 || !strings.Contains(asked[0], `"expirationSeconds":3600`) {
		t.Errorf("%q", asked)
	}
}

// TestDeleteWithoutListOfAccounts: who may not list accounts ends a tenant by the labels of its namespaces.
func TestDeleteWithoutListOfAccounts(t *testing.T) {
	api, c := bed(t)
	space(api, "lbd-shop-main", "shop")
	api.Gate(func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/serviceaccounts") {
			return http.StatusForbidden
		}
		return 0
	})
	e, err := Ending(t.Context(), c, "shop")
	if err != nil || len(e.Namespaces) != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestDeleteSecrets: in a namespace that stays, the certificates of the agent go, and no other Secret.
func TestDeleteSecrets(t *testing.T) {
	api, c := bed(t)
	api.Serve(resSecrets, "Secret")
	space(api, "lbd-bank-main", "") // no label
	const ours = "lbd-tls-0123456789abcdef0123"
	for name, labels := range map[string]map[string]any{
		ours: {"app.kubernetes.io/managed-by": "lbd-agent"}, "lbd-tls-theirs": {}, "s-cert": {"app.kubernetes.io/managed-by": "lbd-agent"},
	} {
		api.Put(resSecrets, map[string]any{"metadata": map[string]any{"namespace": "lbd-bank-main", "name": name, "uid": name, "labels": labels}})
	}
	for res, names := range map[string][]string{resBindings: {tlsName, controllerTLS}, resRoles: {tlsName, controllerTLS}, resQuotas: {"lbd-tls"}} {
		for _, name := range names {
			api.Put(res, map[string]any{"metadata": map[string]any{"namespace": "lbd-bank-main", "name": name, "uid": name, "labels": map[string]any{labelComponent: component}}})
		}
	}
	end(t, api, c, "bank", time.Millisecond)
	if left := api.All(resSecrets); len(left) != 2 || api.Get(resSecrets, "lbd-bank-main", ours) != nil {
		t.Errorf("Secrets that are left: %v", left)
	}
	for _, res := range []string{resBindings, resRoles, resQuotas} {
		for _, o := range api.All(res) {
			if meta := o["metadata"].(map[string]any); meta["namespace"] == "lbd-bank-main" {
				t.Errorf("%s %v is there", res, meta["name"])
			}
		}
	}
}
