package bgp

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/model"
)

// TestBFDSessionOfAPeer: a BFD session has what the profile says and the way of the BGP session.
func TestBFDSessionOfAPeer(t *testing.T) {
	w := way{peer: netip.MustParseAddr("10.0.0.1"), local: netip.MustParseAddr("10.0.0.11"), multihop: true}
	want := bfd.Session{
		Peer: w.peer, Local: w.local, Multihop: true, MinTTL: 250,
		Transmit: 100 * time.Millisecond, Receive: 200 * time.Millisecond, Multiplier: 5, Passive: true,
	}
	for kind, auth := range map[string]*bfd.Auth{
		"":                      nil,
		"keyed-sha1":            {Type: bfd.KeyedSHA1, KeyID: 3, Key: []byte("secret")},
		"meticulous-keyed-sha1": {Type: bfd.MeticulousKeyedSHA1, KeyID: 3, Key: []byte("secret")},
	} {
		p := peer("a", "10.0.0.1")
		p.BFD = &model.BFDProfile{
			MinTTL: 250, Transmit: 100 * time.Millisecond, Receive: 200 * time.Millisecond, Multiplier: 5, Passive: true,
			AuthType: kind, AuthKeyID: 3, AuthKey: "secret",
		}
		want.Auth = auth
		if got := bfdSession(&p, w); !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\n got %+v\nwant %+v", kind, got, want)
		}
	}
}

// TestIsMultihop: which peers may be beyond a router.
func TestIsMultihop(t *testing.T) {
	internal := func(p *model.BGPPeer) { p.PeerASN = p.LocalASN }
	multihop := func(p *model.BGPPeer) { p.Multihop = true }
	ttl := func(n uint8) func(*model.BGPPeer) { return func(p *model.BGPPeer) { p.MinTTL = n } }
	for name, c := range map[string]struct {
		p    model.BGPPeer
		want bool
	}{
		"external":                          {peer("a", "127.0.0.2"), false},
		"external, on no subnet":            {peer("a", "203.0.113.9"), false},
		"external, multihop":                {peer("a", "127.0.0.2", multihop), true},
		"external, with TTL security":       {peer("a", "127.0.0.2", ttl(254)), true},
		"external, one hop of TTL security": {peer("a", "127.0.0.2", multihop, ttl(255)), false},
		"internal, on a subnet":             {peer("a", "127.0.0.2", internal), false},
		"internal, on no subnet":            {peer("a", "203.0.113.9", internal), true},
		"link-local":                        {peer("a", "fe80::1", multihop), false},
		"with a zone":                       {peer("a", "2001:db8::1%eth0", multihop), false},
	} {
		if got := isMultihop(&c.p); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestLocalFor: the local address is the one of the configuration, else that of the route.
func TestLocalFor(t *testing.T) {
	source := func(s string) func(*model.BGPPeer) {
		return func(p *model.BGPPeer) { p.Source = netip.MustParseAddr(s) }
	}
	for name, c := range map[string]struct {
		p    model.BGPPeer
		want netip.Addr
	}{
		"of the route":      {peer("a", "127.0.0.1"), netip.MustParseAddr("127.0.0.1")},
		"without a port":    {peer("a", "127.0.0.1", func(p *model.BGPPeer) { p.Port = 0 }), netip.MustParseAddr("127.0.0.1")},
		"configured":        {peer("a", "127.0.0.1", source("10.0.0.11")), netip.MustParseAddr("10.0.0.11")},
		"configured, zone":  {peer("a", "fe80::1%lo", source("fe80::2%lo")), netip.MustParseAddr("fe80::2")},
		"of a zone, unsaid": {peer("a", "fe80::1%lo"), netip.Addr{}},
	} {
		if got := localFor(&c.p); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
