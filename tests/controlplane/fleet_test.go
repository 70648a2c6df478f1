package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// probePort is where the instruments of the lab connect.
const probePort = 7000

// proxyPause is how long kube-proxy waits between two writes of its rules here. At
// its default, a second, it and not lbd would be what is measured.
const proxyPause = 100 * time.Millisecond

// poolAndAdvertisement are the objects of the first page of the documentation:
// addresses of the LAN, announced there.
const poolAndAdvertisement = `apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: lan}
spec: {addresses: [10.77.0.101-10.77.0.199, 10.77.0.201-10.77.0.249, "fd77::1:0-fd77::1:ffff"]}
---
apiVersion: lbd.dev/v1alpha1
kind: L2Advertisement
metadata: {name: lan}
`

// fleet is a cluster of three nodes, each with a Pod, kube-proxy in the mode
// nftables and lbd, and a pool of addresses on their LAN.
type fleet struct {
	*controlplane.ControlPlane
	client *kubernetes.Clientset
	nodes  []*controlplane.Node
	pods   []*controlplane.Pod // one on each node
	lbd    *controlplane.LBD
	lapses int // of the daemons, see begin
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	return newFleetWith(t, poolAndAdvertisement, controlplane.Options{})
}

// newFleetWith is newFleet with other objects and options.
func newFleetWith(t *testing.T, objects string, o controlplane.Options) *fleet {
	t.Helper()
	f := newNodes(t, o)
	from := time.Now()
	var err error
	if f.lbd, err = f.StartLBD(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	f.settled(t)
	t.Logf("lbd: settled on %d nodes after %v", len(f.nodes), time.Since(from).Round(10*time.Millisecond))
	return f
}

// newNodes is a fleet without lbd.
func newNodes(t *testing.T, o controlplane.Options) *fleet {
	t.Helper()
	l := newLab(t, 3)
	f := &fleet{ControlPlane: start(t, l, o)}
	var err error
	if f.client, err = f.Client(); err != nil {
		t.Fatal(err)
	}
	for _, h := range l.Nodes {
		n, err := f.AddNode(t.Context(), h, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := n.AddPod(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.StartProxy(t.Context(), "nftables", proxyPause); err != nil {
			t.Fatal(err)
		}
		f.nodes, f.pods = append(f.nodes, n), append(f.pods, p)
	}
	return f
}

// settled waits until all daemons agree about these addresses and all others that
// any of them knows.
func (f *fleet) settled(t *testing.T, vips ...netip.Addr) {
	t.Helper()
	if err := controlplane.Eventually(t.Context(), 30*time.Second, "lbd is settled", func() error { return f.lbd.Settled(t.Context(), vips...) }); err != nil {
		t.Fatal(err)
	}
}

// loadBalancer is a Service of lbd's class, to be created.
func (f *fleet) loadBalancer(name string) *corev1.Service {
	s := f.LoadBalancer(name)
	class := controlplane.LoadBalancerClass
	s.Spec.LoadBalancerClass = &class
	s.Spec.Ports[0].Port = probePort
	return s
}

// create creates a Service with endpoints, which are there first, so that only
// kube-proxy and lbd are left to act on it.
func (f *fleet) create(t *testing.T, s *corev1.Service, pods ...*controlplane.Pod) {
	t.Helper()
	if err := f.SetEndpoints(t.Context(), f.client, s.Name, pods...); err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addresses are those in the status of a Service; an error without one of each
// family.
func (f *fleet) addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	s, err := f.client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var vips []netip.Addr
	for _, in := range s.Status.LoadBalancer.Ingress {
		a, err := netip.ParseAddr(in.IP)
		if err != nil {
			return nil, fmt.Errorf("service %q: status: %w", name, err)
		}
		vips = append(vips, a)
	}
	if len(vips) != len(s.Spec.IPFamilies) {
		return nil, fmt.Errorf("service %q: addresses %v for the families %v", name, vips, s.Spec.IPFamilies)
	}
	return vips, nil
}

// serve creates a Service and waits until it has addresses, lbd is settled about
// them, and both are answered by exactly these Pods.
func (f *fleet) serve(t *testing.T, s *corev1.Service, pods ...*controlplane.Pod) []netip.Addr {
	t.Helper()
	f.create(t, s, pods...)
	var vips []netip.Addr
	err := controlplane.Eventually(t.Context(), 20*time.Second, "addresses of "+s.Name, func() (err error) {
		vips, err = f.addresses(t.Context(), s.Name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f.settled(t, vips...)
	f.answered(t, vips, pods...)
	return vips
}

// answered waits until exactly these Pods answer at each address.
func (f *fleet) answered(t *testing.T, vips []netip.Addr, pods ...*controlplane.Pod) {
	t.Helper()
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	f.answeredBy(t, vips, names...)
}

// answeredBy waits until exactly these Pods or hosts answer at each address.
func (f *fleet) answeredBy(t *testing.T, vips []netip.Addr, names ...string) {
	t.Helper()
	slices.Sort(names)
	for _, vip := range vips {
		err := controlplane.Eventually(t.Context(), 20*time.Second, fmt.Sprintf("%s is answered by %v", vip, names), func() error {
			got := map[string]bool{}
			for range 30 {
				name, err := f.ask(t.Context(), vip)
				if err != nil {
					return err
				}
				got[name] = true
			}
			if all := slices.Sorted(maps.Keys(got)); !slices.Equal(all, names) {
				return fmt.Errorf("it is answered by %v", all)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ask connects to a Service from the client.
func (f *fleet) ask(ctx context.Context, vip netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
	defer cancel()
	return controlplane.Ask(ctx, f.Lab, f.Lab.Client, netip.AddrPortFrom(vip, probePort))
}

// owner is the node that owns the address, asked of a node that is not cut off.
func (f *fleet) owner(t *testing.T, asked *controlplane.Node, vip netip.Addr) *controlplane.Node {
	t.Helper()
	n, err := f.lbd.Owner(t.Context(), asked, vip)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// owners are the names of all owners, by address, as a node sees them.
func (f *fleet) owners(t *testing.T, asked *controlplane.Node) map[netip.Addr]string {
	t.Helper()
	all, err := f.lbd.Owners(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// others are the nodes, and the Pods on them, besides n.
func (f *fleet) others(n *controlplane.Node) (nodes []*controlplane.Node, pods []*controlplane.Pod) {
	for i, o := range f.nodes {
		if o != n {
			nodes, pods = append(nodes, o), append(pods, f.pods[i])
		}
	}
	return nodes, pods
}

// open starts the instruments of the lab for the addresses and waits until the
// client has reached them without a failure, each claimed by one node.
func (f *fleet) open(t *testing.T, vips ...netip.Addr) *lab.Eyes {
	t.Helper()
	eyes, err := f.Lab.Open(vips)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eyes.Close(); err != nil {
			t.Error(err)
		}
	})
	err = controlplane.Eventually(t.Context(), 15*time.Second, "the instruments see calm", func() error {
		c := lab.Cluster{Lab: f.Lab, Eyes: eyes}
		return c.Quiet(400 * time.Millisecond)
	})
	if err != nil {
		t.Fatal(err)
	}
	return eyes
}

// claimed waits until only the node claims the address, and tells when it did so
// first after from.
func (f *fleet) claimed(t *testing.T, eyes *lab.Eyes, vip netip.Addr, n *controlplane.Node, from measure.Time) time.Duration {
	t.Helper()
	var first measure.Time
	err := controlplane.Eventually(t.Context(), 15*time.Second, fmt.Sprintf("%s is claimed by %s", vip, n.Name), func() error {
		if names := eyes.Claimants(vip, 5*measure.AskEvery); !slices.Equal(names, []string{n.Name}) {
			return fmt.Errorf("it is claimed by %v", names)
		}
		for _, s := range measure.Claims(eyes.Frames(), vip.String(), from, measure.Now()) {
			if s.MAC == n.MAC {
				first = s.From
				return nil
			}
		}
		return errors.New("nobody claims it")
	})
	if err != nil {
		t.Fatal(err)
	}
	return first.Sub(from)
}
