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

// TestProcessCPU: the time of a thread that has ended counts like all others.
func TestProcessCPU(t *testing.T) {
	before, err := measure.ProcessCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var ended time.Duration // what the thread has used
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for ended < 100*time.Millisecond {
			var ts unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
				t.Error(err)
				return
			}
			ended = time.Duration(ts.Nano())
		}
	})
	wg.Wait()
	time.Sleep(50 * time.Millisecond) // for the thread to end
	after, err := measure.ProcessCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got := after - before; got < 90*time.Millisecond || got > 10*time.Second {
		t.Errorf("a thread used %v, the process %v", ended, got)
	}
	if _, err := measure.ProcessCPU(1<<22 + 1); err == nil {
		t.Error("a process above PID_MAX_LIMIT has a CPU clock")
	}
}
