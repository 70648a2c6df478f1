package testnet

import (
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// AsInPod runs f as root without the capabilities that override permissions. Only the
// thread of f loses them, so f must not leave its goroutine for what it tests.
func AsInPod(t testing.TB, f func()) {
	t.Helper()
	NeedRoot(t) // files of other users
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			t.Errorf("capget: %v", err)
			return
		}
		data[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
		if err := unix.Capset(&header, &data[0]); err != nil {
			t.Errorf("capset: %v", err)
			return
		}
		f()
	})
	done.Wait()
}
