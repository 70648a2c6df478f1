package bfd

import (
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPrioritise: the thread gets its weight and its slice, and others do not.
func TestPrioritise(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("without CAP_SYS_NICE there is only the slice")
	}
	var wg sync.WaitGroup
	var before, after *unix.SchedAttr
	var err error
	var tid int
	wg.Go(func() {
		runtime.LockOSThread() // ends with the goroutine
		tid = unix.Gettid()
		if before, err = unix.SchedGetAttr(0, 0); err == nil {
			prioritise(0)
			after, err = unix.SchedGetAttr(0, 0)
		}
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 && after.Nice != niceness {
		t.Errorf("nice %d, want %d", after.Nice, niceness)
	}
	if before.Runtime != 0 && after.Runtime != slice { // 0: before Linux 6.12
		t.Errorf("slice of %d ns, was %d, want %d", after.Runtime, before.Runtime, slice)
	}
	if other, err := unix.SchedGetAttr(os.Getpid(), 0); tid != os.Getpid() && (err != nil || other.Nice == niceness) {
		t.Errorf("the main thread has it too: %+v, %v", other, err)
	}
}
