package beat

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/record"
)

// TestKernelPulse ticks, stops, and starts again with a whole interval.
func TestKernelPulse(t *testing.T) {
	const every = 10 * time.Millisecond
	p := newPulse(every, true, slog.New(slog.DiscardHandler))
	defer p.close()
	if _, ok := p.(*kernelPulse); !ok {
		t.Fatalf("a %T, want a timer of the kernel", p)
	}
	quiet := func(why string) {
		t.Helper()
		select {
		case <-p.ticks():
			t.Errorf("a tick %s", why)
		case <-time.After(5 * every):
		}
	}
	quiet("before the start")
	for range 2 {
		start := time.Now()
		p.start()
		for i := range 5 {
			select {
			case <-p.ticks():
			case <-time.After(30 * time.Second):
				t.Fatalf("tick %d did not come", i)
			}
		}
		if took := time.Since(start); took < 4*every {
			t.Errorf("five ticks of %v after %v", every, took)
		}
		time.Sleep(2 * every) // one is waiting when it is stopped
		p.stop()
		quiet("after the stop")
	}
}

// TestGoPulse is the same for simulated time.
func TestGoPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 50 * time.Millisecond
		p := newPulse(every, false, slog.New(slog.DiscardHandler))
		defer p.close()
		time.Sleep(time.Second)
		start := time.Now()
		p.start()
		<-p.ticks()
		<-p.ticks()
		if took := time.Since(start); took != 2*every {
			t.Errorf("two ticks after %v", took)
		}
		p.stop()
		time.Sleep(time.Second)
		select {
		case <-p.ticks():
			t.Error("a tick after the stop")
		default:
		}
	})
}

// TestAlarm: set again before it is due it rings once, at the new time; set to now
// it rings at once.
func TestAlarm(t *testing.T) {
	for name, real := range map[string]bool{"of the kernel": true, "of Go": false} {
		t.Run(name, func(t *testing.T) {
			a := NewAlarm(real, slog.New(slog.DiscardHandler))
			defer a.Close()
			if _, kernel := a.(*kernelAlarm); kernel != real {
				t.Fatalf("a %T", a)
			}
			for _, first := range []time.Duration{300 * time.Millisecond, time.Hour} {
				start := time.Now()
				for range 5 { // the first is over before it is due
					a.Set(first)
					time.Sleep(5 * time.Millisecond)
				}
				const more = 350 * time.Millisecond
				last := time.Now()
				a.Set(more)
				late := time.Since(start) > first // the machine did something else
				<-a.Rings()
				if took := time.Since(last); took < more && !late {
					t.Errorf("set to %v and then to %v: rang after %v", first, more, took)
				}
				if late {
					time.Sleep(2 * more)
					select {
					case <-a.Rings():
					default:
					}
				}
			}
			a.Set(0)
			select {
			case <-a.Rings():
			case <-time.After(30 * time.Second):
				t.Error("does not ring at once")
			}
			select {
			case <-a.Rings():
				t.Error("rings again")
			case <-time.After(50 * time.Millisecond):
			}
		})
	}
}

// TestInStep: the heartbeat of another node brings the own ones forward, by half an
// interval at most, and nothing ever makes them late.
func TestInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		var mu sync.Mutex
		var sent []time.Duration
		start := time.Now()
		s := NewSender("a", 50*ms, false, slog.New(slog.DiscardHandler), &Sealer{}, func(*memberlist.Node, []byte) error {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, time.Since(start))
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		synctest.Wait()
		s.InStep() // there is nothing to send
		synctest.Wait()
		s.set(&plan{inc: 1, validUntil: start.Add(time.Hour), targets: []target{{
			name: "b", to: &memberlist.Node{Name: "b"}, beats: []record.Beat{{Name: "a"}}, sent: new(atomic.Uint64),
		}}})
		for _, at := range []time.Duration{60 * ms, 74 * ms, 130 * ms, 131 * ms, 180 * ms} {
			time.Sleep(at - time.Since(start))
			s.InStep()
			synctest.Wait()
		}
		time.Sleep(255*ms - time.Since(start))
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := []time.Duration{0, 50 * ms, 100 * ms, 130 * ms, 180 * ms, 230 * ms}
		if !slices.Equal(sent, want) {
			t.Errorf("sent at %v, want %v", sent, want)
		}
	})
}
