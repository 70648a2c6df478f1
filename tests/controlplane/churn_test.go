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
)

// churn keeps a number of Services, which come, change and go, and remembers what
// each has.
type churn struct {
	*fleet
	live map[string][]netip.Addr // nil: none yet
	next int
}

// TestChurn creates, changes and deletes Services at random: no address is with two
// of them, none changes, and in the end each is reached. LBD_CHURN is for how long.
func TestChurn(t *testing.T) {
	t.Parallel() // it measures nothing
	f := newFleet(t)
	limit, services := 15*time.Second, 30
	if text := os.Getenv("LBD_CHURN"); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		services = 60 // twice as many addresses as rest after a deletion at most
	}
	c := &churn{fleet: f, live: map[string][]netip.Addr{}}
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
