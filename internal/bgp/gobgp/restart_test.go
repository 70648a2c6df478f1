package gobgp

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"lbd.dev/lbd/internal/bgp"
)

// speakerEnv makes the test binary a speaker with graceful restart; it is
// "address router paths restarting".
const speakerEnv = "LBD_GOBGP_SPEAKER"

// speak runs until it is killed.
func speak(args string) {
	f := strings.Fields(args)
	b := &bed{addr: netip.MustParseAddr(f[0])}
	p := b.peer("r", &router{asn: routerASN, addr: netip.MustParseAddr(f[1])})
	p.GracefulRestart, p.RestartTime, p.IPv6 = true, 2*patience, false // what is stale goes long before
	p.Restarting = len(f) > 3
	up := make(chan struct{}, 1)
	s := New(slog.New(slog.DiscardHandler), func() {
		select {
		case up <- struct{}{}:
		default:
		}
	})
	try := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	try(s.Start(bgp.Global{RouterID: routerID, ASN: lbdASN}))
	for _, a := range strings.Split(f[2], ",") {
		try(s.SetPath(vip(a, "r")))
	}
	try(s.AddPeer(p))
	for s.Sessions()["r"].State != bgp.Established {
		<-up
	}
	fmt.Println("up")
	time.Sleep(time.Hour)
}

func child(t *testing.T, args string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), speakerEnv+"="+args)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _, _ = cmd.Process.Wait() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "up\n" {
		t.Fatalf("the speaker says %q", line)
	}
	return cmd
}

// TestRoutesStayOverARestart: a killed speaker's paths stay at the router until it is
// back, and what it does not advertise again goes.
func TestRoutesStayOverARestart(t *testing.T) {
	if !alone(t) {
		return
	}
	r := newRouter(t, routerASN)
	self := host()
	r.neighbor(self, lbdASN, func(p *api.Peer) {
		p.GracefulRestart = &api.GracefulRestart{Enabled: true, RestartTime: 20, DeferralTime: 1}
		for _, f := range p.AfiSafis {
			f.MpGracefulRestart = &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}}
		}
	})
	first := child(t, fmt.Sprintf("%s %s 203.0.113.1,203.0.113.2", self, r.addr))
	r.sees(self, "203.0.113.1/32", "203.0.113.2/32")
	_ = first.Process.Kill()
	_, _ = first.Process.Wait()
	gone := make(chan string, 1)
	stop := make(chan struct{})
	go func() { // the path that comes back is never away
		for {
			select {
			case <-stop:
				gone <- ""
				return
			case <-time.After(2 * time.Millisecond):
			}
			if _, ok := r.routes(self)["203.0.113.1/32"]; !ok {
				gone <- "203.0.113.1/32 was gone"
				return
			}
		}
	}()
	time.Sleep(500 * time.Millisecond)
	begin := time.Now()
	child(t, fmt.Sprintf("%s %s 203.0.113.1 restarting", self, r.addr))
	r.sees(self, "203.0.113.1/32")
	t.Logf("the stale path went %v after the start", time.Since(begin))
	close(stop)
	if s := <-gone; s != "" {
		t.Error(s)
	}
}

// TestRestartIsSaidOnce looks at the capability of RFC 4724 section 3.
func TestRestartIsSaidOnce(t *testing.T) {
	if !alone(t) {
		return
	}
	b, addr := newBed(t), host()
	p := b.peer("r", &router{asn: routerASN, addr: addr})
	p.GracefulRestart, p.RestartTime, p.Restarting = true, 10*time.Second, true
	for _, restarting := range []bool{true, false} {
		routers := newPipe(t, addr)
		if restarting {
			b.add(p)
		} else {
			b.Reset("r", "test")
		}
		r := <-routers
		b.up("r")
		found := graceful(r)
		const restartState, notification, forwarding = 0x8, 0x4, 0x80
		if found == nil || found.Time != 10 || len(found.Tuples) != 2 {
			t.Fatalf("capability %+v", found)
		}
		if (found.Flags&restartState != 0) != restarting || found.Flags&notification != 0 {
			t.Errorf("restarting %v: flags %x", restarting, found.Flags)
		}
		for _, f := range found.Tuples {
			if (f.Flags&forwarding != 0) != restarting {
				t.Errorf("restarting %v: family %+v", restarting, f)
			}
		}
	}
}

