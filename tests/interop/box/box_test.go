// Package box tests a machine that routes to masters which it learns by BGP, and nothing tells it who
// they are. TestBox is about its parts: the BGP driver with its speaker and BFD, the policy of learned
// paths and the driver of routes, with BIRD as the masters. TestSite and TestSiteRouted are about two of
// them as daemons, between a client or a router and masters with lbd.
package box

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/bgp/gobgp"
	"lbd.dev/lbd/internal/learned"
	"lbd.dev/lbd/internal/link"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/route"
	"lbd.dev/lbd/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

var vip = netip.MustParsePrefix("203.0.113.1/32")

// patience is how long something may take on a busy machine.
const patience = 30 * time.Second

// master is a host with a VIP and BIRD.
type master struct {
	*testnet.Net
	t    *testing.T
	name string
	addr netip.Addr
	dir  string
	bird *exec.Cmd
}

const config = `
router id %[1]s;
protocol device { }
protocol static vips { ipv4; route 203.0.113.1/32 blackhole; route 0.0.0.0/0 blackhole; }
protocol bfd { interface "eth0" { interval 100 ms; multiplier 3; }; }
protocol bgp box {
  local %[1]s as 64513;
  neighbor 10.0.0.10 as 64512;
  direct;
  connect delay time 1;
  connect retry time 1;
  error wait time 1, 2;
  hold time 9;
  bfd on;
  ipv4 { import none; export where source = RTS_STATIC; next hop self; };
}
`

// newMaster makes the host; its BIRD runs after start.
func newMaster(t *testing.T, n *testnet.Net, number int) *master {
	t.Helper()
	m := &master{Net: n, t: t, name: fmt.Sprintf("s%d", number), addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + number)}), dir: t.TempDir()}
	n.Add(m.name)
	n.Exec("ip", "link", "add", "p"+m.name, "type", "veth", "peer", "name", "eth0", "netns", n.NS(m.name))
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "p"+m.name).Run() })
	n.Exec("ip", "link", "set", "p"+m.name, "master", "br0", "up")
	n.IP(m.name, "link set eth0 up")
	n.IP(m.name, fmt.Sprintf("addr add %s/24 dev eth0", m.addr))
	if err := os.WriteFile(filepath.Join(m.dir, "bird.conf"), fmt.Appendf(nil, config, m.addr), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *master) start() {
	m.t.Helper()
	_ = os.Remove(m.socket()) // that of one that was killed
	m.bird = exec.Command("ip", "netns", "exec", m.NS(m.name), "bird", "-f", "-c", filepath.Join(m.dir, "bird.conf"), "-s", m.socket(), "-P", filepath.Join(m.dir, "pid"))
	m.bird.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.bird.Start(); err != nil {
		m.t.Fatal(err)
	}
	bird := m.bird
	m.t.Cleanup(func() { _, _ = bird.Process.Kill(), bird.Wait() })
}

func (m *master) socket() string { return filepath.Join(m.dir, "sock") }

func (m *master) ask(command string) {
	m.t.Helper()
	m.Exec("birdc", append([]string{"-s", m.socket()}, strings.Fields(command)...)...)
}

// box is the machine, in the namespace of the test process.
type box struct {
	t      *testing.T
	mu     sync.Mutex
	routes map[netip.Prefix]model.AppliedRoute
	out    learned.Output
	at     time.Time
	kick   chan struct{}
}

