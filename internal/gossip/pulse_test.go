package gossip

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
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
			case <-time.After(time.Second):
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
