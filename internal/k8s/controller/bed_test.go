package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
