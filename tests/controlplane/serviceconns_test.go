package controlplane_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
)

// ways are how the addresses of Services are announced: by layer 2, and by BGP to the
// router between the nodes and the client.
const ways = `apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: lan}
spec: {addresses: [10.77.0.101-10.77.0.199, "fd77::1:0-fd77::1:ffff"]}
---
apiVersion: lbd.dev/v1alpha1
kind: L2Advertisement
metadata: {name: lan}
spec: {ipAddressPools: [lan]}
---
apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: routed}
spec: {addresses: [10.99.0.0/24, "fd99::/112"], autoAssign: false}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPAdvertisement
metadata: {name: routed}
spec: {ipAddressPools: [routed]}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: tor-v4}
spec: {myASN: 64512, peerASN: 64513, peerAddress: 10.77.0.1, families: [ipv4]}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: tor-v6}
spec: {myASN: 64512, peerASN: 64513, peerAddress: "fd77::1", families: [ipv6]}
`

// TestServiceConnections: connections through Services stay open while every node is
// drained in turn and its daemon is restarted, whatever mode kube-proxy is in, wherever
// their Pods are, and whether their packets move with the owner or since a router
// chooses anew. New ones open meanwhile, as ever. Nobody has asked for that: each node finds
// out by itself, and follows its kube-proxy.
func TestServiceConnections(t *testing.T) {
	f := newFleetWith(t, ways, controlplane.Options{})
	other := f.nodes[1]
	if err := errors.Join(other.Proxy.Stop(5*time.Second), other.StartProxy(t.Context(), "iptables", proxyPause)); err != nil {
		t.Fatal(err)
	}
	r := f.router(t)
	vips := f.services(t, "lan")
	r.vips = f.services(t, "routed")
	vips = append(vips, r.vips...)
	r.spreads(t, r.Nodes)
	for _, n := range f.nodes {
		f.keeps(t, n, "")
	}
	f.answered(t, r.vips, f.pods...) // by each node: kube-proxy may be later than lbd
	quiet := f.talk(t, f.lines(t, vips))
	var open []*line
	for _, n := range f.nodes {
		open = append(open, f.lines(t, vips)...)
		if err := f.lbd.DrainFor(t.Context(), f.Lab, n.Node, time.Second); err != nil {
			t.Fatal(err)
		}
		f.leftBy(t, n, vips)
		r.spreads(t, r.Others(n.Node))
		open = append(open, f.lines(t, vips)...)
		answer(t, n.Name+" is drained", open)
		if err := f.lbd.Undrain(t.Context(), f.Lab, n.Node); err != nil {
			t.Fatal(err)
		}
		r.spreads(t, r.Nodes)
		answer(t, n.Name+" is back", open)
	}
	for _, n := range f.nodes {
		err := errors.Join(n.Daemon.Signal(syscall.SIGTERM), n.Daemon.Wait(15*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		r.spreads(t, r.Others(n.Node))
		answer(t, n.Name+" has no daemon", open)
		if err := f.lbd.StartSpeaker(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		f.settled(t, vips...)
		r.spreads(t, r.Nodes)
		open = append(open, f.lines(t, vips)...)
		answer(t, n.Name+" has a new daemon", open)
	}
	if lost := quiet(); len(lost) > 0 {
		t.Errorf("lost while they were talking: %v", lost)
	}
	if _, err := f.Lab.Exec(t.Context(), &other.Host, "ip", "link", "add", "kube-ipvs0", "type", "bridge"); err != nil {
		t.Fatal(err)
	}
	f.keeps(t, other, "kube-proxy is in IPVS mode")
	if _, err := f.Lab.Exec(t.Context(), &other.Host, "ip", "link", "del", "kube-ipvs0"); err != nil {
		t.Fatal(err)
	}
	f.keeps(t, other, "")
}

// keeps waits until a node keeps connections to Services, or says why it does not. The latter is
// no problem.
func (f *fleet) keeps(t *testing.T, n *controlplane.Node, why string) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 30*time.Second, n.Name+" has found out about its kube-proxy", func() error {
		text, err := f.statusOf(t.Context(), n)
		if err != nil {
			return err
		}
		var is struct {
			ServiceConnections *struct {
				Kept   bool
				Reason string
			}
			VIPs []struct{ Ring string }
		}
		if err := json.Unmarshal([]byte(text), &is); err != nil {
			return err
		}
		if s := is.ServiceConnections; s == nil || s.Kept != (why == "") || !strings.HasPrefix(s.Reason, why) || why == "" && s.Reason != "" {
			return fmt.Errorf("it says %+v", s)
		}
		for _, v := range is.VIPs {
			if v.Ring != "" {
				return fmt.Errorf("a problem: %s", v.Ring)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// services creates one with either externalTrafficPolicy and waits until they are
// answered at their addresses, of the pool.
func (f *fleet) services(t *testing.T, pool string) []netip.Addr {
	t.Helper()
	cluster, local := f.loadBalancer("web-"+pool), f.loadBalancer("local-"+pool)
	for _, s := range []*corev1.Service{cluster, local} {
		s.Annotations = map[string]string{"lbd.dev/address-pool": pool}
	}
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	vips := f.serve(t, cluster, f.pods...)
	f.create(t, local, f.pods...)
	return append(vips, f.localAddresses(t, local.Name)...)
}

// router is one between the nodes and the client.
type router struct {
	*interop.Net
	vips []netip.Addr // that it spreads over the nodes
}

func (f *fleet) router(t *testing.T) *router {
	t.Helper()
	n, err := interop.Divide(t.Context(), f.Lab)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.StartToR(t.Context(), n.ToRs[0], interop.Options{}); err != nil {
		t.Fatal(err)
	}
	return &router{Net: n}
}

// spreads waits until the router sends to exactly these nodes.
func (r *router) spreads(t *testing.T, nodes []*lab.Node) {
	t.Helper()
	for _, v := range r.vips {
		err := controlplane.Eventually(t.Context(), 30*time.Second, "the router has followed", func() error {
			return r.HasHops(t.Context(), r.ToRs[0], v, nodes)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// talk uses connections all the time, until the function that it returns is called, which
// tells how many were lost, and how.
func (f *fleet) talk(t *testing.T, all []*line) (end func() map[string]int) {
	t.Helper()
	lost, over := map[string]int{}, make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for len(all) > 0 {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
				before := len(all)
				if all = answers(all, lost); len(all) < before {
					t.Logf("%s: lost while they were talking, so far: %v", time.Now().UTC().Format(time.StampMilli), lost)
				}
			}
		}
	})
	return func() map[string]int {
		close(over)
		done.Wait()
		return lost
	}
}

// localAddresses waits until a Service whose packets stay on the node they come to is
// answered at its addresses.
func (f *fleet) localAddresses(t *testing.T, name string) (vips []netip.Addr) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 30*time.Second, "addresses of "+name, func() (err error) {
		if vips, err = f.addresses(t.Context(), name); err != nil {
			return err
		}
		for _, v := range vips {
			if _, err := f.ask(t.Context(), v); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.settled(t, vips...)
	return vips
}

// leftBy waits until all agree that the node owns none of the addresses.
func (f *fleet) leftBy(t *testing.T, n *controlplane.Node, vips []netip.Addr) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 30*time.Second, n.Name+" owns nothing", func() error {
		if err := f.lbd.Settled(t.Context(), vips...); err != nil {
			return err
		}
		owners, err := f.lbd.Owners(t.Context(), n)
		for _, v := range vips {
			if owners[v] == n.Name {
				err = errors.Join(err, fmt.Errorf("it owns %s", v))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// line is an open connection to a Pod.
type line struct {
	net.Conn
	from *bufio.Reader
	vip  netip.Addr
	name string // of the Pod
}

// lines opens five connections to each address.
func (f *fleet) lines(t *testing.T, vips []netip.Addr) (all []*line) {
	t.Helper()
	for _, vip := range slices.Repeat(vips, 5) {
		conn, err := f.Lab.Dial(t.Context(), f.Lab.Client, "tcp", netip.AddrPortFrom(vip, probePort).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		l := &line{Conn: conn, from: bufio.NewReader(conn), vip: vip}
		if l.name, err = l.read(); err != nil {
			t.Fatalf("%s: %v", vip, err)
		}
		all = append(all, l)
	}
	return all
}

func (l *line) read() (string, error) {
	if err := l.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	return l.from.ReadString('\n')
}

// answer wants every connection to be alive.
func answer(t *testing.T, when string, all []*line) {
	t.Helper()
	lost := map[string]int{}
	if answers(all, lost); len(lost) > 0 {
		t.Fatalf("%s: of %d connections these are lost: %v", when, len(all), lost)
	}
}

// answers uses each connection once and returns those that are alive. It adds up how the
// others were lost.
func answers(all []*line, lost map[string]int) (alive []*line) {
	for _, l := range all {
		_, err := fmt.Fprintln(l, "there?")
		if err == nil {
			_, err = l.read()
		}
		if err == nil {
			alive = append(alive, l)
			continue
		}
		lost[fmt.Sprintf("%s: %v", l.vip, errors.Unwrap(err))]++
	}
	return alive
}
