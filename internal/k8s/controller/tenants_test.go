package controller

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/model"
)

const (
	tenantsOf    = "lbd.dev/v1alpha1/tenants"
	tenantNodes  = "lbd.dev/v1alpha1/tenantnodes"
	tenantServes = "lbd.dev/v1alpha1/tenantservices"
)

// hubAPI is a hub with a pool of four addresses and the tenant shop, which has the node a1.
func hubAPI(t testing.TB) *apitest.Server {
	api := newAPI(t)
	for res, kind := range map[string]string{tenantsOf: "Tenant", tenantNodes: "TenantNodes", tenantServes: "TenantService"} {
		api.Serve(res, kind)
	}
	putPool(api, "public", "192.0.2.0/30")
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"]}`)
	putSpec(api, tenantNodes, "shop", "n-0", old, `{"nodes":[{"name":"a1","addresses":["10.1.0.1"]}]}`)
	return api
}

func putSpec(api *apitest.Server, res, namespace, name, created, spec string) {
	var s map[string]any
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		panic(err)
	}
	put(api, res, namespace, name, created, map[string]any{"spec": s})
}

func putTenant(api *apitest.Server, name, created, spec string) {
	putSpec(api, tenantsOf, "", name, created, spec)
}

// putWeb makes a TenantService of port 80 with a NodePort.
func putWeb(api *apitest.Server, namespace, name, created string, nodePort int) {
	putSpec(api, tenantServes, namespace, name, created, fmt.Sprintf(`{"ports":[{"port":80,"nodePort":%d}]}`, nodePort))
}

// tenantSays is what the status of a TenantService has: addresses, and the reasons of Accepted and
// AddressAssigned with their states.
func tenantSays(api *apitest.Server, namespace, name string) string {
	var s v1alpha1.TenantServiceStatus
	data, _ := json.Marshal(api.Get(tenantServes, namespace, name)["status"])
	_ = json.Unmarshal(data, &s)
	var words []string
	for _, a := range s.Addresses {
		words = append(words, a.Address+"="+a.Pool)
	}
	for _, c := range s.Conditions {
		words = append(words, string(c.Status)+" "+c.Reason)
	}
	return strings.Join(words, ", ")
}

// acceptedOf is the condition Accepted of an object.
func acceptedOf(api *apitest.Server, res, namespace, name string) string {
	list, _, _ := nested[[]any](api.Get(res, namespace, name), "status", "conditions")
	for _, x := range list {
		if m := x.(map[string]any); m["type"] == v1alpha1.ConditionAccepted {
			return fmt.Sprintf("%v %v: %v", m["status"], m["reason"], m["message"])
		}
	}
	return ""
}

func tenantWrites(api *apitest.Server) (n int) {
	for _, r := range api.Requests() {
		if strings.HasPrefix(r, http.MethodPatch) && strings.Contains(r, "/tenant") {
			n++
		}
	}
	return n
}

const served = ", True Accepted, True Assigned"

// TestTenantService follows a Service of a tenant from its creation to its end. What it has stays when
// another controller leads, and nothing is written without a cause.
func TestTenantService(t *testing.T) {
	api := hubAPI(t)
	first := run(t, build(t, api, "a"))
	putWeb(api, "shop", "default.web", old, 30080)
	eventually(t, "it has an address", func() bool { return tenantSays(api, "shop", "default.web") == "192.0.2.0=public"+served })
	eventually(t, "the Tenant and its nodes are accepted", func() bool {
		return strings.HasPrefix(acceptedOf(api, tenantsOf, "", "shop"), "True Accepted") && strings.HasPrefix(acceptedOf(api, tenantNodes, "shop", "n-0"), "True Accepted")
	})
	eventually(t, "the pool counts it", func() bool {
		n, _, _ := nested[float64](api.Get(pools, "", "public"), "status", "assignedIPv4")
		return n == 1
	})
	eventually(t, "the event", func() bool {
		return strings.Contains(strings.Join(told(api), "\n"), `TenantService shop/default.web Normal IPAllocated: assigned 192.0.2.0 from pool "public"`)
	})
	api.Put(resource, service("own"))
	eventually(t, "a Service of the hub has another one", func() bool { return status(api, "own") == "192.0.2.1" })
	if n := tenantWrites(api); n != 3 { // one for each object
		t.Errorf("%d writes", n)
	}
	first.stop()
	second := run(t, build(t, api, "b"))
	eventually(t, "b leads", func() bool { return second.Stats().Leader })
	putWeb(api, "shop", "default.two", young, 30081)
	eventually(t, "a second one", func() bool { return tenantSays(api, "shop", "default.two") == "192.0.2.2=public"+served })
	if got := tenantSays(api, "shop", "default.web"); got != "192.0.2.0=public"+served {
		t.Error("with another leader:", got)
	}
	api.Delete(tenantServes, "shop", "default.web")
	eventually(t, "the address rests", func() bool { return second.Stats().Released == 1 })
	putSpec(api, tenantServes, "shop", "default.again", young, `{"ports":[{"port":80,"nodePort":30082}],"addresses":["192.0.2.0"]}`)
	eventually(t, "who asks for it waits", func() bool { return tenantSays(api, "shop", "default.again") == "True Accepted, False AddressPending" })
	if n := tenantWrites(api); n > 5 {
		t.Errorf("%d writes", n)
	}
}

