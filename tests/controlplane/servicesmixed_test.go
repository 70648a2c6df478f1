package controlplane_test

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/previous"
)

// TestServiceConnectionsWhileUpgraded: the previous version resets connections to Services by
// default, and this one keeps them. While nodes differ none is lost that moves between nodes of this
// version, or that does not move; and the node that is upgraded last takes part at once.
func TestServiceConnectionsWhileUpgraded(t *testing.T) {
	old, err := previous.For(t).LBD(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t)
	last := f.nodes[2]
	last.LBD = old
	f.restart(t, last)
	vips := append(f.serve(t, f.loadBalancer("web"), f.pods...), f.serve(t, f.loadBalancer("app"), f.pods...)...)
	for _, n := range f.nodes[:2] {
		f.keeps(t, n, "")
	}
	if is, err := f.statusOf(t.Context(), last); err != nil || strings.Contains(is, "serviceConnections") {
		t.Fatalf("the previous version does not run: %v, %s", err, is)
	}
	f.drained(t, last, vips)
	var open []*line
	for range 2 { // there and back
		for _, n := range f.nodes[:2] {
			open = append(open, f.lines(t, vips)...)
			f.drained(t, n, vips)
			answer(t, n.Name+" is drained beside the previous version", open)
			if err := f.lbd.Undrain(t.Context(), f.Lab, n.Node); err != nil {
				t.Fatal(err)
			}
			f.settled(t, vips...)
		}
	}
	if err := f.lbd.Undrain(t.Context(), f.Lab, last.Node); err != nil {
		t.Fatal(err)
	}
	f.settled(t, vips...)
	answer(t, "the previous version may own addresses", open)

	// What the previous version has stays with it, while others move.
	before := f.owners(t, last)
	open = f.lines(t, vips)
	f.drained(t, f.nodes[0], vips)
	after := f.owners(t, last)
	var stayed []*line
	for _, l := range open {
		if f.moves(before, after, l.vip, last.Name) {
			stayed = append(stayed, l)
		}
	}
	answer(t, "an owner of this version has moved", stayed)
	if err := f.lbd.Undrain(t.Context(), f.Lab, f.nodes[0].Node); err != nil {
		t.Fatal(err)
	}

	last.LBD = ""
	f.restart(t, last)
	f.keeps(t, last, "")
	f.settled(t, vips...)
	open = f.lines(t, vips)
	for _, n := range f.nodes {
		f.drained(t, n, vips)
		answer(t, n.Name+" is drained, all are upgraded", open)
		if err := f.lbd.Undrain(t.Context(), f.Lab, n.Node); err != nil {
			t.Fatal(err)
		}
		f.settled(t, vips...)
	}
}

// moves tells whether connections to an address are to be kept from one owner to the next: neither
// is the node, or both are.
func (f *fleet) moves(before, after map[netip.Addr]string, vip netip.Addr, but string) bool {
	return (before[vip] == but) == (after[vip] == but)
}

// drained drains a node, and waits until it owns nothing.
func (f *fleet) drained(t *testing.T, n *controlplane.Node, vips []netip.Addr) {
	t.Helper()
	if err := f.lbd.DrainFor(t.Context(), f.Lab, n.Node, time.Second); err != nil {
		t.Fatal(err)
	}
	f.leftBy(t, n, vips)
}

// restart ends a daemon and begins the program that the node has now.
func (f *fleet) restart(t *testing.T, n *controlplane.Node) {
	t.Helper()
	err := errors.Join(n.Daemon.Signal(syscall.SIGTERM), n.Daemon.Wait(15*time.Second))
	if err == nil {
		err = f.lbd.StartSpeaker(t.Context(), n)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.settled(t)
}
