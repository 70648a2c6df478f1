package beat

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
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
	own, vips := claiming("m1", 60)
	s := NewSender("m1", 50*time.Millisecond, false, slog.New(slog.DiscardHandler), &Sealer{}, nil)
	p := NewPlanner("m1", own, s, func([]model.HeartbeatTarget) []netip.AddrPort {
		return []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:7947")}
	})
	p.Plan(&model.Desired{Group: model.GroupState{Heartbeats: []model.HeartbeatTarget{{Node: "m2", VIPs: vips}}}})
	bodies := s.plan.Load().targets[0].bodies
	told := 0
	for _, body := range bodies {
		msg := record.AppendBeat(nil, body, 1<<62, record.MaxLease)
		if len(msg) > record.MaxPacket {
			t.Errorf("a heartbeat has %d bytes", len(msg))
		}
		_, text, err := record.Open(msg)
		if err != nil {
			t.Fatal(err)
		}
		b, err := record.DecodeBeat(text)
		if err != nil {
			t.Fatal(err)
		}
		told += len(b.Entries)
	}
	if told != 60 || len(bodies) < 2 {
		t.Errorf("%d claims in %d messages", told, len(bodies))
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

// TestReaderIsStrict: what begins like a heartbeat that was read is read no less strictly.
func TestReaderIsStrict(t *testing.T) {
	const start = `{"n":"m2","i":1,"d":50,"e":[{"a":"10.0.0.1","v":1}]`
	r := NewReader()
	for _, c := range []struct {
		end   string
		seq   uint64
		lease int64
		valid bool
	}{
		{`,"q":8}`, 8, 0, true},
		{`,"q":9,"r":3000}`, 9, 3000, true},
		{`,"q":10}`, 10, 0, true},
		{`,"q":08}`, 0, 0, false},
		{`,"q":8,"r":03}`, 0, 0, false},
		{`,"q":8,"r":3600001}`, 0, 0, false},
		{`,"q":4611686018427387905}`, 0, 0, false},
		{`,"q":8}}`, 0, 0, false},
		{`,"q":}`, 0, 0, false},
	} {
		b, err := r.Read([]byte(start + c.end))
		if (err == nil) != c.valid || b.Seq != c.seq || b.Lease != c.lease {
			t.Errorf("%s: %+v, %v", c.end, b, err)
		}
	}
}

// FuzzReader: a heartbeat is read the same whether or not one like it was read before.
func FuzzReader(f *testing.F) {
	own, vips := claiming("m1", 3)
	for _, b := range record.BeatBodies(own.Claims(vips), time.Second) {
		f.Add(record.AppendBeat(nil, b, 7, 3000))
	}
	f.Add([]byte("\x02\x01{\"n\":\"m2\",\"i\":1,\"d\":50,\"q\":7,\"r\":9,\"q\":8}"))
	f.Add([]byte("\x02\x01{\"n\":\"m2\",\"i\":1,\"d\":50,\"r\":5,\"q\":08}"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		_, body, err := record.Open(msg)
		if err != nil {
			return
		}
		r := NewReader()
		plain, perr := record.DecodeBeat(body)
		for range 2 {
			cached, cerr := r.Read(body)
			if (perr == nil) != (cerr == nil) || !reflect.DeepEqual(plain, cached) {
				t.Fatalf("read %+v, %v; with the cache %+v, %v", plain, perr, cached, cerr)
			}
		}
	})
}

func BenchmarkSender(b *testing.B) {
	own, vips := claiming("m1", 30)
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

// TestHeartbeatsOfManyAreBounded: whatever hosts with the key make up, what is remembered of
// heartbeats has a bound.
func TestHeartbeatsOfManyAreBounded(t *testing.T) {
	r := NewReader()
	for i := range 3 * maxRead {
		b, err := r.Read(fmt.Appendf(nil, `{"n":"m%d","i":1,"d":50,"q":7}`, i))
		if want := model.NodeName(fmt.Sprintf("m%d", i)); err != nil || b.Seq != 7 || b.Name != string(want) {
			t.Fatalf("read %+v, %v", b, err)
		}
		r.Merged(make([]record.Entry, record.FewEntries+1), record.State{}, time.Now())
		if len(r.read) > maxRead || len(r.merged) > maxRead {
			t.Fatalf("%d and %d are remembered", len(r.read), len(r.merged))
		}
	}
}
