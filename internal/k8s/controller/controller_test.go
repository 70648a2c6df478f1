package controller

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
)

// TestController follows one Service from its creation to its end.
func TestController(t *testing.T) {
	api := newAPI(t)
	p := run(t, build(t, api, "a"))
	api.Put("v1/nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.0.2.0"}, {Type: corev1.NodeHostName, Address: "n"}}}})
	putPool(api, "p", "192.0.2.0/30")
	putPool(api, "wrong", "192.0.2.300/30")
	eventually(t, "leads", func() bool { return p.Stats().Leader && p.Ready() == nil && p.Healthy() == nil })
	eventually(t, "the pool says that it holds a node's address", func() bool {
		return condition(api, "p", "HoldsNodeAddress") == "True" && condition(api, "p", "Accepted") == "True" && condition(api, "wrong", "Accepted") == "False"
	})
	api.Put(resource, service("web"))
	api.Put(resource, service("other", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("other") }))
	api.Put(resource, service("cluster", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }))
	eventually(t, "the Service has an address", func() bool { return status(api, "web") == "192.0.2.1" })
	o := api.Get(resource, "default", "web")
	mark, _, _ := nested[string](o, "metadata", "annotations", allocator.AllocatedFrom)
	kept, _, _ := nested[string](o, "metadata", "annotations", "other")
	ports, _, _ := nested[[]any](o, "spec", "ports")
	if mark != "192.0.2.1=p" || kept != "kept" || len(ports) != 1 {
		t.Errorf("mark %q, annotation %q, ports %v", mark, kept, ports)
	}
	eventually(t, "the event", func() bool {
		return slices.Contains(told(api), `Service default/web Normal IPAllocated: assigned 192.0.2.1 from pool "p"`)
	})
	eventually(t, "the counts", func() bool {
		n, _, _ := nested[float64](api.Get(pools, "", "p"), "status", "assignedIPv4")
		free, _, _ := nested[float64](api.Get(pools, "", "p"), "status", "availableIPv4")
		return n == 1 && free == 2
	})
	eventually(t, "the event about the pool", func() bool {
		return slices.ContainsFunc(told(api), func(s string) bool { return strings.HasPrefix(s, "IPAddressPool /wrong Warning PoolProblem: ") })
	})
	if status(api, "other")+status(api, "cluster") != "" || patches(api) != 1 {
		t.Errorf("other %q, cluster %q, %d patches", status(api, "other"), status(api, "cluster"), patches(api))
	}
	eventually(t, "the stats", func() bool {
		st := p.Stats()
		return st.Services == 2 && st.Writes["ok"] == 1 && st.Assigned == 1 && len(st.Pools) == 1 && st.Pools[0].IPv4.Assigned == 1
	})
	api.Delete(resource, "default", "web")
	eventually(t, "the address rests", func() bool { return p.Stats().Released == 1 })
}

// TestTwo: the second one waits, and takes over what the first one did without a
// write.
func TestTwo(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/30")
	x, y := build(t, api, "a"), build(t, api, "b") // both first: a client sets the logger of the process
	a := run(t, x)
	eventually(t, "a leads", func() bool { return a.Stats().Leader })
	b := run(t, y)
	for i := range 3 {
		api.Put(resource, service(fmt.Sprint("s", i)))
	}
	eventually(t, "all have addresses", func() bool { return status(api, "s0") != "" && status(api, "s1") != "" && status(api, "s2") != "" })
	eventually(t, "b is ready", func() bool { return b.Ready() == nil })
	if b.Stats().Leader {
		t.Error("b leads too")
	}
	before := []string{status(api, "s0"), status(api, "s1"), status(api, "s2")}
	a.stop()
	eventually(t, "b leads", func() bool { return b.Stats().Leader })
	api.Put(resource, service("s3"))
	eventually(t, "the fourth has one", func() bool { return status(api, "s3") == "192.0.2.3" })
	if after := []string{status(api, "s0"), status(api, "s1"), status(api, "s2")}; !slices.Equal(before, after) || patches(api) != 4 {
		t.Errorf("before %v, after %v, %d patches", before, after, patches(api))
	}
}

// TestFailures: a write that fails, conflicts, or whose answer is lost, is tried
// again until the status is as decided.
func TestFailures(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/30")
	codes := []int{500, 409, 404, 503, 403}
	var mu sync.Mutex
	api.Gate(func(r *http.Request) int {
		mu.Lock()
		defer mu.Unlock()
		if r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "/services/") || len(codes) == 0 {
			return 0
		}
		c := codes[0]
		codes = codes[1:]
		return c
	})
	p := run(t, build(t, api, "a"))
	api.Put(resource, service("web"))
	eventually(t, "the Service has an address", func() bool { return status(api, "web") == "192.0.2.0" })
	eventually(t, "it is counted", func() bool {
		st := p.Stats()
		return st.Writes["error"] == 3 && st.Writes["conflict"] == 2 && st.Writes["ok"] == 1
	})
	eventually(t, "one event", func() bool { return len(told(api)) >= 1 })
	if list := told(api); len(list) != 1 {
		t.Errorf("events %q", list)
	}
}

