package layer2

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// An owner asks the wire for what its own kernel has: the other owner is found, no answer
// of its own is taken for one, and its kernel goes on to answer clients.
func TestLANOwnerAsks(t *testing.T) {
	l := newLab(t)
	h := l.driver(Options{})
	number := uint64(0)
	ask := func(vip netip.Addr) (r model.ProbeResult) {
		number++
		w := probeVIP(vip, number)
		w.Lasts = 150 * time.Millisecond
		l.eventually("the end of the series", func() bool {
			r = h.apply(w)[vip].Probe
			return r.Done && r.Series == number
		})
		return r
	}
	for _, vip := range []netip.Addr{vip4, vip6} {
		l.bind(hostA, vip)
		h.apply(announceVIP(vip))
		if r := ask(vip); r.Answered {
			t.Errorf("%s, the only owner: %+v", vip, r)
		}
		l.touch(hostC, vip, netip.Addr{})
		l.eventually("the client resolves it", func() bool { return l.neigh(hostC, vip) == macA.String() })
		if h.apply(announceVIP(vip)); !h.apply(announceVIP(vip))[vip].Announcing {
			t.Errorf("%s is not announced again", vip)
		}
		l.bind(hostB, vip)
		if r := ask(vip); !r.Answered || r.By != macB {
			t.Errorf("%s, two owners: %+v", vip, r)
		}
	}
}
