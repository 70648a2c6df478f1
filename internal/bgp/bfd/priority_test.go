package bfd

import (
	"os"
	"runtime"
	"strconv"
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
	raisedBefore := raised(t)
	wg.Go(func() {
		runtime.LockOSThread() // ends with the goroutine
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
	if n := raised(t); n > raisedBefore+1 {
		t.Errorf("%d threads have it, %d before", n, raisedBefore)
	}
}

// raised counts the threads of this process with the weight of the sender.
func raised(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		tid, _ := strconv.Atoi(e.Name())
		if a, err := unix.SchedGetAttr(tid, 0); err == nil && a.Nice == niceness {
			n++
		}
	}
	return n
}
