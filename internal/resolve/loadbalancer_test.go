package resolve

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// TestLoadBalancer: each field arrives, and each backend has a check of its own.
func TestLoadBalancer(t *testing.T) {
	l := &v1alpha1.LoadBalancer{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindLoadBalancer},
		Metadata: v1alpha1.ObjectMeta{Name: "api"},
		Spec: v1alpha1.LoadBalancerSpec{
			Addresses: []string{"fd00::200", "10.0.0.200"},
			Ports:     []v1alpha1.ForwardedPort{{Port: 443, TargetPort: 6443}, {Port: 53, Protocol: v1alpha1.ProtocolUDP}},
			Backends: []v1alpha1.Backend{
				{Address: "fd00::11", Port: 7443}, {Address: "10.0.0.12", Weight: new(int32(0))}, {Address: "10.0.0.11"},
			},
			HealthCheck: &v1alpha1.HealthCheck{HTTPS: &v1alpha1.HTTPSCheck{Port: 6443}, Interval: v1alpha1.Duration{Duration: time.Second}},
			Affinity:    v1alpha1.AffinityClient, OnFailure: v1alpha1.FailureKeep, AllowedSources: []string{"10.0.0.0/8"},
			NodeSelector: &v1alpha1.LabelSelector{MatchLabels: map[string]string{"box": "yes"}}, Preempt: true, Partition: v1alpha1.PartitionQuorum,
		},
	}
	l.Default()
	if errs := l.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	got, vips, checks := LoadBalancer(l, []model.Server{{Addr: netip.MustParseAddr("10.0.0.10"), Leaving: true}}, nil)
	want := model.LoadBalancer{
		Name: "api", VIPs: []netip.Addr{netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("fd00::200")},
		Ports: []model.ForwardPort{{Protocol: model.TCP, Port: 443, TargetPort: 6443}, {Protocol: model.UDP, Port: 53, TargetPort: 53}},
		Servers: []model.Server{
			{Addr: netip.MustParseAddr("10.0.0.10"), Leaving: true, Check: "api/10.0.0.10"},
			{Addr: netip.MustParseAddr("10.0.0.11"), Weight: 10, Check: "api/10.0.0.11"},
			{Addr: netip.MustParseAddr("10.0.0.12"), Check: "api/10.0.0.12"},
			{Addr: netip.MustParseAddr("fd00::11"), Port: 7443, Weight: 10, Check: "api/[fd00::11]:7443"},
		},
		ClientAffinity: true, KeepFailed: true, DrainTimeout: 30 * time.Second, AllowedSources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	for i := range vips {
		v := &vips[i]
		if !v.Forwarded() || v.Kind != v1alpha1.KindLoadBalancer || !v.Unbound || !v.L2 || !v.Preempt || v.Partition != model.PartitionQuorum || v.NodeSelector["box"] != "yes" || v.Check != "" {
			t.Errorf("%+v", v)
		}
		if !slices.Contains(got.VIPs, v.Addr) {
			t.Errorf("%s is no VIP of it", v.Addr)
		}
	}
	c := checks["api/[fd00::11]:7443"]
	if len(vips) != 2 || len(checks) != 4 || c.HTTPS == nil || c.HTTPS.Host != "fd00::11" || c.HTTPS.Port != 6443 || c.HTTPS.ServerName != "fd00::11" || c.Interval.Duration != time.Second {
		t.Errorf("%d VIPs, checks %+v", len(vips), checks)
	}
	if l.Spec.HealthCheck.HTTPS.Host != "" {
		t.Error("the object has changed")
	}
}
