package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/k8s/lease"
)

const (
	resource = "v1/services"
	pools    = "lbd.dev/v1alpha1/ipaddresspools"
	adverts  = "lbd.dev/v1alpha1/l2advertisements"
)

func newAPI(t testing.TB) *apitest.Server {
	return apitest.New(t, map[string]string{
		resource: "Service", "v1/namespaces": "Namespace", "v1/nodes": "Node", "v1/events": "Event",
		pools: "IPAddressPool", adverts: "L2Advertisement", "coordination.k8s.io/v1/leases": "Lease",
	})
}

// process is one controller.
type process struct {
	*Controller
	stop func()
}

func build(t testing.TB, api *apitest.Server, identity string, change ...func(*Options)) *Controller {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil)).With("process", identity)
	client, err := k8s.NewFor(api.Config(), k8s.Options{UserAgent: identity, QPS: 5000, Burst: 5000})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Logger: log, Client: client, Namespace: "lbd-system", LeaseName: "lbd-controller", Identity: identity,
		Allocator: allocator.Options{Class: "lbd.dev/lbd", Quarantine: time.Minute},
	}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run starts a controller, which ends with the test at the latest.
func run(t testing.TB, c *Controller) *process {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	p := &process{c, func() { cancel(); <-done }}
	t.Cleanup(p.stop)
	return p
}

func service(name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Annotations: map[string]string{"other": "kept"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("lbd.dev/lbd"), IPFamilies: []corev1.IPFamily{"IPv4"},
			IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack), Ports: []corev1.ServicePort{{Protocol: "TCP", Port: 80}},
		},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func shows(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		for _, ip := range ips {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}
}

func putPool(api *apitest.Server, name string, addresses ...string) {
	api.Put(pools, map[string]any{"metadata": map[string]any{"name": name, "uid": "uid-" + name}, "spec": map[string]any{"addresses": addresses}})
}

// status is what the status of a Service has; "" for nothing.
func status(api *apitest.Server, name string) string {
	list, _, _ := nested[[]any](api.Get(resource, "default", name), "status", "loadBalancer", "ingress")
	var ips []string
	for _, x := range list {
		ip, _ := x.(map[string]any)["ip"].(string)
		ips = append(ips, ip)
	}
	return strings.Join(ips, " ")
}

func nested[T any](o map[string]any, path ...string) (T, bool, error) {
	var v any = o
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return *new(T), false, nil
		}
		v = m[p]
	}
	x, ok := v.(T)
	return x, ok, nil
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("after 30 s still not: %s", what)
}

// patches are the requests that write statuses of Services.
func patches(api *apitest.Server) (n int) {
	for _, r := range api.Requests() {
		if strings.HasPrefix(r, "PATCH ") && strings.Contains(r, "/services/") {
			n++
		}
	}
	return n
}

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
	st := p.Stats()
	if st.Services != 2 || st.Writes["ok"] != 1 || st.Assigned != 1 || len(st.Pools) != 1 || st.Pools[0].IPv4.Assigned != 1 {
		t.Errorf("stats %+v", st)
	}
	api.Delete(resource, "default", "web")
	eventually(t, "the address rests", func() bool { return p.Stats().Released == 1 })
}

func condition(api *apitest.Server, pool, kind string) string {
	list, _, _ := nested[[]any](api.Get(pools, "", pool), "status", "conditions")
	for _, x := range list {
		if m := x.(map[string]any); m["type"] == kind {
			return m["status"].(string)
		}
	}
	return ""
}

// told are the events in the API, in short.
func told(api *apitest.Server) (list []string) {
	for _, e := range api.All("v1/events") {
		ref := e["involvedObject"].(map[string]any)
		ns, _ := ref["namespace"].(string)
		list = append(list, fmt.Sprintf("%v %s/%v %v %v: %v", ref["kind"], ns, ref["name"], e["type"], e["reason"], e["message"]))
	}
	return list
}

// TestJudge: an object that asks for what is not there says so, with one event, until
// it is there.
func TestJudge(t *testing.T) {
	api := newAPI(t)
	advert := func(name string, pools ...string) {
		api.Put(adverts, map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"ipAddressPools": pools}})
	}
	accepted := func(name string) string {
		list, _, _ := nested[[]any](api.Get(adverts, "", name), "status", "conditions")
		for _, x := range list {
			m := x.(map[string]any)
			return fmt.Sprint(m["type"], " ", m["status"], " ", m["reason"], ": ", m["message"])
		}
		return ""
	}
	advert("good")
	advert("early", "late")
	advert("wrong", "Not A Name")
	p := run(t, build(t, api, "a"))
	eventually(t, "good is accepted", func() bool { return strings.HasPrefix(accepted("good"), "Accepted True Accepted: ") })
	eventually(t, "early names nothing", func() bool {
		return strings.HasPrefix(accepted("early"), "Accepted False Problem: ") && strings.Contains(accepted("early"), `"late"`)
	})
	eventually(t, "wrong is wrong", func() bool {
		return strings.HasPrefix(accepted("wrong"), "Accepted False Invalid: spec.ipAddressPools[0]: ")
	})
	putPool(api, "late", "192.0.2.0/30")
	eventually(t, "early is accepted", func() bool { return strings.HasPrefix(accepted("early"), "Accepted True ") })
	said := func() (list []string) {
		for _, e := range told(api) {
			if strings.HasPrefix(e, "L2Advertisement /early ") {
				list = append(list, e)
			}
		}
		slices.Sort(list)
		return list
	}
	eventually(t, "two events", func() bool { return len(said()) == 2 })
	if list := said(); !strings.Contains(list[0], "Normal ObjectAccepted: ") || !strings.Contains(list[1], "Warning ObjectProblem: Problem: ") {
		t.Errorf("events %q", list)
	}
	p.stop()
	before := len(api.Requests())
	b := run(t, build(t, api, "b"))
	eventually(t, "b leads", func() bool { return b.Stats().Leader })
	time.Sleep(300 * time.Millisecond)
	for _, r := range api.Requests()[before:] {
		if strings.HasPrefix(r, "PATCH ") && strings.Contains(r, "/l2advertisements/") {
			t.Errorf("the next leader writes again: %s", r)
		}
	}
}