// newBox begins to learn. The daemon does the same with all its sources and drivers.
func newBox(t *testing.T) *box {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	speaker := bgp.New(bgp.Options{
		Logger:  log,
		Speaker: func(changed func()) bgp.Speaker { return gobgp.New(log, changed) },
		BFD:     func(changed func()) bgp.BFD { return bfd.New(log, changed) },
	})
	routes := route.New(route.Options{Logger: log})
	b := &box{t: t, kick: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		started := time.Now().Add(-time.Hour) // nothing is left of an earlier process
		var memory model.LearnedMemory
		for ctx.Err() == nil {
			want := &model.Desired{Synced: true, ValidUntil: time.Now().Add(time.Second)}
			want.BGP = model.BGPState{RouterID: netip.MustParseAddr("10.0.0.10"), Ready: true, Listeners: []model.BGPListener{listener()}}
			heard, err := speaker.Apply(ctx, want)
			links, lerr := link.Snapshot()
			if err != nil || lerr != nil {
				t.Error(err, lerr)
				return
			}
			out := learned.Step(&learned.Input{Now: time.Now(), Started: started, Listeners: want.BGP.Listeners, Paths: heard.Learned, Links: links, Memory: memory})
			memory = out.Memory
			want.Routes = out.State
			is, _ := routes.Apply(ctx, want) // what fails is in the report, and is tried again
			b.mu.Lock()
			b.routes, b.out, b.at = is.Routes, out, time.Now()
			b.mu.Unlock()
			select {
			case b.kick <- struct{}{}:
			default:
			}
			select {
			case <-ctx.Done():
			case <-speaker.Changed():
			case <-routes.Changed():
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		stop()
		done.Wait()
		if err := speaker.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := routes.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func listener() model.BGPListener {
	return model.BGPListener{
		Name: "masters", LocalASN: 64512, HoldTime: 9 * time.Second, MaxPrefixes: 10, Accept: []netip.Prefix{vip},
		PeerPrefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
		BFD:          &model.BFDProfile{Transmit: 100 * time.Millisecond, Receive: 100 * time.Millisecond, Multiplier: 3},
		Spread:       model.Spread{Resilient: true, Buckets: 64, Idle: 2 * time.Minute},
	}
}

// by waits until the kernel sends to exactly these masters, and returns when it did.
func (b *box) by(want ...*master) time.Time {
	b.t.Helper()
	var gateways, is []string
	for _, m := range want {
		gateways = append(gateways, m.addr.String())
	}
	for end := time.After(patience); ; {
		b.mu.Lock()
		is = nil
		for _, h := range b.routes[vip].NextHops {
			is = append(is, h.Gateway.String())
		}
		at, refused := b.at, b.out.Paths
		_, known := b.routes[vip]
		b.mu.Unlock()
		if known && strings.Join(is, " ") == strings.Join(gateways, " ") {
			return at
		}
		select {
		case <-b.kick:
		case <-end:
			b.t.Fatalf("sends to %v, want %v; refused %+v", is, gateways, refused)
		}
	}
}

// kernel is where the kernel itself says that it sends to.
func (b *box) kernel() string {
	out, _ := exec.Command("ip", "route", "show", vip.Addr().String()).CombinedOutput()
	return string(out)
}

// TestBox: masters join, withdraw, return and die, and the box follows by itself.
func TestBox(t *testing.T) {
	n := testnet.New(t)
	n.Exec("ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0", "forward_delay", "0")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "br0").Run() })
	n.Exec("ip", "link", "set", "br0", "up")
	n.Exec("ip", "addr", "add", "10.0.0.10/24", "dev", "br0")
	var s []*master
	for i := range 3 {
		s = append(s, newMaster(t, n, i+1))
	}
	s[0].start() // before the box
	b := newBox(t)
	b.by(s[0])
	s[1].start()
	s[2].start()
	b.by(s...)
	if is := b.kernel(); strings.Count(is, "nexthop via") != 3 || !strings.Contains(is, "unreachable") {
		t.Error(is)
	}
	b.mu.Lock()
	if r := b.out.Paths; len(r) != 3 || r[0].Prefix.Bits() != 0 {
		t.Errorf("refused %+v", r)
	}
	b.mu.Unlock()

	for _, c := range []struct {
		what string
		do   func()
		most time.Duration // three times what is promised; BIRD and its client take a part of it
		left []*master
	}{
		{"a master withdraws", func() { s[1].ask("disable vips") }, 0, []*master{s[0], s[2]}},
		{"it returns", func() { s[1].ask("enable vips") }, 0, s},
		{"a master is killed", func() { _ = s[2].bird.Process.Kill() }, 960 * time.Millisecond, s[:2]},
		{"a master returns", func() { s[2].start() }, 0, s},
		{"a link is cut", func() { n.Exec("ip", "link", "set", "p"+s[0].name, "down") }, 960 * time.Millisecond, s[1:]},
		{"all withdraw", func() { s[1].ask("disable vips"); s[2].ask("disable vips") }, 0, nil},
	} {
		if c.what == "a link is cut" {
			time.Sleep(3 * time.Second) // BFD comes up a while after BGP
		}
		begin := time.Now()
		c.do()
		acted := time.Now()
		at := b.by(c.left...)
		t.Logf("%s: in the kernel %v after the begin of it, %v after the end", c.what, at.Sub(begin), at.Sub(acted))
		if c.most > 0 && at.Sub(begin) > c.most {
			t.Errorf("%s: the kernel followed after %v, more than %v", c.what, at.Sub(begin), c.most)
		}
	}
	if is := b.kernel(); strings.Contains(is, "via") || !strings.Contains(is, "unreachable") {
		t.Errorf("with no master there is %s", is)
	}
}
