package daemon_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// owner is m2 as the owner with this epoch; change alters its member.
func owner(b *bed, epoch uint64, change func(m *model.Member)) func(*model.View) {
	base := group(b.begin, model.Claim{Owner: "m2", Epoch: epoch})
	return func(v *model.View) {
		base(v)
		m := v.Gossip.Members["m2"]
		m.Standing = map[netip.Addr]model.Reason{vip: model.ReasonOwner}
		change(&m)
		v.Gossip.Members["m2"] = m
	}
}

// lines are those of the log that have all the parts.
func (b *bed) lines(parts ...string) []string {
	var found []string
	for line := range strings.Lines(b.log()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

func (b *bed) candidate(node string) (v1alpha1.Explanation, v1alpha1.Candidate) {
	b.t.Helper()
	list, err := b.daemon.Explain(b.t.Context(), "cp", "")
	if err != nil || len(list) != 1 {
		b.t.Fatal(list, err)
	}
	for _, c := range list[0].Candidates {
		if c.Node == node {
			return list[0], c
		}
	}
	b.t.Fatalf("%s is no candidate: %+v", node, list[0])
	return list[0], v1alpha1.Candidate{}
}

// TestTakeoverIsAWarning: with log.level warn an outage must be seen, and what
// was planned must not.
func TestTakeoverIsAWarning(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.gossip.Set(owner(b, 7, func(*model.Member) {}))
		pass(3 * time.Second)
		if s := b.status().VIPs[0]; s.Owner != "m2" {
			t.Fatalf("%+v", s)
		}
		if got := b.lines("level=WARN"); len(got) != 0 {
			t.Errorf("warnings while all is well: %q", got)
		}
		b.gossip.Set(owner(b, 7, func(m *model.Member) { m.Late = time.Now() }))
		pass(2 * time.Second)
		if s := b.status().VIPs[0]; s.Owner != "m1" || !s.Announced {
			t.Fatalf("%+v", s)
		}
		if got := b.lines("level=WARN", "msg=announced", "from=m2"); len(got) != 1 {
			t.Errorf("warnings of the takeover: %q\n%s", got, b.log())
		}
		if got := b.lines("level=WARN"); len(got) != 1 {
			t.Errorf("warnings: %q", got)
		}
	})
}

func TestPlannedMovesAreNoWarning(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own() // nobody had it before
		if err := b.daemon.SetDraining(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Millisecond)
		b.claim()
		pass(3 * time.Second)
		if err := b.daemon.SetDraining(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		// And back, with the owner's consent.
		base := group(b.begin, model.Claim{Owner: "m2", Epoch: 9, To: "m1"})
		b.gossip.Set(base)
		pass(2 * time.Second)
		if s := b.status().VIPs[0]; s.Owner != "m1" || !s.Announced {
			t.Fatalf("%+v\n%s", s, b.log())
		}
		if got := b.lines("msg=announced", "from=m2"); len(got) != 1 {
			t.Errorf("the move back is not logged: %q", got)
		}
		if got := b.lines("level=WARN"); len(got) != 0 {
			t.Errorf("warnings of planned moves: %q", got)
		}
		if got := b.lines("epoch=0"); len(got) != 0 {
			t.Errorf("an epoch that nobody has: %q", got)
		}
		if got := b.lines("reason=TakingOver", "owner=m1", "epoch=10"); len(got) != 1 {
			t.Errorf("the epoch that the successor takes is not logged:\n%s", b.log())
		}
	})
}

// TestWhatNeedsAPersonIsAWarning ends the service: that m2 takes over is planned,
// that m1 cannot any more is not.
func TestWhatNeedsAPersonIsAWarning(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		b.health.Set(healthy(model.HealthDown))
		pass(10 * time.Millisecond)
		b.claim()
		pass(3 * time.Second)
		if got := b.lines("level=WARN", "reason=Unhealthy"); len(got) != 1 {
			t.Errorf("warnings: %q\n%s", got, b.log())
		}
	})
}

