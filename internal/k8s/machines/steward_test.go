package machines

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/machines"
)

// steward runs the part of a controller that leads, without pools.
func steward(t *testing.T, api *apitest.Server) {
	t.Helper()
	c, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	spec := &v1alpha1.MachinesSpec{}
	spec.Default()
	s := NewSteward(StewardOptions{Logger: slog.New(slog.DiscardHandler), Client: c, Manager: "m", Host: "h", Rules: machines.RulesOf(spec),
		Changed: func() {}, Pooled: func(netip.Addr) bool { return false }, Leads: func() bool { return true }})
	go s.Watch(t.Context())
	go s.Run(t.Context())
}

// TestAddressInUse: an older balancer does not get the address that a younger one has,
// until that is gone.
func TestAddressInUse(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, served())
	api.Put(resBalancers, object("b/api", `"metadata":{"creationTimestamp":"2026-02-02T03:04:05Z"},"spec":{"clusterName":"b","address":"10.0.0.201"}`))
	api.Put(resBalancers, object("a/api", `"spec":{"clusterName":"a","address":"10.0.0.200"}`))
	steward(t, api)
	eventually(t, "both have theirs", func() bool {
		return statusOf(api, "b/api").Address == "10.0.0.201" && statusOf(api, "a/api").Address == "10.0.0.200"
	})
	o := api.Get(resBalancers, "a", "api")
	merge(o, object("a/api", `"spec":{"address":"10.0.0.201"}`))
	api.Put(resBalancers, o)
	eventually(t, "the older one is told", func() bool {
		s := statusOf(api, "a/api")
		for _, c := range s.Conditions {
			if c.Type == v1alpha1.ConditionEndpointAssigned && strings.Contains(c.Message, "b/api") {
				return s.Address == ""
			}
		}
		return false
	})
	if s := statusOf(api, "b/api"); s.Address != "10.0.0.201" {
		t.Errorf("the one that used the address has %q", s.Address)
	}
	api.Delete(resBalancers, "b", "api")
	eventually(t, "the older one has it", func() bool { return statusOf(api, "a/api").Address == "10.0.0.201" })
}

// TestTwoFixedAddresses: both are written, the Cluster is told of the first; one that
// another balancer has is left out, and the first is not given away for it.
func TestTwoFixedAddresses(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, served())
	api.Put(resBalancers, object("b/api", `"spec":{"clusterName":"b","address":"fd00::201"}`))
	api.Put(resClusters, object("a/prod", `"spec":{}`))
	api.Put(resBalancers, object("a/api", `"metadata":{"creationTimestamp":"2026-02-02T03:04:05Z"},
		"spec":{"clusterRef":{"name":"prod"},"addresses":["10.0.0.200","fd00::200"]}`))
	steward(t, api)
	has := func(want ...string) func() bool {
		return func() bool {
			s := statusOf(api, "a/api")
			e, _, _ := unstructured.NestedString(api.Get(resClusters, "a", "prod"), "spec", "controlPlaneEndpoint", "host")
			return slices.Equal(s.Addresses, want) && s.Address == "10.0.0.200" && s.Endpoint != nil && s.Endpoint.Host == "10.0.0.200" && e == "10.0.0.200"
		}
	}
	eventually(t, "both are there", has("10.0.0.200", "fd00::200"))
	o := api.Get(resBalancers, "a", "api")
	merge(o, object("a/api", `"spec":{"addresses":["10.0.0.200","fd00::201"]}`))
	api.Put(resBalancers, o)
	eventually(t, "the first stays", has("10.0.0.200"))
	eventually(t, "the second is said to be another's", func() bool {
		return slices.ContainsFunc(statusOf(api, "a/api").Conditions, func(c v1alpha1.Condition) bool {
			return c.Type == v1alpha1.ConditionEndpointAssigned && strings.Contains(c.Message, "fd00::201 is that of MachineLoadBalancer b/api")
		})
	})
	api.Delete(resBalancers, "b", "api")
	eventually(t, "it is free", has("10.0.0.200", "fd00::201"))
}

// TestUnreadTargets: a controller that starts leaves members as they are until it has
// read what they are made of.
func TestUnreadTargets(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, servedHosts())
	read := make(chan struct{})
	release := sync.OnceFunc(func() { close(read) })
	t.Cleanup(release)
	api.Gate(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/hosts") {
			<-read
		}
		return 0
	})
	api.Put(resHosts, object("a/h1", aHost))
	api.Put(resBalancers, object("a/api", hostsLB+`,
		"status":{"address":"10.0.0.200","reportedBy":"cp1","ready":true,"memberCount":1,"healthyCount":1,"status":"1 of 1 members healthy",
		"members":[{"machine":"h1","namespace":"a","node":"cp1","state":"Active","reason":"Serving","since":"2026-01-02T03:04:05Z"}]}`))
	steward(t, api)
	serves := func() bool {
		s := statusOf(api, "a/api")
		return s.Ready && s.HealthyCount == 1 && len(s.Members) == 1 && s.Members[0].Reason == machines.MemberServing
	}
	eventually(t, "the endpoint is written", func() bool { return statusOf(api, "a/api").Endpoint != nil })
	time.Sleep(2 * statusPause)
	still := serves()
	release()
	if !still {
		t.Errorf("before the hosts were read: %+v", statusOf(api, "a/api"))
	}
	eventually(t, "the conditions of members", func() bool { return serves() && len(statusOf(api, "a/api").Conditions) > 2 })
}

