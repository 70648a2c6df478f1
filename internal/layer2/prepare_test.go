package layer2

import (
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

func yieldingVIP(a netip.Addr) model.L2Advert {
	v := announceVIP(a)
	v.Yield = true
	return v
}

// TestPreparesWhileYielding: the silence is prepared as long as a VIP yields, and
// only in its family.
func TestPreparesWhileYielding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(announceVIP(vip4), announceVIP(vip6))
		if n := h.s[0].prepares + h.s[1].prepares; n != 0 {
			t.Errorf("prepared %d times without a handover", n)
		}
		h.apply(yieldingVIP(vip4), announceVIP(vip6))
		if h.s[familyOf(vip4)].prepares != 1 || h.s[familyOf(vip6)].prepares != 0 {
			t.Errorf("prepared %d times, the other family %d times", h.s[0].prepares, h.s[1].prepares)
		}
		h.apply(silentVIP(vip4), yieldingVIP(vip4b))
		if s := h.s[familyOf(vip4)]; s.prepares != 1 || !slices.Equal(s.addrs, []netip.Addr{vip4}) {
			t.Errorf("prepared %d times, silent %v", s.prepares, s.addrs)
		}
		if got := h.apply(announceVIP(vip4), yieldingVIP(vip4b)); got[vip4].Silent || !got[vip4].Announcing {
			t.Errorf("not lifted while another one yields: %+v", got[vip4])
		}
	})
}

// TestUnpreparedAnnouncesAllTheSame: a kernel that cannot be prepared keeps nobody
// from announcing, and is asked once for each handover.
func TestUnpreparedAnnouncesAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		s := h.s[familyOf(vip4)]
		s.unable = errors.New("no")
		for range 3 {
			if got := h.apply(yieldingVIP(vip4)); !got[vip4].Announcing || got[vip4].Err != "" {
				t.Errorf("report %+v", got[vip4])
			}
		}
		if s.prepares != 1 {
			t.Errorf("asked %d times", s.prepares)
		}
		h.apply(announceVIP(vip4))
		h.apply(yieldingVIP(vip4))
		if s.prepares != 2 {
			t.Errorf("asked %d times in two handovers", s.prepares)
		}
	})
}

// handles are those of the tables, which change when one is made anew.
func (l *lab) handles() []string {
	l.Helper()
	return regexp.MustCompile(`table .*lbd \{ # handle \d+`).FindAllString(l.Exec("nft", "-a", "list", "ruleset"), -1)
}