// TestRestartIsSaidToEach: a router that is there late, or takes no session at first, hears of
// the restart too, after another one has its session, and its End-of-RIB has come. The server waits
// for all peers that it has (RFC 4724 section 4.1); one that refuses it has not for a while.
func TestRestartIsSaidToEach(t *testing.T) {
	if !alone(t) {
		return
	}
	early, quick, late, refuses := newRouter(t, routerASN), host(), host(), host()
	l, err := net.Listen("tcp", netip.AddrPortFrom(refuses, 179).String())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	self := host()
	early.neighbor(self, lbdASN, func(p *api.Peer) {
		p.GracefulRestart = &api.GracefulRestart{Enabled: true, RestartTime: 20, DeferralTime: 1}
		for _, f := range p.AfiSafis {
			f.MpGracefulRestart = &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}}
		}
	})
	b := newBed(t)
	b.addr = self
	b.set(vip("203.0.113.1", "early", "quick", "late", "refuses"))
	quickly := newPipe(t, quick) // it does not send End-of-RIB
	for name, addr := range map[string]netip.Addr{"early": early.addr, "quick": quick, "late": late, "refuses": refuses} {
		p := b.peer(name, &router{asn: routerASN, addr: addr})
		p.GracefulRestart, p.RestartTime, p.Restarting = true, 10*time.Second, true
		b.add(p)
	}
	first := <-quickly
	b.up("quick")
	b.up("early")
	wait(t, "path", func() bool { return early.received(self) == 1 })
	wait(t, "the path", func() bool { return first.prefixes.Load() == 1 })
	b.fails("refuses", "closed the connection")
	_ = l.Close()
	last, again := newPipe(t, late), newPipe(t, refuses)
	routers := map[string]*pipe{"quick": first, "late": <-last, "refuses": <-again}
	for name, r := range routers {
		b.up(name)
		c := graceful(r)
		if c == nil || c.Flags&0x8 == 0 || len(c.Tuples) != 2 || c.Tuples[0].Flags&c.Tuples[1].Flags&0x80 == 0 {
			t.Errorf("router %s is told %+v", name, c)
		}
	}
	for _, r := range routers {
		wait(t, "the path", func() bool { return r.prefixes.Load() == 1 })
	}
}

// graceful is the capability of RFC 4724 section 3 that a router got.
func graceful(r *pipe) (found *packet.CapGracefulRestart) {
	for _, o := range r.open.OptParams {
		for _, c := range o.(*packet.OptionParameterCapability).Capability {
			if g, ok := c.(*packet.CapGracefulRestart); ok {
				found = g
			}
		}
	}
	return found
}

// TestRestartTimeWaitsForTheNextSession: nothing ends for it.
func TestRestartTimeWaitsForTheNextSession(t *testing.T) {
	if !alone(t) {
		return
	}
	b, addr := newBed(t), host()
	p := b.peer("r", &router{asn: routerASN, addr: addr})
	p.GracefulRestart, p.RestartTime = true, 10*time.Second
	routers := newPipe(t, addr)
	b.add(p)
	<-routers
	b.up("r")
	b.SetRestartTime("r", 2*time.Second)
	time.Sleep(500 * time.Millisecond)
	if s := b.Sessions()["r"]; s.State != bgp.Established || s.Flaps != 0 {
		t.Errorf("the session did not go on: %+v", s)
	}
	routers = newPipe(t, addr)
	b.Reset("r", "test")
	r := <-routers
	b.up("r")
	if c := graceful(r); c == nil || c.Time != 2 {
		t.Errorf("the next session says %+v", c)
	}
	// A peer that waits for its first session has it at once.
	p.Name, p.Address, p.Passive = "waits", host(), true
	b.add(p)
	b.SetRestartTime("waits", 2*time.Second)
	if got := b.list("")[p.Address].GetGracefulRestart().GetRestartTime(); got != 2 {
		t.Errorf("the server has %d s", got)
	}
}

// TestRoutesStayAtGracefulPeers: only the others hear that the process ends.
func TestRoutesStayAtGracefulPeers(t *testing.T) {
	if !alone(t) {
		return
	}
	b, one, two := newBed(t), newRouter(t, routerASN), newRouter(t, routerASN)
	for name, r := range map[string]*router{"one": one, "two": two} {
		r.neighbor(b.addr, lbdASN)
		p := b.peer(name, r)
		p.GracefulRestart, p.RestartTime = name == "one", 10*time.Second
		b.add(p)
	}
	b.set(vip("203.0.113.1", "one", "two"))
	b.up("one")
	b.up("two")
	one.sees(b.addr, "203.0.113.1/32")
	two.sees(b.addr, "203.0.113.1/32")
	begin := time.Now()
	b.Close("node stops")
	if d := time.Since(begin); d > 5*time.Second { // 200 ms where nothing else runs
		t.Errorf("Close took %v", d)
	}
	two.sees(b.addr)
	time.Sleep(time.Second)
	one.sees(b.addr, "203.0.113.1/32")
	if err := b.AddPeer(b.peer("three", two)); err == nil {
		t.Error("a session after Close")
	}
}
