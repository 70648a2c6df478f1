package gobgp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"lbd.dev/lbd/internal/bgp"
)

// rss is the resident set of this process in KiB.
func rss(t *testing.T) int {
	t.Helper()
	unraced(t)
	runtime.GC()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.Fields(v)[0])
			return n
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// pipe is a router made of one socket, which costs no memory of its own.
type pipe struct {
	net.Conn
	prefixes atomic.Int64                     // received in NLRI
	paths    atomic.Int64                     // UPDATEs that were not withdrawals
	last     atomic.Pointer[packet.BGPUpdate] // of them
	notices  chan *packet.BGPNotification
	open     *packet.BGPOpen // that the speaker sent
}

// newPipe waits for a speaker and opens the session. It then counts what it is
// told, and sends KEEPALIVEs.
func newPipe(t *testing.T, addr netip.Addr) <-chan *pipe {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 179).String())
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan *pipe, 1)
	go func() {
		c, err := l.Accept()
		_ = l.Close()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = c.Close() })
		p := &pipe{Conn: c, notices: make(chan *packet.BGPNotification, 1)}
		me := bgp.Peer{}
		me.LocalASN, me.HoldTime, me.IPv4 = routerASN, 90*time.Second, true
		m, err := receive(c)
		if err != nil {
			return
		}
		p.open, _ = m.Body.(*packet.BGPOpen)
		_ = send(c, openMessage(&me, netip.MustParseAddr("10.7.7.7")))
		_ = send(c, packet.NewBGPKeepAliveMessage())
		out <- p
		for {
			m, err := receive(c)
			if err != nil {
				return
			}
			switch m := m.Body.(type) {
			case *packet.BGPUpdate:
				p.prefixes.Add(int64(len(m.NLRI)))
				if len(m.PathAttributes) > 0 {
					p.last.Store(m)
					p.paths.Add(1)
				}
			case *packet.BGPNotification:
				p.notices <- m
			}
		}
	}()
	return out
}

// TestMemoryOfTenThousandPaths measures; the bounds are generous.
func TestMemoryOfTenThousandPaths(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	addr := host()
	routers := newPipe(t, addr)
	before := rss(t)
	begin := time.Now()
	for i := range 10000 {
		b.set(vip(fmt.Sprintf("203.%d.%d.1", i>>8, i&255), "r"))
	}
	set := time.Since(begin)
	held := rss(t) - before
	p := b.peer("r", &router{asn: routerASN, addr: addr})
	p.IPv6, p.HoldTime = false, 90*time.Second
	b.add(p)
	r := <-routers
	b.up("r")
	begin = time.Now()
	wait(t, "10000 prefixes", func() bool { return r.prefixes.Load() == 10000 })
	told := time.Since(begin)
	after := rss(t) - before
	begin = time.Now()
	for range 100 {
		b.Sessions()
	}
	look := time.Since(begin) / 100
	begin = time.Now()
	b.set(vip("203.0.113.200", "r"))
	one := time.Since(begin)
	wait(t, "one more", func() bool { return r.prefixes.Load() == 10001 })
	t.Logf("10000 paths set in %v, advertised %v after the session came up, RSS +%d KiB, with the session +%d KiB; "+
		"one more: %v; Sessions: %v", set, told, held, after, one, look)
	if set > time.Minute || after > 100*1024 {
		t.Error("that is too much")
	}
}

