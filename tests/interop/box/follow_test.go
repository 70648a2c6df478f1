package box

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/bgp/gobgp"
	"lbd.dev/lbd/internal/model"
)

// followMost is what is promised of the median, three times: other programs run beside the test.
const followMost = 3 * 5 * time.Millisecond

// TestSiteFollows: how long after a master has said that it withdraws the kernel of a box has followed.
// The test process is the master, so both times are of one clock and no program starts between.
func TestSiteFollows(t *testing.T) {
	s := newSite(t)
	prefix := netip.PrefixFrom(netip.MustParseAddr(siteVIP), 32)
	s.start("b1", "s1")
	s.await("s1", "b1")
	changes := s.groupChanges("b1")
	speaker := s.speaker()
	path := model.BGPPath{Prefix: prefix, To: []model.BGPAudience{{Peers: []string{"b1"}}}}
	if err := speaker.SetPath(path); err != nil {
		t.Fatal(err)
	}
	joined := func(n int) {
		t.Helper()
		for end := time.After(patience); ; {
			select {
			case c := <-changes:
				if c.members == n {
					return
				}
			case <-end:
				t.Fatalf("the group never had %d next hops", n)
			}
		}
	}
	joined(2)
	var took []time.Duration
	for range 12 {
		time.Sleep(50 * time.Millisecond)
		begin := time.Now()
		if err := speaker.DeletePath(prefix); err != nil {
			t.Fatal(err)
		}
		joined(1)
		took = append(took, time.Since(begin))
		if err := speaker.SetPath(path); err != nil {
			t.Fatal(err)
		}
		joined(2)
	}
	slices.Sort(took)
	t.Logf("the kernel follows a withdrawal after %v at the median, %v at worst", took[len(took)/2], took[len(took)-1])
	if m := took[len(took)/2]; m > followMost {
		t.Errorf("the kernel follows after %v at the median, more than %v", m, followMost)
	}
}

// speaker is the test process as a master of b1.
func (s *site) speaker() *gobgp.Speaker {
	s.t.Helper()
	speaker := gobgp.New(slog.New(slog.DiscardHandler), func() {})
	if err := speaker.Start(bgp.Global{ASN: 64513, RouterID: netip.MustParseAddr("10.0.0.10")}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { speaker.Close("the test ends") })
	if err := speaker.AddPeer(bgp.Peer{BGPPeer: model.BGPPeer{
		Name: "b1", LocalASN: 64513, PeerASN: 64512, Address: netip.MustParseAddr("10.0.0.21"), IPv4: true,
		HoldTime: 9 * time.Second, KeepaliveTime: 3 * time.Second, ConnectTime: time.Second, MaxPrefixes: 1,
	}}); err != nil {
		s.t.Fatal(err)
	}
	return speaker
}

// groupChange is a group of next hops that was made or changed.
type groupChange struct{ members int }

// groupChanges tells of the groups of a host from now on.
func (s *site) groupChanges(name string) <-chan groupChange {
	s.t.Helper()
	var sock *nl.NetlinkSocket
	var err error
	s.In(name, func() { sock, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_NEXTHOP) })
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(sock.Close)
	out := make(chan groupChange, 1024)
	const header, member = 8, 8 // bytes of struct nhmsg, of struct nexthop_grp
	go func() {
		for {
			msgs, _, err := sock.Receive()
			if err != nil {
				return
			}
			for _, m := range msgs {
				if m.Header.Type != unix.RTM_NEWNEXTHOP {
					continue
				}
				attrs, err := nl.ParseRouteAttr(m.Data[header:])
				if err != nil {
					continue
				}
				for _, a := range attrs {
					if a.Attr.Type == unix.NHA_GROUP {
						out <- groupChange{len(a.Value) / member}
					}
				}
			}
		}
	}()
	return out
}
