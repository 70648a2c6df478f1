package controlplane_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// tenantCluster is a tenant with one cluster, in a namespace of its name, and the agent of that with the
// rights that lbd tenant create prints, and get, which kubectl needs.
const tenantCluster = `apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: agent, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: agent, namespace: %[1]s}
rules:
  - apiGroups: [lbd.dev]
    resources: [tenantnodes, tenantservices]
    verbs: [get, list, watch, create, patch, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: agent, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: agent}
subjects: [{kind: ServiceAccount, name: agent, namespace: %[1]s}]
---
apiVersion: lbd.dev/v1alpha1
kind: Tenant
metadata: {name: %[1]s}
spec:
  clusters: [{name: main, namespace: %[1]s, nodeCIDRs: [%[2]s], nodePorts: 7000-7099}]
  pools: [lan]
`

// tenantWeb is a Service of a tenant that the stand-ins of its nodes serve.
const tenantWeb = `apiVersion: lbd.dev/v1alpha1
kind: TenantService
metadata: {name: default.web, namespace: %s}
spec:
  ports: [{port: %d, nodePort: %d}]
  families: [ipv4, ipv6]
`

// TestTenants: a hub leads clients to the nodes of two other clusters. That of shop is real, has the same
// networks of Pods and Services as the hub, and an agent; of bank there is what an agent would write.
// What an agent writes beyond its Tenant is refused with words, and has no effect.
func TestTenants(t *testing.T) {
	f := newFleet(t)
	if err := f.Lab.AddBackends(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	one, theirs := f.Lab.Backends[0], f.Lab.Backends[2]
	kubeProxy(t, &theirs.Host)
	f.tenant(t, "bank", theirs)
	web := f.shop(t, f.Lab.Backends[:2])
	bank := f.tenantVIPs(t, "bank")
	shop := web.vips(t)
	f.answeredBy(t, shop, web.pods[0].Name, web.pods[1].Name)
	f.answeredBy(t, bank, theirs.Name)
	f.settled(t, slices.Concat(shop, bank)...)

	t.Log("what an agent must not do")
	f.tenantNodes(t, "bank", "n-1", fmt.Sprintf("{name: x1, addresses: [%s]}, {name: x2, addresses: [%s]}", one.IP4, f.nodes[0].IP4))
	f.tenantSays(t, "bank", "tenantnodes/n-1", fmt.Sprintf("RefusedNodes x1: %s is in none of the nodeCIDRs of the cluster", one.IP4))
	f.asAgent(t, "bank", "apiVersion: lbd.dev/v1alpha1\nkind: TenantService\nmetadata: {name: default.ssh, namespace: bank}\nspec: {ports: [{port: 22, nodePort: 22}]}\n")
	f.tenantSays(t, "bank", "tenantservices/default.ssh", "NodePortNotAllowed 22 is in no range of NodePorts")
	forged := fmt.Sprintf(`{"status":{"addresses":[{"address":"%s","pool":"lan"}]}}`, shop[0])
	for _, args := range [][]string{
		{"-n", "bank", "patch", "tenantservice", "default.web", "--subresource=status", "--type=merge", "-p", forged},
		{"-n", web.namespace, "get", "tenantservices"},
		{"patch", "tenant", "bank", "--type=merge", "-p", `{"spec":{"pools":["other"]}}`},
	} {
		if out, err := f.Kubectl(t.Context(), append(args, "--as=system:serviceaccount:bank:agent")...); err == nil || !strings.Contains(err.Error(), "cannot") {
			t.Errorf("%v: %q: %v, want that it is forbidden", args, out, err)
		}
	}
	f.answeredBy(t, bank, theirs.Name)

	router := f.routed(t, shop[0])
	f.withoutAPIs(t, web, shop)
	f.led(t, router, shop[0])
	f.answeredBy(t, bank, theirs.Name)

	t.Log("a node of shop is drained")
	open := f.lines(t, shop)
	web.kubectl(t, "label", "node", one.Name, "node.kubernetes.io/exclude-from-external-load-balancers=")
	f.answeredBy(t, shop, web.pods[1].Name)
	answer(t, "a node drains", open)

	t.Log("a Service over the limit says so in its own cluster")
	web.create(t, "more")
	web.eventually(t, "the Service more is refused", func() error {
		out, err := web.Kubectl(t.Context(), "get", "events", "--field-selector=involvedObject.name=more", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, "TenantLimit") {
			err = fmt.Errorf("its events are %q", out)
		}
		return err
	})

	t.Log("the Service is deleted, and the other tenant keeps its own")
	web.kubectl(t, "delete", "service", "web", "more")
	web.eventually(t, "the hub forgets the Services", func() error {
		out, err := f.Kubectl(t.Context(), "-n", web.namespace, "get", "tenantservices", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("it has %q", out)
		}
		return err
	})
	f.settled(t, bank...)
	if name, err := f.ask(t.Context(), shop[0]); err == nil {
		t.Errorf("%s is answered by %s", shop[0], name)
	}
	f.answeredBy(t, bank, theirs.Name)
}

// routed has the pool of tenants advertised by BGP too. A router leads an address to its owner, whoever that
// is, and to no other node.
func (f *fleet) routed(t *testing.T, vip netip.Addr) *controlplane.Router {
	t.Helper()
	t.Log("a router is told of the addresses")
	r, err := controlplane.NewRouter(t.Context(), f.Lab)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), r.Peer()+"---\napiVersion: lbd.dev/v1alpha1\nkind: BGPAdvertisement\nmetadata: {name: lan}\n"); err != nil {
		t.Fatal(err)
	}
	owner := f.led(t, r, vip)
	if err := f.lbd.DrainFor(t.Context(), f.Lab, owner.Node, time.Second); err != nil {
		t.Fatal(err)
	}
	if next := f.led(t, r, vip); next == owner {
		t.Errorf("%s was drained, and has %s", owner.Name, vip)
	}
	if err := f.lbd.Undrain(t.Context(), f.Lab, owner.Node); err != nil {
		t.Fatal(err)
	}
	return r
}

