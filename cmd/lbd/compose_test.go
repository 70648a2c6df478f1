package main

import (
	"net/netip"
	"testing"

	"lbd.dev/lbd/internal/config"
)

// TestDefaultAddress: the address of the Node counts only if this host has it.
func TestDefaultAddress(t *testing.T) {
	peers := []config.Peer{{Host: "192.0.2.7", Addr: netip.MustParseAddr("192.0.2.7"), Port: 7947}}
	t.Setenv(nodeAddressVariable, "127.0.0.1") // every host has it
	if a, err := defaultAddress(peers); err != nil || a != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("%v, %v", a, err)
	}
	for _, other := range []string{"203.0.113.9", "node-1", ""} {
		t.Setenv(nodeAddressVariable, other)
		// A host without any route has no default at all.
		if a, err := defaultAddress(peers); err == nil && (a.IsLoopback() || a.String() == other) {
			t.Errorf("%q gives %v", other, a)
		}
	}
}
