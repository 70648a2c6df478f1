package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	kmachines "lbd.dev/lbd/internal/k8s/machines"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

const (
	balancers = "lbd.dev/v1alpha1/machineloadbalancers"
	capiM     = "cluster.x-k8s.io/v1beta2/machines"
	capiC     = "cluster.x-k8s.io/v1beta2/clusters"
)

func managementAPI(t testing.TB) *apitest.Server {
	api := newAPI(t)
	for res, kind := range map[string]string{balancers: "MachineLoadBalancer", capiM: "Machine", capiC: "Cluster"} {
		api.Serve(res, kind)
	}
	return api
}

func withMachines(o *Options) { o.Machines, o.HookTimeout = true, time.Minute }

// put creates an object of a namespace from JSON of its other fields.
func put(api *apitest.Server, res, namespace, name, created string, rest map[string]any) {
	meta := map[string]any{"namespace": namespace, "name": name, "uid": namespace + "-" + name, "creationTimestamp": created}
	if m, ok := rest["metadata"].(map[string]any); ok {
		for k, v := range m {
			meta[k] = v
		}
	}
	o := map[string]any{}
	for k, v := range rest {
		o[k] = v
	}
	o["metadata"] = meta
	api.Put(res, o)
}

func putBalancer(api *apitest.Server, name, created, spec string) {
	var s map[string]any
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		panic(err)
	}
	put(api, balancers, "default", name, created, map[string]any{"spec": s})
}

func putMachine(api *apitest.Server, name string, meta map[string]any) {
	all := map[string]any{"labels": map[string]any{"cluster.x-k8s.io/cluster-name": "prod", "cluster.x-k8s.io/control-plane": ""}}
	for k, v := range meta {
		all[k] = v
	}
	put(api, capiM, "default", name, old, map[string]any{"metadata": all, "spec": map[string]any{}})
}

const (
	old   = "2026-01-02T03:04:05Z"
	young = "2026-01-02T03:04:06Z"
)

func balancerStatus(api *apitest.Server, name string) (s v1alpha1.MachineLoadBalancerStatus) {
	data, _ := json.Marshal(api.Get(balancers, "default", name)["status"])
	_ = json.Unmarshal(data, &s)
	return s
}

func stands(s v1alpha1.MachineLoadBalancerStatus, kind string) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return "none"
}

// endpoint is the endpoint of a Cluster.
func endpoint(api *apitest.Server, name string) string {
	e, _, _ := nested[map[string]any](api.Get(capiC, "default", name), "spec", "controlPlaneEndpoint")
	return fmt.Sprintf("%v:%v", e["host"], e["port"])
}

// TestEndpointBeforeMachines: the endpoint is published and the Cluster told while
// there is no Machine, in whatever order the objects come.
func TestEndpointBeforeMachines(t *testing.T) {
	const spec = `{"clusterRef":{"name":"prod"},"addressPool":"edge"}`
	steps := map[string]func(*apitest.Server){
		"pool": func(api *apitest.Server) { putPool(api, "edge", "192.0.2.10/32") },
		"cluster": func(api *apitest.Server) {
			put(api, capiC, "default", "prod", old, map[string]any{"spec": map[string]any{}})
		},
		"balancer": func(api *apitest.Server) { putBalancer(api, "api", old, spec) },
	}
	for _, order := range []string{"pool cluster balancer", "balancer cluster pool", "cluster balancer pool", "balancer pool cluster"} {
		t.Run(order, func(t *testing.T) {
			api := managementAPI(t)
			run(t, build(t, api, "a", withMachines))
			for _, step := range strings.Fields(order) {
				steps[step](api)
				time.Sleep(20 * time.Millisecond)
			}
			eventually(t, "the endpoint", func() bool {
				s := balancerStatus(api, "api")
				return s.Endpoint != nil && *s.Endpoint == v1alpha1.MachineEndpoint{Host: "192.0.2.10", Port: 6443} && s.Address == "192.0.2.10" &&
					s.AddressPool == "edge" && endpoint(api, "prod") == "192.0.2.10:6443"
			})
			eventually(t, "0 of 0", func() bool {
				s := balancerStatus(api, "api")
				return s.Status == "0 of 0 members healthy" && !s.Ready && stands(s, "Ready") == "False NoMembers" &&
					stands(s, "EndpointAssigned") == "True ClusterDecides" && stands(s, "Accepted") == "True Accepted" && s.URL == "https://192.0.2.10:6443"
			})
		})
	}
}

