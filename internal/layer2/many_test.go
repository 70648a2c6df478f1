package layer2

import (
	"net/netip"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// share is how many VIPs one of three nodes has of 5000.
const share = 1667

// TestNothingNewOfMany: a decision that asks of thousands of VIPs for what it did
// before costs no frame, no filter, no new report and next to no memory.
func TestNothingNewOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		var want []model.L2Advert
		for a := vip4; len(want) < share; a = a.Next() {
			want = append(want, respondVIP(a))
		}
		h.apply(want...)
		first := h.apply(want...)
		time.Sleep(10 * time.Second) // the burst is over
		synctest.Wait()
		if !h.d.entries[vip4].runs() {
			t.Error("each decision looks again at what runs")
		}
		sent, filtered := len(h.k.sent()), h.k.ports[portKey{"eth0", silence.ARP}].addrs
		one := func(m map[netip.Addr]model.AppliedVIP) uintptr { return reflect.ValueOf(m).Pointer() }
		var got map[netip.Addr]model.AppliedVIP
		if n := testing.AllocsPerRun(10, func() { got = h.apply(want...) }); n > 50 {
			t.Errorf("%v allocations", n)
		}
		if one(got) != one(first) {
			t.Error("another report that says the same")
		}
		if n := len(h.k.sent()); n != sent {
			t.Errorf("%d frames", n-sent)
		}
		if p := h.k.ports[portKey{"eth0", silence.ARP}]; h.k.opened != 1 || &p.addrs[0] != &filtered[0] {
			t.Error("the filter was set again")
		}
		// What is news is told, filtered and dropped.
		h.k.hear(gratuitous(rivalMAC, vip4))
		if got = h.apply(want...); one(got) == one(first) || got[vip4].Conflicts != 1 {
			t.Errorf("a conflict is not told: %+v", got[vip4])
		}
		got = h.apply(want[1:]...)
		if _, still := got[vip4]; still || len(got) != share-1 {
			t.Errorf("%d VIPs after one was dropped", len(got))
		}
		if p := h.k.ports[portKey{"eth0", silence.ARP}]; len(p.addrs) != share-1 {
			t.Errorf("the filter passes %d VIPs", len(p.addrs))
		}
		// A socket that is broken is replaced although nothing else is new.
		h.k.ports[portKey{"eth0", silence.ARP}].ev.Broken(errStale)
		if h.apply(want[1:]...); h.k.opened != 2 {
			t.Errorf("%d sockets were opened, want a second one", h.k.opened)
		}
	})
}

// TestRefreshesOfManyFallTogether: announcements that only refresh go out a few times a
// second, whatever their number, since each time wakes every node; each address has its
// own within the interval.
func TestRefreshesOfManyFallTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		var want []model.L2Advert
		for a := vip4; len(want) < share; a = a.Next() {
			want = append(want, respondVIP(a))
		}
		h.apply(want...)
		time.Sleep(20 * time.Second) // the bursts are over
		synctest.Wait()
		burst := len(h.k.sent())
		time.Sleep(refreshInterval)
		synctest.Wait()
		moments, targets := map[time.Duration]bool{}, map[string]bool{}
		for _, e := range h.k.sent()[burst:] {
			moments[e.at.Round(ms)] = true
			if !isQuestion(e.frame) {
				targets[string(e.frame)] = true
			}
		}
		// They are spread as the ends of the bursts were; the pace parts a full slot in two.
		if most := 2 * (int((2*share*time.Second/paceRate+refreshJitter)/refreshSlot) + 1); len(moments) > most {
			t.Errorf("refreshes at %d moments, at most %d are needed", len(moments), most)
		}
		if len(targets) != share {
			t.Errorf("%d of %d addresses were refreshed", len(targets), share)
		}
	})
}
