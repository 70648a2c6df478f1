package gobgp

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"lbd.dev/lbd/internal/bgp"
)

// TestNoDiagnosisWhileRestarting: every OPEN says that this speaker has restarted.
func TestNoDiagnosisWhileRestarting(t *testing.T) {
	if !alone(t) {
		return
	}
	for _, restarting := range []bool{true, false} {
		b, addr := newBed(t), host()
		l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 179).String())
		if err != nil {
			t.Fatal(err)
		}
		var said, unsaid atomic.Int64
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if m, err := receive(c); err == nil {
					open, _ := m.Body.(*packet.BGPOpen)
					if g := graceful(&pipe{open: open}); g != nil && g.Flags&0x8 != 0 {
						said.Add(1)
					} else {
						unsaid.Add(1)
					}
					_ = send(c, packet.NewBGPNotificationMessage(packet.BGP_ERROR_CEASE, packet.BGP_ERROR_SUB_CONNECTION_REJECTED, nil))
				}
				_ = c.Close()
			}
		}()
		p := b.peer("r", &router{asn: routerASN, addr: addr})
		p.GracefulRestart, p.RestartTime, p.Restarting = true, 10*time.Second, restarting
		b.add(p)
		wait(t, "tries", func() bool { return said.Load()+unsaid.Load() >= 3 })
		_ = l.Close()
		if restarting && unsaid.Load() != 0 || !restarting && unsaid.Load() == 0 {
			t.Errorf("restarting %v: %d OPENs say so, %d do not", restarting, said.Load(), unsaid.Load())
		}
	}
}

// TestReplacedWhileAsked: a peer that refused is asked why, and is given to the server anew in the
// same moment, as by a Reset. The answer is about the session before: it is no error of this one.
// The race detector looks at what the one who asks reads of the peer meanwhile.
func TestReplacedWhileAsked(t *testing.T) {
	if !alone(t) {
		return
	}
	b, addr := newBed(t), host()
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 179).String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	conf := b.peer("r", &router{asn: routerASN, addr: addr})
	conf.Held = "waits" // the server does not ask as well
	b.add(conf)
	b.mu.Lock()
	p := b.peers["r"]
	p.held = false
	b.move(p, event{kind: stateChanged, old: bgp.OpenSent, new: bgp.Idle, reason: "invalid-msg"})
	refusal := p.lastError
	b.enter(p)
	b.leave(p)
	b.mu.Unlock()
	var c net.Conn
	for asked := false; !asked; { // the server may have begun to connect, too
		if c, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err := receive(c)
		asked = err == nil
	}
	_ = send(c, packet.NewBGPNotificationMessage(packet.BGP_ERROR_CEASE, packet.BGP_ERROR_SUB_CONNECTION_REJECTED, nil))
	_, _ = receive(c) // it hangs up once it has the answer
	_ = c.Close()
	time.Sleep(200 * time.Millisecond)
	if s := b.Sessions()["r"]; s.LastError != refusal || s.State != bgp.Idle || len(b.list("")) != 0 {
		t.Errorf("after %q: %+v", refusal, s)
	}
}
