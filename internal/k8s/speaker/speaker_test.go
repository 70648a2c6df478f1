package speaker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
)

const (
	resServices  = "v1/services"
	resNodes     = "v1/nodes"
	resSlices    = "discovery.k8s.io/v1/endpointslices"
	resPools     = "lbd.dev/v1alpha1/ipaddresspools"
	resL2        = "lbd.dev/v1alpha1/l2advertisements"
	resVIPs      = "lbd.dev/v1alpha1/virtualips"
	resBalancers = "lbd.dev/v1alpha1/loadbalancers"
	resPeers     = "lbd.dev/v1alpha1/bgppeers"
)

func kinds() map[string]string {
	return map[string]string{
		resServices: "Service", resNodes: "Node", resSlices: "EndpointSlice", resPools: "IPAddressPool", resL2: "L2Advertisement",
		resVIPs: "VirtualIP", resPeers: "BGPPeer", "lbd.dev/v1alpha1/bfdprofiles": "BFDProfile",
		"lbd.dev/v1alpha1/communities": "Community", "lbd.dev/v1alpha1/bgpadvertisements": "BGPAdvertisement",
	}
}

// bed is a Source and what it has published.
type bed struct {
	*Source
	t   *testing.T
	api *apitest.Server

	mu        sync.Mutex // guards all below
	view      model.View
	published int
	checks    []map[string]v1alpha1.HealthCheck
	peers     [][]netip.Addr
}