// TestDeletionGoesOnWhileStatusesAreSlow: a held deletion whose bound is over does not
// wait until all statuses are written.
func TestDeletionGoesOnWhileStatusesAreSlow(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, served())
	read := make(chan struct{})
	release := sync.OnceFunc(func() { close(read) })
	t.Cleanup(release)
	api.Gate(func(r *http.Request) int {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status") {
			select {
			case <-read:
			case <-r.Context().Done():
			}
		}
		return 0
	})
	api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.1", deleted+`,"metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z","annotations":{"`+machines.HookKey+`":""}}`))
	for i := range 10 {
		api.Put(resBalancers, object(fmt.Sprintf("a/api%d", i), fmt.Sprintf(`"spec":{"clusterName":"prod","address":"10.0.0.%d"}`, 200+i)))
	}
	steward(t, api)
	held := func() bool {
		meta, _ := api.Get(resMachines, "a", "m1")["metadata"].(map[string]any)
		notes, _ := meta["annotations"].(map[string]any)
		_, ok := notes[machines.HookKey]
		return ok
	}
	begun := time.Now()
	eventually(t, "the deletion goes on", func() bool { return !held() })
	if n := len(api.Requests()); n > 0 {
		t.Logf("after %v and %d requests", time.Since(begun), n)
	}
	for _, r := range api.Requests() {
		if strings.HasPrefix(r, "PATCH") {
			if !strings.Contains(r, "/machines/m1") {
				t.Errorf("the first write was %s", r)
			}
			break
		}
	}
}

// TestHookIsRegistered: the hook is put on the members of a balancer that asks for it,
// and on no other Machine; one that is being deleted gets none.
func TestHookIsRegistered(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, served())
	api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.1", `"metadata":{"annotations":{"other":"kept"}}`))
	api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.2", deleted))
	api.Put(resMachines, object("a/worker", `"metadata":{"labels":{"cluster.x-k8s.io/cluster-name":"prod"}}`))
	api.Put(resMachines, object("b/m1", `"metadata":{"labels":{"cluster.x-k8s.io/cluster-name":"prod","cluster.x-k8s.io/control-plane":""}}`))
	api.Put(resBalancers, object("a/api", `"spec":{"clusterName":"prod","address":"10.0.0.200","drain":{"preDrainHook":"register"}}`))
	api.Put(resBalancers, object("b/api", `"spec":{"clusterName":"prod","address":"10.0.0.201"}`))
	steward(t, api)
	notes := func(path string) map[string]any {
		ns, name, _ := strings.Cut(path, "/")
		meta, _ := api.Get(resMachines, ns, name)["metadata"].(map[string]any)
		notes, _ := meta["annotations"].(map[string]any)
		return notes
	}
	has := func(path string) bool { _, ok := notes(path)[machines.HookKey]; return ok }
	eventually(t, "the member has the hook", func() bool { return has("a/m1") })
	eventually(t, "statuses are written", func() bool { return statusOf(api, "a/api").Endpoint != nil && statusOf(api, "b/api").Endpoint != nil })
	if notes("a/m1")["other"] != "kept" {
		t.Errorf("annotations %v", notes("a/m1"))
	}
	for _, other := range []string{"a/m2", "a/worker", "b/m1"} {
		ns, name, _ := strings.Cut(other, "/")
		if n := api.Versions(resMachines, ns, name); has(other) || n != 1 {
			t.Errorf("%s has the hook: %v, and was written %d times", other, has(other), n-1)
		}
	}
	if n := api.Versions(resMachines, "a", "m1"); n != 2 {
		t.Errorf("the Machine was written %d times", n-1)
	}
}

// TestHookTakenAwayByHand: the command of docs/cluster-api.md for when no controller is alive
// lets a deletion go on for good. The controller that comes back puts the hook on other members,
// and not on that one again.
func TestHookTakenAwayByHand(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/cluster-api.md")
	_, key, _ := strings.Cut(string(page), "Take the hook away by hand:\n")
	_, key, _ = strings.Cut(key, "kubectl annotate machine -n clusters NAME ")
	key, _, found := strings.Cut(key, "-\n")
	if err != nil || !found {
		t.Fatalf("the page has no such command: %v", err)
	}
	api := apitest.New(t, served())
	now := time.Now().UTC().Format(time.RFC3339)
	api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.1", `"metadata":{"deletionTimestamp":"`+now+`","annotations":{"`+machines.HookKey+`":""}}`))
	api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.2", ""))
	api.Put(resBalancers, object("a/api", `"spec":{"clusterName":"prod","address":"10.0.0.200","drain":{"preDrainHook":"register"}}`))
	r, err := http.NewRequest(http.MethodPatch, api.Config().Host+"/apis/cluster.x-k8s.io/v1beta2/namespaces/a/machines/m1",
		strings.NewReader(`{"metadata":{"annotations":{"`+key+`":null}}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/merge-patch+json") // as kubectl does
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	steward(t, api)
	has := func(name string) bool {
		meta, _ := api.Get(resMachines, "a", name)["metadata"].(map[string]any)
		notes, _ := meta["annotations"].(map[string]any)
		return notes[machines.HookKey] != nil
	}
	eventually(t, "the other member has the hook", func() bool { return has("m2") })
	eventually(t, "the status is written", func() bool { return statusOf(api, "a/api").Endpoint != nil })
	if n := api.Versions(resMachines, "a", "m1"); has("m1") || n != 2 {
		t.Errorf("the hook is there: %v; the Machine was written %d times, want once, by hand", has("m1"), n-1)
	}
}
