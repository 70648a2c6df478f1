package daemon_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/daemon"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/notify"
)

// TestHangingProgramDelaysNoTakeover: while a notify program hangs the node takes a VIP over
// and hands it on in the time that it needs without one. Only the process ends later.
func TestHangingProgramDelaysNoTakeover(t *testing.T) {
	var hanging atomic.Int32
	hang := func(ctx context.Context, _ []string, _ ...string) (string, error) {
		hanging.Add(1)
		<-ctx.Done()
		return "", ctx.Err()
	}
	took, handed, ended := moves(t, nil)
	tookToo, handedToo, endedToo := moves(t, hang)
	if hanging.Load() != 1 {
		t.Fatalf("%d programs have hung", hanging.Load())
	}
	const jitter = 5 * time.Millisecond // whoever goes first in a moment is left to chance
	if took == 0 || took > 600*time.Millisecond || (tookToo-took).Abs() > jitter {
		t.Errorf("taken over after %v, with a program that hangs after %v", took, tookToo)
	}
	if handed == 0 || (handedToo-handed).Abs() > jitter {
		t.Errorf("silent after %v, with a program that hangs after %v", handed, handedToo)
	}
	if late := endedToo - ended - notify.StopWait; late.Abs() > jitter {
		t.Errorf("ended %v after the wait for the program", late)
	}
}

// moves has m1 take the VIP over from m2, then stop and hand it back, with a notify program
// that has been told that m1 is standby. It measures the takeover, the time from the stop until
// m1 is silent, and until it has ended.
func moves(t *testing.T, program func(context.Context, []string, ...string) (string, error)) (took, handed, ended time.Duration) {
	t.Helper()
	with := func(*daemon.Options) {}
	if program != nil {
		with = notifies(program)
	}
	run(t, func(t *testing.T, b *bed) {
		until := func(holders int) time.Duration {
			began := time.Now()
			for len(b.net.Holders(vip)) != holders {
				if pass(time.Millisecond); time.Since(began) > 20*time.Second {
					t.Fatalf("waited for %d to answer:\n%s", holders, b.log())
				}
			}
			return time.Since(began)
		}
		b.gossip.Set(owner(b, 7, func(*model.Member) {}))
		pass(3 * time.Second)
		b.gossip.Set(owner(b, 7, func(m *model.Member) { m.Late = time.Now() }))
		took = until(1)
		pass(2 * time.Second)
		b.gossip.Set(group(b.begin, model.Claim{Owner: "m2", Epoch: 7}))
		pass(2 * time.Second)
		began := time.Now()
		b.stop()
		pass(100 * time.Millisecond)
		b.claim()
		handed = until(0)
		<-b.ended
		ended = time.Since(began)
	}, with)
	return took, handed, ended
}

// TestProgramsFollow: programs are told what the daemon does with a VIP, its end included.
func TestProgramsFollow(t *testing.T) {
	var told []string
	tell := func(_ context.Context, _ []string, variables ...string) (string, error) {
		told = append(told, variables[0]+" "+variables[3])
		return "", nil
	}
	run(t, func(t *testing.T, b *bed) {
		b.gossip.Set(group(b.begin, model.Claim{Owner: "m2", Epoch: 7}))
		pass(3 * time.Second)
		b.gossip.Set(alone)
		pass(8 * time.Second)
		b.health.Set(healthy(model.HealthDown))
		pass(2 * time.Second)
		b.health.Set(healthy(model.HealthUp))
		pass(4 * time.Second)
		b.stop()
		<-b.ended
		want := []string{
			"LBD_STATE=standby LBD_REASON=Standby", "LBD_STATE=owner LBD_REASON=Owner", "LBD_STATE=fault LBD_REASON=Unhealthy",
			"LBD_STATE=standby LBD_REASON=Probing", "LBD_STATE=owner LBD_REASON=Owner", "LBD_STATE=standby LBD_REASON=Draining",
		}
		if !slices.Equal(told, want) {
			t.Errorf("told\n%q, want\n%q\n%s", told, want, b.log())
		}
	}, notifies(tell))
}

// notifies gives the daemon a notify driver, the last to be closed as in the program.
func notifies(program func(context.Context, []string, ...string) (string, error)) func(*daemon.Options) {
	return func(o *daemon.Options) {
		d := notify.New(notify.Options{Logger: slog.New(slog.DiscardHandler), Node: "m1", Run: program})
		d.SetPrograms([]v1alpha1.NotifySpec{{Command: []string{"x"}, Timeout: v1alpha1.Duration{Duration: 5 * time.Minute}}},
			[]model.VIP{{Addr: vip, Name: "cp"}})
		o.Drivers = slices.Insert(o.Drivers, 0, announce.Driver(d))
	}
}
