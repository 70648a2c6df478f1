package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"lbd.dev/lbd/internal/daemon"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
)

func TestStopHandsOverAndWaits(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		b.stop()
		pass(100 * time.Millisecond)
		g := b.sink.last()
		if !g.Draining || g.VIPs[0].Claim.To != "m2" {
			t.Fatalf("the group is told %+v", g)
		}
		if b.hasEnded() || len(b.net.Holders(vip)) != 1 {
			t.Fatal("did not wait for the successor")
		}
		b.claim()
		pass(50 * time.Millisecond)
		if h := b.net.Holders(vip); len(h) != 0 {
			t.Errorf("%v answers beside the successor", h)
		}
		if len(b.host.Addresses()) != 1 {
			t.Error("the address did not stay for open connections")
		}
		pass(3 * time.Second)
		if !b.hasEnded() || b.err != nil {
			t.Fatalf("ended %v: %v", b.hasEnded(), b.err)
		}
		if !b.sink.last().Leave || b.sink.closed.IsZero() {
			t.Error("did not say goodbye, or left the driver open")
		}
		if a := b.host.Addresses(); len(a) != 0 {
			t.Errorf("%v left behind", a)
		}
		if b.daemon.SetDraining(t.Context(), true) == nil {
			t.Error("a daemon that has ended takes orders")
		}
	})
}

func TestStopWithConnectionsWaitsForThem(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		b.host.SetConnections(vip, 3)
		b.stop()
		pass(20 * time.Millisecond)
		b.claim()
		pass(1500 * time.Millisecond)
		if b.hasEnded() || len(b.host.Addresses()) != 1 {
			t.Fatal("did not wait for connections")
		}
		b.host.SetConnections(vip, 0)
		pass(500 * time.Millisecond)
		if !b.hasEnded() {
			t.Error("waits longer than its connections")
		}
	})
}

func TestStopWithoutSuccessor(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.gossip.Set(alone)
		b.own()
		at := time.Now()
		b.stop()
		<-b.ended
		if took := time.Since(at); took < 300*time.Millisecond || took > 500*time.Millisecond {
			t.Errorf("looked for a successor for %s", took)
		}
		if len(b.net.Holders(vip)) != 1 {
			t.Fatal("took the VIP down although nobody else has it")
		}
		pass(4 * time.Second)
		if len(b.host.Addresses()) != 0 {
			t.Error("outlived its lifetime")
		}
		if !strings.Contains(b.log(), "no successor") {
			t.Error("did not say so")
		}
	})
}

func TestStopDeadline(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		b.config.Set(func(v *model.View) {
			v.VIPs = []model.VIP{{Addr: vip, Name: "cp", Kind: "VirtualIP", L2: true, Check: "api"}}
			v.DrainTimeout = time.Hour
		})
		b.host.SetConnections(vip, 1)
		pass(time.Second)
		at := time.Now()
		b.stop()
		pass(10 * time.Millisecond)
		b.claim() // takes the VIP, but the connection never ends
		<-b.ended
		if took := time.Since(at); took < 12*time.Second || took > 14500*time.Millisecond {
			t.Errorf("took %s, want 12 s and a farewell", took)
		}
		// It is left, silent, to a daemon that is back soon, and ends by itself.
		if len(b.host.Addresses()) != 1 || slices.Contains(b.net.Holders(vip), "m1") {
			t.Errorf("has %v, answered by %v", b.host.Addresses(), b.net.Holders(vip))
		}
		for range 40 {
			pass(100 * time.Millisecond)
			if slices.Contains(b.net.Holders(vip), "m1") {
				t.Fatal("answers for the address of another owner")
			}
		}
		if len(b.host.Addresses()) != 0 {
			t.Error("the address of another owner stayed")
		}
		if !strings.Contains(b.log(), "before everything was handed over") {
			t.Error("did not say so")
		}
	})
}

func TestStuckDriverDelaysNobody(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.sink.mu.Lock()
		b.sink.stuck = true
		b.sink.mu.Unlock()
		b.own()
		if err := b.daemon.Healthy(); err != nil {
			t.Error(err)
		}
		b.gossip.Set(alone)
		at := time.Now()
		b.stop()
		<-b.ended
		if took := time.Since(at); took > 8*time.Second {
			t.Errorf("the end took %s", took)
		}
	})
}

