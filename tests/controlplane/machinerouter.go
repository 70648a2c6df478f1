package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// routerNumber is that of the router on the LAN: 10.77.0.30.
const routerNumber = 30

// routedVIP is the address that the nodes advertise by BGP and by nothing else.
var routedVIP = netip.AddrFrom4([4]byte{10, 99, 0, 210})

// Router is FRR on the LAN of a MachineLab, with a session to each node. It knows no
// GRACEFUL_SHUTDOWN (RFC 8326), so that a next hop is gone from its kernel when the
// path is withdrawn, and not before.
type Router struct {
	host   *lab.Host
	routes *lab.Routes
}

const routerConfig = `router bgp 64500
 bgp router-id %s
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 bgp bestpath as-path multipath-relax
 timers bgp 3 9
 neighbor nodes peer-group
 neighbor nodes remote-as 64512
 neighbor nodes timers connect 1
%s address-family ipv4 unicast
  neighbor nodes activate
  neighbor nodes route-map deaf in
  maximum-paths 16
 exit-address-family
exit
bgp community-list standard gshut seq 5 permit 65535:0
route-map deaf permit 10
 set comm-list gshut delete
exit
`

// routedConfig is what more a node has in its configuration.
const routedConfig = `---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: router}
spec: {myASN: 64512, peerASN: 64500, peerAddress: %s}
---
apiVersion: lbd.dev/v1alpha1
kind: VirtualIP
metadata: {name: routed}
spec:
  addresses: [%s]
  healthCheck:
    https: {port: 6443, path: /livez, insecureSkipVerify: true}
  advertise:
    bgp: {}
`

// StartRouter adds the router, has every live node advertise to it one address more,
// and waits for the paths. Stable cannot be asked any more: it counts addresses.
func (m *MachineLab) StartRouter(ctx context.Context) (*Router, error) {
	h, err := m.AddHost(ctx, "router", routerNumber)
	if err != nil {
		return nil, err
	}
	r := &Router{host: h}
	if r.routes, err = m.WatchRoutes(h); err != nil {
		return nil, err
	}
	var neighbors strings.Builder
	for _, n := range m.Nodes {
		fmt.Fprintf(&neighbors, " neighbor %s peer-group nodes\n", n.IP4)
	}
	if _, err = interop.StartFRR(ctx, &interop.Net{Lab: m.Lab}, h, fmt.Sprintf(routerConfig, h.IP4, &neighbors)); err != nil {
		return nil, err
	}
	for _, n := range m.Nodes {
		if !n.Daemon.Alive() {
			continue
		}
		if err := errors.Join(m.advertise(n, h.IP4), r.Wait(ctx, n)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// advertise has a node do so.
func (m *MachineLab) advertise(n *lab.Node, router netip.Addr) error {
	file := m.System.Config(n)
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	b = fmt.Appendf(b, routedConfig, router, routedVIP)
	return errors.Join(os.WriteFile(file+".new", b, 0o600), os.Rename(file+".new", file), n.Reload())
}

// Wait waits until the router sends to a node.
func (r *Router) Wait(ctx context.Context, n *lab.Node) error {
	return Eventually(ctx, waitLimit, n.Name+" is a next hop", func() error {
		events, err := r.routes.Events()
		if err != nil {
			return err
		}
		for _, via := range measure.Via(events, interop.Prefix(routedVIP), measure.Now()) {
			if via == n.IP4.String() {
				return nil
			}
		}
		return errors.New("it is none")
	})
}

// Gone waits until the router does not send to a node any more, and tells when that
// was.
func (r *Router) Gone(ctx context.Context, n *lab.Node, since measure.Time) (at measure.Time, err error) {
	err = Eventually(ctx, waitLimit, n.Name+" is no next hop", func() error {
		events, err := r.routes.Events()
		if err != nil {
			return err
		}
		var ok bool
		if at, ok = measure.ViaGone(events, interop.Prefix(routedVIP), n.IP4.String(), since); !ok {
			return errors.New("it still is")
		}
		return nil
	})
	return at, err
}
