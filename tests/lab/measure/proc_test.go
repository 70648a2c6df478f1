package measure_test

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/tests/lab/measure"
)

// TestProcessCPU: the time of threads that have ended counts too.
func TestProcessCPU(t *testing.T) {
	before, err := measure.ProcessCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const threads, each = 3, 100 * time.Millisecond
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			var used unix.Timespec
			for time.Duration(used.Nano()) < each {
				if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(50 * time.Millisecond) // for the thread to end
	after, err := measure.ProcessCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got := after - before; got < (threads-1)*each || got > 10*time.Second {
		t.Errorf("%d threads used %v each, the process %v", threads, each, got)
	}
	if _, err := measure.ProcessCPU(1<<22 + 1); err == nil {
		t.Error("a process above PID_MAX_LIMIT has a CPU clock")
	}
}

// TestWakeCost: waking costs something, and far less than a core.
func TestWakeCost(t *testing.T) {
	calls := 0
	got, err := measure.WakeCost(100, 300*time.Millisecond, func() error { calls++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if got <= 0 || got > 0.5 {
		t.Errorf("100 wakes a second cost %.3f of a core", got)
	}
	if calls < 5 || calls > 31 {
		t.Errorf("%d calls, want 30", calls)
	}
}
