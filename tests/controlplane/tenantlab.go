package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lbd.dev/lbd/tests/lab"
)

// TenantLab is a hub of three nodes and the clusters of tenants beside it, all with control planes of their
// own and the same networks of Pods and Services. Nothing of lbd runs before Join.
type TenantLab struct {
	*lab.Lab
	Hub      *ControlPlane
	HubNodes []*Node
	LBD      *LBD // of the hub; nil before the first Join
	Tenants  []*Tenant

	shell *tenantShell
}

// Tenant is a tenant with one cluster of two nodes, each with a Pod, and a Service web of both families that
// is made by Join.
type Tenant struct {
	*ControlPlane
	Name  string
	Nodes []*Node
	Pods  []*Pod // one on each node
	VIPs  []netip.Addr
	// Answered is how long it took from `kubectl apply` of the Service until a client was answered at
	// all of its addresses.
	Answered time.Duration

	client *kubernetes.Clientset
}

const (
	// TenantPort and TenantDatagramPort are those of the Service web, TCP and UDP. The instruments of
	// the lab connect to the first.
	TenantPort         = 7000
	TenantDatagramPort = DatagramPort

	tenantNodes    = 2
	firstTenant    = 21 // its number on the LAN
	tenantProxy    = 100 * time.Millisecond
	hubNodes       = 3
	tenantPatience = 20 * time.Second
)

// NewTenantLab starts all clusters. Close ends them.
func NewTenantLab(ctx context.Context, bin *lab.Bin, p *Programs, names ...string) (*TenantLab, error) {
	l, err := lab.New(ctx, bin, hubNodes)
	if err != nil {
		return nil, err
	}
	t := &TenantLab{Lab: l}
	if err := t.start(ctx, p, names); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return t, nil
}

func (l *TenantLab) start(ctx context.Context, p *Programs, names []string) (err error) {
	if l.Hub, err = Start(ctx, l.Lab, p, Options{Host: "hub", Number: hostNumber}); err != nil {
		return err
	}
	if err := l.AddBackends(ctx, tenantNodes*len(names)); err != nil {
		return err
	}
	for _, h := range l.Lab.Nodes {
		n, err := l.Hub.AddNode(ctx, h, nil)
		if err != nil {
			return err
		}
		if err := n.StartProxy(ctx, "nftables", tenantProxy); err != nil {
			return err
		}
		l.HubNodes = append(l.HubNodes, n)
	}
	for i, name := range names {
		t, err := l.addTenant(ctx, p, name, firstTenant+i, l.Backends[tenantNodes*i:tenantNodes*(i+1)])
		if err != nil {
			return fmt.Errorf("tenant %q: %w", name, err)
		}
		l.Tenants = append(l.Tenants, t)
	}
	l.shell, err = l.newShell()
	return err
}

func (l *TenantLab) addTenant(ctx context.Context, p *Programs, name string, number int, hosts []*lab.Node) (*Tenant, error) {
	cp, err := Start(ctx, l.Lab, p, Options{Host: name, Number: number})
	if err != nil {
		return nil, err
	}
	t := &Tenant{ControlPlane: cp, Name: name}
	if t.client, err = cp.Client(); err != nil {
		return nil, err
	}
	for _, h := range hosts {
		n, err := cp.AddNode(ctx, h, nil)
		if err != nil {
			return nil, err
		}
		pod, err := n.AddPod(ctx)
		if err != nil {
			return nil, err
		}
		if err := n.StartProxy(ctx, "nftables", tenantProxy); err != nil {
			return nil, err
		}
		t.Nodes, t.Pods = append(t.Nodes, n), append(t.Pods, pod)
	}
	return t, nil
}

// PodNames are those of the Pods of the tenant, sorted.
func (t *Tenant) PodNames() (names []string) {
	for _, p := range t.Pods {
		names = append(names, p.Name)
	}
	return slices.Sorted(slices.Values(names))
}

// Join does what the first chapter of docs/tenants.md has people do for a tenant, and shows each command
// that it runs. What a kubelet and controllers of Kubernetes would do is done by hand: daemons, controller
// and agent run on their hosts, and the endpoints of the Service are namespaces. The hub is installed once.
func (l *TenantLab) Join(ctx context.Context, t *Tenant, show func(command string)) error {
	commands, err := tenantCommands(ctx)
	if err != nil {
		return err
	}
	fill := l.filling(t)
	for _, c := range commands {
		if err := l.step(ctx, t, fill.Replace(c), show); err != nil {
			return fmt.Errorf("%s: %w", fill.Replace(c), err)
		}
	}
	return nil
}