func run(t *testing.T, api *apitest.Server, change func(*Options)) *bed {
	t.Helper()
	b := &bed{t: t, api: api, view: model.View{Synced: map[model.SourceName]bool{}}}
	o := Options{
		Services: services.Options{Self: "n1", Class: "lbd.dev/lbd"},
		Connect: func() (*k8s.Client, error) {
			return k8s.NewFor(api.Config(), k8s.Options{UserAgent: "lbd-speaker", QPS: 1000, Burst: 1000})
		},
		OnChange: func(r services.Result) { b.lock(func() { b.checks = append(b.checks, r.Checks) }) },
		OnPeers:  func(p []netip.Addr) { b.lock(func() { b.peers = append(b.peers, p) }) },
	}
	if change != nil {
		change(&o)
	}
	b.Source = New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Run(ctx, func(f func(*model.View)) { b.lock(func() { f(&b.view); b.published++ }) }); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

func (b *bed) lock(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// vips writes the VIPs of the View in one line.
func (b *bed) vips() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, v := range b.view.VIPs {
		s := v.Addr.String() + "=" + v.Name
		if v.Barred != model.ReasonOwner {
			s += "/" + v.Barred.String()
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func (b *bed) eventually(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	b.t.Fatalf("after 30 s still not: %s; VIPs %q, status %+v", what, b.vips(), b.Status())
}

func (b *bed) become(want string) {
	b.t.Helper()
	b.eventually(want, func() bool { return b.vips() == want })
}

func node1(name string, labels map[string]string, addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func lb(name string, local bool, addrs ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.LoadBalancerClass = new("lbd.dev/lbd")
	if local {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	for _, a := range addrs {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	return s
}

// endpointsOf is an EndpointSlice with one ready endpoint on each node.
func endpointsOf(service string, nodes ...string) *discoveryv1.EndpointSlice {
	e := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service + "-x",
		Labels: map[string]string{discoveryv1.LabelServiceName: service}}, AddressType: discoveryv1.AddressTypeIPv4}
	for _, n := range nodes {
		e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{NodeName: &n, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	return e
}

func custom(name string, spec map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": name}, "spec": spec}
}

// cluster is one with a pool that every node announces, and two Nodes.
func cluster(t *testing.T) *apitest.Server {
	api := apitest.New(t, kinds())
	api.Put(resNodes, node1("n1", map[string]string{"zone": "a"}, "10.0.0.1", "fd00::1"))
	api.Put(resNodes, node1("n2", nil, "fd00::2", "10.0.0.2"))
	api.Put(resPools, custom("a", map[string]any{"addresses": []string{"192.0.2.0/24"}}))
	api.Put(resL2, custom("all", map[string]any{}))
	return api
}

func TestSource(t *testing.T) {
	api := cluster(t)
	api.Put(resServices, lb("web", false, "192.0.2.1"))
	api.Put(resSlices, endpointsOf("web", "n2"))
	b := run(t, api, nil)
	b.become("192.0.2.1=default/web")
	if b.lock(func() {
		if !b.view.Synced[model.SourceKube] || b.view.Labels["zone"] != "a" || b.published != 1 || !b.view.VIPs[0].Unbound {
			t.Errorf("view %+v, published %d times", b.view, b.published)
		}
	}); !b.Status().Connected || !b.Status().Synced || b.Status().Err != "" {
		t.Errorf("status %+v", b.Status())
	}

	// A new Service, its address, its endpoints, as they come in a cluster.
	api.Put(resServices, lb("db", true))
	api.Put(resServices, lb("db", true, "192.0.2.2"))
	b.become("192.0.2.1=default/web 192.0.2.2=default/db/NoEndpoint")
	api.Put(resSlices, endpointsOf("db", "n1"))
	b.become("192.0.2.1=default/web 192.0.2.2=default/db")
	api.Put(resSlices, endpointsOf("db", "n2"))
	b.become("192.0.2.1=default/web 192.0.2.2=default/db/NoEndpoint")
	api.Delete(resServices, "default", "db")
	b.become("192.0.2.1=default/web")
	drained := node1("n1", map[string]string{"zone": "a", services.ExcludeLabel: ""}, "10.0.0.1")
	api.Put(resNodes, drained)
	b.become("192.0.2.1=default/web/NodeExcluded")
	api.Put(resNodes, node1("n1", map[string]string{"zone": "b"}, "10.0.0.1"))
	b.become("192.0.2.1=default/web")
	b.eventually("the label of the Node", func() bool {
		zone := ""
		b.lock(func() { zone = b.view.Labels["zone"] })
		return zone == "b"
	})
	api.Put(resVIPs, custom("api", map[string]any{"addresses": []string{"10.9.9.9"}, "healthCheck": map[string]any{"tcp": map[string]any{"port": 6443}}}))
	b.become("10.9.9.9=api 192.0.2.1=default/web")
	b.lock(func() {
		if last := b.checks[len(b.checks)-1]; last["api"].TCP == nil {
			t.Errorf("checks %v", b.checks)
		}
	})
	api.Delete(resPools, "", "a")
	b.become("10.9.9.9=api")
	if p := b.Status().Problems; len(p) != 1 || p[0].Name != "default/web" {
		t.Errorf("problems %+v", p)
	}
}

// TestOnlyWhatCounts: changes of what is not used are not published.
func TestOnlyWhatCounts(t *testing.T) {
	api := cluster(t)
	api.Put(resServices, lb("web", false, "192.0.2.1"))
	api.Put(resSlices, endpointsOf("web", "n2"))
	b := run(t, api, nil)
	b.become("192.0.2.1=default/web")
	n := node1("n1", map[string]string{"zone": "a"}, "10.0.0.1", "fd00::1")
	for i := range 5 {
		n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		n.Annotations = map[string]string{"x": fmt.Sprint(i)}
		api.Put(resNodes, n)
		api.Put(resSlices, endpointsOf("web", slices.Repeat([]string{"n2"}, i+1)...))
		other := lb("other", false, fmt.Sprintf("198.51.100.%d", i))
		other.Spec.LoadBalancerClass = nil
		api.Put(resServices, other)
		s := lb("web", false, "192.0.2.1")
		s.Annotations = map[string]string{"x": fmt.Sprint(i)}
		api.Put(resServices, s)
		time.Sleep(2 * Coalesce)
	}
	b.lock(func() {
		if b.published != 1 {
			t.Errorf("published %d times", b.published)
		}
	})
	for _, r := range api.Requests() {
		switch {
		case strings.Contains(r, "/services?") && !strings.Contains(r, "fieldSelector=spec.type%3DLoadBalancer"):
			t.Errorf("%s reads every Service", r)
		case strings.Contains(r, "/endpointslices?") && !strings.Contains(r, "headless"):
			t.Errorf("%s reads headless Services", r)
		}
	}
}

// TestOutage: all stays, and what has changed comes at once when the API server is
// back, without a publication of what was before.
func TestOutage(t *testing.T) {
	api := cluster(t)
	for i := range 5 {
		name := fmt.Sprintf("s%d", i)
		api.Put(resServices, lb(name, false, fmt.Sprintf("192.0.2.%d", i+1)))
		api.Put(resSlices, endpointsOf(name, "n2"))
	}
	b := run(t, api, nil)
	all := "192.0.2.1=default/s0 192.0.2.2=default/s1 192.0.2.3=default/s2 192.0.2.4=default/s3 192.0.2.5=default/s4"
	b.become(all)
	api.Stop()
	b.eventually("disconnected", func() bool { return !b.Status().Connected })
	if st := b.Status(); st.Err == "" || !st.Synced || time.Since(st.Since) > 10*time.Second {
		t.Errorf("status %+v", st)
	}
	api.Delete(resServices, "default", "s1")
	time.Sleep(time.Second)
	before := 0
	b.lock(func() { before = b.published })
	if b.vips() != all || before != 1 {
		t.Errorf("in the outage %q, published %d times", b.vips(), before)
	}
	api.Start()
	b.become(strings.Replace(all, "192.0.2.2=default/s1 ", "", 1))
	b.eventually("connected", func() bool { return b.Status().Connected })
	b.lock(func() {
		if b.published != 2 {
			t.Errorf("published %d times", b.published)
		}
	})
}

// TestStartWithoutServer: nothing is published until all has been read, neither
// while the kubeconfig is missing nor while the server is.
func TestStartWithoutServer(t *testing.T) {
	api := cluster(t)
	api.Put(resServices, lb("web", false, "192.0.2.1"))
	api.Put(resSlices, endpointsOf("web", "n2"))
	api.Fail(http.StatusServiceUnavailable)
	var there atomic.Bool // the kubeconfig
	b := run(t, api, func(o *Options) {
		connect := o.Connect
		o.Connect = func() (*k8s.Client, error) {
			if !there.Load() {
				return nil, errors.New("no such file")
			}
			return connect()
		}
	})
	b.eventually("the reason is known", func() bool { return b.Status().Err == "no such file" && !b.Status().Connected })
	there.Store(true)
	b.eventually("the reason is the server", func() bool { return strings.Contains(b.Status().Err, "on request of the test") })
	b.lock(func() {
		if b.published > 0 || len(b.checks)+len(b.peers) > 0 {
			t.Errorf("published %d times without a server", b.published)
		}
	})
	if st := b.Status(); st.Synced || st.Connected {
		t.Errorf("status %+v", st)
	}
	api.Fail(0)
	b.become("192.0.2.1=default/web")
	b.eventually("connected", func() bool { return b.Status().Connected })
}

// TestPublishesWhole: nothing is published of a part.
func TestPublishesWhole(t *testing.T) {
	served := kinds()
	delete(served, resSlices)
	api := apitest.New(t, served)
	api.Put(resNodes, node1("n1", nil, "10.0.0.1"))
	api.Put(resPools, custom("a", map[string]any{"addresses": []string{"192.0.2.0/24"}}))
	api.Put(resL2, custom("all", map[string]any{}))
	api.Put(resServices, lb("web", false, "192.0.2.1"))
	b := run(t, api, nil)
	b.eventually("what lacks", func() bool { return strings.Contains(b.Status().Err, "endpointslices") })
	time.Sleep(time.Second)
	b.lock(func() {
		if b.published > 0 || len(b.checks) > 0 {
			t.Errorf("published %d times without endpoints", b.published)
		}
	})
	if st := b.Status(); st.Connected || st.Synced {
		t.Errorf("status %+v", st)
	}
	api.Serve(resSlices, "EndpointSlice")
	api.Put(resSlices, endpointsOf("web", "n1"))
	b.become("192.0.2.1=default/web")
}

func TestPeersFromNodes(t *testing.T) {
	api := cluster(t)
	api.Put(resNodes, node1("n3", map[string]string{"role": "edge"}, "10.0.0.3"))
	want := func(b *bed, want string) {
		t.Helper()
		b.eventually("peers "+want, func() bool {
			got := ""
			b.lock(func() {
				if n := len(b.peers); n > 0 {
					got = fmt.Sprint(b.peers[n-1])
				}
			})
			return got == want
		})
	}
	b := run(t, api, nil)
	want(b, "[10.0.0.1 10.0.0.2 10.0.0.3]") // one of each, of the family of our first
	edge := run(t, api, func(o *Options) {
		o.PeerSelector = v1alpha1.Selector{MatchLabels: map[string]string{"role": "edge"}}
	})
	want(edge, "[10.0.0.3]")
	api.Put(resNodes, node1("n2", map[string]string{"role": "edge"}, "10.0.0.2"))
	want(edge, "[10.0.0.2 10.0.0.3]")
	api.Delete(resNodes, "", "n3")
	want(edge, "[10.0.0.2]")
	want(b, "[10.0.0.1 10.0.0.2]")
	api.Stop()
	time.Sleep(300 * time.Millisecond)
	want(b, "[10.0.0.1 10.0.0.2]")
}

// TestPasswordFiles: a session waits for its password, and follows it.
func TestPasswordFiles(t *testing.T) {
	api := cluster(t)
	file := filepath.Join(t.TempDir(), "password")
	api.Put(resPeers, custom("r", map[string]any{"myASN": 64512, "peerASN": 64513, "peerAddress": "10.0.0.254", "passwordFile": file}))
	b := run(t, api, nil)
	password := func() string {
		out := "no peer"
		b.lock(func() {
			if len(b.view.Peers) == 1 {
				out = b.view.Peers[0].Password
			}
		})
		return out
	}
	b.read()
	if got := b.Status().Problems; password() != "no peer" || len(got) != 1 || !strings.Contains(got[0].Text, "cannot be read") {
		t.Errorf("peer %q, problems %v", password(), got)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 81)), 0o600); err != nil { // too long for TCP MD5
		t.Fatal(err)
	}
	time.Sleep(LookEvery + 10*Coalesce)
	if got := password(); got != "no peer" {
		t.Errorf("a bad password: %q", got)
	}
	for _, p := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(p+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.eventually("the password "+p, func() bool { return password() == p })
	}
	for _, p := range b.Status().Problems {
		if strings.Contains(p.Text, "two") {
			t.Error("a problem shows the password")
		}
	}
}

func TestInvalidObjects(t *testing.T) {
	api := cluster(t)
	api.Put(resPools, custom("bad", map[string]any{"addresses": []string{"x"}}))
	b := run(t, api, nil)
	b.read()
	if p := b.Status().Problems; len(p) != 1 || p[0].Kind != "IPAddressPool" || p[0].Name != "bad" || !strings.HasPrefix(p[0].Text, "spec.addresses[0]: ") {
		t.Errorf("problems %+v", p)
	}
	api.Put(resPools, custom("bad", map[string]any{"addresses": []string{"203.0.113.0/24"}}))
	b.eventually("mended", func() bool { return len(b.Status().Problems) == 0 })
}

// TestVirtualIPWithoutCheckIsInTheStatus: a warning is no problem, and goes away with
// its cause.
func TestVirtualIPWithoutCheckIsInTheStatus(t *testing.T) {
	api := cluster(t)
	api.Put(resVIPs, custom("api", map[string]any{"addresses": []string{"198.51.100.1"}}))
	b := run(t, api, nil)
	b.read()
	st := b.Status()
	if w := st.Warnings; len(w) != 1 || w[0].Kind != "VirtualIP" || w[0].Name != "api" || !strings.HasPrefix(w[0].Text, "spec.healthCheck: ") {
		t.Errorf("warnings %+v", w)
	}
	if len(st.Problems) != 0 {
		t.Errorf("problems %+v", st.Problems)
	}
	api.Put(resVIPs, custom("api", map[string]any{"addresses": []string{"198.51.100.1"}, "healthCheck": map[string]any{"tcp": map[string]any{"port": 80}}}))
	b.eventually("mended", func() bool { return len(b.Status().Warnings) == 0 })
}

func TestConvert(t *testing.T) {
	t.Run("Service", func(t *testing.T) {
		s := lb("x", true, "192.0.2.1", "", "bad", "192.0.2.1", "2001:db8::1")
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{Hostname: "h"})
		got, ok := service(s)
		if !ok || got.Class != "lbd.dev/lbd" || !got.Local || fmt.Sprint(got.Addresses) != "[192.0.2.1 2001:db8::1]" {
			t.Errorf("%+v", got)
		}
		s.Spec.Type = corev1.ServiceTypeClusterIP
		if _, ok := service(s); ok {
			t.Error("of another type")
		}
	})
	t.Run("EndpointSlice", func(t *testing.T) {
		e := endpointsOf("x")
		here, there := "n1", "n2"
		for _, c := range []struct {
			node           *string
			ready, serving *bool
			want           services.Endpoints
		}{
			{&here, new(true), nil, services.ReadyHere | services.ServingHere},
			{&there, nil, nil, services.ReadyElsewhere | services.ServingElsewhere},
			{nil, new(true), new(true), services.ReadyElsewhere | services.ServingElsewhere},
			{&here, new(false), nil, 0},
			{&here, new(false), new(true), services.ServingHere},
			{&here, new(false), new(false), 0},
		} {
			e.Endpoints = []discoveryv1.Endpoint{{NodeName: c.node, Conditions: discoveryv1.EndpointConditions{Ready: c.ready, Serving: c.serving}}}
			if got, _ := slice("n1")(e); got.Endpoints != c.want || got.IPv6 || got.Service != (model.Key{Namespace: "default", Name: "x"}) {
				t.Errorf("%+v: got %+v", c, got)
			}
		}
		e.AddressType = discoveryv1.AddressTypeFQDN
		if _, ok := slice("n1")(e); ok {
			t.Error("of names")
		}
	})
	t.Run("Node", func(t *testing.T) {
		n := node1("x", map[string]string{"a": "b"}, "10.0.0.1")
		n.Annotations = map[string]string{services.DrainKey: "", "other": "x"}
		n.Spec = corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: services.TaintOutOfService}, {Key: "other"}}}
		n.DeletionTimestamp = new(metav1.Now())
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue})
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "1.2.3.4"})
		got, _ := node(n)
		want := &services.Node{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{services.DrainKey: ""}, Ready: "True",
			NetworkUnavailable: true, Unschedulable: true, Deleting: true, Taints: []string{services.TaintOutOfService}, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v", got)
		}
	})
}
