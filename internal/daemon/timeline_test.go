package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// brief writes an event on one line: seconds, kind, what it is about, the change, then reason,
// gap and detail as far as there are any.
func brief(e *v1alpha1.Event) string {
	about := e.Node
	switch {
	case e.More > 0:
		about = fmt.Sprintf("%d more", e.More)
	case e.VIP != "":
		about = e.VIP + "/" + e.Mode
	case e.Peer != "":
		about = e.Peer
	}
	line := fmt.Sprintf("%g %s %s %s>%s", float64(e.Time.UnixMilli())/1000, e.Kind, about, e.From, e.To)
	for _, text := range []string{e.Reason, e.Gap, e.Detail} {
		if text != "" {
			line += " " + text
		}
	}
	return line
}

// since returns the events that were noted after one of them.
func (w *onlooker) since(after uint64) []string {
	var lines []string
	for _, e := range w.events.list(func(e *v1alpha1.Event) bool { return e.Seq > after }) {
		lines = append(lines, brief(&e))
	}
	return lines
}

// noted shows a decision and wants these events of it, in order.
func (w *onlooker) noted(want model.Desired, lines ...string) {
	w.t.Helper()
	before := w.events.seq
	w.observe(&want)
	w.last = want
	if got := w.since(before); !slices.Equal(got, lines) {
		w.t.Errorf("noted\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
}

// at sets the time in seconds.
func (w *onlooker) at(seconds float64) { w.view.Now = time.UnixMilli(int64(seconds * 1000)) }

func (w *onlooker) meet(m model.Member) {
	m.Name = "m2"
	w.view.Gossip.Members = map[model.NodeName]model.Member{"m2": m}
}

// TestTimelineIsBounded: the newest are kept, in order, and how many are not is known.
func TestTimelineIsBounded(t *testing.T) {
	tl := newTimeline()
	all := func(*v1alpha1.Event) bool { return true }
	for n := 1; n <= 2*maxEvents+7; n++ {
		tl.add(v1alpha1.Event{Time: time.Unix(1, 0), Detail: fmt.Sprint(n)}) // all at one time
		list := tl.list(all)
		if len(list) != min(n, maxEvents) {
			t.Fatalf("%d events of %d", len(list), n)
		}
		if first, last := list[0], list[len(list)-1]; last.Seq != uint64(n) || last.Detail != fmt.Sprint(n) || first.Seq != uint64(max(1, n-maxEvents+1)) {
			t.Fatalf("after %d from %d to %d", n, first.Seq, last.Seq)
		}
	}
	if cap(tl.ring) != maxEvents {
		t.Errorf("room for %d", cap(tl.ring))
	}
}

// TestTimelineOrder: what is only noted once it lasts stands where it began.
func TestTimelineOrder(t *testing.T) {
	tl := newTimeline()
	for _, s := range []int64{1, 3, 3, 2, 4} {
		tl.add(v1alpha1.Event{Time: time.Unix(s, 0)})
	}
	var got []uint64
	for _, e := range tl.list(func(*v1alpha1.Event) bool { return true }) {
		got = append(got, e.Seq)
	}
	if want := []uint64{1, 4, 2, 3, 5}; !slices.Equal(got, want) {
		t.Errorf("%d, want %d", got, want)
	}
}

// TestEventTextIsBounded: a text from outside cannot take the memory of others.
func TestEventTextIsBounded(t *testing.T) {
	for _, long := range []string{strings.Repeat("x", 1<<20), strings.Repeat("ä", 1000), "x" + strings.Repeat("ä", 1000)} {
		tl := newTimeline()
		tl.add(v1alpha1.Event{VIP: long, Node: long, Peer: long, From: long, To: long, Reason: long, Detail: long})
		e := tl.list(func(*v1alpha1.Event) bool { return true })[0]
		for _, text := range []string{e.VIP, e.Node, e.Peer, e.From, e.To, e.Reason, e.Detail} {
			if len(text) > maxText+3 || len(text) < maxText-3 || !utf8.ValidString(text) || !strings.HasSuffix(text, "...") {
				t.Errorf("%d bytes: %q", len(text), text)
			}
		}
	}
}

// TestManyVIPsShareAnEvent: thousands of VIPs that move at once leave room for what was the
// cause, also if it takes several decisions.
func TestManyVIPsShareAnEvent(t *testing.T) {
	w := newOnlooker(t)
	var before, after []model.VIPStatus
	a := addrA
	for range 3000 {
		before = append(before, vipStatus(a, "m2", model.ReasonStandby))
		after = append(after, vipStatus(a, "m1", model.ReasonTakingOver))
		a = a.Next()
	}
	odd := vipStatus(addrB, "m3", model.ReasonStandby)
	w.at(1)
	w.observe(&model.Desired{Status: before})
	w.last = model.Desired{Status: before}
	w.at(10)
	w.events.fold(w.view.Now)
	begin := w.events.seq
	for i := range 3 { // a thousand each
		w.at(10 + float64(i)/10)
		now := slices.Concat(after[:1000*(i+1)], before[1000*(i+1):])
		now[1] = odd
		w.observe(&model.Desired{Status: now})
		w.last = model.Desired{Status: now}
		w.events.fold(w.view.Now)
	}
	w.at(11)
	w.events.fold(w.view.Now)
	got := w.since(begin)
	if len(got) != maxAlike+2 || !slices.Contains(got, "10 owner vip10.0.0.2/l2 m2>m3 Forgotten") || !slices.Contains(got, "10 owner 2979 more m2>m1 Forgotten") {
		t.Errorf("%d events:\n%s", len(got), strings.Join(got, "\n"))
	}

	// It may be one of those that are not listed.
	go func() { (<-w.changes)(&w.view) }()
	last := after[2999].VIP
	e, err := w.Events(t.Context(), last.Name, 0, begin)
	if err != nil || len(e.Events) != 1 || e.Events[0].More != 2979 {
		t.Errorf("of %s: %+v, %v", last.Name, e.Events, err)
	}
}

// TestEventsOfATakeover: who lost a VIP and why, how long nobody had it, and how long it was
// missed.
func TestEventsOfATakeover(t *testing.T) {
	w := newOnlooker(t)
	w.meet(model.Member{})
	is := func(owner model.NodeName, why model.Reason) model.Desired {
		s := vipStatus(addrA, owner, why)
		s.Standing = model.ReasonStandby
		return statuses(s)
	}
	w.at(1)
	w.noted(is("m2", model.ReasonStandby), "1 member m2 >alive", "1 vip vip10.0.0.1/l2 >configured Standby", "1 owner vip10.0.0.1/l2 >m2")

	// A blip is none.
	w.noted(is("", model.ReasonProbing))
	w.at(1.5)
	w.noted(is("m2", model.ReasonStandby))

	// This node takes it.
	w.at(2)
	w.meet(model.Member{Late: w.view.Now.Add(-150 * time.Millisecond)})
	w.noted(is("", model.ReasonProbing))
	w.at(2.1)
	w.noted(is("m1", model.ReasonTakingOver), "2.1 owner vip10.0.0.1/l2 m2>m1 Late 100ms heartbeats overdue for 250ms")
	mine := is("m1", model.ReasonOwner)
	mine.Status[0].Announced = true
	mine.Memory.VIPs = map[netip.Addr]model.VIPMemory{addrA: {Takeover: model.Takeover{From: "m2", LostAt: time.UnixMilli(1950)}}}
	w.at(2.2)
	w.noted(mine, "2.2 reason vip10.0.0.1/l2 TakingOver>Owner", "2.2 announced vip10.0.0.1/l2 m2>m1 250ms")

	// What lasts has the time at which it began.
	w.at(3)
	w.meet(model.Member{State: model.MemberDead})
	w.noted(is("m2", model.ReasonStandby), "3 member m2 alive>dead", "3 owner vip10.0.0.1/l2 m1>m2")
	w.at(4)
	w.noted(is("", model.ReasonWaitingForRelease))
	w.at(6)
	w.noted(is("", model.ReasonWaitingForRelease), "4 owner vip10.0.0.1/l2 m2> Dead")
	w.at(7)
	w.noted(is("m3", model.ReasonStandby), "7 owner vip10.0.0.1/l2 >m3 3s")
	w.noted(statuses(), "7 vip vip10.0.0.1/l2 configured>")
}

// TestCauseOfLoss: why a VIP left its owner.
func TestCauseOfLoss(t *testing.T) {
	stand := func(r model.Reason) model.Member {
		return model.Member{Standing: map[netip.Addr]model.Reason{addrA: r}}
	}
	late := stand(model.ReasonDraining)
	late.Late = time.Unix(9, 0)
	for want, m := range map[string]model.Member{
		"Dead": {State: model.MemberDead}, "Left": {State: model.MemberLeft, Draining: true}, "Unhealthy": stand(model.ReasonUnhealthy),
		"Draining": {Draining: true}, "": stand(model.ReasonOwner), "Degraded": stand(model.ReasonDegraded), "Late": late,
	} {
		w := newOnlooker(t)
		w.at(10)
		w.meet(m)
		s := vipStatus(addrA, "m1", model.ReasonTakingOver)
		if got, _ := w.cause(&model.Desired{}, &s, "m2"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	w := newOnlooker(t)
	own := vipStatus(addrA, "m2", model.ReasonReleasing)
	own.Standing, own.VIP.Check = model.ReasonUnhealthy, "api"
	w.view.Health["api"] = model.HealthState{Detail: "refused"}
	if got, detail := w.cause(&model.Desired{}, &own, "m1"); got != "Unhealthy" || detail != "refused" {
		t.Errorf("%q, %q", got, detail)
	}
	own.Standing = model.ReasonStandby
	lost := model.Desired{Memory: model.Memory{VIPs: map[netip.Addr]model.VIPMemory{addrA: {GivenUp: model.GivenUp{Lost: model.ReasonDriverError, LostDetail: "no room"}}}}}
	if got, detail := w.cause(&lost, &own, "m1"); got != "DriverError" || detail != "no room" {
		t.Errorf("%q, %q", got, detail)
	}
}

// TestEventsOfStanding: whether this node may own a VIP, and not whether it does.
func TestEventsOfStanding(t *testing.T) {
	w := newOnlooker(t)
	w.at(1)
	is := func(why, stand model.Reason, detail string) model.Desired {
		s := vipStatus(addrA, "m1", why)
		s.Standing, s.Detail, s.VIP.Check = stand, detail, "api"
		return statuses(s)
	}
	w.view.Health["api"] = model.HealthState{Detail: "connection refused"}
	w.observe(new(is(model.ReasonOwner, model.ReasonOwner, "")))
	w.last = is(model.ReasonOwner, model.ReasonOwner, "")
	w.noted(is(model.ReasonOwner, model.ReasonStandby, ""))
	w.noted(is(model.ReasonHandingOver, model.ReasonUnhealthy, "to m2"),
		"1 standing vip10.0.0.1/l2 Standby>Unhealthy connection refused", "1 reason vip10.0.0.1/l2 Owner>HandingOver to m2")
	w.noted(is(model.ReasonOwner, model.ReasonDegraded, ""),
		"1 standing vip10.0.0.1/l2 Unhealthy>Degraded connection refused", "1 reason vip10.0.0.1/l2 HandingOver>Owner")
	w.noted(is(model.ReasonOwner, model.ReasonOwner, ""), "1 standing vip10.0.0.1/l2 Degraded>Standby")

	// One event if both say the same.
	w.noted(is(model.ReasonNoSubnet, model.ReasonNoSubnet, "of eth0"), "1 standing vip10.0.0.1/l2 Standby>NoSubnet of eth0")
	w.noted(is(model.ReasonStandby, model.ReasonStandby, ""), "1 standing vip10.0.0.1/l2 NoSubnet>Standby")
}

// TestEventsOfTheWire: conflicts and duplicates; what goes on is not noted for each frame.
func TestEventsOfTheWire(t *testing.T) {
	w := newOnlooker(t)
	s := vipStatus(addrA, "m1", model.ReasonOwner)
	decide := func(lines ...string) {
		t.Helper()
		w.noted(statuses(s), lines...)
	}
	frames := func(n uint64, from byte) {
		w.view.Applied[model.SinkLayer2] = model.Applied{VIPs: map[netip.Addr]model.AppliedVIP{addrA: {Conflicts: n, Foreign: model.MAC{2, from}}}}
	}
	w.at(1)
	w.meet(model.Member{MACs: []model.MAC{{2, 0xaa}}})
	w.observe(new(statuses(s)))
	w.last = statuses(s)
	frames(0, 0)
	decide()
	frames(1, 0xaa) // a successor that is quicker than its claim
	decide()
	frames(3, 1)
	decide("1 conflict vip10.0.0.1/l2 >02:01:00:00:00:00 frames so far: 3")
	for i := range 50 {
		w.at(2 + float64(i))
		frames(uint64(1000*i+4), byte(i))
		decide()
	}
	w.at(61)
	frames(50000, 9)
	decide("61 conflict vip10.0.0.1/l2 >02:09:00:00:00:00 frames so far: 50000")
	w.at(300)
	frames(50000, 9)
	decide()
	frames(1, 9) // the driver has begun anew
	decide("300 conflict vip10.0.0.1/l2 >02:09:00:00:00:00 frames so far: 1")

	w.noted(statuses(), "300 vip vip10.0.0.1/l2 configured>")
	decide("300 vip vip10.0.0.1/l2 >configured Owner", "300 owner vip10.0.0.1/l2 >m1")
	frames(1, 9) // a VIP that was gone counts anew, too
	decide("300 conflict vip10.0.0.1/l2 >02:09:00:00:00:00 frames so far: 1")

	s.Duplicate = "02:00:00:00:00:07 (m3)"
	decide("300 duplicate vip10.0.0.1/l2 >02:00:00:00:00:07 (m3)")
	decide()
	s.Duplicate = ""
	decide("300 duplicate vip10.0.0.1/l2 02:00:00:00:00:07 (m3)>")
}

// TestEventsOfSessions: BGP and BFD, and sessions that are configured no more.
func TestEventsOfSessions(t *testing.T) {
	w := newOnlooker(t)
	w.at(1)
	peer := func(state, bfd, lastError string, lines ...string) {
		t.Helper()
		w.view.Applied[model.SinkBGP] = model.Applied{Peers: []model.PeerReport{{Name: "tor1", State: state, BFD: bfd, LastError: lastError}}}
		w.noted(model.Desired{}, lines...)
	}
	peer("Active", "Down", "", "1 bgp tor1 >Active")
	peer("OpenSent", "Init", "")
	peer(established, "Init", "", "1 bgp tor1 Active>Established")
	peer(established, "Up", "", "1 bfd tor1 Init>Up")
	peer(established, "Up", "")
	peer("Idle", "Down", "BFD went down", "1 bfd tor1 Up>Down", "1 bgp tor1 Established>Idle BFD went down")
	w.view.Applied[model.SinkBGP] = model.Applied{}
	w.noted(model.Desired{}, "1 bgp tor1 Idle>")
	w.noted(model.Desired{})
}

// TestEventsOfTheNode: settling, rules, drains, members that drain, rings.
func TestEventsOfTheNode(t *testing.T) {
	w := newOnlooker(t)
	if got := w.since(0); len(got) != 1 || !strings.HasSuffix(got[0], " daemon m1 >started") {
		t.Errorf("at the start %q", got)
	}
	w.at(1)
	d := model.Desired{Rules: 2}
	w.noted(d)
	d.Memory.Settled = true
	w.noted(d, "1 group m1 not settled>settled")
	d.Rules = 3
	w.noted(d, "1 group m1 rules 2>rules 3")
	w.view.Draining = true
	w.noted(d, "1 drain m1 >draining Draining asked for by lbd drain")
	w.noted(d)
	w.view.Draining = false
	w.noted(d, "1 drain m1 draining>")
	d.Memory.Machine = model.MachineMemory{Drain: &model.MachineDrain{Machine: "a/b", Reason: "Deleted"}, By: "m1"}
	w.noted(d, "1 drain m1 >draining MachineDraining Machine a/b: Deleted")
	d.Memory.Machine = model.MachineMemory{}
	w.noted(d, "1 drain m1 draining>")
	w.view.Stopping = true
	w.noted(d, "1 drain m1 >draining Draining the daemon is stopping")
	w.meet(model.Member{})
	w.noted(d, "1 member m2 >alive")
	w.meet(model.Member{Draining: true})
	w.noted(d, "1 drain m2 >draining")
	w.meet(model.Member{State: model.MemberLeft, Draining: true})
	w.noted(d, "1 member m2 alive>left")
	w.view.Gossip.Members = nil
	w.noted(d, "1 member m2 left>forgotten")
	ring := d
	ring.Memory.Rings = map[netip.Addr]model.RingProbe{addrA: {Node: "m3", Silent: true}}
	w.noted(ring, "1 ring m3 answers>silent")
}

// TestEventsOfTheConfiguration: what was read and what was refused, each once.
func TestEventsOfTheConfiguration(t *testing.T) {
	w := newOnlooker(t)
	for _, tt := range []struct {
		generation uint64
		refused    string
		want       string
	}{
		{1, "", "config m1 >generation 1"},
		{1, "", ""},
		{2, "", "config m1 generation 1>generation 2"},
		{2, "a.yaml:3: wrong", "config m1 generation 2>refused a.yaml:3: wrong"},
		{2, "a.yaml:3: wrong", ""},
		{2, "a.yaml:4: wrong", "config m1 refused>refused a.yaml:4: wrong"},
		{2, "", "config m1 refused>generation 2"},
		{3, "", "config m1 generation 2>generation 3"},
	} {
		before := w.events.seq
		w.NoteConfiguration(tt.generation, tt.refused)
		w.news = false
		(<-w.changes)(&w.view)
		if w.news {
			t.Error("a reason to decide")
		}
		_, got, _ := strings.Cut(strings.Join(w.since(before), "\n"), " ") // without the time
		if got != tt.want {
			t.Errorf("generation %d, %q: %q, want %q", tt.generation, tt.refused, got, tt.want)
		}
	}
}