func TestExplainOverdueOwner(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.health.Set(healthy(model.HealthDown)) // so that m1 does not take it
		pass(2 * time.Second)
		lease := func(left time.Duration) func(m *model.Member) {
			return func(m *model.Member) { m.Late, m.LeaseEnd = time.Now().Add(-time.Second), time.Now().Add(left) }
		}
		for _, tt := range []struct {
			change           func(m *model.Member)
			late, note, told string
		}{
			{func(*model.Member) {}, "", "", "m2 owns 10.0.0.200 with epoch 7; the owner keeps it as long as it is alive and healthy."},
			{
				lease(800 * time.Millisecond), "1s", "heartbeats overdue for 1s; unless its daemon runs, its kernel drops the address in 800ms",
				"m2 claims 10.0.0.200 with epoch 7: heartbeats overdue for 1s; unless its daemon runs, its kernel drops the address in 800ms.",
			},
			{
				lease(0), "1s", "heartbeats overdue for 1s; unless its daemon runs, its kernel has dropped the address",
				"m2 claims 10.0.0.200 with epoch 7: heartbeats overdue for 1s; unless its daemon runs, its kernel has dropped the address.",
			},
			{
				func(m *model.Member) { m.Late = time.Now().Add(-time.Second) }, "1s", "heartbeats overdue for 1s",
				"m2 claims 10.0.0.200 with epoch 7: heartbeats overdue for 1s.",
			},
			{
				func(m *model.Member) { lease(time.Second)(m); m.State = model.MemberDead }, "", "it is dead",
				"Nobody that m1 knows of owns 10.0.0.200.",
			},
		} {
			b.gossip.Set(owner(b, 7, tt.change))
			pass(0)
			e, c := b.candidate("m2")
			if c.Late != tt.late || c.Note != tt.note {
				t.Errorf("late %q, note %q; want %q, %q", c.Late, c.Note, tt.late, tt.note)
			}
			if len(e.Story) == 0 || e.Story[0] != tt.told {
				t.Errorf("story\n got %q\nwant %q", e.Story, tt.told)
			}
		}
	})
}

// TestOverdueSuccessorIsNotNamed: nobody expects a node to take over that is not
// heard itself.
func TestOverdueSuccessorIsNotNamed(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		if e, _ := b.candidate("m2"); !slices.Contains(e.Story, "If it fails, m2 takes over.") || len(b.status().VIPs[0].Successors) != 1 {
			t.Errorf("%q", e.Story)
		}
		b.gossip.Set(func(v *model.View) {
			group(b.begin, model.Claim{})(v)
			m := v.Gossip.Members["m2"]
			m.Late = time.Now()
			v.Gossip.Members["m2"] = m
		})
		pass(10 * time.Millisecond)
		if e, _ := b.candidate("m2"); !slices.Contains(e.Story, "Nobody could take over: no other node is eligible.") || len(b.status().VIPs[0].Successors) != 0 {
			t.Errorf("%q, %q", e.Story, b.status().VIPs[0].Successors)
		}
	})
}

// TestStopIsNotADrain: nobody can undrain a daemon that ends.
func TestStopIsNotADrain(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		b.stop()
		pass(10 * time.Millisecond)
		b.claim()
		<-b.ended
		for _, want := range []string{"HandingOver", "Releasing"} {
			if got := b.lines("reason="+want, "because of Draining: the daemon is stopping"); len(got) != 1 {
				t.Errorf("%s: %q\n%s", want, got, b.log())
			}
		}
	})
}

// TestMembersAreLoggedOncePerChange: one of whom others tell before it is met has
// not gone.
func TestMembersAreLoggedOncePerChange(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		pass(time.Second) // alive
		for _, state := range []model.MemberState{model.MemberDead, model.MemberAlive, model.MemberAlive, model.MemberDead} {
			b.gossip.Set(owner(b, 7, func(m *model.Member) { m.State = state }))
			pass(time.Second)
		}
		got := b.lines("msg=member", "peer=m2")
		if len(got) != 4 || !strings.Contains(got[1], "dead") || !strings.Contains(got[2], "alive") || !strings.Contains(got[3], "dead") {
			t.Errorf("%q", got)
		}
	})
	run(t, func(t *testing.T, b *bed) {
		b.gossip.Set(func(v *model.View) {
			group(b.begin, model.Claim{})(v)
			v.Gossip.Members["m3"] = model.Member{Name: "m3", State: model.MemberDead}
		})
		pass(time.Second)
		if got := b.lines("msg=member", "peer=m3"); len(got) != 0 {
			t.Errorf("never met: %q", got)
		}
	})
}
