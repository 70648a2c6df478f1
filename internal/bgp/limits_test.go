package bgp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestLimitsAreLoggedOnce: that a session lacks paths is logged when it begins, and again only
// when the reason is another one; never of a session that is not up, nor of one without a limit.
func TestLimitsAreLoggedOnce(t *testing.T) {
	b := newBed(t, "", peer("a", "10.0.0.1"))
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a")}
	b.apply("start, set 203.0.113.1, add a")
	wants := func(when string, n int) {
		t.Helper()
		for range 3 {
			b.apply("")
		}
		if got := strings.Count(b.logged(), "BGP session is limited"); got != n {
			t.Errorf("%s: logged %d times, want %d:\n%s", when, got, n, b.logged())
		}
	}
	limited := func(why string) Session {
		s := established
		s.IPv4, s.NoIPv4 = false, why
		return s
	}
	wants("before it is up", 0)
	b.speaker.session("a", established)
	wants("without a limit", 0)
	b.speaker.session("a", limited("no IPv4"))
	wants("with a limit", 1)
	b.speaker.session("a", established)
	wants("the limit is gone", 1)
	b.speaker.session("a", limited("no next hop"))
	wants("another limit", 2)
	down := limited("no IPv4")
	down.State = Active
	b.speaker.session("a", down)
	wants("not up", 2)
}

// TestReasonsAreLoggedNowAndThen: the log has every new reason why there is no session, but of
// those that take turns only a few within half a minute.
func TestReasonsAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", peer("a", "10.0.0.1"))
		b.apply("start, add a")
		lost := func(why string) {
			b.speaker.session("a", Session{State: Active, LastError: why})
			b.apply("")
			b.apply("")
		}
		wants := func(n int) {
			t.Helper()
			if got := strings.Count(b.logged(), "no BGP session"); got != n {
				t.Errorf("logged %d times, want %d:\n%s", got, n, b.logged())
			}
		}
		for range 5 {
			lost("no route to host")
			lost("connection refused")
		}
		wants(tellMost)
		time.Sleep(tellAgain - time.Millisecond)
		lost("no route to host")
		wants(tellMost)
		time.Sleep(time.Millisecond)
		lost("connection refused")
		wants(tellMost + 1)
		lost("")
		wants(tellMost + 1)
	})
}
