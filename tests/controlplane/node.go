package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/tests/lab"
)

// Node is a host of the lab that is a Node of the cluster.
type Node struct {
	*lab.Node
	Number int     // from 1; the Pods are in 10.244.<number>.0/24 and fd44:0:0:<number>::/64
	Proxy  *Server // nil before StartProxy
	Pods   []*Pod

	cp *ControlPlane
}

// Pod is a server in a namespace behind a node: what a Pod with containers would
// be. It says its name to each connection, then echoes lines (ServerPort). The
// API knows it by EndpointSlices alone.
type Pod struct {
	lab.Host
	Node *Node
	Proc *lab.Proc
}

// ServerPort is where a Pod serves.
const ServerPort = 8080

// podBridge is the interface of a node in the LAN of its Pods.
const podBridge = "cni0"

// podAddr is the address of a node's Pod; 1 is the node itself. Neither number is
// above 255.
func podAddr(f Family, node, pod int) netip.Prefix {
	p := netip.MustParsePrefix(podRange[f])
	if f == IPv4 {
		a := p.Addr().As4()
		a[2], a[3] = byte(node), byte(pod)
		return netip.PrefixFrom(netip.AddrFrom4(a), 24)
	}
	a := p.Addr().As16()
	a[7], a[15] = byte(node), byte(pod)
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// AddNode makes a host of the lab a node: it forwards, has a LAN for Pods with
// routes to those of the other nodes, and is in the API as a ready Node of the
// host's name, with the labels.
func (c *ControlPlane) AddNode(ctx context.Context, h *lab.Node, labels map[string]string) (*Node, error) {
	n := &Node{Node: h, Number: len(c.nodes) + 1, cp: c}
	if err := c.wireNode(ctx, n); err != nil {
		return nil, fmt.Errorf("node %q: %w", h.Name, err)
	}
	if err := c.registerNode(ctx, n, labels); err != nil {
		return nil, fmt.Errorf("node %q: %w", h.Name, err)
	}
	c.nodes = append(c.nodes, n)
	return n, nil
}

func (c *ControlPlane) wireNode(ctx context.Context, n *Node) error {
	lines := []string{"link add " + podBridge + " type bridge stp_state 0 forward_delay 0 mcast_snooping 0", "link set " + podBridge + " up"}
	var errs []error
	for _, f := range []Family{IPv4, IPv6} {
		own := podAddr(f, n.Number, 1)
		line := fmt.Sprintf("addr add %s dev %s", own, podBridge)
		if f == IPv6 {
			line += " nodad"
		}
		lines = append(lines, line)
		for _, o := range c.nodes {
			lines = append(lines, fmt.Sprintf("route add %s via %s", podAddr(f, o.Number, 1).Masked(), ip(f, &o.Host)))
			errs = append(errs, c.Lab.IP(ctx, &o.Host, fmt.Sprintf("route add %s via %s", own.Masked(), ip(f, &n.Host))))
		}
	}
	forward := map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"}
	errs = append(errs, c.Lab.Sysctl(&n.Host, forward), c.Lab.IP(ctx, &n.Host, lines...))
	return errors.Join(errs...)
}

func ip(f Family, h *lab.Host) netip.Addr {
	if f == IPv4 {
		return h.IP4
	}
	return h.IP6
}

func (c *ControlPlane) registerNode(ctx context.Context, n *Node, labels map[string]string) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux"}}}
	for k, v := range labels {
		node.Labels[k] = v
	}
	status := corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}}}
	for _, f := range c.families {
		cidr := podAddr(f, n.Number, 1).Masked().String()
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, cidr)
		status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip(f, &n.Host).String()})
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	now := metav1.Now()
	status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Lab", LastHeartbeatTime: now, LastTransitionTime: now},
		{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "Lab", LastHeartbeatTime: now, LastTransitionTime: now},
	}
	made, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Spec.Taints = nil // admission calls a new Node not ready
	if made, err = client.CoreV1().Nodes().Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	made.Status = status
	_, err = client.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// AddPod adds a Pod with its server to the node.
func (n *Node) AddPod(ctx context.Context) (*Pod, error) {
	num := len(n.Pods) + 10
	name := fmt.Sprintf("%s-pod%d", n.Name, len(n.Pods)+1)
	h, err := n.cp.Lab.AddInner(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	h.IP4, h.IP6 = podAddr(IPv4, n.Number, num).Addr(), podAddr(IPv6, n.Number, num).Addr()
	p := &Pod{Node: n, Host: *h}
	port := fmt.Sprintf("v-pod%d", num)
	err = errors.Join(
		n.cp.Lab.IP(ctx, &n.Host, fmt.Sprintf("link add %s type veth peer name eth0 netns %s", port, p.NS), fmt.Sprintf("link set %s master %s up", port, podBridge)),
		n.cp.Lab.IP(ctx, &p.Host, "link set lo up", "link set eth0 up",
			fmt.Sprintf("addr add %s dev eth0", podAddr(IPv4, n.Number, num)), fmt.Sprintf("addr add %s dev eth0 nodad", podAddr(IPv6, n.Number, num)),
			fmt.Sprintf("route add default via %s", podAddr(IPv4, n.Number, 1).Addr()), fmt.Sprintf("route add ::/0 via %s", podAddr(IPv6, n.Number, 1).Addr())),
	)
	if err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	n.Pods = append(n.Pods, p)
	return p, p.Start(ctx)
}

// Start starts the server of the Pod, at first or after Proc.Kill.
func (p *Pod) Start(ctx context.Context) error {
	cert, key, err := p.Node.cp.PKI.server(p.Name, []string{p.Name}, nil)
	if err != nil {
		return err
	}
	l := p.Node.cp.Lab
	p.Proc, err = l.Start(&p.Host, "server", nil, l.Bin.Agent, "serve", "-name", p.Name, "-cert", cert, "-key", key,
		"-https", "[::]:8443", "-echo", fmt.Sprintf("[::]:%d", ServerPort))
	if err != nil {
		return err
	}
	return Eventually(ctx, readyLimit, p.Name+" serves", func() error {
		if !p.Proc.Alive() {
			return fmt.Errorf("%w: %s", errEnded, p.Proc.Tail(3))
		}
		_, err := Ask(ctx, l, &p.Host, netip.AddrPortFrom(p.IP4, ServerPort))
		return err
	})
}
