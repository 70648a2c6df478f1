package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// nodePort is that of docs/load-balancer.md, to which the LoadBalancer leads.
const nodePort = 30443

// selecting is a LoadBalancer with the Nodes of a role as backends.
const selecting = `apiVersion: lbd.dev/v1alpha1
kind: LoadBalancer
metadata: {name: web}
spec:
  addresses: [%q, %q]
  ports: [{port: %d, targetPort: %d}]
  backendNodes: {matchLabels: {role: %s}}
  healthCheck: {tcp: {port: %[4]d}}
  drainTimeout: 12s
`

// TestBackendNodes: Nodes that a LoadBalancer selects serve by the NodePort of a Service, of a kube-proxy
// that is as real as the API server which says what becomes of the Nodes.
func TestBackendNodes(t *testing.T) {
	f := newFleet(t)
	vips := []netip.Addr{lab.VIP4(), lab.VIP6()}
	if err := f.Lab.AddBackends(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	role := func(n *controlplane.Node, role string) { f.labelled("role", role)(t, n, true) }
	apply := func(role string) {
		t.Helper()
		if err := f.Apply(t.Context(), fmt.Sprintf(selecting, vips[0], vips[1], probePort, nodePort, role)); err != nil {
			t.Fatal(err)
		}
	}
	f.refusedNodes(t)
	apply("ingress")
	f.accepted(t, "web", metav1.ConditionFalse, "spec.backendNodes: no Node that matches has an InternalIP of the family of "+vips[0].String())
	f.columns(t, "False Problem")

	servers, pods := f.ingress(t)
	for _, n := range servers {
		role(n, "ingress")
	}
	f.answered(t, vips, pods...)
	f.accepted(t, "web", metav1.ConditionTrue, "in use as it is written")
	f.columns(t, "True Accepted")
	f.signalsOfBackends(t, vips, servers, pods)
	f.backendDeleted(t, vips, servers, pods)
	for _, n := range f.nodes {
		role(n, "balancer")
	}
	apply("balancer")
	f.backendsOnBalancers(t, vips[0])
}

// signalsOfBackends: whatever a Node says by which it is drained, or selected no more, it gets no new
// connections and loses none, and what it takes back brings them back.
func (f *fleet) signalsOfBackends(t *testing.T, vips []netip.Addr, servers []*controlplane.Node, pods []*controlplane.Pod) {
	gone := servers[0]
	relabelled := func(t *testing.T, n *controlplane.Node, on bool) {
		f.labelled("role", map[bool]string{true: "other", false: "ingress"}[on])(t, n, true)
	}
	for _, x := range []struct {
		name, reason string
		set          func(t *testing.T, n *controlplane.Node, on bool)
	}{
		{"label lbd.dev/drain", "Leaving", f.labelled("lbd.dev/drain", "true")},
		{"another label", "Removed", relabelled},
		{"not Ready", "Leaving", f.condition(corev1.NodeReady, corev1.ConditionUnknown, corev1.ConditionTrue)},
		{"taint", "Leaving", f.tainted(corev1.TaintNodeOutOfService)},
	} {
		open := f.lines(t, vips)
		x.set(t, gone, true)
		f.answered(t, vips, pods[1:]...)
		f.backend(t, gone, "draining", x.reason)
		answer(t, x.name, open)
		x.set(t, gone, false)
		f.answered(t, vips, pods...)
		f.backend(t, gone, "in", "")
		answer(t, "no more "+x.name, open)
	}
	t.Log("a Node is cordoned, which says nothing of what it serves; then all are drained, and nobody else is there")
	f.patchNode(t, gone, `{"spec":{"unschedulable":true}}`)
	for _, on := range []bool{true, false} {
		f.answered(t, vips, pods...)
		for _, n := range servers {
			f.labelled("lbd.dev/drain", "true")(t, n, on)
		}
		if on {
			f.backend(t, gone, "in", "NoneBetter")
		}
	}
	f.backend(t, gone, "in", "")
}

// backendDeleted: the connections of a Node that is deleted go on for the drainTimeout, then they end,
// and those of others do not.
func (f *fleet) backendDeleted(t *testing.T, vips []netip.Addr, servers []*controlplane.Node, pods []*controlplane.Pod) {
	open := f.lines(t, slices.Repeat(vips, 2))
	if err := f.client.CoreV1().Nodes().Delete(t.Context(), servers[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	f.answered(t, vips, pods[1:]...)
	f.backend(t, servers[0], "draining", "Removed")
	answer(t, "a Node is deleted", open)
	f.nodeStatus(t, servers[0], "draining", "Removed") // it is written every few seconds
	t.Logf("NodeStatus says so %v after the Node was deleted", time.Since(from).Round(10*time.Millisecond))
	its := 0
	for _, l := range open {
		if l.name == pods[0].Name+"\n" {
			its++
		}
	}
	err := controlplane.Eventually(t.Context(), 20*time.Second, "the connections of the Node end", func() error {
		was := len(open)
		open = answers(open, map[string]int{})
		its -= was - len(open)
		if its != 0 {
			return fmt.Errorf("%d are open", its)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("its connections have ended %v after that", time.Since(from).Round(10*time.Millisecond))
	answer(t, "those of other Nodes", open)
}

// backendsOnBalancers: a balancer cannot lead clients to a NodePort of its own, since the destination of a
// connection is translated once. It knows that, and leads them to the other Nodes. Another owner leads
// new connections to others than its own, and loses none that are open.
func (f *fleet) backendsOnBalancers(t *testing.T, vip netip.Addr) {
	for _, n := range f.nodes {
		f.says(t, n, "out", "CheckFails", func(*controlplane.Node) (string, error) { return f.statusOf(t.Context(), n) })
	}
	owner := f.owner(t, f.nodes[0], vip)
	_, pods := f.others(owner)
	f.answered(t, []netip.Addr{vip}, pods...)
	quiet := f.talk(t, f.lines(t, []netip.Addr{vip, vip}))
	if err := f.lbd.DrainFor(t.Context(), f.Lab, owner.Node, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	next := f.owner(t, f.nodes[0], vip)
	if next == owner {
		t.Errorf("%s is drained and has %s", owner.Name, vip)
	}
	for range 30 {
		if name, err := f.ask(t.Context(), vip); err != nil || strings.HasPrefix(name, next.Name) {
			t.Errorf("by %s: answered by %q: %v", next.Name, name, err)
		}
	}
	if lost := quiet(); len(lost) > 0 {
		t.Errorf("%s was drained, and these were lost: %v", owner.Name, lost)
	}
}

// refusedNodes: what no daemon would take is refused by the API server, or by the controller, in words
// that say what is wrong.
func (f *fleet) refusedNodes(t *testing.T) {
	const object = "apiVersion: lbd.dev/v1alpha1\nkind: LoadBalancer\nmetadata: {name: refused}\nspec: {addresses: [10.77.0.201], ports: [{port: 1}]%s}\n"
	for more, words := range map[string]string{
		``: "spec.addresses: Invalid value: an address has no backend of its family",
		`, backendNodes: {matchLabels: {role: "not good"}}`: `spec.backendNodes.matchLabels.role: Invalid value: "not good"`,
		`, backendNodes: {matchNames: [a]}`:                 ".spec.backendNodes.matchNames: field not declared in schema",
	} {
		if err := f.Apply(t.Context(), fmt.Sprintf(object, more)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %s", more, err, words)
		}
	}
	if err := f.Apply(t.Context(), fmt.Sprintf(object, `, backendNodes: {matchLabels: {"a b": x}}`)); err != nil {
		t.Fatal(err)
	}
	f.accepted(t, "refused", metav1.ConditionFalse, "spec.backendNodes.matchLabels[a b]: has a key that is not [prefix/]name")
	if _, err := f.Kubectl(t.Context(), "delete", "lb", "refused"); err != nil {
		t.Fatal(err)
	}
}

// ingress makes Nodes of the servers of the lab, which run no lbd, each with a Pod of a Service that has a
// NodePort. Whoever comes to a Node is answered by its own Pod.
func (f *fleet) ingress(t *testing.T) (nodes []*controlplane.Node, pods []*controlplane.Pod) {
	t.Helper()
	for _, h := range f.Lab.Backends {
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
		nodes, pods = append(nodes, n), append(pods, p)
	}
	s := f.loadBalancer("ingress")
	s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeNodePort, nil, nil
	s.Spec.ExternalTrafficPolicy, s.Spec.Ports[0].NodePort = corev1.ServiceExternalTrafficPolicyLocal, nodePort
	f.create(t, s, slices.Concat(f.pods, pods)...)
	return nodes, pods
}

// columns waits until `kubectl get lb` says so of the LoadBalancer.
func (f *fleet) columns(t *testing.T, accepted string) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 20*time.Second, "columns of web", func() error {
		out, err := f.Kubectl(t.Context(), "get", "lb", "--no-headers")
		want := fmt.Sprintf(`web ["%s","%s"] %s `, lab.VIP4(), lab.VIP6(), accepted)
		if is := strings.Join(strings.Fields(out), " "); err == nil && !strings.HasPrefix(is, want) {
			err = fmt.Errorf("they are %q, want %q and the age", is, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// backendStates are the backends of a LoadBalancer in a status of lbd.
type backendStates struct {
	LoadBalancers []struct {
		Backends []struct {
			Backend       netip.Addr
			State, Reason string
		}
	}
}

// tell wants both addresses of a Node to be called so.
func (s *backendStates) tell(of *controlplane.Node, state, reason string) error {
	found := 0
	for _, lb := range s.LoadBalancers {
		for _, b := range lb.Backends {
			if (b.Backend == of.IP4 || b.Backend == of.IP6) && b.State == state && b.Reason == reason {
				found++
			}
		}
	}
	if found != 2 {
		return fmt.Errorf("%+v, want %s %s", s.LoadBalancers, state, reason)
	}
	return nil
}

// backend waits until the daemon of each balancer calls both addresses of a Node so.
func (f *fleet) backend(t *testing.T, of *controlplane.Node, state, reason string) {
	t.Helper()
	f.says(t, of, state, reason, func(n *controlplane.Node) (string, error) { return f.statusOf(t.Context(), n) })
}

// statusOf is what the daemon of a node says, as JSON.
func (f *fleet) statusOf(ctx context.Context, n *controlplane.Node) (string, error) {
	return f.Lab.Exec(ctx, &n.Host, f.Lab.LBD(n.Node), "status", "--socket", f.lbd.Socket(n.Node), "-o", "json")
}

// nodeStatus waits until the NodeStatus of each balancer does.
func (f *fleet) nodeStatus(t *testing.T, of *controlplane.Node, state, reason string) {
	t.Helper()
	f.says(t, of, state, reason, func(n *controlplane.Node) (string, error) {
		return f.Kubectl(t.Context(), "get", "nodestatus", n.Name, "-o", "json")
	})
}

func (f *fleet) says(t *testing.T, of *controlplane.Node, state, reason string, ask func(n *controlplane.Node) (string, error)) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 20*time.Second, of.Name+" is "+state, func() error {
		for _, n := range f.nodes {
			out, err := ask(n)
			if err != nil {
				return err
			}
			var s backendStates
			if err := json.Unmarshal([]byte(out), &s); err != nil {
				return err
			}
			if err := s.tell(of, state, reason); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
