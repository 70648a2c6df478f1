package relay

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// The marks by which nodes count relays stay among them: the reset of a connection that nobody
// has, which repeats the mark of the packet that it answers, has none.
func TestResetHasNoMark(t *testing.T) {
	const strays = 5
	l := newLabOf(t, nodes[:3])
	for _, vip := range []netip.Addr{vip4, vip6} {
		f := familyOf(vip)
		l.ring(vip, nodes[:3]...)
		l.steer(vip, hostA)
		resets := l.resets(vip)
		marked := l.tally(hostC, f, "marked", fmt.Sprintf("%s saddr %s tcp flags & rst == rst %s dscp != 0", f, vip, f))
		l.stray(vip, strays)
		l.eventually("resets", func() bool { return resets() >= strays })
		if n := marked(); n > 0 {
			t.Errorf("%s: %d of %d resets have a mark", vip, n, resets())
		}
	}
}

// Rules that act for longer than usual, as those of BGP, are renewed for as long: else they would
// end before they are renewed the next time.
func TestRefreshGivesTheWholeLifetime(t *testing.T) {
	l := newLab(t)
	b := l.brief(hostB)
	r := toward(vip4, hostA)
	r.Ring.Lifetime = time.Minute
	b.relay(r)
	flow := &b.d.tables[v4].flows[0]
	flow.renewed = flow.renewed.Add(-r.Ring.Lifetime / 2)
	was := flow.renewed
	b.relay(r)
	if now := b.d.tables[v4].flows[0].renewed; !now.After(was) {
		t.Fatal("not renewed")
	}
	if left := l.left(hostB); left < r.Ring.Lifetime/2 {
		t.Errorf("renewed for %s", left)
	}
}

// A server that begins to listen on the address itself is found while the address is bound, and
// not with each decision.
func TestListenersAreLookedForAgain(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	found := func() bool {
		_, ok := b.apply(toward(vip4, hostA)).Ring.ListensOn(vip4)
		return ok
	}
	if found() {
		t.Fatal("found before it listens")
	}
	l.listen(hostB, netip.AddrPortFrom(vip4, 7001).String())
	looked := b.d.host.listeners
	if found() || !b.d.host.listeners.Equal(looked) {
		t.Error("looked for again at once")
	}
	b.d.host.listeners = looked.Add(-listenersEvery)
	if !found() {
		t.Error("not looked for again")
	}
}

// Why connections that the host translates cannot be listed is told, and no longer when they can.
func TestConnectionsThatCannotBeListedAreTold(t *testing.T) {
	l := newLab(t)
	h := l.driver(hostB, discard())
	look := func(rights bool) (got model.Applied) {
		t.Helper()
		h.d.host.tracked = time.Time{}
		h.In(hostB, func() {
			if !rights {
				dropRights(t)
			}
			got, _ = h.d.Apply(t.Context(), &model.Desired{Track: true})
		})
		return got
	}
	if got := look(false).Ring; got == nil || got.Untold == "" {
		t.Errorf("without rights: %+v", got)
	}
	if got := look(true).Ring; got == nil || got.Untold != "" {
		t.Errorf("with rights: %+v", got)
	}
}
