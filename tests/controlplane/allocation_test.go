package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lbd.dev/lbd/tests/controlplane"
)

// pools has one of both families, one of IPv4 alone that only who asks for it
// gets, and one that is wrong.
const pools = `apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: both}
spec: {addresses: [192.0.2.0/24, "2001:db8::/120"]}
---
apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: four}
spec: {addresses: [198.51.100.10-198.51.100.12], autoAssign: false}
---
apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: overlaps}
spec: {addresses: [192.0.2.128/25]}
`

// office is a control plane with lbd's controllers and no node.
type office struct {
	*controlplane.ControlPlane
	client *kubernetes.Clientset
	lbd    *controlplane.LBD
}

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{ControlPlane: start(t, newLab(t, 0), controlplane.Options{})}
	var err error
	if o.client, err = o.Client(); err != nil {
		t.Fatal(err)
	}
	if o.lbd, err = o.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := o.Apply(t.Context(), strings.Split(pools, "---")[0]); err != nil { // the older of two that overlap
		t.Fatal(err)
	}
	if err := o.lbd.StartController(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := o.Apply(t.Context(), pools); err != nil {
		t.Fatal(err)
	}
	return o
}

// service is a Service of both families of lbd's class.
func (o *office) service(name string, change func(*corev1.Service)) *corev1.Service {
	s := o.LoadBalancer(name)
	class := controlplane.LoadBalancerClass
	s.Spec.LoadBalancerClass = &class
	s.Annotations = map[string]string{}
	if change != nil {
		change(s)
	}
	return s
}

func (o *office) create(ctx context.Context, s *corev1.Service) error {
	_, err := o.client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, s, metav1.CreateOptions{})
	return err
}

// status returns the addresses in the status of each Service that has some.
func (o *office) status(ctx context.Context) (map[string][]netip.Addr, error) {
	list, err := o.client.CoreV1().Services(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string][]netip.Addr{}
	for _, s := range list.Items {
		for _, in := range s.Status.LoadBalancer.Ingress {
			a, err := netip.ParseAddr(in.IP)
			if err != nil {
				return nil, fmt.Errorf("service %q: %w", s.Name, err)
			}
			all[s.Name] = append(all[s.Name], a)
		}
	}
	return all, nil
}

