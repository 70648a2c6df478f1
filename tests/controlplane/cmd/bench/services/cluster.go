package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// maxServices is how many the pool has room for, with some that are created later.
const maxServices = 15000

// vips are the addresses of the pool. All nodes have the subnet.
var vips = netip.MustParsePrefix("10.78.64.0/18")

const objects = `apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: lan}
spec: {addresses: [10.78.64.0/18]}
---
apiVersion: lbd.dev/v1alpha1
kind: L2Advertisement
metadata: {name: lan}
`

const speakerConfig = `apiVersion: lbd.dev/v1alpha1
kind: NodeConfiguration
nodeName: %s
gossip: {bindAddress: %s, keyFile: %s}
http: {pprof: true}
socket: %s
kubernetes: {kubeconfig: %s}
`

// proxyPause is how long kube-proxy waits between two writes of its rules. At its
// default, a second, it and not lbd is what is measured: see measureCreatedUsual.
const proxyPause = 100 * time.Millisecond

// cluster is a control plane, three nodes with a Pod each, and a client that hears
// the wire. lbd is installed and does not run yet.
type cluster struct {
	*controlplane.ControlPlane
	client *kubernetes.Clientset
	nodes  []*controlplane.Node
	pods   []*controlplane.Pod
	lbd    *controlplane.LBD
	wire   *wire
	watch  *statuses
	proxy  bool
}

func newCluster(ctx context.Context, bin *lab.Bin, programs *controlplane.Programs, proxy bool) (c *cluster, err error) {
	l, err := lab.New(ctx, bin, 3)
	if err != nil {
		return nil, err
	}
	c = &cluster{proxy: proxy}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	c.ControlPlane, err = controlplane.Start(ctx, l, programs, controlplane.Options{Families: []controlplane.Family{controlplane.IPv4}})
	if err != nil {
		return nil, err
	}
	if c.client, err = c.Client(); err != nil {
		return nil, err
	}
	for i, h := range append([]*lab.Host{l.Client}, hosts(l)...) {
		if err := l.IP(ctx, h, fmt.Sprintf("addr add 10.78.0.%d/16 dev eth0", 10+i)); err != nil {
			return nil, err
		}
	}
	for _, h := range l.Nodes {
		if err := c.addNode(ctx, h); err != nil {
			return nil, err
		}
	}
	if c.lbd, err = c.Install(ctx); err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, objects); err != nil {
		return nil, err
	}
	if c.wire, err = listen(l.Client, vips); err != nil {
		return nil, err
	}
	c.watch, err = watchStatuses(ctx, c.client)
	return c, err
}

func hosts(l *lab.Lab) []*lab.Host {
	var out []*lab.Host
	for _, n := range l.Nodes {
		out = append(out, &n.Host)
	}
	return out
}

// addNode adds a node and its Pod. Without kube-proxy nobody connects to the Pod, so
// it is an address alone.
func (c *cluster) addNode(ctx context.Context, h *lab.Node) error {
	n, err := c.AddNode(ctx, h, nil)
	if err != nil {
		return err
	}
	c.nodes = append(c.nodes, n)
	if !c.proxy {
		p := &controlplane.Pod{Node: n}
		p.IP4 = netip.AddrFrom4([4]byte{10, 244, byte(n.Number), 10})
		c.pods = append(c.pods, p)
		return nil
	}
	p, err := n.AddPod(ctx)
	if err != nil {
		return err
	}
	c.pods = append(c.pods, p)
	return n.StartProxy(ctx, "nftables", proxyPause)
}

// pauseProxies starts kube-proxy on all nodes anew with another pause; 0 is its default.
func (c *cluster) pauseProxies(ctx context.Context, pause time.Duration) error {
	for _, n := range c.nodes {
		if err := n.Proxy.Stop(changeLimit); err != nil {
			return err
		}
		if err := n.StartProxy(ctx, "nftables", pause); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) close() error {
	c.watch.stop()
	return errors.Join(c.wire.close(), c.Lab.Close())
}

// startSpeakers starts the daemons of all nodes at once.
func (c *cluster) startSpeakers(ctx context.Context) error {
	for _, n := range c.nodes {
		kubeconfig, err := c.Kubeconfig(c.APIServers[0].Host.IP4, controlplane.Speaker)
		if err != nil {
			return err
		}
		config := fmt.Sprintf(speakerConfig, n.Name, n.IP4, filepath.Join(c.Lab.Dir, "gossip.key"), c.lbd.Socket(n.Node), kubeconfig)
		if err := os.WriteFile(c.lbd.Config(n.Node), []byte(config), 0o600); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := c.lbd.Start(ctx, c.Lab, n.Node); err != nil {
			return err
		}
	}
	return nil
}

// service is one of lbd's class.
func (c *cluster) service(name string) *corev1.Service {
	s := c.LoadBalancer(name)
	class := controlplane.LoadBalancerClass
	s.Spec.LoadBalancerClass = &class
	return s
}

// create creates a Service with endpoints, which are there first.
func (c *cluster) create(ctx context.Context, s *corev1.Service, pods ...*controlplane.Pod) error {
	if err := c.SetEndpoints(ctx, c.client, s.Name, pods...); err != nil {
		return err
	}
	_, err := c.client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, s, metav1.CreateOptions{})
	return err
}

// isLocal tells whether the Service of that number has the traffic policy Local.
func isLocal(i int) bool { return i%4 == 3 }

// createMany creates n Services, a quarter of them with the traffic policy Local.
func (c *cluster) createMany(ctx context.Context, n int) error {
	work := make(chan int)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs {
		wg.Go(func() {
			for i := range work {
				s := c.service(fmt.Sprintf("s%d", i))
				pods := c.pods
				if isLocal(i) {
					s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
					pods = pods[i%3 : i%3+1]
				}
				errs[w] = errors.Join(errs[w], c.create(ctx, s, pods...))
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}

// statuses hears when Services get addresses.
type statuses struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex // guards all below
	addrs map[string]netip.Addr
	at    map[string]time.Time
	last  time.Time
	err   error
}

func watchStatuses(ctx context.Context, client *kubernetes.Clientset) (*statuses, error) {
	ctx, cancel := context.WithCancel(ctx)
	w, err := client.CoreV1().Services(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		cancel()
		return nil, err
	}
	s := &statuses{cancel: cancel, addrs: map[string]netip.Addr{}, at: map[string]time.Time{}}
	s.done.Go(func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			if svc, ok := e.Object.(*corev1.Service); ok {
				s.take(svc)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = errors.New("the watch of Services ended")
	})
	return s, nil
}

func (s *statuses) take(svc *corev1.Service) {
	if len(svc.Status.LoadBalancer.Ingress) == 0 {
		return
	}
	a, err := netip.ParseAddr(svc.Status.LoadBalancer.Ingress[0].IP)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.addrs[svc.Name]; err == nil && !known {
		s.last = time.Now()
		s.addrs[svc.Name], s.at[svc.Name] = a, s.last
	}
}

// count is how many Services have an address, and when the last of them got it.
func (s *statuses) count() (int, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.addrs), s.last, s.err
}

func (s *statuses) address(name string) (netip.Addr, time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.addrs[name]
	return a, s.at[name], ok
}

func (s *statuses) stop() {
	s.cancel()
	s.done.Wait()
}
