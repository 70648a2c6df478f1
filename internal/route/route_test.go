package route

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// TestRoutes: routes lead to what is wanted, to nothing if there is no next hop, and all is
// gone once they are not wanted any more.
func TestRoutes(t *testing.T) {
	l := newLab(t)
	r := l.router()
	got := r.has(wanted(resilient, "s3", "s1", "s2"))
	for _, vip := range both {
		is := got.Routes[vip]
		if !is.Resilient || !slices.IsSortedFunc(is.NextHops, model.NextHop.Compare) {
			t.Errorf("%+v", is)
		}
		if by := l.IP(box, "route get "+vip.Addr().String()); !strings.Contains(by, " via ") {
			t.Error(by)
		}
		l.open(1, vip)
	}
	if n := len(l.tables()); n != 2*64 {
		t.Errorf("%d buckets", n)
	}
	r.has(wanted(resilient))
	for _, vip := range both {
		out, err := exec.Command("ip", "-n", l.NS(box), "route", "get", vip.Addr().String()).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "No route to host") && !strings.Contains(string(out), "unreachable") {
			t.Errorf("without a next hop: %s %v", out, err)
		}
	}
	if is := l.ours(); strings.Contains(is, "id ") {
		t.Errorf("without a next hop there is %s", is)
	}
	r.has(wanted(resilient, "s2"))
	r.has(nil)
	if is := l.ours(); is != "" {
		t.Errorf("left: %s", is)
	}
}

// TestLeaveAndReturn: when a next hop leaves or returns no connection of another one is lost.
func TestLeaveAndReturn(t *testing.T) {
	l := newLab(t)
	r := l.router()
	r.has(wanted(resilient, machines...))
	for _, vip := range both {
		conns := l.open(60, vip)
		before := l.tables()
		begin := time.Now()
		r.has(wanted(resilient, "s2", "s3"))
		took := time.Since(begin)
		had, own, others := lost(conns, "s1")
		t.Logf("%s: s1 left within %v: lost %d of its %d, %d of others", vip, took, own, had, others)
		if own != had || had == 0 || had > 40 || others != 0 {
			t.Errorf("%s: s1 had %d and lost %d, others lost %d", vip, had, own, others)
		}
		moved := 0
		for bucket, to := range l.tables() {
			if before[bucket] != to {
				moved++
			}
		}
		if moved == 0 || moved > 2*22 {
			t.Errorf("%s: %d buckets moved, a third of 128 had to", vip, moved)
		}
		conns = slices.DeleteFunc(conns, func(c conn) bool { return c.by == "s1" })
		r.has(wanted(resilient, machines...))
		time.Sleep(time.Second) // the kernel moves idle buckets by and by
		if _, _, others := lost(conns, "s1"); others != 0 {
			t.Errorf("%s: others lost %d of %d as s1 returned", vip, others, len(conns))
		}
		await(t, "new connections to s1", func() bool {
			return slices.ContainsFunc(l.open(10, vip), func(c conn) bool { return c.by == "s1" })
		})
	}
}

// await waits for something.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("in vain waited for " + what)
		}
	}
}

// ways are the routes of the box and where they lead, whatever the numbers of the groups.
func (l *lab) ways() string {
	l.Helper()
	return regexp.MustCompile(`nhid \d+ `).ReplaceAllString(l.IP(box, "-4 route show proto 108")+l.IP(box, "-6 route show proto 108"), "")
}