func TestStallIsNoticed(t *testing.T) {
	for _, c := range []struct {
		frozen time.Duration
		stalls int
		keeps  bool
	}{{700 * time.Millisecond, 0, true}, {1600 * time.Millisecond, 1, true}, {6 * time.Second, 1, false}} {
		run(t, func(t *testing.T, b *bed) {
			b.own()
			b.proc.Freeze()
			pass(c.frozen)
			if c.frozen > 4*time.Second {
				if err := b.daemon.Healthy(); err == nil {
					t.Error("healthy although the loop does not turn")
				}
				if b.daemon.Ready() == nil {
					t.Error("ready although the loop does not turn")
				}
			}
			b.proc.Thaw()
			b.health.Set(healthy(model.HealthUp)) // whatever comes first; timers are overdue
			pass(20 * time.Millisecond)
			if n := strings.Count(b.log(), "did not run for a while"); n != c.stalls {
				t.Errorf("frozen for %s: %d stalls, want %d", c.frozen, n, c.stalls)
			}
			if held := len(b.net.Holders(vip)) == 1; held != c.keeps {
				t.Errorf("frozen for %s: holds the VIP %v, want %v", c.frozen, held, c.keeps)
			}
			pass(2 * time.Second) // it asks the wire and takes the VIP again
			if expired := strings.Contains(b.log(), "reason=LeaseExpired"); expired == c.keeps {
				t.Errorf("frozen for %s: says that the lease expired %v", c.frozen, expired)
			}
			if len(b.net.Holders(vip)) != 1 {
				t.Errorf("frozen for %s: nobody else wants the VIP, but it is not taken again", c.frozen)
			}
			want := fmt.Sprintf(`# HELP lbd_stalls_total Times the daemon did not run for longer than a second.
# TYPE lbd_stalls_total counter
lbd_stalls_total %d
`, c.stalls)
			if err := testutil.GatherAndCompare(b.reg, strings.NewReader(want), "lbd_stalls_total"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStaleConsent: what names this node may have waited in the socket while the process
// stood still, and another one has the VIP.
func TestStaleConsent(t *testing.T) {
	for _, c := range []struct {
		frozen time.Duration
		takes  bool
	}{{100 * time.Millisecond, true}, {800 * time.Millisecond, false}, {10 * time.Second, false}} {
		run(t, func(t *testing.T, b *bed) {
			named := model.Claim{Owner: "m2", Epoch: 4}
			b.gossip.Set(group(b.begin, named))
			pass(2 * time.Second)
			b.proc.Freeze()
			pass(c.frozen)
			named.To = "m1"
			b.gossip.Set(group(b.begin, named))
			b.proc.Thaw()
			pass(100 * time.Millisecond)
			if takes := b.status().VIPs[0].Owner == "m1"; takes != c.takes {
				t.Errorf("frozen for %s: takes the VIP %v, want %v", c.frozen, takes, c.takes)
			}
			pass(1600 * time.Millisecond) // m2 names it still
			if s := b.status().VIPs[0]; s.Owner != "m1" {
				t.Errorf("frozen for %s: does not take the VIP later: %+v", c.frozen, s)
			}
		})
	}
}

func TestDrain(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		if err := b.daemon.SetDraining(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Millisecond)
		s := b.status()
		if !s.Draining || s.VIPs[0].Reason != "HandingOver" || len(s.VIPs[0].Successors) != 1 {
			t.Errorf("%+v", s)
		}
		b.claim()
		pass(3 * time.Second)
		if s := b.status().VIPs[0]; s.Owner != "m2" || s.Reason != "Draining" || s.Bound {
			t.Errorf("%+v", s)
		}
		if err := b.daemon.SetDraining(t.Context(), true); err != nil { // again: no news
			t.Fatal(err)
		}
		if n := strings.Count(b.log(), "msg=drain"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		if err := b.daemon.SetDraining(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if s := b.status().VIPs[0]; s.Owner != "m2" || s.Reason != "Standby" {
			t.Errorf("the VIP came back by itself: %+v", s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.daemon.SetDraining(ctx, false); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestReady(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		if b.daemon.Ready() == nil {
			t.Error("ready before the first turn")
		}
		b.own()
		if err := errors.Join(b.daemon.Ready(), b.daemon.Healthy()); err != nil {
			t.Error(err)
		}
		if b.status().Config.Path != "extra" {
			t.Error("an Extra was not called")
		}
		b.mu.Lock()
		beats := b.beats
		b.mu.Unlock()
		pass(10 * time.Second)
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := b.beats - beats; n < 20 {
			t.Errorf("%d beats of the watchdog in 10 s", n)
		}
	})
}

// TestClusterStatus: what is asked for is there after the next turn, and nobody
// decides because of it.
func TestClusterStatus(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		decisions := func(each func()) uint64 {
			before := b.sink.newest().Gen
			for range 50 {
				each()
				pass(100 * time.Millisecond)
			}
			return b.sink.newest().Gen - before
		}
		quiet := decisions(func() {})
		if got := decisions(func() { b.daemon.ClusterStatus() }); got > quiet+1 {
			t.Errorf("%d decisions, and %d without a question", got, quiet)
		}
		s := b.daemon.ClusterStatus()
		if s == nil || s.Node != "m1" || s.Config.Path != "extra" || len(s.VIPs) != 1 || s.VIPs[0].Owner != "m1" || s.Summary.Announced != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestLogsOnlyChanges(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		pass(10 * time.Second)
		before := b.log()
		for range 60 {
			b.health.Set(healthy(model.HealthUp)) // says the same again
			pass(time.Second)
		}
		if more := strings.TrimPrefix(b.log(), before); more != "" {
			t.Errorf("nothing happened, but:\n%s", more)
		}
		b.health.Set(healthy(model.HealthDown))
		pass(10 * time.Millisecond)
		b.claim()
		pass(5 * time.Second)
		var reasons []string
		for _, m := range regexp.MustCompile(`msg=vip .*reason=(\w+)`).FindAllStringSubmatch(strings.TrimPrefix(b.log(), before), -1) {
			reasons = append(reasons, m[1])
		}
		if got := strings.Join(reasons, " "); got != "HandingOver Releasing Unhealthy" {
			t.Errorf("reasons %s", got)
		}
	})
}

func TestExplain(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		for _, q := range []string{"cp", "10.0.0.200", ""} {
			e, err := b.daemon.Explain(t.Context(), q, "")
			if err != nil || len(e) != 1 || len(e[0].Candidates) != 2 || len(e[0].Story) == 0 || e[0].Owner != "m1" {
				t.Errorf("%q: %+v, %v", q, e, err)
			}
		}
		if _, err := b.daemon.Explain(t.Context(), "no", ""); !errors.Is(err, daemon.ErrUnknownVIP) {
			t.Errorf("error %v", err)
		}
	})
}

// broken is a source that cannot go on.
type broken struct{ after time.Duration }

func (broken) Name() model.SourceName { return "broken" }

func (b broken) Run(ctx context.Context, _ source.Publish) error {
	select {
	case <-time.After(b.after):
		return errors.New("out of order")
	case <-ctx.Done():
		return nil
	}
}

func TestSourceThatCannotGoOnEndsTheDaemon(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		pass(10 * time.Second)
		if !b.hasEnded() || b.err == nil || !strings.Contains(b.err.Error(), "broken: out of order") {
			t.Fatalf("ended %v: %v", b.hasEnded(), b.err)
		}
	}, func(o *daemon.Options) { o.Sources = append(o.Sources, broken{5 * time.Second}) })
}

func TestRequiredOptions(t *testing.T) {
	if _, err := daemon.New(daemon.Options{}); err == nil {
		t.Error("no error")
	}
}

func TestMetrics(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		problems, err := testutil.GatherAndLint(b.reg)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		golden, err := os.Open("testdata/metrics.prom")
		if err != nil {
			t.Fatal(err)
		}
		defer golden.Close()
		if err := testutil.GatherAndCompare(b.reg, golden,
			"lbd_vip_owner", "lbd_vip_announced", "lbd_vip_healthy", "lbd_vip_reason", "lbd_vip_conflicts_total", "lbd_members",
			"lbd_driver_error", "lbd_settled", "lbd_draining", "lbd_stalls_total", "lbd_build_info", "lbd_vip_transitions_total"); err != nil {
			t.Error(err)
		}
	})
}
