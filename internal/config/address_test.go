package config

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/testnet"
)

// TestDefaultAddress: the address of the Node counts only if this host has it.
func TestDefaultAddress(t *testing.T) {
	peers := []Peer{{Host: "192.0.2.7", Addr: netip.MustParseAddr("192.0.2.7"), Port: 7947}}
	t.Setenv(nodeAddressVariable, "127.0.0.1") // every host has it
	if a, err := DefaultAddress(peers); err != nil || a != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("%v, %v", a, err)
	}
	for _, other := range []string{"203.0.113.9", "node-1", ""} {
		t.Setenv(nodeAddressVariable, other)
		// A host without any route has no default at all.
		if a, err := DefaultAddress(peers); err == nil && (a.IsLoopback() || a.String() == other) {
			t.Errorf("%q gives %v", other, a)
		}
	}
}

// TestAddressWithoutADefaultRoute: on a network that leads nowhere else a node has the address
// with which it reaches its peers, also if that is not the configured one any more.
func TestAddressWithoutADefaultRoute(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	t.Setenv(nodeAddressVariable, "")
	peers := []Peer{{Host: "10.0.0.1", Addr: netip.MustParseAddr("10.0.0.1")}, {Host: "m2"}, {Host: "10.0.0.3", Addr: netip.MustParseAddr("10.0.0.3")}}
	if a, err := DefaultAddress(peers); err == nil {
		t.Errorf("a host without an address has %v", a)
	}
	for _, args := range []string{"link add eth0 type veth peer name peer0", "link set peer0 up", "link set eth0 up", "addr add 10.0.0.31/24 dev eth0"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	if a, err := DefaultAddress(peers); err != nil || a != netip.MustParseAddr("10.0.0.31") {
		t.Errorf("%v, %v", a, err)
	}
}