// TestForeignChanges are undone as soon as they are heard of.
func TestForeignChanges(t *testing.T) {
	l := newLab(t)
	r := l.router()
	routes := wanted(resilient, machines...)
	r.has(routes)
	want := l.ways()
	for _, commands := range [][]string{
		{"route del 203.0.113.1/32 metric 27746"},
		{"-6 route del fd01::1/128 metric 27746"},
		{"route del unreachable 203.0.113.1/32"},
		{"-6 route del unreachable fd01::1/128"},
		{fmt.Sprintf("nexthop del id %d", firstID)},
		{"nexthop flush proto 108"},
		{fmt.Sprintf("nexthop replace id %d via 10.0.0.77 dev eth0", firstID)},
		{"link set eth0 down", "link set eth0 up", "addr replace fd00::10/64 dev eth0 nodad"},
	} {
		begin := time.Now()
		for _, c := range commands {
			l.IP(box, c)
		}
		if l.ways() == want {
			t.Errorf("%s changes nothing", commands)
		}
		await(t, commands[0]+" to be undone", func() bool {
			select {
			case <-r.Changed(): // without it the driver does not look
				if r.Extend(time.Now()) {
					t.Errorf("%s: nothing to do", commands)
				}
				_, err := r.want(routes)
				for err != nil && time.Since(begin) < patience { // the link comes up by and by
					time.Sleep(20 * time.Millisecond)
					_, err = r.want(routes)
				}
			default:
			}
			return l.ways() == want
		})
		t.Logf("%s: undone after %v", commands, time.Since(begin))
	}
	await(t, "rest", func() bool { // the link may have more to say
		select {
		case <-r.Changed():
			_, _ = r.want(routes)
		default:
		}
		return r.Extend(time.Now())
	})
}

// TestCarrier: the kernel removes all next hops of an interface without a carrier, and says
// nothing of it for IPv4. They are back soon after the carrier is.
func TestCarrier(t *testing.T) {
	l := newLab(t)
	r := l.router()
	routes := wanted(resilient, machines...)[:1]
	r.has(routes)
	want := l.ways()
	step := func(what string, done func() bool) {
		t.Helper()
		var err error
		await(t, what, func() bool {
			select {
			case <-r.Changed(): // without it the driver does not look, unless it has failed
				_, err = r.want(routes)
			default:
				if err != nil {
					_, err = r.want(routes)
				}
			}
			return done() && (err == nil) == (l.ways() == want)
		})
	}
	l.IP("", "link set pb down")
	step("the loss of the carrier to be seen", func() bool { return l.ways() != want && len(r.reported[vip4].NextHops) == 0 })
	if is := r.reported[vip4]; !strings.Contains(is.Err, "10.0.0.11 by eth0: ") {
		t.Errorf("%+v", is)
	}
	l.IP("", "link set pb up")
	step("the routes to be back", func() bool { return l.ways() == want && len(r.reported[vip4].NextHops) == 3 })
}

// TestOwnChangesAreNoNews: what the driver itself does wakes it not.
func TestOwnChangesAreNoNews(t *testing.T) {
	l := newLab(t)
	r := l.router()
	r.has(wanted(resilient, machines...))
	time.Sleep(100 * time.Millisecond)
	r.foreign.Store(false)
	r.has(wanted(resilient, "s1", "s3"))
	r.has(wanted(resilient))
	r.has(wanted(resilient, machines...))
	time.Sleep(100 * time.Millisecond)
	if r.foreign.Load() || !r.Extend(time.Now()) {
		t.Error("its own changes woke it")
	}
}

// TestRestart: the next process takes the groups over as they are. While it has not heard of all
// next hops those that are there stay, but what it has heard of may leave.
func TestRestart(t *testing.T) {
	l := newLab(t)
	first := l.router()
	first.has(wanted(resilient, machines...))
	conns := append(l.open(20, vip4), l.open(20, vip6)...)
	before, tables := l.ours(), l.tables()
	hearing := func(d *model.Desired) { d.Routes.Hearing = true }
	unsynced := func(d *model.Desired) { d.Synced = false }
	next := l.router()
	same := func(when string) {
		t.Helper()
		if is := l.ours(); is != before || !mapsEqual(tables, l.tables()) {
			t.Errorf("%s: %s", when, is)
		}
	}
	for _, c := range []struct {
		when   string
		routes []model.Route
		change func(*model.Desired)
	}{
		{"before all sources are heard", nil, unsynced},
		{"before a machine is heard", nil, hearing},
		{"before a machine is heard, with the prefix", wanted(resilient), hearing},
		{"after one is heard", wanted(resilient, "s2"), hearing},
		{"after two are heard", wanted(resilient, "s1", "s2"), hearing},
	} {
		if _, err := next.want(c.routes, c.change); err != nil {
			t.Error(c.when, err)
		}
		same(c.when)
	}
	next.has(wanted(resilient, machines...))
	same("after all are heard")
	if _, own, others := lost(conns, ""); own+others != 0 {
		t.Errorf("%d of %d connections lost", own+others, len(conns))
	}

	third := l.router()
	_, _ = third.want(wanted(resilient, "s1", "s2"), hearing)
	got, err := third.want(wanted(resilient, "s2"), hearing)
	if hops := got.Routes[vip4].NextHops; err != nil || len(hops) != 2 || hops[0].Gateway != gateway("s2", vip4) || hops[1].Gateway != gateway("s3", vip4) {
		t.Errorf("s1 was heard of and has left, s3 was not heard of yet: %+v, %v", hops, err)
	}
	third.has(wanted(resilient, "s2"))
	if _, own, others := lost(slices.DeleteFunc(conns, func(c conn) bool { return c.by != "s2" }), ""); own+others != 0 {
		t.Errorf("%d connections of s2 lost", own+others)
	}
}

