package main

import (
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/config"
)

// TestPeerList: who is known by a file, as a Node and as a Machine is a peer once.
func TestPeerList(t *testing.T) {
	addrs := func(list ...string) (out []netip.Addr) {
		for _, a := range list {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	cfg := &config.Config{}
	cfg.Node.Gossip.Port = 7947
	cfg.Node.Gossip.Peers = []config.Peer{{Host: "10.0.0.11", Port: 7947}}
	j := &joined{files: cfg, nodes: addrs("10.0.0.11", "10.0.0.12"), hosts: addrs("10.0.0.12", "fd00::13")}
	want := []string{cfg.Node.Gossip.Peers[0].String(), "10.0.0.12:7947", "[fd00::13]:7947"}
	if got := j.peerList(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
