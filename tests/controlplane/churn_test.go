package controlplane_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// churn keeps a number of Services, which come, change and go, and remembers what
// each has.
type churn struct {
	*fleet
	live map[string][]netip.Addr // nil: none yet
	next int
}

// widePool has room for hundreds of Services and as many addresses that rest after a
// deletion.
const widePool = `apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: lan}
spec: {addresses: [10.78.64.0/21, "fd77::1:0-fd77::1:ffff"]}
---
apiVersion: lbd.dev/v1alpha1
kind: L2Advertisement
metadata: {name: lan}
`

// newChurn is a churn on the LAN of the lab, or a larger one.
func newChurn(t *testing.T, wide bool) *churn {
	c := &churn{live: map[string][]netip.Addr{}}
	if !wide {
		c.fleet = newFleet(t)
		return c
	}
	c.fleet = newFleetWith(t, widePool, controlplane.Options{})
	for i, h := range append([]*lab.Node{{Host: *c.Lab.Client}}, c.Lab.Nodes...) {
		if err := c.Lab.IP(t.Context(), &h.Host, fmt.Sprintf("addr add 10.78.0.%d/16 dev eth0", 10+i)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestChurn creates, changes and deletes Services at random: no address is with two
// of them, none changes, and in the end each is reached. LBD_CHURN is for how long,
// then with 200 of them.
func TestChurn(t *testing.T) {
	t.Parallel() // it measures nothing
	limit, services, long := 15*time.Second, 30, os.Getenv("LBD_CHURN")
	if long != "" {
		var err error
		if limit, err = time.ParseDuration(long); err != nil {
			t.Fatal(err)
		}
		services = 200
	}
	c := newChurn(t, long != "")
	for end := time.Now().Add(limit); time.Now().Before(end); {
		switch n := rand.IntN(10); {
		case len(c.live) < services && n < 6:
			c.add(t)
		case len(c.live) > 0 && n < 8:
			c.remove(t)
		case len(c.live) > 0:
			c.change(t)
		}
		c.look(t)
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("%d Services were created, %d are left", c.next, len(c.live))
	c.end(t)
}

// any is one of the Services.
func (c *churn) any() string {
	names := make([]string, 0, len(c.live))
	for name := range c.live {
		names = append(names, name)
	}
	slices.Sort(names)
	return names[rand.IntN(len(names))]
}

func (c *churn) add(t *testing.T) {
	name := fmt.Sprintf("churn%d", c.next)
	c.next++
	s := c.loadBalancer(name)
	if rand.IntN(3) == 0 {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	c.create(t, s, c.pods[rand.IntN(len(c.pods))])
	c.live[name] = nil
}

func (c *churn) remove(t *testing.T) {
	name := c.any()
	if err := c.client.CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	delete(c.live, name)
}

func (c *churn) change(t *testing.T) {
	name := c.any()
	if rand.IntN(2) == 0 {
		if err := c.SetEndpoints(t.Context(), c.client, name, c.pods[rand.IntN(len(c.pods))]); err != nil {
			t.Fatal(err)
		}
		return
	}
	policy := []string{"Cluster", "Local"}[rand.IntN(2)]
	patch := fmt.Sprintf(`{"spec":{"externalTrafficPolicy":%q}}`, policy)
	if _, err := c.client.CoreV1().Services(metav1.NamespaceDefault).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// look compares what the Services have with what they had.
func (c *churn) look(t *testing.T) {
	list, err := c.client.CoreV1().Services(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owner := map[netip.Addr]string{}
	for _, s := range list.Items {
		had, ours := c.live[s.Name]
		if !ours {
			continue
		}
		var has []netip.Addr
		for _, in := range s.Status.LoadBalancer.Ingress {
			has = append(has, netip.MustParseAddr(in.IP))
		}
		for _, a := range has {
			if other, twice := owner[a]; twice {
				t.Fatalf("%s is with %s and %s", a, s.Name, other)
			}
			owner[a] = s.Name
		}
		if had != nil && !slices.Equal(had, has) {
			t.Fatalf("%s had %v and has %v", s.Name, had, has)
		}
		if len(has) > 0 {
			c.live[s.Name] = has
		}
	}
}

// end wants every Service that is left to be reached, and nothing else to be
// announced.
func (c *churn) end(t *testing.T) {
	var all []netip.Addr
	for name := range c.live {
		err := controlplane.Eventually(t.Context(), 10*time.Second, "addresses of "+name, func() error {
			vips, err := c.addresses(t.Context(), name)
			if err == nil {
				all = append(all, vips...)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	c.settled(t, all...)
	c.look(t)
	if len(all) > 0 {
		t.Logf("%d addresses are reached: %s", len(all), spread(c.reachable(t, time.Now(), all)))
	}
	err := controlplane.Eventually(t.Context(), 10*time.Second, "lbd knows these addresses alone", func() error {
		for _, n := range c.nodes {
			owners, err := c.lbd.Owners(t.Context(), n)
			if err != nil {
				return err
			}
			if len(owners) != len(all) {
				return fmt.Errorf("%s: it knows %d addresses, want %d", n.Name, len(owners), len(all))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
