package gossip

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestExchangesDoNotWakeTheSettled: that full states were exchanged is told to a node
// that settles, at once or when it begins to; one that is settled need not decide for it.
func TestExchangesDoNotWakeTheSettled(t *testing.T) {
	bubble(t, func(l *lab) {
		a := l.start(1)
		l.start(2)
		l.joined(5 * time.Second)
		settle := func(on bool) { a.apply(func(gs *model.GroupState) { gs.Settled = on }) }
		last := func() time.Time { return see(a, func(g *model.Gossip) time.Time { return g.Exchanged }) }
		settle(true)
		time.Sleep(2 * time.Second)
		before, told := a.publications(), last()
		time.Sleep(time.Minute)
		if n, now := a.publications()-before, last(); n != 0 || !now.Equal(told) {
			t.Errorf("%d publications while nothing happened, exchanges until %v are told", n, now)
		}
		settle(false)
		l.within(time.Second, "the last exchange is told", func() bool { return last().Sub(told) > 30*time.Second })
		told = last()
		l.within(30*time.Second, "the next exchange is told", func() bool { return last().After(told) })
	})
}

// TestOwnRecordAsSent: what is kept of the own record is what it is, after each change.
func TestOwnRecordAsSent(t *testing.T) {
	o := newOwn("a", 1, "v", nil)
	vip := model.GroupVIP{Addr: vip1, Standing: model.ReasonStandby}
	gs := &model.GroupState{VIPs: []model.GroupVIP{vip}}
	again := func() *model.GroupState { // the same list of the decision before is no change
		next := *gs
		next.VIPs = slices.Clone(gs.VIPs)
		gs = &next
		return gs
	}
	var before []byte
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"nothing yet", func() {}},
		{"complete, without a VIP", func() { o.update(&model.GroupState{}) }},
		{"a VIP", func() { o.update(gs) }},
		{"an epoch that is only seen", func() { again().VIPs[0].Seen = 7; o.update(gs) }},
		{"a claim", func() { again().VIPs[0].Claim = model.Claim{Owner: "a", Epoch: 8}; o.update(gs) }},
		{"settled", func() { again().Settled = true; o.update(gs) }},
		{"a Machine", func() {
			again().Drains = []model.MachineDrain{{Node: "b"}}
			o.update(gs)
		}},
		{"keys", func() { o.setKeys([]string{"k"}) }},
		{"another life", func() { o.raise(o.life()) }},
		{"a goodbye", func() { o.leave() }},
	} {
		c.do()
		got := o.wire()
		if want := encode(typeState, o.full())[2:]; !bytes.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, want)
		}
		if bytes.Equal(got, before) {
			t.Errorf("%s: nothing has changed", c.name)
		}
		before = got
	}
	if n := testing.AllocsPerRun(5, func() { o.wire() }); n != 0 {
		t.Errorf("%v allocations for what is known", n)
	}
}

// TestClaimsOfBeatsAreMergedOnce: the claims that come with each heartbeat of an owner of
// many VIPs are passed over once they have brought nothing, until anything changes; what
// asks for an answer never is.
func TestClaimsOfBeatsAreMergedOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	claims := make([]wireEntry, 0, 30)
	for a := vip1; len(claims) < 30; a = a.Next() {
		claims = append(claims, wireEntry{Addr: a, V: 7, Standing: "Owner", Epoch: 9})
	}
	turn := newTurn(t)
	beat := wireBeat{Name: "m2", Inc: 1, Interval: 50, Entries: claims}
	skipped := func(in time.Duration) bool {
		turn.g.mu.Lock()
		defer turn.g.mu.Unlock()
		in += time.Duration(beat.Seq) // no two at one time
		beat.Seq++
		turn.takeBeat(&beat, now.Add(in))
		turn.g.table.flush()
		return !turn.g.table.seen[vip1].at.Equal(now.Add(in)) // to merge is to note that it was mentioned
	}
	for i, want := range []bool{false, false, true, true} { // news, no news, known
		if got := skipped(time.Duration(i) * 50 * time.Millisecond); got != want {
			t.Errorf("heartbeat %d: passed over %v", i+1, got)
		}
	}
	turn.g.mu.Lock()
	turn.g.table.merge(&wireRecord{Name: "m3", Inc: 1, Seq: 1, Entries: []wireEntry{{Addr: vip1, V: 1, Epoch: 3}}}, now)
	turn.g.table.flush()
	turn.g.mu.Unlock()
	if skipped(time.Second) || !skipped(time.Second) {
		t.Error("after another node has told something they are not merged once")
	}
	turn.g.own.update(&model.GroupState{VIPs: []model.GroupVIP{{Addr: vip1, Standing: model.ReasonStandby}}})
	if skipped(time.Second) || !skipped(time.Second) {
		t.Error("after this node has told something they are not merged once")
	}
	if skipped(time.Second + beatsFor) {
		t.Error("they are passed over for ever")
	}
	turn.g.own.update(&model.GroupState{VIPs: []model.GroupVIP{{Addr: vip1, Standing: model.ReasonOwner, Claim: model.Claim{Owner: "m1", Epoch: 9}}}})
	for range 3 {
		if skipped(2*time.Second + beatsFor) {
			t.Error("claims that are contested are passed over")
		}
	}
	few := claims[:fewEntries]
	turn.g.beatsMerged.merged(few, state{}, now)
	if turn.g.beatsMerged.known(few, state{}, now) {
		t.Error("those of few VIPs are passed over")
	}
}