func mapsEqual(a, b map[string]string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// TestChangeOfMode: a route leads to another group without a moment in which it leads nowhere.
func TestChangeOfMode(t *testing.T) {
	l := newLab(t)
	r := l.router()
	conns := map[string][]conn{}
	for _, spread := range []model.Spread{
		{}, resilient, {Resilient: true, Buckets: 128, Idle: time.Minute, Unbalanced: time.Minute},
		{Resilient: true, Buckets: 128, Idle: time.Hour}, {Resilient: true}, {},
	} {
		got := r.has(wanted(spread, "s1"))
		if got.Routes[vip4].Resilient != spread.Resilient {
			t.Errorf("%+v: %+v", spread, got.Routes[vip4])
		}
		if conns[""] == nil {
			conns[""] = append(l.open(5, vip4), l.open(5, vip6)...)
		}
		if _, own, others := lost(conns[""], ""); own+others != 0 {
			t.Errorf("%+v: %d lost", spread, own+others)
		}
		is := l.IP(box, "-d nexthop show proto 108 groups")
		if n := strings.Count(is, "group"); n != 2 {
			t.Errorf("%+v: %d groups: %s", spread, n, is)
		}
		size := fmt.Sprintf("buckets %d idle_timer %d", spread.Buckets, int(spread.Idle.Seconds()))
		if spread.Buckets == 0 {
			size = "buckets 1024"
		}
		if strings.Contains(is, size) != spread.Resilient {
			t.Errorf("%+v: %s", spread, is)
		}
		got = r.has(wanted(spread, "s1"))
		if !r.Extend(time.Now()) {
			t.Errorf("%+v: something is to be done", spread)
		}
	}
}

// TestWeights: a next hop of weight 3 has three times the buckets of one of weight 1.
func TestWeights(t *testing.T) {
	l := newLab(t)
	r := l.router()
	routes := wanted(resilient, "s1", "s2")[:1]
	routes[0].NextHops[1].Weight = 3
	r.has(routes)
	count := map[string]int{}
	for _, to := range l.tables() {
		count[to]++
	}
	if n := slices.Sorted(values(count)); !slices.Equal(n, []int{16, 48}) {
		t.Errorf("buckets %v", n)
	}
	routes[0].NextHops[1].Weight = model.MaxWeight
	r.has(routes)
	if is := r.has(routes).Routes[vip4].NextHops[1].Weight; is != model.MaxWeight {
		t.Errorf("weight %d", is)
	}
}

func values(m map[string]int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

// TestTheSameTable: two boxes that learn next hops in another order spread alike.
func TestTheSameTable(t *testing.T) {
	l := newLab(t)
	r := l.router()
	table := func(by ...string) map[string]string {
		t.Helper()
		r.has(nil)
		r.has(wanted(resilient, by...))
		at := map[uint32]string{}
		hops, err := r.kernel.hops()
		if err != nil {
			t.Fatal(err)
		}
		for id, h := range hops {
			at[id] = h.gateway.String()
		}
		out := make(map[string]string)
		for bucket, to := range l.tables() {
			var id uint32
			if _, err := fmt.Sscan(to, &id); err != nil {
				t.Fatal(err)
			}
			_, index, _ := strings.Cut(bucket, " ")
			family := "4 "
			if strings.Contains(at[id], ":") {
				family = "6 "
			}
			out[family+index] = at[id]
		}
		return out
	}
	if a, b := table("s1", "s2", "s3"), table("s3", "s1", "s2"); !mapsEqual(a, b) || len(a) != 128 {
		t.Errorf("%d buckets\n%v\n%v", len(a), a, b)
	}
}

// TestBadNextHops are told, and the rest is not affected.
func TestBadNextHops(t *testing.T) {
	l := newLab(t)
	r := l.router()
	routes := wanted(resilient, "s1", "s2")
	routes[0].NextHops = append(routes[0].NextHops,
		model.NextHop{Gateway: gateway("s3", vip4), Interface: "eth7"},
		model.NextHop{Gateway: gateway("s3", vip4).Next().Next().Next(), Interface: "eth1"})
	bad := model.Route{Prefix: vip6, NextHops: []model.NextHop{{Gateway: gateway("s1", vip4), Interface: "eth0"}}}
	got, err := r.want(append(routes, bad, model.Route{}))
	if !errors.Is(err, unix.ENODEV) || r.Extend(time.Now()) {
		t.Errorf("%v", err)
	}
	if is := got.Routes[vip4]; len(is.NextHops) != 2 || !strings.Contains(is.Err, "10.0.0.13 by eth7") || !strings.Contains(is.Err, "10.0.0.16 by eth1") {
		t.Errorf("%+v", is)
	}
	if is := got.Routes[vip6]; len(is.NextHops) != 2 || is.Err != "" {
		t.Errorf("%+v", is)
	}
	l.open(1, vip4)
	l.open(1, vip6)

	l.IP(box, "route add 203.0.113.2/32 via 10.0.0.12 metric 27746") // not ours
	theirs := model.Route{Prefix: vip4.Masked(), NextHops: routes[1].NextHops, Spread: resilient}
	theirs.Prefix = model.PrefixOf(vip4.Addr().Next(), 0)
	got, err = r.want([]model.Route{routes[1], theirs})
	if is := got.Routes[theirs.Prefix]; !errors.Is(err, unix.EEXIST) || is.Err == "" || len(is.NextHops) != 0 || got.Routes[vip6].Err != "" {
		t.Errorf("%+v, %v", got.Routes, err)
	}
	if is := l.IP(box, "route show 203.0.113.2"); !strings.Contains(is, "via 10.0.0.12") {
		t.Errorf("the route of somebody else is now %s", is)
	}
}

// TestNothingWanted costs no socket that listens, and reads the kernel only.
func TestNothingWanted(t *testing.T) {
	l := newLab(t)
	r := l.router()
	if _, err := r.want(nil); err != nil || r.stop != nil || !r.Extend(time.Now()) {
		t.Errorf("%v, listens %v", err, r.stop != nil)
	}
}

// TestShortMessages: no part of a message is read beyond its end.
func TestShortMessages(t *testing.T) {
	l := newLab(t)
	r := l.router()
	r.has(wanted(resilient, machines...))
	seen := 0
	for kind, answer := range map[int]uint16{unix.RTM_GETNEXTHOP: unix.RTM_NEWNEXTHOP, unix.RTM_GETROUTE: unix.RTM_NEWROUTE} {
		filter := make([]byte, hopHeader)
		if kind == unix.RTM_GETROUTE {
			filter = make([]byte, unix.SizeofRtMsg)
		}
		err := r.kernel.Ask(kind, unix.NLM_F_DUMP, answer, func() {}, func(m []byte) {
			for n := range len(m) + 1 {
				seen++
				parseHop(slices.Clone(m[:n]))
				_, _ = parseRoute(slices.Clone(m[:n]))
			}
		}, raw(filter))
		if err != nil {
			t.Error(err)
		}
	}
	if seen < 500 {
		t.Errorf("only %d", seen)
	}
}

// raw is the begin of a message.
type raw []byte

func (r raw) Len() int          { return len(r) }
func (r raw) Serialize() []byte { return r }