// TestOneOfTwoIsOfAPool: a pool that comes later, and has one of two addresses, takes none away
// from the balancer that has both, whoever leads, and neither has one that was there before.
func TestOneOfTwoIsOfAPool(t *testing.T) {
	api := managementAPI(t)
	put(api, capiC, "default", "prod", old, map[string]any{"spec": map[string]any{}})
	putBalancer(api, "api", old, `{"clusterRef":{"name":"prod"},"addresses":["192.0.2.10","2001:db8::10"]}`)
	first := run(t, build(t, api, "a", withMachines))
	has := func(name, pool string, want ...string) func() bool {
		return func() bool {
			s := balancerStatus(api, name)
			return slices.Equal(s.Addresses, want) && s.AddressPool == pool && s.Endpoint != nil && s.Endpoint.Host == want[0]
		}
	}
	eventually(t, "it has both", has("api", "", "192.0.2.10", "2001:db8::10"))
	putPool(api, "edge", "192.0.2.10-192.0.2.11")
	for range 50 {
		if s := balancerStatus(api, "api"); len(s.Addresses) != 2 {
			t.Fatalf("it has %v", s.Addresses)
		}
		time.Sleep(20 * time.Millisecond)
	}
	eventually(t, "the pool has one", has("api", "edge", "192.0.2.10", "2001:db8::10"))
	putBalancer(api, "late", young, `{"clusterName":"x","addresses":["2001:db8::11","192.0.2.11"]}`)
	putBalancer(api, "greedy", young, `{"clusterName":"x","addresses":["192.0.2.10","2001:db8::10"]}`)
	eventually(t, "one beside it", has("late", "edge", "2001:db8::11", "192.0.2.11"))
	first.stop()
	run(t, build(t, api, "b", withMachines))
	time.Sleep(300 * time.Millisecond)
	eventually(t, "both still", has("api", "edge", "192.0.2.10", "2001:db8::10"))
	if s := balancerStatus(api, "greedy"); len(s.Addresses) > 0 {
		t.Errorf("another one has %v", s.Addresses)
	}
}

// TestOldProblemIsNotTold: a balancer that asks for no more than it has is not said to lack
// what it asked for before.
func TestOldProblemIsNotTold(t *testing.T) {
	api := managementAPI(t)
	putPool(api, "edge", "192.0.2.10/32")
	putBalancer(api, "api", old, `{"clusterName":"x","addressPool":"edge"}`)
	run(t, build(t, api, "a", withMachines))
	says := func(text string) func() bool {
		return func() bool {
			s := balancerStatus(api, "api")
			return s.Address != "" && slices.ContainsFunc(s.Conditions, func(c v1alpha1.Condition) bool {
				return c.Type == v1alpha1.ConditionEndpointAssigned && strings.Contains(c.Message, ": ") == (text != "") && strings.Contains(c.Message, text)
			})
		}
	}
	eventually(t, "it has one", says(""))
	o := api.Get(balancers, "default", "api")
	o["spec"].(map[string]any)["families"] = []any{"ipv4", "ipv6"}
	api.Put(balancers, o)
	eventually(t, "it lacks one", says("IPv6"))
	o = api.Get(balancers, "default", "api")
	delete(o["spec"].(map[string]any), "families")
	api.Put(balancers, o)
	eventually(t, "it lacks none", says(""))
}

// TestTwoAddressesOfAPool: a balancer gets one address of each family, keeps both with
// another leader, and a second one later without losing the first, which its Cluster has.
func TestTwoAddressesOfAPool(t *testing.T) {
	api := managementAPI(t)
	putPool(api, "edge", "192.0.2.10/32", "2001:db8::10/128")
	put(api, capiC, "default", "prod", old, map[string]any{"spec": map[string]any{}})
	putBalancer(api, "api", old, `{"clusterRef":{"name":"prod"},"addressPool":"edge","families":["ipv6"]}`)
	first := run(t, build(t, api, "a", withMachines))
	has := func(pool string, want ...string) func() bool {
		return func() bool {
			s := balancerStatus(api, "api")
			return slices.Equal(s.Addresses, want) && s.AddressPool == pool && s.Endpoint != nil && s.Endpoint.Host == want[0] &&
				endpoint(api, "prod") == want[0]+":6443"
		}
	}
	eventually(t, "it has one of IPv6", has("edge", "2001:db8::10"))
	o := api.Get(balancers, "default", "api")
	o["spec"].(map[string]any)["families"] = []any{"ipv4", "ipv6"}
	api.Put(balancers, o)
	eventually(t, "and one of IPv4", has("edge", "2001:db8::10", "192.0.2.10"))
	first.stop()
	run(t, build(t, api, "b", withMachines))
	time.Sleep(300 * time.Millisecond)
	eventually(t, "both still", has("edge", "2001:db8::10", "192.0.2.10"))
	api.Put(resource, service("greedy"))
	time.Sleep(300 * time.Millisecond)
	if s := status(api, "greedy"); s != "" {
		t.Errorf("a Service has got %s of the balancer", s)
	}
}

