package gossip

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
)

// TestRepeats: a large exchange is read again if anything has changed, and after a while.
func TestRepeats(t *testing.T) {
	now := time.Unix(1000, 0)
	body := make([]byte, repeatsFrom)
	state := func(inc, seq, changes uint64) record.State {
		return record.State{Inc: inc, Seq: seq, Changes: changes}
	}
	var r repeats
	for i, c := range []struct {
		name  string
		body  []byte
		state record.State
		after time.Duration
		known bool
	}{
		{"first", body, state(1, 1, 1), 0, false},
		{"again", body, state(1, 1, 1), time.Second, true},
		{"what is known has changed", body, state(1, 1, 2), 2 * time.Second, false},
		{"again, after that", body, state(1, 1, 2), 3 * time.Second, true},
		{"what is told has changed", body, state(1, 2, 2), 4 * time.Second, false},
		{"a while ago", body, state(1, 2, 2), 4*time.Second + repeatsFor, false},
		{"and again", body, state(1, 2, 2), 5*time.Second + repeatsFor, true},
		{"another", append([]byte("x"), body...), state(1, 2, 2), 5*time.Second + repeatsFor, false},
		{"small", body[:100], record.State{}, 0, false},
		{"small again", body[:100], record.State{}, 0, false},
	} {
		this, got := r.known(c.body, c.state, now.Add(c.after))
		if got != c.known {
			t.Errorf("%d, %s: known %v", i, c.name, got)
		}
		if _, again := r.known(c.body, c.state, now.Add(c.after)); again != got {
			t.Errorf("%d, %s: known without having been merged", i, c.name)
		}
		if !got {
			r.merged(this)
		}
	}
}

// newRound is the state of Run of a node that has no peers and does not run.
func newRound(t *testing.T) *round {
	t.Helper()
	g, err := New(Options{Name: "m1", BindAddr: netip.MustParseAddr("127.0.0.1"), Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.close() })
	return &round{loop: newLoop(g)}
}

// TestDroppedExchangeIsReadAgain: a full exchange that a full queue dropped, before it was
// merged, is not passed over when it comes again.
func TestDroppedExchangeIsReadAgain(t *testing.T) {
	round := newRound(t)
	g := round.g
	rec := record.Record{Name: "m2", Inc: 1}
	for a := vip1; len(rec.Entries) < 2000; a = a.Next() {
		rec.Entries = append(rec.Entries, record.Entry{Addr: a, V: 7, Standing: "Owner", Epoch: 9, Seen: 9})
	}
	body := record.EncodeFull([][]byte{rec.Encode()[2:]}, record.MaxMessage)
	if len(body) < repeatsFrom {
		t.Fatalf("%d bytes are too few", len(body))
	}
	comes := func() fullState {
		g.hooks.MergeRemoteState(body, false)
		f, _ := g.fulls.pop()
		return f
	}
	comes() // and is dropped
	for _, when := range []string{"dropped", "merged, which was news"} {
		f := comes()
		if len(f.records) != 1 {
			t.Errorf("after it was %s it is not read", when)
		}
		g.mu.Lock()
		round.takeFull(f)
		g.table.Flush()
		g.mu.Unlock()
	}
	if f := comes(); len(f.records) != 0 || !f.exchange {
		t.Errorf("after it brought nothing new it is read: %d records", len(f.records))
	}
}

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
		var skipped int
		body := a.localState()[2:]
		for range 3 {
			this, known := b.hooks.repeats.known(body, b.state(), time.Now())
			if known {
				skipped++
			} else {
				b.hooks.repeats.merged(this)
			}
		}
		if skipped < 2 {
			t.Errorf("%d of 3 exchanges that bring nothing were passed over", skipped)
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
