package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
)

// site is a cluster of three nodes with a bit of everything that the dashboard shows: Services
// by layer 2 and by BGP, LoadBalancers for machines outside, and tenants.
type site struct {
	*controlplane.ControlPlane
	client *kubernetes.Clientset
	pods   []*controlplane.Pod // one on each node
	lbd    *controlplane.LBD

	nodePort int // the last one
}

// objects are applied once lbd runs; %s is the address of the router.
const objects = `apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: lan}
spec: {addresses: [10.77.0.101-10.77.0.116, "fd77::1:0/124"]}
---
apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: public}
spec: {addresses: [10.77.0.121-10.77.0.124], autoAssign: false}
---
apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: routed}
spec: {addresses: [10.99.0.0/29], autoAssign: false}
---
apiVersion: lbd.dev/v1alpha1
kind: L2Advertisement
metadata: {name: lan}
spec: {ipAddressPools: [lan, public]}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPAdvertisement
metadata: {name: routed}
spec: {ipAddressPools: [routed]}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: router}
spec: {myASN: 64512, peerASN: 64500, peerAddress: %s, bfdProfile: fast}
---
apiVersion: lbd.dev/v1alpha1
kind: BFDProfile
metadata: {name: fast}
spec: {transmitInterval: 100, receiveInterval: 100, detectMultiplier: 3}
`

// routerConfig is that of docs/bgp.md for FRR.
const routerConfig = `bfd
 profile fast
  transmit-interval 100
  receive-interval 100
  detect-multiplier 3
 exit
exit
!
router bgp 64500
 bgp router-id %s
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 bgp bestpath as-path multipath-relax
 timers bgp 3 9
 neighbor nodes peer-group
 neighbor nodes remote-as 64512
 neighbor nodes timers connect 1
 neighbor nodes bfd
 neighbor nodes bfd profile fast
%s address-family ipv4 unicast
  neighbor nodes activate
  maximum-paths 16
 exit-address-family
exit
`

const balancer = `apiVersion: lbd.dev/v1alpha1
kind: LoadBalancer
metadata: {name: %s}
spec:
  addresses: [10.77.0.%d]
  ports: [{port: 7000}]
  backends: [%s]
  healthCheck: {tcp: {port: 7000}}
`

func newSite(ctx context.Context, l *lab.Lab, programs *controlplane.Programs) (*site, error) {
	if err := l.AddBackends(ctx, 6); err != nil {
		return nil, err
	}
	cp, err := controlplane.Start(ctx, l, programs, controlplane.Options{Daemon: "http: {address: \":7477\"}\n"})
	if err != nil {
		return nil, err
	}
	s := &site{ControlPlane: cp}
	if s.client, err = s.Client(); err != nil {
		return nil, err
	}
	for _, h := range l.Nodes {
		n, err := s.AddNode(ctx, h, nil)
		if err != nil {
			return nil, err
		}
		p, err := n.AddPod(ctx)
		if err != nil {
			return nil, err
		}
		if err := n.StartProxy(ctx, "nftables", 0); err != nil {
			return nil, err
		}
		s.pods = append(s.pods, p)
	}
	if s.lbd, err = s.StartLBD(ctx); err != nil {
		return nil, err
	}
	router, err := s.router(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Apply(ctx, fmt.Sprintf(objects, router.IP4)); err != nil {
		return nil, err
	}
	err = errors.Join(s.balance(ctx), s.services(ctx, "lan", "web", "api", "mail"), s.services(ctx, "routed", "dns", "ntp"),
		s.tenant(ctx, "shop", l.Backends[3:5]), s.tenant(ctx, "bank", l.Backends[5:]), s.tenantService(ctx, "shop", "web"), s.tenantService(ctx, "bank", "login"))
	if err != nil {
		return nil, err
	}
	return s, controlplane.Eventually(ctx, time.Minute, "lbd is settled", func() error { return s.lbd.Settled(ctx) })
}

// router adds FRR to the LAN, with a session to each node.
func (s *site) router(ctx context.Context) (*lab.Host, error) {
	h, err := s.Lab.AddHost(ctx, "router", 30)
	if err != nil {
		return nil, err
	}
	var neighbors strings.Builder
	for _, n := range s.Lab.Nodes {
		fmt.Fprintf(&neighbors, " neighbor %s peer-group nodes\n", n.IP4)
	}
	_, err = interop.StartFRR(ctx, &interop.Net{Lab: s.Lab}, h, fmt.Sprintf(routerConfig, h.IP4, &neighbors))
	return h, err
}

// balance has two addresses lead to machines outside of the cluster: db to three of them, and
// reports to the last of these alone.
func (s *site) balance(ctx context.Context) error {
	var list []string
	for _, b := range s.Lab.Backends[:3] {
		list = append(list, fmt.Sprintf("{address: %s}", b.IP4))
	}
	return errors.Join(
		s.Apply(ctx, fmt.Sprintf(balancer, "db", 200, strings.Join(list, ", "))),
		s.Apply(ctx, fmt.Sprintf(balancer, "reports", 201, list[2])))
}

// services creates Services with a Pod on each node behind them.
func (s *site) services(ctx context.Context, pool string, names ...string) error {
	for _, name := range names {
		if err := s.SetEndpoints(ctx, s.client, name, s.pods...); err != nil {
			return err
		}
		service, class := s.LoadBalancer(name), controlplane.LoadBalancerClass
		service.Spec.LoadBalancerClass = &class
		service.Annotations = map[string]string{"lbd.dev/address-pool": pool}
		if pool != "lan" { // the others have no addresses of IPv6
			single := corev1.IPFamilyPolicySingleStack
			service.Spec.IPFamilyPolicy, service.Spec.IPFamilies = &single, []corev1.IPFamily{corev1.IPv4Protocol}
		}
		if _, err := s.client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, service, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// tenant makes one with these nodes, as its agent tells of them, and kube-proxy of each node
// says that it works.
func (s *site) tenant(ctx context.Context, name string, nodes []*lab.Node) error {
	namespace, err := s.AddTenant(ctx, name, nodes, "--limit=addresses=4", "--limit=services=4")
	if err != nil {
		return err
	}
	var list []string
	for i, n := range nodes {
		list = append(list, fmt.Sprintf("{name: %s%d, addresses: [%s], state: Serving}", name, i+1, n.IP4))
		l, err := n.Listen("[::]:10256")
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
		server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(l) }() // ends with the program
	}
	return s.Apply(ctx, fmt.Sprintf("apiVersion: lbd.dev/v1alpha1\nkind: TenantNodes\nmetadata: {name: n-0, namespace: %s}\nspec: {nodes: [%s]}\n", namespace, strings.Join(list, ", ")))
}

// tenantService is what the agent of a tenant writes for a Service, which has a NodePort of its own.
func (s *site) tenantService(ctx context.Context, tenant, name string) error {
	const object = `apiVersion: lbd.dev/v1alpha1
kind: TenantService
metadata: {name: default.%s, namespace: lbd-%s-main}
spec: {ports: [{port: 80, nodePort: %d}], families: [ipv4]}
`
	s.nodePort++
	return s.Apply(ctx, fmt.Sprintf(object, name, tenant, 30000+s.nodePort))
}
