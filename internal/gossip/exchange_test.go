package gossip

import (
	"testing"
	"time"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
)

// TestExchangesOfMany: members that tell of thousands of VIPs read few of their full
// exchanges, know that they had them, and hear of every change.
func TestExchangesOfMany(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		many := func(epoch uint64) {
			a.apply(func(gs *model.GroupState) {
				gs.VIPs = nil
				for x := vip1; len(gs.VIPs) < 2000; x = x.Next() {
					gs.VIPs = append(gs.VIPs, model.GroupVIP{Addr: x, Standing: model.ReasonOwner, Claim: model.Claim{Owner: "m1", Epoch: epoch}})
				}
			})
		}
		known := func() int { return see(b, func(g *model.Gossip) int { return len(g.Claims) }) }
		many(1)
		l.within(30*time.Second, "all claims", func() bool { return known() == 2000 })
		time.Sleep(20 * time.Second)
		m, err := record.Open(a.localState(a.own.Format()))
		if err != nil {
			t.Fatal(err)
		}
		read := 0
		records, _, _ := m.Full(b.Gossip.knows)
		for _, r := range records {
			read += len(r.Entries)
		}
		if len(records) != 2 || read != 0 {
			t.Errorf("of an exchange that brings nothing %d entries are read, of %d records", read, len(records))
		}
		before := see(b, func(g *model.Gossip) time.Time { return g.Exchanged })
		time.Sleep(25 * time.Second)
		if after := see(b, func(g *model.Gossip) time.Time { return g.Exchanged }); !after.After(before) {
			t.Error("exchanges are not told")
		}
		many(2)
		l.within(30*time.Second, "the new claims", func() bool {
			c := b.claims(vip1)
			return len(c) == 1 && c[0].Epoch == 2
		})
	})
}

// TestFormatFollowsTheMembers: the group is told in JSON until all members have said that they
// read more, and again as soon as one comes that may not.
func TestFormatFollowsTheMembers(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		formats := func() [2]record.Format { return [2]record.Format{a.own.Format(), b.own.Format()} }
		l.within(time.Second, "the new format", func() bool {
			return formats() == [2]record.Format{record.FormatBinary, record.FormatBinary}
		})
		// The release before: whatever it says, it does not say that it reads more.
		old := record.Record{Name: "m3", Inc: 1, Seq: 1, Head: &record.Head{V: 1, Version: "v0.1.0"}}
		say := func(r record.Record) {
			for _, m := range []*member{a, b} {
				m.hooks.NotifyMsg(r.Encode(record.FormatJSON))
			}
			time.Sleep(10 * time.Millisecond)
		}
		say(old)
		if f := formats(); f != [2]record.Format{record.FormatJSON, record.FormatJSON} {
			t.Errorf("beside the release before: formats %v", f)
		}
		a.claim(vip1, 3, "m2")
		l.within(time.Second, "the claim", func() bool { return len(b.claims(vip1)) == 1 })
		// It is replaced by this release, which a node of the release before passes on without
		// the format, and then by itself.
		next := record.Record{Name: "m3", Inc: 2, Seq: 1, From: "m4", Head: &record.Head{V: 1}}
		say(next)
		if f := formats(); f[0] != record.FormatJSON {
			t.Errorf("nothing told of the format: %v", f)
		}
		next.From, next.Head = "", &record.Head{V: 1, Format: record.Newest + 7}
		say(next)
		if f := formats(); f != [2]record.Format{record.Newest, record.Newest} {
			t.Errorf("all have the new release: %v", f)
		}
		next.From, next.Seq, next.Head = "m4", 2, &record.Head{V: 2, Settled: true}
		say(next)
		if f := formats(); f[0] != record.Newest {
			t.Errorf("passed on by the release before: %v", f)
		}
		// Somebody goes back to the release before.
		say(record.Record{Name: "m3", Inc: 3, Seq: 1, Head: &record.Head{V: 1}})
		if f := formats(); f[0] != record.FormatJSON {
			t.Errorf("after the way back: %v", f)
		}
		say(record.Record{Name: "m3", Inc: 3, Seq: 2, Head: &record.Head{V: 2, Left: true}})
		if f := formats(); f[0] != record.Newest {
			t.Errorf("after it left: %v", f)
		}
	})
}

// TestJoinIsToldInJSON: whoever joins may be of the release before, whatever the group reads.
func TestJoinIsToldInJSON(t *testing.T) {
	g, _ := offline(t)
	g.own.SetFormat(record.FormatBinary)
	if join, later := g.hooks.LocalState(true)[1], g.hooks.LocalState(false)[1]; join != byte(record.FormatJSON) || later != byte(record.FormatBinary) {
		t.Errorf("formats %d and %d", join, later)
	}
}
