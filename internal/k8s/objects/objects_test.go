package objects

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/model"
)

func served() map[string]string {
	kinds := make(map[string]string)
	for kind, r := range resources {
		kinds["lbd.dev/v1alpha1/"+r] = kind
	}
	return kinds
}

const (
	pools = "lbd.dev/v1alpha1/ipaddresspools"
	peers = "lbd.dev/v1alpha1/bgppeers"
)

func peer(name string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": name},
		"spec": map[string]any{"myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1", "holdTime": "30s"}}
}

func pool(name string, labels map[string]string, addresses ...string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": name, "labels": labels, "uid": "1-2-3", "annotations": map[string]any{"a": "b"},
			"managedFields": []any{map[string]any{"manager": "kubectl"}}, "creationTimestamp": "2026-01-02T03:04:05Z"},
		"spec":   map[string]any{"addresses": addresses},
		"status": map[string]any{"assignedIPv4": 3},
	}
}

// start returns a Set at work, and the number of changes of pools.
func start(t *testing.T, api *apitest.Server) (*Set, *k8s.Client, *atomic.Int64) {
	t.Helper()
	return startFor(t, api, v1alpha1.KindIPAddressPool)
}

// startFor is start, with the number of changes of one kind.
func startFor(t *testing.T, api *apitest.Server, counted string) (*Set, *k8s.Client, *atomic.Int64) {
	t.Helper()
	c, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	n := new(atomic.Int64)
	s := NewSet(c, func(kind string, _ []model.Key) {
		if kind == counted {
			n.Add(1)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s, c, n
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("after 30 s still not: %s", what)
}

// TestVirtualIPOfAClusterRunsNoProgram: whoever may create a VirtualIP must not run
// programs on every node. One from before the definition refused it is not used either.
func TestVirtualIPOfAClusterRunsNoProgram(t *testing.T) {
	api := apitest.New(t, served())
	api.Put("lbd.dev/v1alpha1/virtualips", map[string]any{"metadata": map[string]any{"name": "evil"}, "spec": map[string]any{
		"addresses": []any{"203.0.113.7"}, "healthCheck": map[string]any{"exec": map[string]any{"command": []any{"/usr/bin/lbd", "cleanup", "--force"}}},
	}})
	s, _, _ := start(t, api)
	eventually(t, "synced", s.Synced)
	o := s.Objects()
	want := "spec.healthCheck.exec: is for files only: an object of a cluster cannot run programs on hosts"
	if len(o.VirtualIPs) != 0 || len(o.Invalid) != 1 || len(o.Invalid[0].Errors) != 1 || o.Invalid[0].Errors[0].Error() != want {
		t.Errorf("in use %v, refused %+v", o.VirtualIPs, o.Invalid)
	}
}

// TestOneNotFoundKeepsObjects: one attempt to read one kind is not found while the API server has
// it, and no session with a router ends, no pool is gone. client-go asks for a stream and then for
// a list before it gives up.
func TestOneNotFoundKeepsObjects(t *testing.T) {
	for kind, known := range map[string]func(Objects) int{
		v1alpha1.KindIPAddressPool: func(o Objects) int { return len(o.Pools) },
		v1alpha1.KindBGPPeer:       func(o Objects) int { return len(o.Peers) },
	} {
		t.Run(resources[kind], func(t *testing.T) {
			api := apitest.New(t, served())
			api.Put(pools, pool("a", nil, "192.0.2.64/28"))
			api.Put(peers, peer("r"))
			s, _, changes := startFor(t, api, kind)
			connected := func() bool { return s.States()[resources[kind]].Connected }
			eventually(t, "watched", func() bool { return s.Synced() && changes.Load() == 2 && connected() })
			told := changes.Load()
			var wrong atomic.Int64
			api.Gate(func(r *http.Request) int {
				if strings.HasSuffix(r.URL.Path, "/"+resources[kind]) && wrong.Add(1) <= 2 {
					return http.StatusNotFound
				}
				return 0
			})
			api.Fail(http.StatusServiceUnavailable) // ends the watches
			api.Fail(0)
			eventually(t, "watched again", func() bool { return wrong.Load() > 2 && connected() })
			if n := changes.Load(); n != told || known(s.Objects()) != 1 {
				t.Errorf("%d changes told after one 404, %d known", n-told, known(s.Objects()))
			}
		})
	}
}

func TestObjects(t *testing.T) {
	api := apitest.New(t, served())
	api.Put(pools, pool("b", map[string]string{"zone": "x"}, "192.0.2.0/28"))
	api.Put(pools, pool("a", nil, "192.0.2.64/28"))
	api.Put(pools, pool("wrong", nil, "192.0.2.300/28"))
	api.Put(pools, map[string]any{"metadata": map[string]any{"name": "strange"}, "spec": map[string]any{"addresses": 5}})
	api.Put(peers, peer("r"))
	s, _, changes := start(t, api)
	eventually(t, "synced", s.Synced)
	o := s.Objects()
	if len(o.Pools) != 2 || o.Pools[0].Metadata.Name != "a" || o.Pools[1].Metadata.Labels["zone"] != "x" || !*o.Pools[0].Spec.AutoAssign {
		t.Errorf("pools %+v", o.Pools)
	}
	if len(o.Pools) > 0 && len(o.Pools[0].Metadata.Annotations) > 0 {
		t.Error("annotations are kept")
	}
	if len(o.Peers) != 1 || o.Peers[0].Spec.HoldTime.Duration != 30*time.Second || o.Peers[0].Spec.PeerPort != 179 {
		t.Errorf("peers %+v", o.Peers)
	}
	got := ""
	for _, i := range o.Invalid {
		got += fmt.Sprintf("%s %s: %v\n", i.Kind, i.Name, i.Errors[0].Path)
	}
	if got != "IPAddressPool strange: spec\nIPAddressPool wrong: spec.addresses[0]\n" {
		t.Errorf("invalid:\n%s", got)
	}

	// A change of the status is none; a mended spec is one.
	eventually(t, "what was read first is told", func() bool { return changes.Load() == 2 })
	status := pool("a", nil, "192.0.2.64/28")
	status["status"] = map[string]any{"assignedIPv4": 4}
	api.Put(pools, status)
	api.Put(pools, pool("wrong", nil, "192.0.2.128/28"))
	eventually(t, "the wrong one is mended", func() bool { return len(s.Objects().Pools) == 3 })
	eventually(t, "the change is told", func() bool { return changes.Load() >= 3 })
	if got := changes.Load() - 2; got != 1 {
		t.Errorf("%d changes, want 1", got)
	}
}

// TestWithoutDefinitions: a cluster without our definitions has no objects.
func TestWithoutDefinitions(t *testing.T) {
	api := apitest.New(t, map[string]string{pools: v1alpha1.KindIPAddressPool})
	api.Put(pools, pool("a", nil, "192.0.2.64/28"))
	s, _, _ := start(t, api)
	eventually(t, "synced", s.Synced)
	if o := s.Objects(); len(o.Pools) != 1 {
		t.Errorf("objects %+v", o)
	}
	if st := s.States(); st["ipaddresspools"].Absent || !st["bgppeers"].Absent {
		t.Errorf("states %+v", st)
	}
}

func TestWriter(t *testing.T) {
	api := apitest.New(t, served())
	api.Put(pools, pool("a", nil, "192.0.2.64/28"))
	s, c, changes := start(t, api)
	eventually(t, "synced", s.Synced)
	eventually(t, "what was read first is told", func() bool { return changes.Load() == 2 })
	clock := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	w := &Writer{Client: c.Dynamic, Manager: "lbd-test", Now: func() time.Time { return clock }}
	write := func(status, message string) bool {
		t.Helper()
		o, _ := s.Pools.Get(model.Key{Name: "a"})
		sent, err := w.Write(t.Context(), v1alpha1.KindIPAddressPool, "a", o.Conditions,
			[]v1alpha1.Condition{{Type: "Accepted", Status: v1alpha1.ConditionStatus(status), Reason: "R", Message: message, ObservedGeneration: 1}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return sent
	}
	seen := func(message string) v1alpha1.Condition {
		t.Helper()
		var got v1alpha1.Condition
		eventually(t, "the condition says "+message, func() bool {
			o, _ := s.Pools.Get(model.Key{Name: "a"})
			if len(o.Conditions) != 1 {
				return false
			}
			got = o.Conditions[0]
			return got.Message == message
		})
		return got
	}
	if !write("True", "one") {
		t.Error("the first condition was not written")
	}
	first := seen("one")
	if first.LastTransitionTime != clock.Truncate(time.Second) {
		t.Errorf("last transition %v", first.LastTransitionTime)
	}
	clock = clock.Add(time.Hour)
	if write("True", "one") {
		t.Error("the same condition was written again")
	}
	write("True", "two")
	if got := seen("two"); got.LastTransitionTime != first.LastTransitionTime {
		t.Errorf("a new message moved the last transition to %v", got.LastTransitionTime)
	}
	write("False", "three")
	if got := seen("three"); got.LastTransitionTime != clock.Truncate(time.Second) {
		t.Errorf("a new status left the last transition at %v", got.LastTransitionTime)
	}
	if got := changes.Load() - 2; got != 0 {
		t.Errorf("conditions count as %d changes", got)
	}
	found := false
	for _, r := range api.Requests() {
		found = found || strings.HasPrefix(r, http.MethodPatch+" /apis/lbd.dev/v1alpha1/ipaddresspools/a/status?fieldManager=lbd-test&force=true")
	}
	if !found {
		t.Errorf("no apply in %q", api.Requests())
	}
	if _, err := w.Write(t.Context(), v1alpha1.KindIPAddressPool, "none", nil, []v1alpha1.Condition{{Type: "Accepted"}}, nil); err == nil {
		t.Error("a missing object has a status")
	}
}

// TestTenants: of a Service of a tenant its addresses are known, of which only the status tells, and
// two clusters may have objects of one name.
func TestTenants(t *testing.T) {
	api := apitest.New(t, served())
	const kind = "lbd.dev/v1alpha1/tenantservices"
	put := func(namespace string, nodePort int, address string) {
		api.Put(kind, map[string]any{
			"metadata": map[string]any{"namespace": namespace, "name": "default.web", "creationTimestamp": "2026-01-02T03:04:05Z"},
			"spec":     map[string]any{"ports": []any{map[string]any{"port": 80, "nodePort": nodePort}}},
			"status":   map[string]any{"addresses": []any{map[string]any{"address": address, "pool": "public"}}},
		})
	}
	put("shop", 30080, "192.0.2.1")
	put("bank", 30081, "192.0.2.2")
	put("evil", 0, "192.0.2.3")
	s, _, _ := start(t, api)
	eventually(t, "synced", s.Synced)
	o := s.Objects()
	for namespace, want := range map[string]string{"shop": "[192.0.2.1]", "bank": "[192.0.2.2]"} {
		x := o.TenantServices[model.Key{Namespace: namespace, Name: "default.web"}]
		if x == nil || fmt.Sprint(x.Given) != want || x.Created.IsZero() || x.Spec.Source != v1alpha1.SourceVIP {
			t.Errorf("%s: %+v, want %s", namespace, x, want)
		}
	}
	if len(o.TenantServices) != 2 || len(o.Invalid) != 1 || o.Invalid[0].Name != "evil/default.web" {
		t.Errorf("%d, invalid %+v", len(o.TenantServices), o.Invalid)
	}
}
