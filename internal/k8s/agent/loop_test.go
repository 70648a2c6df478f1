package agent

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"lbd.dev/lbd/internal/k8s"
)

// loopFor is the loop of an agent whose clusters are empty and answer nothing.
func loopFor(t *testing.T) *loop {
	t.Helper()
	c, err := k8s.NewFor(&rest.Config{Host: "http://127.0.0.1:1"}, k8s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Tenant: c, Hub: c, HubNamespace: namespace, Class: "lbd.dev/hub", Identity: "one"})
	if err != nil {
		t.Fatal(err)
	}
	return newLoop(a)
}

// TestQuietIsHealthy: a leader that has nothing to do is no leader that is stuck.
func TestQuietIsHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loopFor(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.run(ctx)
		for at := time.Duration(0); at < 11*time.Minute; at += time.Second {
			time.Sleep(time.Second)
			if err := l.a.Healthy(); err != nil {
				t.Fatalf("after %v: %v", at, err)
			}
		}
	})
}

// TestConnected: a cluster is connected once it has been read, and one that is back is tried at once.
func TestConnected(t *testing.T) {
	t.Parallel() // it waits most of the time
	b := newBed(t)
	a := b.agent("one", b.hub)
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { a.notice(ctx) })
	time.Sleep(lookEvery / 2)
	if s := a.Stats(); s.HubConnected || s.TenantConnected {
		t.Errorf("connected before anything was read: %+v", s)
	}
	for _, w := range a.watches(SideHub) {
		parts.Go(func() { w.Run(ctx) })
	}
	b.eventually("connected", func() bool { return a.Stats().HubConnected })
	b.hub.Stop()
	b.eventually("away", func() bool { return !a.Stats().HubConnected })
	l, now := newLoop(a), time.Now()
	for _, s := range l.sides {
		s.at, s.wait = now.Add(k8s.RetryMost), k8s.RetryMost
	}
	l.turn(ctx, now)
	if l.sides[SideHub].at.IsZero() {
		t.Error("it is tried while it is away")
	}
	b.hub.Start()
	b.eventually("back", a.back[SideHub].Load)
	l.turn(ctx, now)
	if !l.sides[SideHub].at.IsZero() || l.sides[SideTenant].at.IsZero() {
		t.Errorf("the hub is back and tried after %v, the other one after %v", l.sides[SideHub].at.Sub(now), l.sides[SideTenant].at.Sub(now))
	}
}