// led waits until a router leads an address to its owner alone, and is answered there.
func (f *fleet) led(t *testing.T, r *controlplane.Router, vip netip.Addr) (owner *controlplane.Node) {
	t.Helper()
	f.settled(t, vip)
	owner = f.owner(t, f.nodes[0], vip)
	if err := r.Leads(t.Context(), vip, owner.Node); err != nil {
		t.Fatal(err)
	}
	if _, err := controlplane.Ask(t.Context(), f.Lab, r.Host, netip.AddrPortFrom(vip, probePort)); err != nil {
		t.Errorf("%s leads to %s: %v", vip, owner.Name, err)
	}
	return owner
}

// withoutAPIs has the API servers of the hub and of shop answer nothing, so that neither agent nor controller
// can do a thing, and then a node of shop die, and a node of the hub: connections go to who is left.
func (f *fleet) withoutAPIs(t *testing.T, s *shop, vips []netip.Addr) {
	t.Helper()
	servers := []*controlplane.Server{f.APIServers[0], s.APIServers[0]}
	for _, x := range servers {
		if err := x.Freeze(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = x.Thaw() }) // what is cleaned up after a failure asks them
	}
	all := []string{s.pods[0].Name, s.pods[1].Name}
	for _, c := range []struct {
		what string
		dies *lab.Host
		left []string
	}{
		{"a node of shop", &f.Lab.Backends[0].Host, all[1:]},
		{"the node of the hub that has the address", &f.owner(t, f.nodes[0], vips[0]).Host, all},
	} {
		died := time.Now()
		if err := f.Lab.LinkDown(t.Context(), c.dies); err != nil {
			t.Fatal(err)
		}
		f.answeredBy(t, vips, c.left...)
		t.Logf("without an API %s dies: %v answer after %v", c.what, c.left, time.Since(died).Round(10*time.Millisecond))
		if err := f.Lab.LinkUp(t.Context(), c.dies); err != nil {
			t.Fatal(err)
		}
		f.answeredBy(t, vips, all...)
	}
	for _, x := range servers {
		if err := x.Thaw(); err != nil {
			t.Fatal(err)
		}
	}
	f.settled(t, vips...)
}

// shop is a cluster of a tenant of that name, with a Service web and its Pods.
type shop struct {
	*controlplane.ControlPlane
	client    *kubernetes.Clientset
	namespace string // in the hub
	pods      []*controlplane.Pod
}

// shop starts the cluster with a node on each host, and joins it to the hub.
func (f *fleet) shop(t *testing.T, hosts []*lab.Node) *shop {
	t.Helper()
	s := &shop{ControlPlane: start(t, f.Lab, controlplane.Options{Host: "shop", Number: 21})}
	var err error
	if s.client, err = s.Client(); err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		n, err := s.AddNode(t.Context(), h, nil)
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
		s.pods = append(s.pods, p)
	}
	if s.namespace, err = f.AddTenant(t.Context(), "shop", hosts, "--limit=addresses=2"); err != nil {
		t.Fatal(err)
	}
	if err := s.JoinHub(t.Context(), f.ControlPlane, "shop", s.namespace); err != nil {
		t.Fatal(err)
	}
	s.create(t, "web")
	return s
}

