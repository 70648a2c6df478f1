package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/fieldtest"
	"lbd.dev/lbd/internal/model"
)

// TestEqual: every field of a decision counts but those named here, a new one too.
func TestEqual(t *testing.T) {
	all := func(a, b *model.Desired) bool { return equal("", a, b) }
	fieldtest.Same(t, all, "Gen", "ValidUntil", "Rules", "Status", "Refused", "Memory", "Services.Known", "Services.Works", "Services.NoProxy", "Services.Unfit", "Wake", "Relay[].Ring: a copy", "Relay[].Repliers: a copy")
	var a, b model.Desired
	now := time.Now()
	a.Group.LeaseEnd, b.Group.LeaseEnd = now, now.UTC()
	if !all(&a, &b) {
		t.Error("the same time in another form differs")
	}
}

// TestEqualForItsDriver: what counts for nobody's driver but one counts for that one.
func TestEqualForItsDriver(t *testing.T) {
	drivers := []model.SinkName{model.SinkAddress, model.SinkLayer2, model.SinkBGP, model.SinkRelay, model.SinkForward, model.SinkRoute, model.SinkGossip, model.SinkMachines}
	fieldtest.Same(t, func(a, b *model.Desired) bool {
		alike := func(n model.SinkName) bool { return equal(n, a, b) }
		return !slices.ContainsFunc(drivers, func(n model.SinkName) bool { return !alike(n) })
	}, "Gen", "ValidUntil", "Rules", "Status", "Refused", "Memory", "Services.Known", "Services.Works", "Services.NoProxy", "Services.Unfit", "Wake", "Relay[].Ring: a copy", "Relay[].Repliers: a copy")
}

// TestSameReport: every field of a report counts but which decision it is of, and when the
// driver looked.
func TestSameReport(t *testing.T) {
	fieldtest.Same(t, sameReport, "Gen", "At")
}

// TestSameMemory: what is not compared shows in the statuses, in what drivers are asked for,
// or is waited for with Wake.
func TestSameMemory(t *testing.T) {
	fieldtest.Same(t, sameMemory, "Gen", "Counts", "Lists", "Membership.Machine", "Membership.Disabled", "Left", "Rings", "Wires",
		"Advertised.Aggregates", "Advertised.Conflicts", "Balance", "VIPs: a copy", "BGP: a copy", "Advertised.Losses: a copy")
}

var addrA, addrB = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")

