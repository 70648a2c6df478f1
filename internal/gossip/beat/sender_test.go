package beat

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
)

// claiming is a record of a node that claims some VIPs.
func claiming(name model.NodeName, n int) (*record.Own, []netip.Addr) {
	var vips []netip.Addr
	gs := model.GroupState{}
	for i := range n {
		vip := netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})
		vips = append(vips, vip)
		gs.VIPs = append(gs.VIPs, model.GroupVIP{Addr: vip, Standing: model.ReasonOwner, Claim: model.Claim{Owner: name, Epoch: 9}, Seen: 9})
	}
	own := record.NewOwn(name, time.Now(), 1, "v", nil)
	own.Update(&gs)
	return own, vips
}

// TestClaimsOfHeartbeats: the claims of one target go into as many messages as they need, each
// no larger than a packet, and together they are all.
func TestClaimsOfHeartbeats(t *testing.T) {
	own, vips := claiming("m1", 200)
	s := NewSender("m1", 50*time.Millisecond, false, slog.New(slog.DiscardHandler), &Sealer{}, nil)
	p := NewPlanner("m1", own, s, func([]model.HeartbeatTarget) []netip.AddrPort {
		return []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:7947")}
	})
	p.Plan(&model.Desired{Group: model.GroupState{Heartbeats: []model.HeartbeatTarget{{Node: "m2", VIPs: vips}}}})
	for _, f := range []record.Format{record.FormatJSON, record.FormatBinary} {
		own.SetFormat(f)
		p.Plan(nil)
		beats := s.plan.Load().targets[0].beats
		told := 0
		for _, b := range beats {
			b.Seq, b.Lease = 1<<62, record.MaxLease
			msg := b.Append(s.plan.Load().format, nil)
			if len(msg) > record.MaxPacket || msg[1] != byte(f) {
				t.Errorf("a heartbeat has %d bytes, format %d", len(msg), msg[1])
			}
			m, err := record.Open(msg)
			if err != nil {
				t.Fatal(err)
			}
			b, err := m.Beat()
			if err != nil {
				t.Fatal(err)
			}
			told += len(b.Entries)
		}
		if told != 200 || len(beats) < 2 {
			t.Errorf("%d claims in %d messages", told, len(beats))
		}
	}
}

// TestPlanFollows: a plan is made anew for another address of a target or another record, not
// for a decision that changes neither, and at the end there is nothing to send.
func TestPlanFollows(t *testing.T) {
	own, vips := claiming("m1", 1)
	s := NewSender("m1", 50*time.Millisecond, false, slog.New(slog.DiscardHandler), &Sealer{}, nil)
	at := netip.MustParseAddrPort("10.0.0.2:7947")
	p := NewPlanner("m1", own, s, func(to []model.HeartbeatTarget) []netip.AddrPort { return slices.Repeat([]netip.AddrPort{at}, len(to)) })
	want := &model.Desired{ValidUntil: time.Now().Add(time.Hour), Group: model.GroupState{Heartbeats: []model.HeartbeatTarget{{Node: "m2", VIPs: vips}}}}
	for _, c := range []struct {
		what string
		do   func()
		anew bool
	}{
		{"first", func() { p.Plan(want) }, true},
		{"the same", func() { p.Plan(want) }, false},
		{"nothing", func() { p.Plan(nil) }, false},
		{"another address", func() { at = netip.MustParseAddrPort("10.0.0.3:7947"); p.Plan(nil) }, true},
		{"another format", func() { own.SetFormat(record.FormatBinary); p.Plan(nil) }, true},
		{"another record", func() { own.SetKeys([]string{"k"}); p.Plan(nil) }, true},
		{"for longer", func() { p.Extend(time.Now().Add(2 * time.Hour)) }, false},
	} {
		before := s.plan.Load()
		c.do()
		now := s.plan.Load()
		if anew := before == nil || &before.targets[0] != &now.targets[0]; anew != c.anew {
			t.Errorf("%s: made anew %v", c.what, anew)
		}
		if to := now.targets[0].to; to.Address() != at.String() {
			t.Errorf("%s: to %s", c.what, to.Address())
		}
	}
	if left := time.Until(s.plan.Load().validUntil); left < 90*time.Minute {
		t.Errorf("extended to %v", left)
	}
	if p.End(); len(s.plan.Load().targets) != 0 {
		t.Errorf("after the end: %+v", s.plan.Load().targets)
	}
}

func BenchmarkSender(b *testing.B) {
	own, vips := claiming("m1", 30)
	own.SetFormat(record.Newest)
	conn, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	s := NewSender("m1", 50*time.Millisecond, true, slog.New(slog.DiscardHandler), sealerOf(b, "pair", key1), func(_ *memberlist.Node, packet []byte) error {
		_, err := conn.Write(packet)
		return err
	})
	p := NewPlanner("m1", own, s, func([]model.HeartbeatTarget) []netip.AddrPort {
		return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9")}
	})
	want := &model.Desired{ValidUntil: time.Now().Add(time.Hour), Group: model.GroupState{
		LeaseEnd: time.Now().Add(time.Second), Heartbeats: []model.HeartbeatTarget{{Node: "m2", VIPs: vips}},
	}}
	p.Plan(want)
	st := sending{s: s, ends: map[model.NodeName]ending{}, seq: 1 << 40}
	st.load()
	b.ReportAllocs()
	for b.Loop() {
		st.step()
	}
}
