package daemon_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/daemon"
	"lbd.dev/lbd/internal/lbdtest"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
)

// A node that waits for its group is not ready, nor is one that has not heard
// from every source.
func TestNotReady(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		pass(2 * time.Second)
		if s := b.status(); s.Settled || b.daemon.Ready() == nil {
			t.Errorf("settled %v, ready %v although nobody was heard", s.Settled, b.daemon.Ready())
		}
		pass(2 * time.Second)
		if err := b.daemon.Ready(); err != nil {
			t.Error(err)
		}
	}, func(o *daemon.Options) {
		for _, s := range o.Sources {
			if f, ok := s.(*lbdtest.Facts); ok && f.Name() == model.SourceGossip {
				f.Set(func(v *model.View) { v.Gossip = model.Gossip{Peers: 1} })
			}
		}
	})
	run(t, func(t *testing.T, b *bed) {
		pass(5 * time.Second)
		if s := b.status(); !s.Settled || b.daemon.Ready() == nil {
			t.Errorf("settled %v, ready %v without the source of health", s.Settled, b.daemon.Ready())
		}
		b.sink.mu.Lock()
		defer b.sink.mu.Unlock()
		if slices.ContainsFunc(b.sink.told, func(d *model.Desired) bool { return d.Synced }) {
			t.Error("drivers may prune before every source has delivered")
		}
	}, func(o *daemon.Options) {
		o.Sources = slices.DeleteFunc(o.Sources, func(s source.Source) bool { return s.Name() == model.SourceHealth })
	})
}

// What the node cannot do is part of every decision.
func TestUnable(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		pass(2 * time.Second)
		if s := b.status().VIPs[0]; s.Owner == "m1" || !strings.Contains(s.Detail, "no CAP_NET_RAW") {
			t.Errorf("%+v", s)
		}
	}, func(o *daemon.Options) { o.Unable = "no CAP_NET_RAW" })
}

// What ends at a time ends then, not with the next turn that has another cause.
func TestWakesInTime(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.config.Set(func(v *model.View) {
			v.VIPs = []model.VIP{{Addr: vip, Name: "cp", Kind: "VirtualIP", L2: true, Check: "api"}}
			v.DrainTimeout = 2250 * time.Millisecond
		})
		b.own()
		b.host.SetConnections(vip, 1)
		if err := b.daemon.SetDraining(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Millisecond)
		b.claim()
		pass(2240 * time.Millisecond)
		if len(b.host.Addresses()) != 1 {
			t.Fatal("did not wait for connections")
		}
		pass(60 * time.Millisecond)
		if len(b.host.Addresses()) != 0 {
			t.Error("the time to drain is over, but the address stays")
		}
	})
}

// Facts that come while the loop is busy cost one decision, not one each.
func TestManyFactsOneDecision(t *testing.T) {
	var burst burst
	run(t, func(t *testing.T, b *bed) {
		b.own()
		b.proc.Freeze()
		pass(600 * time.Millisecond) // the loop stands in its beat
		turns, decided := b.turns(), b.decisions()
		close(burst)
		pass(100 * time.Millisecond)
		b.proc.Thaw()
		pass(time.Millisecond)
		n := b.turns() - turns
		if n < 1 || n > 20 {
			t.Errorf("%d turns for 200 facts", n)
		}
		// A turn in which only time has passed makes none.
		if got := b.decisions() - decided; got < 1 || got > uint64(n) {
			t.Errorf("%d decisions were measured in %d turns", got, n)
		}
	}, func(o *daemon.Options) {
		burst = make(chan struct{})
		o.Sources = append(o.Sources, burst)
	})
}

// burst is a source that publishes 200 facts at once.
type burst chan struct{}

func (burst) Name() model.SourceName { return "burst" }

func (b burst) Run(ctx context.Context, publish source.Publish) error {
	select {
	case <-b:
	case <-ctx.Done():
		return nil
	}
	for range 200 {
		publish(func(*model.View) {})
	}
	<-ctx.Done()
	return nil
}

// decisions is how many decisions the metrics count.
func (b *bed) decisions() uint64 {
	b.t.Helper()
	all, err := b.reg.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "lbd_decision_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	b.t.Fatal("no lbd_decision_seconds")
	return 0
}
