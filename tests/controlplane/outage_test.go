package controlplane_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// TestLoadBalancerWithoutAPI: while no API server answers, what is announced stays
// and fails over; when it is back, nothing moves and new Services are served.
func TestLoadBalancerWithoutAPI(t *testing.T) {
	f := newFleet(t)
	s := f.loadBalancer("web")
	vips := f.serve(t, s, f.pods...)
	dead := f.owner(t, f.nodes[0], vips[0])
	live, pods := f.others(dead)
	if err := f.SetEndpoints(t.Context(), f.client, s.Name, pods...); err != nil {
		t.Fatal(err)
	}
	f.answered(t, vips, pods...)
	eyes := f.open(t, vips...)
	from := f.begin(t)
	for _, server := range []*controlplane.Server{f.APIServers[0], f.Etcd} {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(5 * time.Second)
	for _, vip := range vips {
		if r := eyes.Reach(vip, from, measure.Now().Add(-300*time.Millisecond)); r.Failed > 0 || r.Attempts < 200 {
			t.Errorf("without an API: %s: %d of %d attempts failed: %v", vip, r.Failed, r.Attempts, r.Errors)
		}
		f.stays(t, eyes, vip, f.owner(t, live[0], vip), from)
	}
	for _, vip := range vips {
		if n := f.owner(t, live[0], vip); n != dead {
			t.Logf("%s is with %s, so it has nothing to fear from what follows", vip, n.Name)
		}
	}
	from = measure.Now()
	if err := f.Lab.LinkDown(t.Context(), &dead.Host); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second)
	for _, vip := range vips {
		r := eyes.Reach(vip, from.Add(-50*time.Millisecond), measure.Now())
		t.Logf("%s: owner died without an API: outage %v, %d of %d attempts failed %v", vip, r.Outage.Round(time.Millisecond), r.Failed, r.Attempts, r.Errors)
		if r.Never || r.Outage > slack*diesWithin {
			t.Errorf("%s: outage %v (never ended: %v), want %v at most", vip, r.Outage, r.Never, slack*diesWithin)
		}
	}
	f.apiReturns(t, eyes, dead, live[0])
}

// apiReturns starts the control plane again and heals the node.
func (f *fleet) apiReturns(t *testing.T, eyes *lab.Eyes, dead, asked *controlplane.Node) {
	from := f.begin(t)
	if err := errors.Join(f.Lab.LinkUp(t.Context(), &dead.Host), f.Etcd.Start(t.Context()), f.APIServers[0].Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	f.settled(t, eyes.VIPs...)
	time.Sleep(3 * time.Second) // watches are opened again, objects read again
	for _, vip := range eyes.VIPs {
		r := eyes.Reach(vip, from, measure.Now().Add(-300*time.Millisecond))
		if r.Failed > 0 {
			t.Errorf("%s: as the API returned %d of %d attempts failed: %v", vip, r.Failed, r.Attempts, r.Errors)
		}
		f.stays(t, eyes, vip, f.owner(t, asked, vip), from)
	}
	for _, n := range f.nodes { // it waits up to half a minute before it looks again for an API that was away
		if err := errors.Join(n.Proxy.Kill(), n.Proxy.Start(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	created := time.Now()
	later := f.loadBalancer("later")
	f.create(t, later, f.pods...)
	var vips []netip.Addr
	err := controlplane.Eventually(t.Context(), 40*time.Second, "addresses of a Service created after the outage", func() (err error) {
		vips, err = f.addresses(t.Context(), later.Name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a Service created after the outage has addresses after %v", time.Since(created).Round(10*time.Millisecond))
	f.settled(t, vips...)
	t.Logf("and they are announced after %v", time.Since(created).Round(10*time.Millisecond))
	f.answered(t, vips, f.pods...)
	t.Logf("and answered after %v", time.Since(created).Round(10*time.Millisecond))
}