// JoinIngress has the engine of the hub with this class serve Ingresses of a tenant that has joined, with
// these hostnames, as docs/tenants.md says, and HTTPRoutes by a Gateway, if one is named.
func (l *TenantLab) JoinIngress(ctx context.Context, t *Tenant, class, gateway string, hostnames ...string) error {
	fill := l.filling(t)
	flags, more := []string{"--ingress", "--tls-namespace=default"}, ""
	if gateway != "" {
		flags, more = append(flags, "--gateway"), "--gateway "+gateway+" "
	}
	for _, command := range []string{
		"lbd tenant create shop --node-cidr 10.1.0.0/22 --pool public " + more + "--ingress-class " + class + " --hostname '" + strings.Join(hostnames, ",") + "' --tls-secrets | kubectl --context hub apply --server-side -f -",
		"kubectl --context hub -n lbd-shop-main create token agent --duration=2160h > token",
		"lbd tenant join shop --server https://hub.example.com:6443 --ca ca.crt --token token " + strings.Join(flags, " ") + " | kubectl --context shop apply --server-side --force-conflicts -f -",
	} {
		if _, err := l.Shell(ctx, fill.Replace(command)); err != nil {
			return fmt.Errorf("%s: %w", fill.Replace(command), err)
		}
	}
	return t.StartAgent(ctx, flags...)
}

// JoinSecond ends the Tenant of a cluster, and has it join as the second cluster of another one, as
// docs/tenants-agent.md says.
func (l *TenantLab) JoinSecond(ctx context.Context, of, t *Tenant) error {
	fill := l.filling(t)
	for _, command := range []string{
		"kubectl --context hub delete tenant " + t.Name,
		"lbd tenant create " + of.Name + " --cluster second --node-cidr " + fill.Replace(pageCIDR) + " --pool public | kubectl --context hub apply --server-side --field-manager=shop-second -f -",
		"kubectl --context hub -n lbd-" + of.Name + "-second create token agent --duration=2160h > token",
		"lbd tenant join " + of.Name + " --cluster second --server " + fill.Replace(pageURL) + " --ca ca.crt --token token | kubectl --context " + t.Name + " apply --server-side --force-conflicts -f -",
	} {
		if _, err := l.Shell(ctx, command); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
	}
	return t.StartAgent(ctx)
}

// step runs one command, and does what follows from it.
func (l *TenantLab) step(ctx context.Context, t *Tenant, command string, show func(string)) error {
	switch {
	case t != l.Tenants[0] && !strings.Contains(command, t.Name):
		return nil // it is about the hub, and was done
	case strings.Contains(command, " create deployment "):
		// The Pods are there: they are namespaces, and no kubelet runs others.
		datagrams, port, proto := "datagrams", int32(DatagramPort), corev1.ProtocolUDP
		return t.setEndpoints(ctx, t.client, "web", t.Pods, []discoveryv1.EndpointPort{{Name: &datagrams, Port: &port, Protocol: &proto}})
	case strings.HasPrefix(command, "curl "): // the client asks, for the names of the Pods
		return Eventually(ctx, 30*time.Second, "lbd is settled", func() error { return l.LBD.Settled(ctx, t.VIPs...) })
	}
	show(command)
	from := time.Now()
	if _, err := l.Shell(ctx, command); err != nil {
		return err
	}
	switch {
	case strings.HasPrefix(command, "lbd manifest"):
		return l.startHub(ctx)
	case strings.HasPrefix(command, "lbd tenant join"):
		return t.StartAgent(ctx)
	case strings.Contains(command, "service.yaml"):
		return l.answered(ctx, t, from)
	}
	return nil
}

// startHub runs what the manifest of the hub says is to run.
func (l *TenantLab) startHub(ctx context.Context) (err error) {
	if l.LBD, err = l.Hub.installed(ctx); err != nil {
		return err
	}
	if err := l.LBD.startAll(ctx); err != nil {
		return err
	}
	return Eventually(ctx, 30*time.Second, "lbd is settled", func() error { return l.LBD.Settled(ctx) })
}

// answered waits until the Service has an address of each family, and the client is answered at both.
func (l *TenantLab) answered(ctx context.Context, t *Tenant, from time.Time) error {
	err := Eventually(ctx, tenantPatience, "addresses of web", func() (err error) {
		t.VIPs, err = t.addresses(ctx, "web")
		return err
	})
	for _, vip := range t.VIPs {
		if err == nil {
			err = Eventually(ctx, tenantPatience, vip.String()+" is answered", func() error {
				_, err := l.Ask(ctx, vip, false)
				return err
			})
		}
	}
	t.Answered = time.Since(from)
	return err
}