// TestTenantServiceRefused: what a Tenant may not have gets no address, is told so by rule, and what was
// given under other rules is taken back.
func TestTenantServiceRefused(t *testing.T) {
	api := hubAPI(t)
	putPool(api, "internal", "198.51.100.0/30")
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"],"limits":{"services":2}}`)
	putTenant(api, "evil", young, `{"clusters":[{"name":"main","namespace":"evil","nodeCIDRs":["10.1.0.0/16"]}],"pools":["public"]}`)
	putSpec(api, tenantNodes, "shop", "n-1", old, `{"nodes":[{"name":"b1","addresses":["10.1.0.2"]},{"name":"h1","addresses":["10.1.0.9"]}]}`)
	api.Put("v1/nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "h1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.0.9"}}}})
	putWeb(api, "shop", "default.web", old, 30080)
	putWeb(api, "shop", "default.kubelet", old, 10250)
	putWeb(api, "shop", "default.ssh", old, 22)
	putWeb(api, "evil", "default.web", old, 30080)
	putWeb(api, "nobody", "default.web", old, 30080)
	putSpec(api, tenantServes, "shop", "default.pool", old, `{"ports":[{"port":80,"nodePort":30083}],"pool":"internal"}`)
	putSpec(api, tenantServes, "shop", "default.address", young, `{"ports":[{"port":80,"nodePort":30084}],"addresses":["198.51.100.1"]}`)
	p := run(t, build(t, api, "a"))
	for object, want := range map[string]string{
		"shop/default.web": "192.0.2.0=public" + served, "shop/default.kubelet": "False NodePortNotAllowed, False NotAccepted",
		"shop/default.ssh": "False NodePortNotAllowed, False NotAccepted", "evil/default.web": "False NoTenant, False NotAccepted",
		"nobody/default.web": "False NoTenant, False NotAccepted", "shop/default.pool": "False PoolNotAllowed, False NotAccepted",
		"shop/default.address": "True Accepted, False AddressPending",
	} {
		namespace, name, _ := strings.Cut(object, "/")
		eventually(t, object+": "+want, func() bool { return tenantSays(api, namespace, name) == want })
	}
	eventually(t, "the words about the address", func() bool {
		list, _, _ := nested[[]any](api.Get(tenantServes, "shop", "default.address"), "status", "conditions")
		return len(list) == 2 && strings.Contains(fmt.Sprint(list[1]), "WrongPool: an address that is asked for is in no pool of the Tenant")
	})
	if words := strings.Join(told(api), "\n"); strings.Contains(words, `pool "internal"`) {
		t.Error("a pool of others is named:", words)
	}
	if got := acceptedOf(api, tenantsOf, "", "evil"); !strings.Contains(got, "False Overlap: 10.1.0.0/16 of the cluster main overlaps 10.1.0.0/24 of the older Tenant shop") {
		t.Error("evil:", got)
	}
	if got := acceptedOf(api, tenantNodes, "shop", "n-1"); !strings.Contains(got, "False RefusedNodes: h1: 10.1.0.9 is an address of the Node h1 of the hub") {
		t.Error("n-1:", got)
	}
	api.Delete(tenantServes, "shop", "default.address")
	putWeb(api, "shop", "default.two", young, 30085)
	eventually(t, "two may be", func() bool { return tenantSays(api, "shop", "default.two") == "192.0.2.1=public"+served })
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"],"limits":{"services":1}}`)
	eventually(t, "the younger one loses its address to a limit", func() bool { return tenantSays(api, "shop", "default.two") == "False TenantLimit, False NotAccepted" })
	if got := tenantSays(api, "shop", "default.web"); got != "192.0.2.0=public"+served {
		t.Error("the older one:", got)
	}
	eventually(t, "the event", func() bool {
		return strings.Contains(strings.Join(told(api), "\n"), "TenantService shop/default.two Warning ObjectProblem: TenantLimit: with it the Tenant shop has 2 services of 1 that it may have")
	})
	if n := p.Stats().Released; n != 1 {
		t.Errorf("%d addresses were released", n)
	}
}

// TestPoolByBGPAlone: a Service gets no address of a pool that no node would own at layer 2, and its words
// say what is lacking. One that has an address keeps it.
func TestPoolByBGPAlone(t *testing.T) {
	t.Parallel()
	api := hubAPI(t)
	const bgpAdverts = "lbd.dev/v1alpha1/bgpadvertisements"
	api.Serve(bgpAdverts, "BGPAdvertisement")
	advertised := func(res string) { putSpec(api, res, "", "public", old, `{}`) }
	advertised(bgpAdverts)
	putWeb(api, "shop", "default.web", old, 30080)
	run(t, build(t, api, "a"))
	const words = "the pool public of the hub has a BGPAdvertisement and no L2Advertisement, which addresses of tenants need beside it"
	accepted := func(want string) func() bool {
		return func() bool { return acceptedOf(api, tenantServes, "shop", "default.web") == want }
	}
	eventually(t, "it is refused", accepted("False PoolNotAllowed: "+words))
	advertised(adverts)
	eventually(t, "it has an address", func() bool { return tenantSays(api, "shop", "default.web") == "192.0.2.0=public"+served })
	api.Delete(adverts, "", "public")
	eventually(t, "it says that nobody announces it", accepted("True NotAnnounced: "+words+": nobody announces 192.0.2.0"))
	if got := tenantSays(api, "shop", "default.web"); got != "192.0.2.0=public, True NotAnnounced, True Assigned" {
		t.Error(got)
	}
}

// TestAddressesThatRestCount: who makes and deletes Services gets no more addresses of a pool than his
// limit, and another one as soon as one has rested.
func TestAddressesThatRestCount(t *testing.T) {
	t.Parallel()
	api := hubAPI(t)
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"],"limits":{"addresses":2}}`)
	putWeb(api, "shop", "default.web", old, 30080)
	putWeb(api, "shop", "default.gone", young, 30081)
	p := run(t, build(t, api, "a", func(o *Options) { o.Allocator.Quarantine = 5 * time.Second }))
	eventually(t, "both have addresses", func() bool {
		return tenantSays(api, "shop", "default.web") == "192.0.2.0=public"+served && tenantSays(api, "shop", "default.gone") == "192.0.2.1=public"+served
	})
	api.Delete(tenantServes, "shop", "default.gone")
	eventually(t, "the address rests", func() bool { return p.tenants.resting()["shop"] == 1 })
	putWeb(api, "shop", "default.new", young, 30082)
	eventually(t, "the next one waits", func() bool { return tenantSays(api, "shop", "default.new") == "False TenantLimit, False NotAccepted" })
	if got := tenantSays(api, "shop", "default.web"); got != "192.0.2.0=public"+served {
		t.Error("the other one:", got)
	}
	eventually(t, "it gets the address", func() bool { return tenantSays(api, "shop", "default.new") == "192.0.2.1=public"+served })
}

// TestSuspendedAndGone: a Tenant that is suspended keeps what it has and gets nothing new, and one that
// is deleted has nothing.
func TestSuspendedAndGone(t *testing.T) {
	api := hubAPI(t)
	p := run(t, build(t, api, "a"))
	putWeb(api, "shop", "default.web", old, 30080)
	eventually(t, "it has an address", func() bool { return tenantSays(api, "shop", "default.web") == "192.0.2.0=public"+served })
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"],"suspended":true}`)
	eventually(t, "it is suspended", func() bool { x, _ := p.objects.Tenants.Get(model.Key{Name: "shop"}); return x.Value.Spec.Suspended })
	putWeb(api, "shop", "default.new", young, 30081)
	eventually(t, "a new one has none", func() bool { return tenantSays(api, "shop", "default.new") == "False Suspended, False NotAccepted" })
	if got := tenantSays(api, "shop", "default.web"); got != "192.0.2.0=public"+served {
		t.Error("what it had:", got)
	}
	api.Delete(tenantsOf, "", "shop")
	eventually(t, "nothing is left", func() bool { return tenantSays(api, "shop", "default.web") == "False NoTenant, False NotAccepted" })
	if got := acceptedOf(api, tenantNodes, "shop", "n-0"); !strings.HasPrefix(got, "False NoTenant") {
		t.Error("its nodes:", got)
	}
}

// TestStatusOfAnAgent: addresses that somebody else wrote into a status count for nothing: they are not
// adopted from another pool or another Service, and are replaced.
func TestStatusOfAnAgent(t *testing.T) {
	api := hubAPI(t)
	putPool(api, "internal", "198.51.100.0/30")
	putWeb(api, "shop", "default.web", old, 30080)
	writes := func(name, address string) {
		o := api.Get(tenantServes, "shop", name)
		o["status"] = map[string]any{"addresses": []any{map[string]any{"address": address, "pool": "public"}}}
		api.Put(tenantServes, o)
	}
	writes("default.web", "198.51.100.1")
	run(t, build(t, api, "a"))
	eventually(t, "it has one of its pool", func() bool { return tenantSays(api, "shop", "default.web") == "192.0.2.0=public"+served })
	putWeb(api, "shop", "default.two", young, 30081)
	eventually(t, "so has the second", func() bool { return tenantSays(api, "shop", "default.two") == "192.0.2.1=public"+served })
	writes("default.two", "192.0.2.0")
	eventually(t, "it has its own again", func() bool { return tenantSays(api, "shop", "default.two") == "192.0.2.1=public"+served })
	if got := tenantSays(api, "shop", "default.web"); got != "192.0.2.0=public"+served {
		t.Error("the robbed one:", got)
	}
}

// TestNoTenants: a cluster without the definitions is served as before.
func TestNoTenants(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/30")
	p := run(t, build(t, api, "a"))
	api.Put(resource, service("web"))
	begin := time.Now()
	eventually(t, "the Service has an address", func() bool { return status(api, "web") == "192.0.2.0" && p.Ready() == nil })
	if late := time.Since(begin); late > 5*time.Second {
		t.Errorf("after %v", late)
	}
}