// TestOneAddress: a Service and a balancer never get one address, whoever asks first
// and whoever leads.
func TestOneAddress(t *testing.T) {
	api := managementAPI(t)
	putPool(api, "edge", "192.0.2.10/31")
	first := run(t, build(t, api, "a", withMachines))
	api.Put(resource, service("one"))
	eventually(t, "the Service has one", func() bool { return status(api, "one") != "" })
	putBalancer(api, "api", young, `{"clusterName":"prod"}`)
	eventually(t, "the balancer has the other", func() bool { return balancerStatus(api, "api").Endpoint != nil })
	api.Put(resource, service("two"))
	putBalancer(api, "greedy", young, `{"clusterName":"prod","address":"`+status(api, "one")+`"}`)
	eventually(t, "the second balancer is told why", func() bool {
		return stands(balancerStatus(api, "greedy"), "EndpointAssigned") == "False NoAddress"
	})
	// A young leader reads from the statuses what is taken.
	first.stop()
	run(t, build(t, api, "b", withMachines))
	api.Put(resource, service("three"))
	time.Sleep(300 * time.Millisecond)
	a, b := status(api, "one"), balancerStatus(api, "api").Address
	if a == b || status(api, "two") != "" || status(api, "three") != "" || balancerStatus(api, "greedy").Address != "" {
		t.Errorf("one %s, api %s, two %s, three %s, greedy %s", a, b, status(api, "two"), status(api, "three"), balancerStatus(api, "greedy").Address)
	}
	api.Delete(resource, "default", "one")
	eventually(t, "the balancer gets what it names", func() bool { return balancerStatus(api, "greedy").Address == a })
}

// TestAdopted: what a Cluster has counts, and is not changed.
func TestAdopted(t *testing.T) {
	api := managementAPI(t)
	put(api, capiC, "default", "prod", old, map[string]any{"spec": map[string]any{"controlPlaneEndpoint": map[string]any{"host": "198.51.100.7", "port": 443}}})
	putBalancer(api, "api", old, `{"clusterRef":{"name":"prod"}}`)
	putBalancer(api, "late", young, `{"clusterName":"other","address":"198.51.100.7"}`)
	run(t, build(t, api, "a", withMachines))
	eventually(t, "adopted", func() bool {
		s := balancerStatus(api, "api")
		return s.Endpoint != nil && s.Endpoint.Port == 443 && s.Address == "198.51.100.7" && stands(s, "EndpointAssigned") == "True ClusterDecides"
	})
	eventually(t, "the younger one of the same address has none", func() bool {
		s := balancerStatus(api, "late")
		return stands(s, "EndpointAssigned") == "False NoAddress" && s.Address == ""
	})
	for _, r := range api.Requests() {
		if strings.HasPrefix(r, http.MethodPatch) && strings.Contains(r, "/clusters/") {
			t.Errorf("the Cluster was changed: %s", r)
		}
	}
	// The Cluster is not there any more, and a pool is.
	putPool(api, "edge", "192.0.2.10/31")
	api.Delete(capiC, "default", "prod")
	eventually(t, "it is noticed", func() bool {
		for _, c := range balancerStatus(api, "api").Conditions {
			if c.Type == v1alpha1.ConditionEndpointAssigned && strings.Contains(c.Message, "is not there now") {
				return true
			}
		}
		return false
	})
	if s := balancerStatus(api, "api"); s.Address != "198.51.100.7" || s.Endpoint == nil || s.Endpoint.Port != 443 || s.AddressPool != "" {
		t.Errorf("without the Cluster it has %+v", s)
	}
}