// addresses are those in the status of a Service; an error without one of each family.
func (t *Tenant) addresses(ctx context.Context, service string) (vips []netip.Addr, err error) {
	s, err := t.client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		a, err := netip.ParseAddr(in.IP)
		if err != nil {
			return nil, err
		}
		vips = append(vips, a)
	}
	if len(vips) != len(s.Spec.IPFamilies) {
		return nil, fmt.Errorf("they are %v for the families %v", vips, s.Spec.IPFamilies)
	}
	return vips, nil
}

// Ask has the client ask an address who is there, by TCP or by UDP.
func (l *TenantLab) Ask(ctx context.Context, vip netip.Addr, udp bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
	defer cancel()
	if udp {
		return AskDatagram(ctx, l.Lab, l.Client, netip.AddrPortFrom(vip, TenantDatagramPort))
	}
	return Ask(ctx, l.Lab, l.Client, netip.AddrPortFrom(vip, TenantPort))
}

// Serve waits until the addresses of the tenant are answered by exactly these Pods, by TCP and by UDP.
func (l *TenantLab) Serve(ctx context.Context, t *Tenant, pods ...string) error {
	for _, vip := range t.VIPs {
		for _, udp := range []bool{false, true} {
			what := fmt.Sprintf("%s (UDP: %v) is answered by %v", vip, udp, pods)
			if err := Eventually(ctx, tenantPatience, what, func() error { return l.answers(ctx, vip, udp, pods) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// answers asks often enough to hear from everybody.
func (l *TenantLab) answers(ctx context.Context, vip netip.Addr, udp bool, pods []string) error {
	got := map[string]bool{}
	for range 30 {
		name, err := l.Ask(ctx, vip, udp)
		if err != nil {
			return err
		}
		got[name] = true
	}
	if all := slices.Sorted(maps.Keys(got)); !slices.Equal(all, pods) {
		return fmt.Errorf("it is answered by %v", all)
	}
	return nil
}

// Steal has a tenant make a Service that asks for an address of another tenant, and returns the words by which
// the hub says no, as `kubectl describe service` in the tenant has them.
func (l *TenantLab) Steal(ctx context.Context, thief, from *Tenant) (words string, err error) {
	const object = "apiVersion: v1\nkind: Service\nmetadata: {name: steal, annotations: {lbd.dev/loadBalancerIPs: %q}}\n" +
		"spec: {type: LoadBalancer, loadBalancerClass: lbd.dev/hub, ports: [{port: %d}]}\n"
	if err := thief.Apply(ctx, fmt.Sprintf(object, from.VIPs[0], TenantPort)); err != nil {
		return "", err
	}
	err = Eventually(ctx, tenantPatience, "the Service is refused", func() (err error) {
		words, err = thief.Kubectl(ctx, "get", "service", "steal", "-o", `jsonpath={range .status.conditions[?(@.type=="lbd.dev/Accepted")]}{.status} {.reason}: {.message}{end}`)
		if err == nil && (!strings.HasPrefix(words, "False ") || !strings.Contains(words, "InUse")) {
			err = fmt.Errorf("its condition is %q", words)
		}
		return err
	})
	return strings.TrimPrefix(words, "False "), err
}

// Claim has a tenant make a Node with the addresses of a machine of another tenant, and returns the words by
// which the hub says no, as the log of the tenant's agent has them.
func (l *TenantLab) Claim(ctx context.Context, thief *Tenant, of *Node) (words string, err error) {
	node := &Node{Node: &lab.Node{Host: lab.Host{Name: "stolen", IP4: of.IP4, IP6: of.IP6}}, Number: 200, cp: thief.ControlPlane}
	if err := thief.registerNode(ctx, node, nil); err != nil {
		return "", err
	}
	err = Eventually(ctx, tenantPatience, "the Node is refused", func() error {
		log, err := os.ReadFile(filepath.Join(thief.Host.Dir, "lbd-agent.log"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			_, said, ok := strings.Cut(line, "the hub does not take all nodes")
			if at := strings.Index(said, node.Name+": "); ok && at >= 0 {
				words, _, _ = strings.Cut(strings.TrimSpace(said[at:]), `"`)
				return nil
			}
		}
		return errors.New("the log of the agent does not say so")
	})
	return words, err
}

// AsAgent runs kubectl in the hub with the token of the tenant's agent.
func (l *TenantLab) AsAgent(ctx context.Context, t *Tenant, args ...string) (string, error) {
	argv := append([]string{l.Hub.Programs.Kubectl, "--kubeconfig", filepath.Join(t.hubDir(), "kubeconfig"), "--cache-dir", filepath.Join(t.hubDir(), "cache")}, args...)
	return l.Exec(ctx, t.Host, argv...)
}
