package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// routerNumber is that of the router on the LAN: 10.77.0.30.
const routerNumber = 30

// routedVIP is the address that the nodes advertise by BGP and by nothing else.
var routedVIP = netip.AddrFrom4([4]byte{10, 99, 0, 210})

// Router is FRR on the LAN of a lab, with a session to each node. It knows no
// GRACEFUL_SHUTDOWN (RFC 8326), so that a next hop is gone from its kernel when the
// path is withdrawn, and not before.
type Router struct {
	Host   *lab.Host
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

// peerObject is the router, as a node has to know it.
const peerObject = `---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: router}
spec: {myASN: 64512, peerASN: 64500, peerAddress: %s}
`

// routedObject is an address that nodes advertise.
const routedObject = `---
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
	r, err := NewRouter(ctx, m.Lab)
	if err != nil {
		return nil, err
	}
	for _, n := range m.Nodes {
		if !n.Daemon.Alive() {
			continue
		}
		if err := errors.Join(m.AddObjects(n, r.Peer()+fmt.Sprintf(routedObject, routedVIP)), r.Wait(ctx, n)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// NewRouter adds the router, of which the nodes do not know yet.
func NewRouter(ctx context.Context, l *lab.Lab) (*Router, error) {
	h, err := l.AddHost(ctx, "router", routerNumber)
	if err != nil {
		return nil, err
	}
	r := &Router{Host: h}
	if r.routes, err = l.WatchRoutes(h); err != nil {
		return nil, err
	}
	var neighbors strings.Builder
	for _, n := range l.Nodes {
		fmt.Fprintf(&neighbors, " neighbor %s peer-group nodes\n", n.IP4)
	}
	_, err = interop.StartFRR(ctx, &interop.Net{Lab: l}, h, fmt.Sprintf(routerConfig, h.IP4, &neighbors))
	return r, err
}

// Peer is the object by which nodes know the router.
func (r *Router) Peer() string { return fmt.Sprintf(peerObject, r.Host.IP4) }

// AddObjects adds objects to the configuration of a node.
func (m *MachineLab) AddObjects(n *lab.Node, objects string) error {
	file := m.System.Config(n)
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file+".new", append(b, objects...), 0o600), os.Rename(file+".new", file), n.Reload())
}

// Leads waits until the router sends what is for an address to one node, and to no other.
func (r *Router) Leads(ctx context.Context, vip netip.Addr, n *lab.Node) error {
	return Eventually(ctx, waitLimit, fmt.Sprintf("%s is the one next hop of %s", n.Name, vip), func() error {
		events, err := r.routes.Events()
		if err != nil {
			return err
		}
		if via := measure.Via(events, interop.Prefix(vip), measure.Now()); !slices.Equal(via, []string{n.IP4.String()}) {
			return fmt.Errorf("they are %v", via)
		}
		return nil
	})
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