// served waits until the Service has n addresses.
func (o *office) served(t *testing.T, name string, n int) []netip.Addr {
	t.Helper()
	var got []netip.Addr
	err := controlplane.Eventually(t.Context(), 20*time.Second, name+" has addresses", func() error {
		all, err := o.status(t.Context())
		if got = all[name]; err == nil && len(got) != n {
			err = fmt.Errorf("it has %v, want %d", got, n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// events are those of lbd about an object; kube-apiserver has some of its own.
func (o *office) events(ctx context.Context, kind, name string) ([]corev1.Event, error) {
	list, err := o.client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		return !strings.HasPrefix(e.Source.Component, "lbd") && !strings.HasPrefix(e.ReportingController, "lbd")
	}), nil
}

// TestAllocation: who asks for what it can have has it, and everybody else is told
// by one event which rule is in the way, and stops nobody.
func TestAllocation(t *testing.T) {
	t.Parallel() // it measures nothing
	o := newOffice(t)
	annotate := func(pairs ...string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			for i := 0; i < len(pairs); i += 2 {
				s.Annotations[pairs[i]] = pairs[i+1]
			}
		}
	}
	for _, x := range []struct {
		name   string
		change func(*corev1.Service)
		want   []string // addresses; "" is any
	}{
		{"plain", nil, []string{"", ""}},
		{"asked", annotate("lbd.dev/loadBalancerIPs", "192.0.2.77,2001:db8::77"), []string{"192.0.2.77", "2001:db8::77"}},
		{"metallb", annotate("metallb.io/loadBalancerIPs", "192.0.2.78,2001:db8::78"), []string{"192.0.2.78", "2001:db8::78"}},
		{"pool", func(s *corev1.Service) {
			annotate("lbd.dev/address-pool", "four")(s)
			oneFamily(s)
		}, []string{"198.51.100.10"}},
		{"field", func(s *corev1.Service) {
			oneFamily(s)
			s.Spec.LoadBalancerIP = "192.0.2.79"
		}, []string{"192.0.2.79"}},
		{"share1", annotate("lbd.dev/loadBalancerIPs", "192.0.2.80,2001:db8::80", "lbd.dev/allow-shared-ip", "k"), []string{"192.0.2.80", "2001:db8::80"}},
		{"share2", func(s *corev1.Service) {
			annotate("metallb.io/loadBalancerIPs", "192.0.2.80,2001:db8::80", "metallb.io/allow-shared-ip", "k")(s)
			s.Spec.Ports[0].Port = 81
		}, []string{"192.0.2.80", "2001:db8::80"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			if err := o.create(t.Context(), o.service(x.name, x.change)); err != nil {
				t.Fatal(err)
			}
			got := o.served(t, x.name, len(x.want))
			for i, want := range x.want {
				if want != "" && got[i].String() != want {
					t.Errorf("addresses %v, want %v", got, x.want)
				}
			}
		})
	}
	for _, x := range []struct {
		name, rule string
		change     func(*corev1.Service)
	}{
		{"outside", "NotInPool", annotate("lbd.dev/loadBalancerIPs", "203.0.113.1,2001:db8::1")},
		{"used", "InUse", annotate("lbd.dev/loadBalancerIPs", "192.0.2.77,2001:db8::1")},
		{"otherkey", "SharingKey", annotate("lbd.dev/loadBalancerIPs", "192.0.2.80,2001:db8::80", "lbd.dev/allow-shared-ip", "other")},
		{"sameport", "PortInUse", annotate("lbd.dev/loadBalancerIPs", "192.0.2.80,2001:db8::80", "lbd.dev/allow-shared-ip", "k")},
		{"nopool", "UnknownPool", annotate("lbd.dev/address-pool", "none")},
		{"garbage", "BadAnnotation", annotate("lbd.dev/loadBalancerIPs", "192.0.2.300")},
		{"onlyfour", "FamilyMissing", func(s *corev1.Service) {
			annotate("lbd.dev/address-pool", "four")(s)
			require := corev1.IPFamilyPolicyRequireDualStack
			s.Spec.IPFamilyPolicy = &require
		}},
	} {
		t.Run(x.name, func(t *testing.T) { o.testRefused(t, x.name, x.rule, x.change) })
	}
	t.Run("class of another", func(t *testing.T) {
		o.testUntouched(t, o.service("foreign", func(s *corev1.Service) { *s.Spec.LoadBalancerClass = "example.com/lb" }))
		o.testUntouched(t, o.service("classless", func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil }))
	})
	t.Run("pools", o.testPools)
	t.Run("kept", o.testKept)
}

func oneFamily(s *corev1.Service) {
	one := corev1.IPFamilyPolicySingleStack
	s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &one, []corev1.IPFamily{corev1.IPv4Protocol}
}

// testRefused: one event, which begins with the rule, and no address.
func (o *office) testRefused(t *testing.T, name, rule string, change func(*corev1.Service)) {
	if err := o.create(t.Context(), o.service(name, change)); err != nil {
		t.Fatal(err)
	}
	var failed []corev1.Event
	err := controlplane.Eventually(t.Context(), 15*time.Second, "an event", func() error {
		all, err := o.events(t.Context(), "Service", name)
		failed = slices.DeleteFunc(all, func(e corev1.Event) bool { return e.Reason != "AllocationFailed" })
		if err == nil && len(failed) == 0 {
			err = fmt.Errorf("there is none but %v", all)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range failed {
		t.Logf("%s %s: %s", e.Type, e.Reason, e.Message)
		if e.Type != corev1.EventTypeWarning || !strings.HasPrefix(e.Message, rule) {
			t.Errorf("event %s %q, want a warning of the rule %s", e.Type, e.Message, rule)
		}
		if len(failed) > 1 || e.Count > 1 {
			t.Errorf("%d events, of which one %d times, want one", len(failed), e.Count)
		}
	}
	all, err := o.status(t.Context())
	if err != nil || len(all[name]) > 0 {
		t.Errorf("it has the addresses %v: %v", all[name], err)
	}
}

// testUntouched: a Service that is not lbd's has no address and no event.
func (o *office) testUntouched(t *testing.T, s *corev1.Service) {
	if err := o.create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	// A Service after it is served, so this one was seen.
	after := o.service("after-"+s.Name, nil)
	if err := o.create(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	o.served(t, after.Name, 2)
	all, err := o.status(t.Context())
	events, err2 := o.events(t.Context(), "Service", s.Name)
	if err != nil || err2 != nil || len(all[s.Name]) > 0 || len(events) > 0 {
		t.Errorf("%s: addresses %v, events %v, %v, %v", s.Name, all[s.Name], events, err, err2)
	}
}

// testPools: a pool that overlaps an older one is not used and says so; the status
// of the others counts.
func (o *office) testPools(t *testing.T) {
	type pool struct {
		Status struct {
			AssignedIPv4 uint64 `json:"assignedIPv4"`
			Conditions   []metav1.Condition
		}
	}
	get := func(name string) (p pool, err error) {
		out, err := o.Kubectl(t.Context(), "get", "ipaddresspool", name, "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &p)
		}
		return p, err
	}
	err := controlplane.Eventually(t.Context(), 15*time.Second, "conditions and counts", func() error {
		bad, err := get("overlaps")
		if err != nil {
			return err
		}
		if c := condition(bad.Status.Conditions, "Accepted"); c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, `"both"`) {
			return fmt.Errorf("pool overlaps: conditions %+v", bad.Status.Conditions)
		}
		good, err := get("both")
		if err != nil {
			return err
		}
		if c := condition(good.Status.Conditions, "Accepted"); c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("pool both: conditions %+v", good.Status.Conditions)
		}
		all, err := o.status(t.Context())
		if err != nil {
			return err
		}
		want := map[netip.Addr]bool{}
		for _, addrs := range all {
			for _, a := range addrs {
				if netip.MustParsePrefix("192.0.2.0/24").Contains(a) {
					want[a] = true
				}
			}
		}
		if good.Status.AssignedIPv4 != uint64(len(want)) {
			return fmt.Errorf("pool both: %d assigned, want %d", good.Status.AssignedIPv4, len(want))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	out, err := o.Kubectl(t.Context(), "get", "ipaddresspools")
	if err != nil {
		t.Error(err)
	}
	t.Logf("kubectl get ipaddresspools\n%s", out)
}

func condition(all []metav1.Condition, kind string) *metav1.Condition {
	if i := slices.IndexFunc(all, func(c metav1.Condition) bool { return c.Type == kind }); i >= 0 {
		return &all[i]
	}
	return nil
}

// testKept: a Service keeps its addresses though its pool loses them, and though
// the controller dies.
func (o *office) testKept(t *testing.T) {
	before, err := o.status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shrunk := strings.ReplaceAll(strings.Split(pools, "---")[0], "192.0.2.0/24", "192.0.2.0/26")
	if err := o.Apply(t.Context(), shrunk); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if err := o.lbd.Controllers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := o.lbd.Controllers[0].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := o.create(t.Context(), o.service("afterwards", nil)); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	o.served(t, "afterwards", 2) // the Lease of the one that was killed has run out
	t.Logf("a Service is served %v after the controller was killed and started", time.Since(from).Round(100*time.Millisecond))
	after, err := o.status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, addrs := range before {
		if !slices.Equal(after[name], addrs) {
			t.Errorf("%s had %v and has %v", name, addrs, after[name])
		}
	}
}

// TestTwoControllers: while Services are created the controller that leads ends,
// then the other is killed, then the API server. All Services get addresses, none of
// them twice, and none changes.
func TestTwoControllers(t *testing.T) {
	t.Parallel() // it measures nothing
	o := newOffice(t)
	if err := o.lbd.StartController(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, second, api := o.lbd.Controllers[0], o.lbd.Controllers[1], o.APIServers[0]
	for i, fault := range []struct {
		name   string
		do     func() error
		within time.Duration // from the fault until all have addresses
	}{
		{"leader stopped", func() error { return first.Stop(5 * time.Second) }, 3 * time.Second},
		// Its Lease of 15 seconds has to run out.
		{"leader killed", func() error { return errors.Join(first.Start(t.Context()), second.Kill()) }, 18 * time.Second},
		{"kube-apiserver killed", func() error { return errors.Join(api.Kill(), api.Launch()) }, 8 * time.Second},
	} {
		t.Run(fault.name, func(t *testing.T) {
			const services = 40
			var faulty time.Time
			for n := range services {
				o.insist(t, o.service(fmt.Sprintf("s%d-%d", i, n), nil))
				if n == services/4 {
					if err := fault.do(); err != nil {
						t.Fatal(err)
					}
					faulty = time.Now()
				}
			}
			o.allServed(t, (i+1)*services)
			took := time.Since(faulty)
			t.Logf("%d Services have addresses %v after the fault", services, took.Round(100*time.Millisecond))
			if took > slack*fault.within {
				t.Errorf("all Services have addresses %v after the fault, want %v at most", took, slack*fault.within)
			}
		})
	}
}

// insist creates a Service, though the API server may be away.
func (o *office) insist(t *testing.T, s *corev1.Service) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 30*time.Second, "create "+s.Name, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := o.create(ctx, s)
		if apierrors.IsAlreadyExists(err) {
			return nil // the answer to an earlier attempt was lost
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// allServed waits until n Services have addresses, and wants no address twice, and
// none to change while it looks.
func (o *office) allServed(t *testing.T, n int) {
	t.Helper()
	seen := map[string][]netip.Addr{}
	err := controlplane.Eventually(t.Context(), 45*time.Second, "all Services have addresses", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all, err := o.status(ctx)
		if err != nil {
			return err
		}
		owner := map[netip.Addr]string{}
		for name, addrs := range all {
			if len(addrs) != 2 {
				return fmt.Errorf("%s has %v", name, addrs)
			}
			if old, ok := seen[name]; ok && !slices.Equal(old, addrs) {
				t.Errorf("%s had %v and has %v", name, old, addrs)
			}
			seen[name] = addrs
			for _, a := range addrs {
				if other, twice := owner[a]; twice {
					t.Errorf("%s is with %s and %s", a, name, other)
				}
				owner[a] = name
			}
		}
		if len(all) != n {
			return fmt.Errorf("%d of %d have", len(all), n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