// TestVersion: a decision about an old version of a Service is not written.
func TestVersion(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/30")
	first := true
	api.Gate(func(r *http.Request) int {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/services/") && first {
			first = false // while the request is under way, the user asks for something else
			api.Put(resource, service("web", func(s *corev1.Service) { s.Annotations["metallb.io/loadBalancerIPs"] = "192.0.2.3" }))
		}
		return 0
	})
	p := run(t, build(t, api, "a"))
	api.Put(resource, service("web"))
	eventually(t, "the Service has the address it asks for", func() bool { return status(api, "web") == "192.0.2.3" })
	if st := p.Stats(); st.Writes["conflict"] == 0 { // more if the watch is behind
		t.Errorf("writes %v", st.Writes)
	}
}

// TestStaleCache: a leader whose watch is behind starts from what the API server
// has, and does not fall back to what the watch still says.
func TestStaleCache(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/30")
	old := service("a")
	api.Put(resource, old)
	old.ResourceVersion = "1"
	api.Put(resource, service("b"))
	api.Put(resource, service("a", shows("192.0.2.0"), func(s *corev1.Service) { s.Annotations[allocator.AllocatedFrom] = "192.0.2.0=p" }))
	gone := service("gone", shows("192.0.2.1"))
	gone.ResourceVersion = "1"
	c := build(t, api, "x")
	stale := watch.NewFake()
	c.services = k8s.NewWatch(k8s.WatchOptions[watched]{
		Name: "services", Object: &corev1.Service{}, Convert: convertWatched, Same: sameWatched, Changed: c.changes.service,
		ListWatch: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Service{*old, *gone}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return stale, nil },
		}, noStream{}),
	})
	begin := time.Now()
	run(t, c)
	eventually(t, "b has an address", func() bool { return status(api, "b") != "" })
	if a, b := status(api, "a"), status(api, "b"); a != "192.0.2.0" || b != "192.0.2.1" {
		t.Errorf("a has %q, b %q", a, b)
	}
	time.Sleep(200 * time.Millisecond)
	if n := patches(api); n > 8+int(time.Since(begin)/time.Second) { // b, and ever fewer in vain for the Service that is gone
		t.Errorf("%d patches", n)
	}
	// What comes by the watch is older than what was read.
	stale.Modify(service("a", func(s *corev1.Service) { s.ResourceVersion = "2" }))
	stale.Delete(gone)
	eventually(t, "the Service that is gone is forgotten", func() bool { return c.Stats().Services == 2 })
	if a := status(api, "a"); a != "192.0.2.0" {
		t.Errorf("a has %q", a)
	}
}

// TestLost: without the Lease nothing is written, and with it again all is.
func TestLost(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/30")
	h := &holding{}
	c := build(t, api, "a", func(o *Options) { o.Lease = h })
	c.elector = lease.New(lease.Options{Logger: c.o.Logger, API: h, Identity: "a", Duration: time.Second, Deadline: 300 * time.Millisecond, Retry: 50 * time.Millisecond})
	run(t, c)
	api.Put(resource, service("one"))
	eventually(t, "one has an address", func() bool { return status(api, "one") != "" })
	h.lost.Store(true)
	eventually(t, "the lease is lost", func() bool { return !c.elector.Valid() && !c.Stats().Leader })
	api.Put(resource, service("two"))
	time.Sleep(300 * time.Millisecond)
	if got := status(api, "two"); got != "" || c.Stats().Leader {
		t.Errorf("two has %q without the lease; leads: %t", got, c.Stats().Leader)
	}
	h.lost.Store(false)
	eventually(t, "two has an address", func() bool { return status(api, "two") == "192.0.2.1" })
}

// TestOutage: the API server dies while Services wait; all is made good after it.
func TestOutage(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/28")
	h := &holding{}
	p := run(t, build(t, api, "a", func(o *Options) { o.Lease = h }))
	api.Put(resource, service("one"))
	eventually(t, "one has an address", func() bool { return status(api, "one") == "192.0.2.0" })
	api.Stop()
	api.Put(resource, service("two"))
	time.Sleep(100 * time.Millisecond)
	api.Start()
	eventually(t, "two has an address", func() bool { return status(api, "two") == "192.0.2.1" })
	eventually(t, "both are counted", func() bool { return p.Stats().Assigned == 2 })
	if got := status(api, "one"); got != "192.0.2.0" {
		t.Errorf("one has %q", got)
	}
}

// TestMany: 2000 Services that wait when a controller starts.
func TestMany(t *testing.T) {
	const n = 2000
	api := newAPI(t)
	putPool(api, "p", "10.0.0.0/16")
	for i := range n {
		api.Put(resource, service(fmt.Sprint("s", i)))
	}
	h := &holding{}
	begun := time.Now()
	p := run(t, build(t, api, "a", func(o *Options) { o.Lease = h }))
	for p.Stats().Writes["ok"] < n {
		if time.Since(begun) > 4*time.Minute {
			t.Fatalf("%d after 4 minutes", p.Stats().Writes["ok"])
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%d Services have addresses after %v", n, time.Since(begun).Round(time.Millisecond))
	seen := map[string]bool{}
	for i := range n {
		ip := status(api, fmt.Sprint("s", i))
		if ip == "" || seen[ip] {
			t.Fatalf("s%d has %q", i, ip)
		}
		seen[ip] = true
	}
	if w := p.Stats().Writes; w["ok"] != n || w["error"]+w["conflict"] != 0 {
		t.Errorf("writes %v", w)
	}
}
