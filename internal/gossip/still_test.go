package gossip

import (
	"testing"
	"time"

	"lbd.dev/lbd/internal/gossip/beat"
	"lbd.dev/lbd/internal/gossip/record"
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

// TestClaimsOfBeatsAreMergedOnce: the claims that come with each heartbeat of an owner of
// many VIPs are passed over once they have brought nothing, until anything changes; what
// asks for an answer never is.
func TestClaimsOfBeatsAreMergedOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	claims := make([]record.Entry, 0, 30)
	for a := vip1; len(claims) < 30; a = a.Next() {
		claims = append(claims, record.Entry{Addr: a, V: 7, Standing: "Owner", Epoch: 9})
	}
	round := newRound(t)
	heartbeat := record.Beat{Name: "m2", Inc: 1, Interval: 50, Entries: claims}
	skipped := func(in time.Duration) bool {
		round.g.mu.Lock()
		defer round.g.mu.Unlock()
		in += time.Duration(heartbeat.Seq) // no two at one time
		heartbeat.Seq++
		round.takeBeat(&heartbeat, now.Add(in))
		round.g.table.Flush()
		return !round.g.table.Mentioned(vip1).Equal(now.Add(in)) // to merge is to note that it was mentioned
	}
	for i, want := range []bool{false, false, true, true} { // news, no news, known
		if got := skipped(time.Duration(i) * 50 * time.Millisecond); got != want {
			t.Errorf("heartbeat %d: passed over %v", i+1, got)
		}
	}
	round.g.mu.Lock()
	round.g.table.Merge(&record.Record{Name: "m3", Inc: 1, Seq: 1, Entries: []record.Entry{{Addr: vip1, V: 1, Epoch: 3}}}, now)
	round.g.table.Flush()
	round.g.mu.Unlock()
	if skipped(time.Second) || !skipped(time.Second) {
		t.Error("after another node has told something they are not merged once")
	}
	round.g.own.Update(&model.GroupState{VIPs: []model.GroupVIP{{Addr: vip1, Standing: model.ReasonStandby}}})
	if skipped(time.Second) || !skipped(time.Second) {
		t.Error("after this node has told something they are not merged once")
	}
	if skipped(time.Second + beat.MergedFor) {
		t.Error("they are passed over for ever")
	}
	round.g.own.Update(&model.GroupState{VIPs: []model.GroupVIP{{Addr: vip1, Standing: model.ReasonOwner, Claim: model.Claim{Owner: "m1", Epoch: 9}}}})
	for range 3 {
		if skipped(2*time.Second + beat.MergedFor) {
			t.Error("claims that are contested are passed over")
		}
	}
	few := claims[:record.FewEntries]
	round.reader.Merged(few, record.State{}, now)
	if round.reader.Known(few, record.State{}, now) {
		t.Error("those of few VIPs are passed over")
	}
}