// create makes a Service of both families for the Pods.
func (s *shop) create(t *testing.T, name string) {
	t.Helper()
	if err := s.SetEndpoints(t.Context(), s.client, name, s.pods...); err != nil {
		t.Fatal(err)
	}
	service, class := s.LoadBalancer(name), "lbd.dev/hub"
	service.Spec.LoadBalancerClass, service.Spec.AllocateLoadBalancerNodePorts = &class, nil
	service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal // a node leads to its own Pod
	service.Spec.Ports[0].Port = probePort
	if _, err := s.client.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// vips waits until the status of the Service web has an address of each family.
func (s *shop) vips(t *testing.T) (vips []netip.Addr) {
	t.Helper()
	s.eventually(t, "addresses of web", func() error {
		web, err := s.client.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		vips = nil
		for _, in := range web.Status.LoadBalancer.Ingress {
			vips = append(vips, netip.MustParseAddr(in.IP))
		}
		if len(vips) != 2 {
			return fmt.Errorf("they are %v", vips)
		}
		return nil
	})
	return vips
}

func (s *shop) eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	if err := controlplane.Eventually(t.Context(), 20*time.Second, what, check); err != nil {
		t.Fatal(err)
	}
}

func (s *shop) kubectl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := s.Kubectl(t.Context(), args...); err != nil {
		t.Fatal(out, err)
	}
}

// kubeProxy has a host say what kube-proxy does of a node that takes part.
func kubeProxy(t *testing.T, h *lab.Host) {
	t.Helper()
	l, err := h.Listen("[::]:10256")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
}

// tenant makes a tenant, whose agent says that it has nodes named a1 and so on, and a Service.
func (f *fleet) tenant(t *testing.T, name string, hosts ...*lab.Node) {
	t.Helper()
	var cidrs, nodes []string
	for i, h := range hosts {
		cidrs = append(cidrs, h.IP4.String()+"/32", fmt.Sprintf("%q", h.IP6.String()+"/128"))
		nodes = append(nodes, tenantNode(fmt.Sprintf("a%d", i+1), h, "Serving"))
	}
	if err := f.Apply(t.Context(), fmt.Sprintf(tenantCluster, name, strings.Join(cidrs, ", "))); err != nil {
		t.Fatal(err)
	}
	f.tenantNodes(t, name, "n-0", strings.Join(nodes, ", "))
	f.asAgent(t, name, fmt.Sprintf(tenantWeb, name, probePort, probePort))
}

func tenantNode(name string, h *lab.Node, state string) string {
	return fmt.Sprintf("{name: %s, addresses: [%s, %q], state: %s}", name, h.IP4, h.IP6, state)
}

// tenantNodes writes nodes as an agent does.
func (f *fleet) tenantNodes(t *testing.T, tenant, name, nodes string) {
	t.Helper()
	f.asAgent(t, tenant, fmt.Sprintf("apiVersion: lbd.dev/v1alpha1\nkind: TenantNodes\nmetadata: {name: %s, namespace: %s}\nspec: {nodes: [%s]}\n", name, tenant, nodes))
}

// asAgent applies an object with the rights of an agent.
func (f *fleet) asAgent(t *testing.T, tenant, object string) {
	t.Helper()
	if err := f.Apply(t.Context(), object, "--as=system:serviceaccount:"+tenant+":agent"); err != nil {
		t.Fatal(err)
	}
}

// tenantVIPs waits until the Service of a tenant has both addresses.
func (f *fleet) tenantVIPs(t *testing.T, tenant string) (vips []netip.Addr) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 20*time.Second, "addresses of "+tenant, func() error {
		out, err := f.Kubectl(t.Context(), "-n", tenant, "get", "tenantservice", "default.web", "-o", "jsonpath={.status.addresses[*].address}")
		vips = nil
		for _, text := range strings.Fields(out) {
			a, e := netip.ParseAddr(text)
			if e != nil {
				return e
			}
			vips = append(vips, a)
		}
		if err == nil && len(vips) != 2 {
			err = fmt.Errorf("they are %v", vips)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return vips
}

// tenantSays waits until an object of a tenant has a condition Accepted that begins so.
func (f *fleet) tenantSays(t *testing.T, tenant, object, words string) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 20*time.Second, "condition of "+object, func() error {
		out, err := f.Kubectl(t.Context(), "-n", tenant, "get", object, "-o", `jsonpath={range .status.conditions[?(@.type=="Accepted")]}{.reason} {.message}{end}`)
		if err == nil && !strings.HasPrefix(out, words) {
			err = fmt.Errorf("it is %q, want %q", out, words)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