// TestJudgeWaits: a pool that is read late does not look missing.
func TestJudgeWaits(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/30")
	api.Put(adverts, map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"ipAddressPools": []string{"p"}}})
	api.Put("lbd.dev/v1alpha1/bgppeers", map[string]any{"metadata": map[string]any{"name": "r"}, "spec": map[string]any{
		"myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.9", "bfdProfile": "fast"}})
	api.Put("lbd.dev/v1alpha1/bfdprofiles", map[string]any{"metadata": map[string]any{"name": "fast"}, "spec": map[string]any{}})
	api.Gate(func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/bfdprofiles") {
			time.Sleep(500 * time.Millisecond)
		}
		return 0
	})
	api.Serve("lbd.dev/v1alpha1/bgppeers", "BGPPeer")
	api.Serve("lbd.dev/v1alpha1/bfdprofiles", "BFDProfile")
	run(t, build(t, api, "x"))
	eventually(t, "the peer is accepted", func() bool {
		list, _, _ := nested[[]any](api.Get("lbd.dev/v1alpha1/bgppeers", "", "r"), "status", "conditions")
		return len(list) == 1 && list[0].(map[string]any)["status"] == "True"
	})
	for _, e := range told(api) {
		if strings.Contains(e, "ObjectProblem") || strings.Contains(e, "ObjectAccepted") {
			t.Errorf("event %s", e)
		}
	}
}

// TestSilent: a Service with an address that no advertisement covers is told so once,
// and one that asks lbd under the class of another too.
func TestSilent(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/30")
	run(t, build(t, api, "a"))
	said := func(name string) (list []string) {
		for _, e := range told(api) {
			if strings.HasPrefix(e, "Service default/"+name+" Warning ") {
				list = append(list, e)
			}
		}
		return list
	}
	api.Put(resource, service("web"))
	api.Put(resource, service("other", func(s *corev1.Service) {
		s.Spec.LoadBalancerClass, s.Annotations = new("other"), map[string]string{"lbd.dev/address-pool": "p"}
	}))
	api.Put(resource, service("mine", func(s *corev1.Service) {
		s.Spec.LoadBalancerClass, s.Annotations = new("other"), map[string]string{"metallb.io/address-pool": "p"}
	}))
	eventually(t, "events", func() bool { return len(said("web")) == 1 && len(said("other")) == 1 })
	if got := said("web")[0]; !strings.Contains(got, "NotAnnounced: no L2Advertisement") || !strings.Contains(got, "192.0.2.0 is not announced") {
		t.Error(got)
	}
	if got := said("other")[0]; !strings.Contains(got, `ClassNotServed: spec.loadBalancerClass is "other"`) {
		t.Error(got)
	}
	// Changes that change nothing about it are no news.
	for i := range 3 {
		api.Put(resource, service("web", shows("192.0.2.0"), func(s *corev1.Service) {
			s.Labels = map[string]string{"n": fmt.Sprint(i)}
			s.Annotations[allocator.AllocatedFrom] = "192.0.2.0=p"
		}))
		api.Put(adverts, map[string]any{"metadata": map[string]any{"name": "far"}, "spec": map[string]any{
			"ipAddressPools": []string{"q"}, "interfaces": []string{fmt.Sprint("eth", i)}}})
		time.Sleep(judgePause)
	}
	if len(said("web")) != 1 || len(said("other")) != 1 || len(said("mine")) != 0 {
		t.Errorf("%q, %q, %q", said("web"), said("other"), said("mine"))
	}
	// Covered, and not any more: that is news.
	api.Put(adverts, map[string]any{"metadata": map[string]any{"name": "near"}, "spec": map[string]any{}})
	eventually(t, "it is judged", func() bool {
		list, _, _ := nested[[]any](api.Get(adverts, "", "near"), "status", "conditions")
		return len(list) > 0
	})
	api.Delete(adverts, "", "near")
	eventually(t, "another event", func() bool { return len(said("web")) == 2 })
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
	if st := p.Stats(); st.Writes["conflict"] != 1 {
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
	c.services = k8s.NewWatch(k8s.WatchOptions[allocator.Service]{
		Name: "services", Object: &corev1.Service{}, Convert: convertService, Same: sameService, Changed: c.changes.service,
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

type noStream struct{}

func (noStream) IsWatchListSemanticsUnSupported() bool { return true }

// holding is a Lease that can be lost.
type holding struct {
	lost atomic.Bool
}

func (h *holding) Get(context.Context) (lease.Record, error) {
	return lease.Record{Version: "1"}, h.err()
}
func (h *holding) Create(_ context.Context, r lease.Record) (lease.Record, error) {
	return r, h.err()
}
func (h *holding) Update(_ context.Context, r lease.Record) (lease.Record, error) {
	return r, h.err()
}

func (h *holding) err() error {
	if h.lost.Load() {
		return errors.New("cut off")
	}
	return nil
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
	eventually(t, "the lease is lost", func() bool { return !c.elector.Valid() })
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
	if status(api, "one") != "192.0.2.0" || p.Stats().Assigned != 2 {
		t.Errorf("one has %q, %d assigned", status(api, "one"), p.Stats().Assigned)
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