// TestMemoryInAFlood: a peer sends as fast as it can. Memory stays bounded, and others are
// served.
func TestMemoryInAFlood(t *testing.T) {
	for name, limit := range map[string]uint32{"beyond the limit": 1000, "again and again the same": 2000} {
		t.Run(name, func(t *testing.T) {
			if !alone(t) {
				return
			}
			b, other := newBed(t), newRouter(t, 64514)
			other.neighbor(b.addr, lbdASN)
			b.add(b.peer("other", other))
			b.up("other")
			addr := host()
			routers := newPipe(t, addr)
			p := b.peer("flood", &router{asn: routerASN, addr: addr})
			p.IPv6, p.MaxPrefixes, p.HoldTime = false, limit, 90*time.Second
			b.add(p)
			r := <-routers
			b.up("flood")
			before := rss(t)
			var sent atomic.Int64
			go func() {
				msgs := flood(limit > 1000)
				for i := 0; ; i++ {
					if _, err := r.Write(msgs[i%len(msgs)]); err != nil {
						return
					}
					sent.Add(perUpdate)
				}
			}()
			worst, peak := time.Duration(0), 0
			for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				begin := time.Now()
				a := fmt.Sprintf("203.0.113.%d", 1+sent.Load()%200)
				b.set(vip(a, "other"))
				wait(t, "path while flooded", func() bool { _, ok := other.routes(b.addr)[a+"/32"]; return ok })
				worst = max(worst, time.Since(begin))
				peak = max(peak, rss(t)-before)
			}
			// A machine that has no time for the flood sees it later.
			for end := time.Now().Add(30 * time.Second); b.Sessions()["flood"].LastError == "" && time.Now().Before(end); {
				time.Sleep(50 * time.Millisecond)
			}
			s := b.Sessions()
			grown := rss(t) - before
			t.Logf("%d prefixes sent, RSS %+d KiB in the end and at most %+d KiB, a path reached another router within %v; session %+v", sent.Load(), grown, peak, worst, s["flood"])
			if s["other"].Flaps != 0 || s["other"].State != bgp.Established {
				t.Errorf("the other session suffered: %+v", s["other"])
			}
			// A moment where the machine is idle; a session that is not served at all ends.
			if worst > patience/6 || peak > 512*1024 || grown > 100*1024 {
				t.Error("that is too much")
			}
			words := "more than 1000 prefixes"
			if limit > 1000 {
				words = "the same again and again"
			}
			if !strings.Contains(s["flood"].LastError, words) {
				t.Errorf("%+v", s["flood"])
			}
		})
	}
}

// TestTableIsNoFlood: a router may send a table, and another one, but not for ever.
func TestTableIsNoFlood(t *testing.T) {
	if !alone(t) {
		return
	}
	b, addr := newBed(t), host()
	routers := newPipe(t, addr)
	p := b.peer("r", &router{asn: routerASN, addr: addr})
	p.IPv6, p.MaxPrefixes, p.HoldTime = false, 5*perUpdate, 90*time.Second
	b.add(p)
	r := <-routers
	b.up("r")
	msgs := flood(true)
	write := func(n int) {
		for i := range n {
			if _, err := r.Write(msgs[i%len(msgs)]); err != nil {
				return // closed
			}
		}
	}
	write(again * len(msgs)) // which are one table
	b.until("r", "the tables", func(s bgp.Session) bool { return s.UpdatesIn == uint64(again*len(msgs)) || s.Flaps > 0 })
	if s := b.Sessions()["r"]; s.State != bgp.Established || s.Flaps != 0 {
		t.Errorf("it was closed: %+v", s)
	}
	go write(20000)
	b.until("r", "closed", func(s bgp.Session) bool {
		return strings.Contains(s.LastError, "the same again and again")
	})
}

const perUpdate = 200

// flood makes UPDATEs: of ever new prefixes up to a million, or of few.
func flood(few bool) [][]byte {
	n := 5000
	if few {
		n = 5
	}
	out := make([][]byte, n)
	hop, _ := packet.NewPathAttributeNextHop(netip.MustParseAddr("10.1.1.1"))
	attrs := []packet.PathAttributeInterface{
		packet.NewPathAttributeOrigin(0),
		packet.NewPathAttributeAsPath([]packet.AsPathParamInterface{packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{routerASN})}),
		hop,
	}
	for i := range out {
		nlri := make([]packet.PathNLRI, perUpdate)
		for j := range nlri {
			var a [4]byte
			binary.BigEndian.PutUint32(a[:], uint32(20<<24+(i*perUpdate+j)<<4))
			nlri[j].NLRI, _ = packet.NewIPAddrPrefix(netip.PrefixFrom(netip.AddrFrom4(a), 28))
		}
		out[i], _ = packet.NewBGPUpdateMessage(nil, attrs, nlri).Serialize()
	}
	return out
}
