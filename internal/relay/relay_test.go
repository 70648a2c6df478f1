package relay

import (
	"net/netip"
	"testing"
)

// eachFamily runs a test for both VIPs.
func eachFamily(t *testing.T, f func(*lab, netip.Addr)) {
	for _, vip := range []netip.Addr{vip4, vip6} {
		t.Run(vip.String(), func(t *testing.T) { f(newLab(t), vip) })
	}
}

func TestWithoutRelayConnectionIsReset(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		c := l.mustDial(vip)
		l.servedBy(c, hostA)
		l.steer(vip, hostB)
		l.reset(c)
	})
}

func TestConnectionGoesOn(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		b := l.driver(hostB, discard())
		c := l.mustDial(vip)
		l.servedBy(c, hostA)
		b.relay(toward(vip, hostA))
		l.steer(vip, hostB)
		l.servedBy(c, hostA)
		fresh := l.mustDial(vip)
		l.servedBy(fresh, hostB)
		l.servedBy(c, hostA)
		l.servedBy(fresh, hostB)
	})
}
