package gobgp

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
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