// TestLANSilenceIsReady: while a VIP yields the tables are there and silence nobody;
// then the VIP alone is added to them.
func TestLANSilenceIsReady(t *testing.T) {
	l := newLab(t)
	vips := []netip.Addr{vip4, vip6}
	for _, vip := range vips {
		l.bind(hostA, vip)
	}
	h := l.driver(Options{SilenceLifetime: 1500 * ms})
	h.apply(announceVIP(vip4), announceVIP(vip6))
	if got := l.handles(); len(got) != 0 {
		t.Fatalf("tables without a handover: %v", got)
	}
	start := time.Now()
	h.apply(yieldingVIP(vip4), yieldingVIP(vip6))
	t.Logf("Apply took %v to prepare", time.Since(start))
	ready := l.handles()
	if rules := l.rules(); len(ready) != 2 || strings.Count(rules, "set silent") != 2 || strings.Contains(rules, "expires") {
		t.Fatalf("rules:\n%s", rules)
	}
	time.Sleep(600 * ms) // past a renewal
	for _, vip := range vips {
		l.mustBeHeld(vip, true, "yielding")
	}
	l.asksAs(vip4, netip.MustParseAddr("10.0.0.9"))
	l.asksAs(vip6, netip.MustParseAddr("fd00::9"))

	start = time.Now()
	got := h.apply(silentVIP(vip4), silentVIP(vip6))
	t.Logf("Apply took %v to silence", time.Since(start))
	if now := l.handles(); !slices.Equal(now, ready) {
		t.Errorf("made anew: %v, were %v", now, ready)
	}
	for _, vip := range vips {
		if !got[vip].Silent {
			t.Errorf("%s: report %+v", vip, got[vip])
		}
		l.mustBeHeld(vip, false, "silent")
	}

	h.apply(yieldingVIP(vip4), yieldingVIP(vip6))
	for _, vip := range vips {
		l.mustBeHeld(vip, true, "yielding again")
	}
	h.apply(announceVIP(vip4), announceVIP(vip6))
	l.eventually("tables deleted", func() bool { return len(l.handles()) == 0 })
	h.apply(yieldingVIP(vip4))
	if got := l.handles(); len(got) != 1 {
		t.Errorf("tables %v", got)
	}
	h.close()
	if got := l.handles(); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

// asksAs resolves a neighbour in the name of the VIP, as an owner does: nothing
// rewrites what it asks.
func (l *lab) asksAs(vip, neighbour netip.Addr) {
	l.Helper()
	c := l.sniff(hostC, etherType(vip))
	l.IP(hostA, "neigh flush dev eth0")
	l.touch(hostA, neighbour, vip)
	l.eventually("asked as "+vip.String(), func() bool {
		return len(c.that(func(frame []byte) bool {
			spa, _, tpa := asker(frame)
			return spa == vip && tpa == neighbour
		})) > 0
	})
}

// TestLANSilenceGrowsAndShrinks: an address that joins others does not keep them
// from being renewed, one that leaves takes none with it.
func TestLANSilenceGrowsAndShrinks(t *testing.T) {
	l := newLab(t)
	l.bind(hostA, vip4)
	l.bind(hostA, vip4b)
	h := l.driver(Options{SilenceLifetime: 1500 * ms})
	h.apply(silentVIP(vip4))
	for range 12 {
		time.Sleep(150 * ms)
		h.apply(silentVIP(vip4))
		h.apply(silentVIP(vip4), silentVIP(vip4b))
	}
	l.mustBeHeld(vip4, false, "renewed")
	l.mustBeHeld(vip4b, false, "joined")
	h.apply(silentVIP(vip4b))
	l.mustBeHeld(vip4, true, "left")
	l.mustBeHeld(vip4b, false, "stayed")
}

// TestLANSilenceRenewsInTime: while nothing renews by itself, because the decision
// is old, a Set renews what would end before the next, whatever joined meanwhile.
func TestLANSilenceRenewsInTime(t *testing.T) {
	newLab(t)
	const lifetime = 600 * ms
	tb := silence.New(silence.Netfilter(silence.ARP, lifetime), lifetime, new(sync.Mutex), func(error) {})
	t.Cleanup(func() { _ = tb.Close() })
	set := func(addrs ...netip.Addr) {
		t.Helper()
		if err := tb.Set(silence.Want{Addrs: addrs, Until: time.Now().Add(-time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	for round := 1; ; round++ {
		start, last := time.Now(), time.Now()
		for _, x := range []struct {
			at    time.Duration
			addrs []netip.Addr
		}{{0, []netip.Addr{vip4}}, {200 * ms, []netip.Addr{vip4, vip4b}}, {400 * ms, []netip.Addr{vip4, vip4b}}} {
			time.Sleep(time.Until(start.Add(x.at)))
			last = time.Now()
			set(x.addrs...)
		}
		time.Sleep(time.Until(start.Add(lifetime + 150*ms)))
		got, err := tb.Leftover()
		if err == nil && slices.Contains(got, vip4) {
			return
		}
		// On a machine that is too busy it has ended since the last renewal.
		if late := time.Since(last) >= lifetime || last.Sub(start) >= lifetime; err != nil || !late || round == 20 {
			t.Fatalf("silent in round %d: %v, %v", round, got, err)
		}
	}
}
