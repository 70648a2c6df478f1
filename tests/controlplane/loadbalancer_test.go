package controlplane_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// Figures of a Service, which hold on an idle machine; tests allow slack times as
// much.
const (
	createdWithin = time.Second            // created to reachable in both families, the slowest
	followsWithin = 500 * time.Millisecond // the last endpoint of a node moves to another: the owner follows
	diesWithin    = time.Second            // the owner's node dies: all of its addresses are reachable
)

// TestLoadBalancerCreated measures how long a Service takes from its creation
// until the client reaches both of its addresses.
func TestLoadBalancerCreated(t *testing.T) {
	f := newFleet(t)
	given := map[netip.Addr]string{}
	reachable := f.createOneByOne(t, "web", 20, given)
	if worst := slices.Max(reachable); worst > slack*createdWithin {
		t.Errorf("a Service was reachable after %v, want %v at most", worst, slack*createdWithin)
	}
	f.settled(t)
	owners := map[string]int{}
	for _, n := range f.owners(t, f.nodes[0]) {
		owners[n]++
	}
	t.Logf("addresses of each node: %v", owners)
	if len(owners) != len(f.nodes) {
		t.Errorf("%d addresses are owned by %v, want some on each node", len(given), owners)
	}
	f.testAnswered(t, slices.Collect(maps.Keys(given)))
	f.testDeleted(t)
	// What people see who leave kube-proxy at its defaults.
	for _, n := range f.nodes {
		if err := n.Proxy.Stop(5 * time.Second); err != nil {
			t.Fatal(err)
		}
		if err := n.StartProxy(t.Context(), "nftables", 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("kube-proxy at its defaults:")
	f.createOneByOne(t, "slow", 5, given)
}

// testAnswered: who comes when the announcements are over, asks by ARP or ND and is
// answered.
func (f *fleet) testAnswered(t *testing.T, vips []netip.Addr) {
	if _, err := f.Lab.Exec(t.Context(), f.Lab.Client, "ip", "neigh", "flush", "dev", "eth0"); err != nil {
		t.Fatal(err)
	}
	took := f.reachable(t, time.Now(), vips)
	t.Logf("asked anew: %s", spread(took))
	if worst := slices.Max(took); worst > slack*250*time.Millisecond {
		t.Errorf("an address was found after %v, want %v at most", worst, slack*250*time.Millisecond)
	}
}

// createOneByOne creates Services and returns how long each took to be reachable
// at all of its addresses.
func (f *fleet) createOneByOne(t *testing.T, prefix string, services int, given map[netip.Addr]string) (reachable []time.Duration) {
	t.Helper()
	var allocated []time.Duration
	for i := range services {
		s := f.loadBalancer(fmt.Sprintf("%s%d", prefix, i))
		from := time.Now()
		f.create(t, s, f.pods...)
		var vips []netip.Addr
		err := poll(t.Context(), func() (err error) {
			vips, err = f.addresses(t.Context(), s.Name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		allocated = append(allocated, time.Since(from))
		for _, vip := range vips {
			if err := poll(t.Context(), func() error { _, err := f.ask(t.Context(), vip); return err }); err != nil {
				t.Fatalf("%s: %v", vip, err)
			}
			if other, twice := given[vip]; twice {
				t.Errorf("%s is given to %s and %s", vip, other, s.Name)
			}
			given[vip] = s.Name
		}
		reachable = append(reachable, time.Since(from))
	}
	t.Logf("created to allocated: %s", spread(allocated))
	t.Logf("created to reachable: %s", spread(reachable))
	return reachable
}

// testDeleted: what is announced for a Service ends with it.
func (f *fleet) testDeleted(t *testing.T) {
	vips, err := f.addresses(t.Context(), "web0")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.client.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), "web0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eyes, err := f.Lab.Open(vips)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = eyes.Close() }()
	err = controlplane.Eventually(t.Context(), 10*time.Second, "nobody claims the addresses of a deleted Service", func() error {
		for _, vip := range vips {
			if names := eyes.Claimants(vip, 10*measure.AskEvery); len(names) > 0 || len(eyes.Attempts(vip)) < 100 {
				return fmt.Errorf("%s is claimed by %v", vip, names)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// Its addresses are not given away at once: a client may still think of it.
	s := f.loadBalancer("next")
	for _, vip := range f.serve(t, s, f.pods...) {
		if slices.Contains(vips, vip) {
			t.Errorf("%s was given to another Service at once", vip)
		}
	}
}

// poll tries often, for 30 seconds.
func poll(ctx context.Context, check func() error) error {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := check()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
	}
}

func spread(d []time.Duration) string {
	s := slices.Sorted(slices.Values(d))
	return fmt.Sprintf("median %v, worst of %d %v", s[len(s)/2].Round(time.Millisecond), len(s), s[len(s)-1].Round(time.Millisecond))
}

// TestLoadBalancerLocal: with externalTrafficPolicy Local the owner is a node with
// an endpoint, and follows it.
func TestLoadBalancerLocal(t *testing.T) {
	f := newFleet(t)
	s := f.loadBalancer("web")
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	vips := f.serve(t, s, f.pods[0])
	eyes := f.open(t, vips...)
	var followed []time.Duration
	for i := range 6 {
		at := (i + 1) % len(f.nodes)
		from := measure.Now()
		if err := f.SetEndpoints(t.Context(), f.client, s.Name, f.pods[at]); err != nil {
			t.Fatal(err)
		}
		for _, vip := range vips {
			took := f.claimed(t, eyes, vip, f.nodes[at], from)
			f.answered(t, []netip.Addr{vip}, f.pods[at])
			followed = append(followed, took)
			time.Sleep(measure.Calm)
			r := eyes.Reach(vip, from.Add(-50*time.Millisecond), measure.Now().Add(-measure.Calm/2))
			t.Logf("%s moved to %s after %v; outage %v, %d attempts failed %v", vip, f.nodes[at].Name, took.Round(time.Millisecond), r.Outage.Round(time.Millisecond), r.Failed, r.Errors)
		}
	}
	t.Logf("endpoint moved to owner followed: %s", spread(followed))
	if worst := slices.Max(followed); worst > slack*followsWithin {
		t.Errorf("the owner followed after %v, want %v at most", worst, slack*followsWithin)
	}
	f.testNoEndpoint(t, s.Name, eyes)
}

// testNoEndpoint: without any endpoint nobody announces the addresses, until there
// is one.
func (f *fleet) testNoEndpoint(t *testing.T, service string, eyes *lab.Eyes) {
	if err := f.SetEndpoints(t.Context(), f.client, service); err != nil {
		t.Fatal(err)
	}
	err := controlplane.Eventually(t.Context(), 10*time.Second, "nobody claims what nobody serves", func() error {
		for _, vip := range eyes.VIPs {
			if names := eyes.Claimants(vip, 10*measure.AskEvery); len(names) > 0 {
				return fmt.Errorf("%s is claimed by %v", vip, names)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	from := measure.Now()
	if err := f.SetEndpoints(t.Context(), f.client, service, f.pods[1]); err != nil {
		t.Fatal(err)
	}
	for _, vip := range eyes.VIPs {
		t.Logf("%s is claimed again after %v", vip, f.claimed(t, eyes, vip, f.nodes[1], from).Round(time.Millisecond))
	}
	f.answered(t, eyes.VIPs, f.pods[1])
}
