package relay

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// hearing is one Apply of a daemon that has just begun and has not heard of all nodes.
func (h *harness) hearing(want ...model.Relay) (got model.Applied) {
	h.Helper()
	h.hears = true
	defer func() { h.hears = false }()
	return h.apply(want...)
}

var expires = regexp.MustCompile(`expires ([0-9a-z]+)`)

// left is for how long the rules on a host act.
func (l *lab) left(host string) time.Duration {
	l.Helper()
	rules := l.nft(host, "list ruleset")
	m := expires.FindStringSubmatch(rules)
	if m == nil {
		l.Fatalf("nothing expires:\n%s", rules)
	}
	d, err := time.ParseDuration(m[1])
	if err != nil {
		l.Fatal(err)
	}
	return d
}

// TestInherits: a daemon that has not heard of all nodes leaves the rules of the one
// before in force, gives them a whole lifetime, and makes its own when it has.
func TestInherits(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		c := l.mustDial(vip)
		l.servedBy(c, hostA)
		l.driver(hostB, discard()).relay(toward(vip, hostA))
		l.steer(vip, hostB)
		elsewhere := toward(vip, hostC) // who has no such connection
		b := l.driver(hostB, discard())
		b.hearing() // nobody has said anything yet
		l.servedBy(c, hostA)
		time.Sleep(2 * time.Second)
		end := time.Now().Add(l.left(hostB) + time.Second)
		l.eventually("relayed by the rules of before", func() bool { return b.hearing(elsewhere).VIPs[vip].Relaying })
		if again := time.Now().Add(l.left(hostB)); again.Before(end) {
			l.Errorf("the rules of before end at %v, want later than %v", again, end)
		}
		l.servedBy(c, hostA)
		b.relay(elsewhere)
		if rules := l.nft(hostB, "list ruleset"); strings.Contains(rules, "dup to "+nodeAddr(hostA, vip).String()+" ") {
			l.Errorf("rules of before:\n%s", rules)
		}
	})
}

// TestInheritsNothing: rules that do not act for a wanted VIP are in nobody's way.
func TestInheritsNothing(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		c := l.mustDial(vip)
		l.servedBy(c, hostA)
		l.steer(vip, hostB)
		relays := func(b *harness) {
			l.Helper()
			l.eventually("relayed", func() bool { return b.hearing(toward(vip, hostA)).VIPs[vip].Relaying })
		}
		relays(l.driver(hostB, discard())) // there are none
		l.servedBy(c, hostA)
		time.Sleep(300 * time.Millisecond) // the client acknowledges the answer after up to 40 ms
		elsewhere := toward(vip, hostC)
		elsewhere.Addr = vip.Next()
		l.driver(hostB, discard()).relay(elsewhere)
		relays(l.driver(hostB, discard()))
		l.servedBy(c, hostA)
	})
}

// TestInheritsForAllOrNone: a VIP that the rules of before do not know, or a check that
// fails, needs rules now.
func TestInheritsForAllOrNone(t *testing.T) {
	eachFamily(t, func(l *lab, vip netip.Addr) {
		c := l.mustDial(vip)
		l.servedBy(c, hostA)
		l.steer(vip, hostB)
		next := toward(vip, hostA)
		next.Addr = vip.Next()
		ill := toward(vip, hostA)
		ill.Ring.Unwell = true
		for what, want := range map[string][]model.Relay{"another VIP": {toward(vip, hostA), next}, "a check that fails": {ill}} {
			l.driver(hostB, discard()).relay(toward(vip, hostC)) // who has no such connection
			b := l.driver(hostB, discard())
			l.eventually(what, func() bool { return b.hearing(want...).VIPs[vip].Relaying })
			if rules := l.nft(hostB, "list ruleset"); !strings.Contains(rules, "dup to "+nodeAddr(hostA, vip).String()+" ") {
				l.Errorf("%s: rules of before:\n%s", what, rules)
			}
		}
		l.servedBy(c, hostA)
	})
}

// TestFrozenInherits: a daemon that has no say leaves what is there, and its end.
func TestFrozenInherits(t *testing.T) {
	l := newLab(t)
	l.driver(hostB, discard()).relay(toward(vip4, hostA))
	time.Sleep(time.Second)
	was := time.Now().Add(l.left(hostB) + time.Second/2)
	b := l.driver(hostB, discard())
	l.In(hostB, func() {
		want := &model.Desired{ValidUntil: time.Now().Add(-time.Second), Hearing: true, Relay: []model.Relay{toward(vip4, hostC)}}
		if got, err := b.d.Apply(l.Context(), want); err != nil || !got.VIPs[vip4].Relaying {
			l.Errorf("%+v, %v", got, err)
		}
	})
	before := time.Now()
	if is := before.Add(l.left(hostB)); is.After(was) {
		l.Errorf("the rules end at %v, want before %v", is, was)
	}
	// Once it has a say they are renewed at once.
	l.eventually("renewed", func() bool {
		b.hearing(toward(vip4, hostC))
		return time.Now().Add(l.left(hostB)).After(was)
	})
	if since := time.Since(before); since >= b.d.lifetime/3 {
		l.Errorf("renewed after %v", since)
	}
}

// TestInheritsWithoutRights: where rules cannot be had that is said at once.
func TestInheritsWithoutRights(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	b.powerless = true
	if got := b.hearing(toward(vip4, hostA)); got.VIPs[vip4].Err == "" {
		t.Errorf("%+v", got)
	}
}
