package controlplane_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// The VIPs lie in no subnet of the lab: the client has a route to a node.
var (
	vip4 = netip.MustParseAddr("10.99.0.10")
	vip6 = netip.MustParseAddr("fd99::10")
)

// upWithin is far above the 5 s of an idle machine.
const upWithin = 60 * time.Second

// suite is a cluster of three nodes: m1 and m2 have a Pod and kube-proxy in the
// mode nftables, m3 has none and the mode iptables.
type suite struct {
	*controlplane.ControlPlane
	client *kubernetes.Clientset
	nodes  []*controlplane.Node
}

func newSuite(t *testing.T) *suite {
	l := newLab(t, 3)
	from := time.Now()
	s := &suite{ControlPlane: start(t, l, controlplane.Options{Controllers: controlplane.DefaultControllers()})}
	if took := time.Since(from); took > upWithin {
		t.Errorf("the control plane took %v to start, want %v at most", took, upWithin)
	}
	var err error
	if s.client, err = s.Client(); err != nil {
		t.Fatal(err)
	}
	for i, mode := range []string{"nftables", "nftables", "iptables"} {
		n, err := s.AddNode(t.Context(), l.Nodes[i], map[string]string{"zone": string(rune('a' + i))})
		if err != nil {
			t.Fatal(err)
		}
		s.nodes = append(s.nodes, n)
		if i < 2 {
			if _, err := n.AddPod(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.StartProxy(t.Context(), mode, 0); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// route sends what the client has for the VIPs to a node.
func (s *suite) route(t *testing.T, n *controlplane.Node) {
	t.Helper()
	err := s.Lab.IP(t.Context(), s.Lab.Client, fmt.Sprintf("route replace %s via %s", vip4, n.IP4), fmt.Sprintf("route replace %s via %s", vip6, n.IP6))
	if err != nil {
		t.Fatal(err)
	}
}

// answers is which Pods answer at the VIP, of 40 connections; an error, if none
// did or not all.
func (s *suite) answers(ctx context.Context, vip netip.Addr) ([]string, error) {
	seen := map[string]bool{}
	for range 40 {
		name, err := controlplane.Ask(ctx, s.Lab, s.Lab.Client, netip.AddrPortFrom(vip, controlplane.ServicePort))
		if err != nil {
			return nil, err
		}
		seen[name] = true
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// want waits until exactly these Pods answer at both VIPs; without a name, until
// nothing answers.
func (s *suite) want(t *testing.T, names ...string) {
	t.Helper()
	for _, vip := range []netip.Addr{vip4, vip6} {
		// A kube-proxy that lost its API waits longer and longer before it asks again.
		err := controlplane.Eventually(t.Context(), 45*time.Second, fmt.Sprintf("%s is answered by %v", vip, names), func() error {
			got, err := s.answers(t.Context(), vip)
			if len(names) == 0 && err != nil {
				return nil
			}
			if err == nil && !slices.Equal(got, names) {
				err = fmt.Errorf("it is answered by %v", got)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func (s *suite) patch(t *testing.T, name, patch string) {
	t.Helper()
	_, err := s.client.CoreV1().Services(metav1.NamespaceDefault).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestService has kube-proxy carry a Service from a VIP to its Pods, in both
// modes and families, and the control plane fall and rise under it.
func TestService(t *testing.T) {
	t.Parallel() // it measures nothing
	s := newSuite(t)
	service := s.LoadBalancer("web")
	if _, err := s.client.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod1, pod2 := s.nodes[0].Pods[0], s.nodes[1].Pods[0]
	if err := s.SetEndpoints(t.Context(), s.client, "web", pod1, pod2); err != nil {
		t.Fatal(err)
	}
	s.testModes(t)
	for _, n := range []*controlplane.Node{s.nodes[0], s.nodes[2]} {
		t.Run("no address through "+n.Name, func(t *testing.T) {
			s.route(t, n)
			s.want(t)
		})
	}
	if err := s.SetAddresses(t.Context(), s.client, "web", vip4, vip6); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*controlplane.Node{s.nodes[0], s.nodes[2]} {
		t.Run("address through "+n.Name, func(t *testing.T) {
			s.route(t, n)
			s.want(t, pod1.Name, pod2.Name)
		})
	}
	s.patch(t, "web", `{"spec":{"externalTrafficPolicy":"Local"}}`)
	t.Run("local through m1", func(t *testing.T) {
		s.route(t, s.nodes[0])
		s.want(t, pod1.Name)
	})
	t.Run("local through m3", func(t *testing.T) { // has no Pod
		s.route(t, s.nodes[2])
		s.want(t)
	})
	s.patch(t, "web", `{"spec":{"externalTrafficPolicy":"Cluster"}}`)
	s.route(t, s.nodes[0])
	s.want(t, pod1.Name, pod2.Name)
	t.Run("kubectl", s.testKubectl)
	t.Run("controllers", s.testControllers)
	t.Run("killed", s.testKilled)
}

// testModes looks which tables each kube-proxy has made.
func (s *suite) testModes(t *testing.T) {
	for i, own := range []bool{true, true, false} {
		out, err := s.Lab.Exec(t.Context(), &s.nodes[i].Host, "nft", "list", "tables")
		if err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(out, "table ip kube-proxy"); has != own {
			t.Errorf("%s: kube-proxy's own table of nftables: %v, want %v\n%s", s.nodes[i].Name, has, own, out)
		}
	}
	if _, err := s.Lab.Exec(t.Context(), &s.nodes[2].Host, "iptables", "-t", "nat", "-S", "KUBE-SERVICES"); err != nil {
		t.Error(err)
	}
}

func (s *suite) testKubectl(t *testing.T) {
	out, err := s.Kubectl(t.Context(), "get", "services", "web", "-o", "wide") // else it shortens the addresses
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, vip4.String()+","+vip6.String()) {
		t.Errorf("kubectl get services: no EXTERNAL-IP in\n%s", out)
	}
	if out, err = s.Kubectl(t.Context(), "get", "nodes", "--no-headers"); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out, " Ready "); n != 3 {
		t.Errorf("kubectl get nodes: %d are ready, want 3:\n%s", n, out)
	}
}

// testControllers: a namespace gets its account, and goes with what is in it.
func (s *suite) testControllers(t *testing.T) {
	namespaces := s.client.CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err := controlplane.Eventually(t.Context(), 15*time.Second, "service account", func() error {
		_, err := s.client.CoreV1().ServiceAccounts("short").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := namespaces.Delete(t.Context(), "short", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err = controlplane.Eventually(t.Context(), 30*time.Second, "namespace is gone", func() error {
		list, err := namespaces.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=short"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("it is %s", list.Items[0].Status.Phase)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// testKilled kills kube-apiserver and then etcd. The Service goes on, and what
// changes after the restart reaches kube-proxy.
func (s *suite) testKilled(t *testing.T) {
	pod1, pod2 := s.nodes[0].Pods[0], s.nodes[1].Pods[0]
	for _, server := range []*controlplane.Server{s.APIServers[0], s.Etcd} {
		old := server.Proc().PID()
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Ready(t.Context()); err == nil {
			t.Errorf("%s was killed and is ready", server.Name)
		}
		s.want(t, pod1.Name, pod2.Name)
		from := time.Now()
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.APIServers[0].WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: back after %v", server.Name, time.Since(from).Round(10*time.Millisecond))
		if server.Proc().PID() == old {
			t.Errorf("%s: still process %d", server.Name, old)
		}
		for _, pods := range [][]*controlplane.Pod{{pod2}, {pod1, pod2}} {
			err := controlplane.Eventually(t.Context(), 20*time.Second, "change endpoints", func() error {
				return s.SetEndpoints(t.Context(), s.client, "web", pods...)
			})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range pods {
				names = append(names, p.Name)
			}
			s.want(t, names...)
		}
	}
}

// TestOneFamily: clusters of one family.
func TestOneFamily(t *testing.T) {
	t.Parallel() // it measures nothing
	for _, f := range []controlplane.Family{controlplane.IPv6, controlplane.IPv4} {
		t.Run(string(f), func(t *testing.T) {
			l := newLab(t, 1)
			s := &suite{ControlPlane: start(t, l, controlplane.Options{Families: []controlplane.Family{f}})}
			var err error
			if s.client, err = s.Client(); err != nil {
				t.Fatal(err)
			}
			s.serveOne(t, l, f)
		})
	}
}

func (s *suite) serveOne(t *testing.T, l *lab.Lab, f controlplane.Family) {
	ctx := t.Context()
	n, err := s.AddNode(ctx, l.Nodes[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := n.AddPod(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.StartProxy(ctx, "nftables", 0); err != nil {
		t.Fatal(err)
	}
	made, err := s.client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, s.LoadBalancer("web"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := made.Spec.IPFamilies; len(got) != 1 || string(got[0]) != string(f) {
		t.Errorf("families of the Service: %v, want %s", got, f)
	}
	vip := vip4
	if f == controlplane.IPv6 {
		vip = vip6
	}
	if err := s.SetEndpoints(ctx, s.client, "web", pod); err != nil {
		t.Fatal(err)
	}
	if err := s.SetAddresses(ctx, s.client, "web", vip); err != nil {
		t.Fatal(err)
	}
	s.route(t, n)
	err = controlplane.Eventually(ctx, 15*time.Second, vip.String()+" is answered", func() error {
		_, err := s.answers(ctx, vip)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