// TestMoved: a phase that began is seen although the drivers are asked for the
// same, and what only passes by is not.
func TestMoved(t *testing.T) {
	type vips = map[netip.Addr]model.VIPMemory
	type bgp = map[netip.Addr]model.BGPMemory
	one, first := vips{addrA: {Gen: 7, Phase: model.PhaseOwner}}, bgp{addrA: {Gen: 7, Phase: model.BGPAdvertised}}
	for name, c := range map[string]struct {
		a, b model.Memory
		want bool
	}{
		"nothing":             {model.Memory{}, model.Memory{}, false},
		"the same map":        {model.Memory{VIPs: one, BGP: first}, model.Memory{VIPs: one, BGP: first}, false},
		"a copy":              {model.Memory{VIPs: one}, model.Memory{VIPs: vips{addrA: {Gen: 7, Phase: model.PhaseOwner, OnWire: model.OnWire{Asks: 1}}}}, false},
		"a copy, BGP":         {model.Memory{BGP: first}, model.Memory{BGP: bgp{addrA: {Gen: 7, Phase: model.BGPAdvertised, Epoch: 1}}}, false},
		"one decision later":  {model.Memory{Gen: 1}, model.Memory{Gen: 2}, false},
		"generation":          {model.Memory{VIPs: one}, model.Memory{VIPs: vips{addrA: {Gen: 8, Phase: model.PhaseOwner}}}, true},
		"phase":               {model.Memory{VIPs: one}, model.Memory{VIPs: vips{addrA: {Gen: 7, Phase: model.PhaseHandover}}}, true},
		"one more":            {model.Memory{}, model.Memory{VIPs: vips{addrA: {}}}, true},
		"one less":            {model.Memory{VIPs: vips{addrA: {}}}, model.Memory{VIPs: vips{}}, true},
		"another":             {model.Memory{VIPs: one}, model.Memory{VIPs: vips{addrB: {Gen: 7}}}, true},
		"generation, BGP":     {model.Memory{BGP: first}, model.Memory{BGP: bgp{addrA: {Gen: 8, Phase: model.BGPAdvertised}}}, true},
		"phase, BGP":          {model.Memory{BGP: first}, model.Memory{BGP: bgp{addrA: {Gen: 7, Phase: model.BGPShutdown}}}, true},
		"one more, BGP":       {model.Memory{}, model.Memory{BGP: bgp{addrA: {}}}, true},
		"one less, BGP":       {model.Memory{BGP: bgp{addrA: {}}}, model.Memory{BGP: bgp{}}, true},
		"BGP beside one that": {model.Memory{VIPs: one, BGP: first}, model.Memory{VIPs: one, BGP: bgp{addrA: {Gen: 8}}}, true},
	} {
		if got := moved(c.a, c.b); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSends: drivers are told at once when a phase has begun, although they are
// asked for the same, and otherwise every tick.
func TestSends(t *testing.T) {
	w := newOnlooker(t)
	for _, n := range []model.SinkName{model.SinkAddress, model.SinkGossip} {
		w.opts.Drivers = append(w.opts.Drivers, idle(n))
		w.runners = append(w.runners, announce.NewRunner(idle(n), w.Daemon.log, nil))
	}
	w.view.Synced = map[model.SourceName]bool{model.SourceConfig: true, model.SourceLink: true}
	w.view.Applied = map[model.SinkName]model.Applied{model.SinkAddress: {}, model.SinkLayer2: {}}
	now := time.Now()
	w.turned = now
	turn := func(after time.Duration, sent bool) {
		t.Helper()
		now = now.Add(after)
		w.news = true
		w.turn(now)
		if got := w.sent.Gen == w.last.Gen; got != sent {
			t.Errorf("sent %v, want %v", got, sent)
		}
	}
	turn(0, true)
	turn(time.Millisecond, false)
	w.view.Memory.VIPs = map[netip.Addr]model.VIPMemory{addrA: {}} // will be forgotten
	turn(time.Millisecond, true)
	turn(tick-time.Millisecond, false)
	turn(time.Millisecond, true)
	turn(time.Millisecond, false)
	w.view.Draining = true
	turn(time.Millisecond, true)
}

// idle is a driver that is never asked for anything.
type idle model.SinkName

func (i idle) Name() model.SinkName      { return model.SinkName(i) }
func (idle) Changed() <-chan struct{}    { return nil }
func (idle) Close(context.Context) error { return nil }
func (idle) Apply(context.Context, *model.Desired) (model.Applied, error) {
	return model.Applied{}, errors.New("asked")
}

// TestReportsWithoutNews: a report that says what the one before said causes no
// decision, unless a phase waits for its generation.
func TestReportsWithoutNews(t *testing.T) {
	w := newOnlooker(t)
	w.moved = 5
	report := func(what string, gen uint64, news bool, change ...func(*model.Applied)) {
		t.Helper()
		a := model.Applied{Gen: gen, At: time.Now(), VIPs: map[netip.Addr]model.AppliedVIP{addrA: {Bound: true}}, Paths: map[netip.Prefix][]string{model.PrefixOf(addrA, 0): {"a"}}}
		for _, c := range change {
			c(&a)
		}
		w.reported(model.SinkAddress, a)
		w.news = false
		(<-w.changes)(&w.view)
		if w.news != news {
			t.Errorf("%s: news %v", what, w.news)
		}
		if got := w.view.Applied[model.SinkAddress]; got.Gen != gen {
			t.Errorf("%s: generation %d", what, got.Gen)
		}
	}
	expires := func(a *model.Applied) {
		v := a.VIPs[addrA]
		v.Expires = time.Unix(7, 0)
		a.VIPs[addrA] = v
	}
	report("first", 3, true)
	report("not yet at the generation", 4, true)
	report("at the generation", 5, true)
	report("after it", 6, false)
	report("an error", 7, true, func(a *model.Applied) { a.Err = "fails" })
	report("no error", 8, true)
	report("a lifetime", 9, true, expires)
	report("the same lifetime", 10, false, expires)
	report("another VIP", 11, true, expires, func(a *model.Applied) { a.VIPs[addrB] = model.AppliedVIP{} })
	report("on lo", 12, true, func(a *model.Applied) { a.Loopback, a.VIPs = a.VIPs, nil })
	report("on lo as before", 12, false, func(a *model.Applied) { a.Loopback, a.VIPs = a.VIPs, nil })
	report("on another interface", 12, true, func(a *model.Applied) {
		a.Loopback = map[netip.Addr]model.AppliedVIP{addrA: {Interface: "lo"}}
		a.VIPs = nil
	})
	report("a peer", 13, true, func(a *model.Applied) {
		a.Loopback, a.VIPs, a.Peers = a.VIPs, nil, []model.PeerReport{{Name: "tor"}}
	})
	many := make(map[netip.Addr]model.AppliedVIP)
	for a := addrA; len(many) <= glance; a = a.Next() {
		many[a] = model.AppliedVIP{}
	}
	report("many", 14, true, func(a *model.Applied) { a.VIPs = many })
	report("the same map of many", 15, false, func(a *model.Applied) { a.VIPs = many })
	report("a copy of many", 16, true, func(a *model.Applied) { a.VIPs = maps.Clone(many) })
	// Anything else is news.
	w.news = false
	w.publish(func(*model.View) {})
	if (<-w.changes)(&w.view); !w.news {
		t.Error("a source is not news")
	}
}

// TestWhoIsTold: a driver is told what it is asked for, not what others are.
func TestWhoIsTold(t *testing.T) {
	base := model.Desired{}
	for name, c := range map[string]struct {
		d    model.Desired
		told []model.SinkName
	}{
		"nothing":  {model.Desired{Gen: 1}, nil},
		"binding":  {model.Desired{Bind: []model.Binding{{}}}, []model.SinkName{model.SinkAddress}},
		"layer 2":  {model.Desired{L2: []model.L2Advert{{}}}, []model.SinkName{model.SinkLayer2}},
		"path":     {model.Desired{BGP: model.BGPState{Ready: true}}, []model.SinkName{model.SinkBGP}},
		"relay":    {model.Desired{Relay: []model.Relay{{}}}, []model.SinkName{model.SinkRelay}},
		"group":    {model.Desired{Group: model.GroupState{Settled: true}}, []model.SinkName{model.SinkGossip}},
		"lease":    {model.Desired{Group: model.GroupState{LeaseEnd: time.Unix(1, 0)}}, []model.SinkName{model.SinkGossip}},
		"status":   {model.Desired{Status: []model.VIPStatus{{}}}, []model.SinkName{model.SinkNotify}},
		"goodbye":  {model.Desired{Group: model.GroupState{Leave: true}}, []model.SinkName{model.SinkGossip, model.SinkNotify}},
		"leftover": {model.Desired{Synced: true}, []model.SinkName{model.SinkAddress, model.SinkBGP, model.SinkGossip, model.SinkLayer2, model.SinkNotify, model.SinkRelay}},
	} {
		var told []model.SinkName
		for _, n := range []model.SinkName{model.SinkAddress, model.SinkBGP, model.SinkGossip, model.SinkLayer2, model.SinkNotify, model.SinkRelay} {
			if !equal(n, &base, &c.d) {
				told = append(told, n)
			}
		}
		if !slices.Equal(told, c.told) {
			t.Errorf("%s: %v are told", name, told)
		}
	}
}

// onlooker is a daemon that does not run, shown one decision after the other.
type onlooker struct {
	*Daemon
	t   *testing.T
	log bytes.Buffer
	reg *prometheus.Registry
}

func newOnlooker(t *testing.T) *onlooker {
	t.Helper()
	w := &onlooker{t: t, reg: prometheus.NewRegistry()}
	var err error
	if w.Daemon, err = New(Options{Logger: slog.New(slog.NewTextHandler(&w.log, nil)), Metrics: w.reg, Node: "m1"}); err != nil {
		t.Fatal(err)
	}
	return w
}

// see shows a decision and wants log lines that have these words each, in order.
func (w *onlooker) see(want model.Desired, lines ...string) {
	w.t.Helper()
	w.log.Reset()
	w.observe(&want)
	w.last = want
	got := slices.Collect(strings.Lines(w.log.String()))
	ok := len(got) == len(lines)
	for i := range min(len(got), len(lines)) {
		for word := range strings.FieldsSeq(lines[i]) {
			ok = ok && strings.Contains(got[i], word)
		}
	}
	if !ok {
		w.t.Errorf("logged\n%swant %q", w.log.String(), lines)
	}
}

func vipStatus(addr netip.Addr, owner model.NodeName, why model.Reason) model.VIPStatus {
	return model.VIPStatus{VIP: model.VIP{Addr: addr, Name: "vip" + addr.String()}, Owner: owner, Reason: why}
}

func statuses(list ...model.VIPStatus) model.Desired { return model.Desired{Status: list} }

// TestLogOfVIPs: each change of owner or reason is one line, also while VIPs come
// and go beside each other.
func TestLogOfVIPs(t *testing.T) {
	const why = model.ReasonUnhealthy
	w := newOnlooker(t)
	a, b := vipStatus(addrA, "", why), vipStatus(addrB, "", why)
	asBGP := a
	asBGP.BGP = true
	w.see(statuses(a), "vip=vip10.0.0.1 mode=l2 reason=Unhealthy")
	w.see(statuses(a))
	w.see(statuses(b), "vip=vip10.0.0.2")
	w.see(statuses(a), "vip=vip10.0.0.1")
	w.see(statuses(a, b), "vip=vip10.0.0.2")
	w.see(statuses(a, asBGP, b), "vip=vip10.0.0.1 mode=bgp")
	w.see(statuses(a, asBGP, b))
	w.see(statuses(asBGP))
	w.see(statuses(a, asBGP), "vip=vip10.0.0.1 mode=l2")
	w.see(statuses(vipStatus(addrA, "m2", why), asBGP), "vip=vip10.0.0.1 mode=l2 owner=m2")
	w.see(statuses(vipStatus(addrA, "m2", model.ReasonStandby), asBGP), "vip=vip10.0.0.1 mode=l2 reason=Standby")
	detailed := vipStatus(addrA, "m2", model.ReasonStandby)
	detailed.Detail, detailed.Epoch = "more words", 9
	w.see(statuses(detailed, asBGP))
}

// TestLogOfTheGroup: settling, rules, members.
func TestLogOfTheGroup(t *testing.T) {
	w := newOnlooker(t)
	w.see(model.Desired{Rules: 2}) // the first is no change
	w.see(model.Desired{Rules: 2, Memory: model.Memory{Membership: model.Membership{Settled: true}}}, "msg=group settled=true members=1")
	w.see(model.Desired{Rules: 3, Memory: model.Memory{Membership: model.Membership{Settled: true}}}, "msg=group rules=3")
	w.see(model.Desired{Rules: 3, Memory: model.Memory{Membership: model.Membership{Settled: true}}})
	w.see(model.Desired{Rules: 3}, "msg=group settled=false")

	set := func(s model.MemberState) {
		w.view.Gossip.Members = map[model.NodeName]model.Member{"m2": {Name: "m2", State: s}}
	}
	calm := model.Desired{Rules: 3}
	set(model.MemberAlive)
	w.see(calm, "msg=member peer=m2 state=alive")
	w.see(calm)
	set(model.MemberDead)
	w.see(calm, "msg=member peer=m2 state=dead")
	w.see(calm)
	w.view.Gossip.Members = nil
	w.see(calm, "msg=member peer=m2 state=forgotten")
	w.see(calm)
	set(model.MemberAlive)
	w.see(calm, "msg=member peer=m2 state=alive")
}

func TestLogOfSessions(t *testing.T) {
	w := newOnlooker(t)
	set := func(state, lastError string) {
		w.view.Applied[model.SinkBGP] = model.Applied{Peers: []model.PeerReport{{Name: "tor1", State: state, LastError: lastError}}}
	}
	set("Active", "")
	w.see(model.Desired{}, "level=INFO msg=bgp peer=tor1 state=Active")
	set("OpenSent", "")
	w.see(model.Desired{})
	set(established, "hold timer expired") // of an earlier session
	w.see(model.Desired{}, "level=INFO msg=bgp peer=tor1 state=Established")
	w.see(model.Desired{})
	set("Idle", "hold timer expired")
	w.see(model.Desired{}, "level=WARN msg=bgp peer=tor1 state=Idle reason=\"hold")
	w.see(model.Desired{})
}

// TestTakeoverTime: only what was missed has a time without owner, and one
// announcement has one.
func TestTakeoverTime(t *testing.T) {
	w := newOnlooker(t)
	w.view.Now = time.Unix(100, 0)
	took := func(count uint64, sum float64) {
		t.Helper()
		all, err := w.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if h := f.GetMetric()[0].GetHistogram(); f.GetName() == "lbd_vip_takeover_seconds" && (h.GetSampleCount() != count || h.GetSampleSum() != sum) {
				t.Errorf("%d takeovers in %g s, want %d in %g s", h.GetSampleCount(), h.GetSampleSum(), count, sum)
			}
		}
	}
	decision := func(announced bool, owner model.NodeName, lost time.Time) model.Desired {
		s := vipStatus(addrA, owner, model.ReasonOwner)
		s.Announced = announced
		d := statuses(s)
		d.Memory.VIPs = map[netip.Addr]model.VIPMemory{addrA: {Takeover: model.Takeover{LostAt: lost}}}
		return d
	}
	lost := w.view.Now.Add(-250 * time.Millisecond)
	w.see(decision(false, "m1", lost), "msg=vip")
	took(0, 0)
	w.see(decision(true, "m1", lost), "msg=announced after=250ms")
	took(1, 0.25)
	w.see(decision(true, "m1", lost))
	w.see(decision(false, "m1", lost))
	w.see(decision(true, "m1", time.Time{})) // kept from an earlier process
	took(1, 0.25)
	asBGP := decision(true, "m1", lost) // the same address, advertised too
	asBGP.Status[0].BGP = true
	w.see(asBGP, "msg=vip")
	w.see(decision(false, "m2", lost), "msg=vip")
	w.see(decision(true, "m2", lost))
	took(1, 0.25)
}

// TestKeptPrefixes: at the end a prefix stays with routers if the node goes on serving
// a VIP that is advertised by it; another VIP in it does not count.
func TestKeptPrefixes(t *testing.T) {
	addrC := netip.MustParseAddr("10.0.0.3")
	wide := []model.BGPAdvert{{Length: 28}}
	for name, c := range map[string]struct {
		a, b  model.BGPMemory
		bound []netip.Addr
		want  string
	}{
		"both":                 {model.BGPMemory{Phase: model.BGPAdvertised}, model.BGPMemory{Phase: model.BGPAdvertised}, []netip.Addr{addrA, addrB}, "10.0.0.0/28 10.0.0.3/32"},
		"one of them":          {model.BGPMemory{Phase: model.BGPWithdrawing}, model.BGPMemory{Phase: model.BGPAdvertised}, []netip.Addr{addrB}, "10.0.0.0/28 10.0.0.3/32"},
		"none, one is bound":   {model.BGPMemory{Phase: model.BGPAdvertised}, model.BGPMemory{Phase: model.BGPWithdrawing}, []netip.Addr{addrB}, "10.0.0.3/32"},
		"leaving, still bound": {model.BGPMemory{Phase: model.BGPShutdown}, model.BGPMemory{}, []netip.Addr{addrA}, "10.0.0.0/28 10.0.0.3/32"},
		"not bound":            {model.BGPMemory{Phase: model.BGPAdvertised, Unbound: true}, model.BGPMemory{}, nil, "10.0.0.0/28 10.0.0.3/32"},
		"leaving, not bound":   {model.BGPMemory{Phase: model.BGPShutdown, Unbound: true}, model.BGPMemory{}, nil, "10.0.0.3/32"},
	} {
		d, bye := &Daemon{}, &model.Desired{}
		d.view.VIPs = []model.VIP{{Addr: addrA, BGP: wide}, {Addr: addrB, BGP: wide}, {Addr: addrC, BGP: []model.BGPAdvert{{}}}}
		d.last.Memory.BGP = map[netip.Addr]model.BGPMemory{addrA: c.a, addrB: c.b, addrC: {Phase: model.BGPAdvertised, Unbound: true}}
		for _, a := range c.bound {
			bye.Bind = append(bye.Bind, model.Binding{Addr: a, Interface: model.LoopbackInterface})
		}
		var got []string
		for p := range d.kept(bye) {
			got = append(got, p.String())
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}