// TestMembersWithoutDaemons: members are listed before any daemon reports, states
// that daemons wrote stay, and Machines are annotated if that is asked for.
func TestMembersWithoutDaemons(t *testing.T) {
	api := managementAPI(t)
	putMachine(api, "m1", nil)
	putMachine(api, "m2", nil)
	putBalancer(api, "api", old, `{"clusterName":"prod","address":"192.0.2.10","annotateMembers":true}`)
	putBalancer(api, "theirs", old, `{"clusterName":"prod","providerRef":{"kind":"BigIP","name":"edge"}}`)
	run(t, build(t, api, "a", withMachines))
	eventually(t, "two that are pending", func() bool {
		s := balancerStatus(api, "api")
		return len(s.Members) == 2 && s.Members[0].State == v1alpha1.MemberPending && s.Status == "0 of 2 members healthy"
	})
	eventually(t, "the unknown provider", func() bool {
		s := balancerStatus(api, "theirs")
		return stands(s, "Accepted") == "False UnknownProvider" && len(s.Members) == 0 && s.Endpoint == nil
	})
	note := func(name string) string {
		v, _, _ := nested[map[string]any](api.Get(capiM, "default", name), "metadata", "annotations")
		return fmt.Sprintf("%v %v", v[machines.NameAnnotation], v[machines.StatusAnnotation])
	}
	eventually(t, "annotations", func() bool { return note("m1") == "api adding" && note("m2") == "api adding" })
	// A daemon reports.
	o := api.Get(balancers, "default", "api")
	members, _, _ := nested[[]any](o, "status", "members")
	members[0].(map[string]any)["state"] = "Active"
	o["status"].(map[string]any)["reportedBy"] = "cp1"
	api.Put(balancers, o)
	eventually(t, "the count and the annotation", func() bool {
		s := balancerStatus(api, "api")
		return s.Status == "1 of 2 members healthy" && s.Ready && s.Members[0].State == v1alpha1.MemberActive && note("m1") == "api active"
	})
	api.Delete(balancers, "default", "api")
	eventually(t, "no annotations", func() bool { return note("m1") == "<nil> <nil>" })
}

// TestForgottenHook: without any daemon a deletion goes on after its bound.
func TestForgottenHook(t *testing.T) {
	api := managementAPI(t)
	hook := map[string]any{"deletionTimestamp": time.Now().Add(-2 * time.Minute).UTC().Format(time.RFC3339),
		"annotations": map[string]any{machines.HookKey: "", machines.HookPrefix + "other": ""}}
	putMachine(api, "m1", hook)
	hook["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	putMachine(api, "m2", hook)
	run(t, build(t, api, "a", withMachines))
	held := func(name, hook string) bool {
		v, _, _ := nested[map[string]any](api.Get(capiM, "default", name), "metadata", "annotations")
		_, ok := v[hook]
		return ok
	}
	eventually(t, "the old one goes on", func() bool { return !held("m1", machines.HookKey) })
	if !held("m2", machines.HookKey) || !held("m1", machines.HookPrefix+"other") {
		t.Error("a hook was removed too soon, or that of somebody else")
	}
}

// TestNoQuarrel: a controller and a daemon with other rules write one status, agree
// in the end and then are silent.
func TestNoQuarrel(t *testing.T) {
	api := managementAPI(t)
	putMachine(api, "m1", map[string]any{"labels": map[string]any{"cluster.x-k8s.io/cluster-name": "prod", "cluster.x-k8s.io/control-plane": "", "own/drain": ""}})
	putMachine(api, "m2", map[string]any{"deletionTimestamp": old})
	putMachine(api, "m3", nil)
	for _, name := range []string{"m1", "m2"} {
		o := api.Get(capiM, "default", name)
		o["status"] = map[string]any{"nodeRef": map[string]any{"name": "cp-" + name}}
		api.Put(capiM, o)
	}
	putBalancer(api, "api", old, `{"clusterName":"prod","address":"192.0.2.10","annotateMembers":true}`)
	run(t, build(t, api, "a", withMachines))
	spec := &v1alpha1.MachinesSpec{DrainLabels: []string{"own/drain"}, DrainOnDeletion: new(false)}
	spec.Default()
	daemon := kmachines.New(kmachines.Options{Spec: spec, Self: "cp-m1", Connect: func() (*k8s.Client, error) {
		return k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = daemon.Run(ctx, func(func(*model.View)) {}) }()
	t.Cleanup(func() { cancel(); <-done })
	vip := netip.MustParseAddr("192.0.2.10")
	want := &model.Desired{Machines: model.MachinesState{Writer: true, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.11")}, Members: []model.MachineMember{
		{Node: "cp-m1", Draining: true}, {Node: "cp-m2", Standing: map[netip.Addr]model.Reason{vip: model.ReasonOwner}},
	}}}
	if _, err := daemon.Driver().Apply(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what the daemon says", func() bool {
		s := balancerStatus(api, "api")
		return len(s.Members) == 3 && s.Members[0].State == v1alpha1.MemberDraining && s.Members[1].State == v1alpha1.MemberActive &&
			s.Members[2].Reason == machines.MemberNotHeard && s.ReportedBy == "cp-m1" && stands(s, "Reachable") == "True Serving"
	})
	writes := func() (n int) {
		for _, r := range api.Requests() {
			if strings.HasPrefix(r, http.MethodPatch) && (strings.Contains(r, "machine") || strings.Contains(r, "cluster.x-k8s.io")) {
				n++
			}
		}
		return n
	}
	eventually(t, "silence for two seconds", func() bool {
		before := writes()
		time.Sleep(2 * time.Second)
		return writes() == before
	})
	if n := writes(); n > 15 {
		t.Errorf("%d writes", n)
	}
}
