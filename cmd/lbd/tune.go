package main

import (
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// timerSlack is by how much the kernel may be late with a timer of the daemon.
	// With its default of 50 microseconds the monitor thread of the Go runtime wakes
	// several times for every packet, since it sleeps in steps of 20 microseconds
	// while anything runs; that is most of what an idle daemon costs. Nothing here
	// needs a timer to be exact to a millisecond but BFD, which sets its own thread.
	timerSlack = time.Millisecond
	// tuned marks a process that has been started again with timerSlack.
	tuned = "LBD_TUNED"
)

// tuneTimers gives every thread of the process the timer slack. Threads inherit it
// and the runtime has started some before main, so the program is executed again,
// as the same process and with the same files. It returns if there is no need, or
// if it cannot be done: then the daemon works as well and costs a little more.
func tuneTimers() {
	if os.Getenv(tuned) != "" {
		_ = os.Unsetenv(tuned) // not for the programs of exec checks
		return
	}
	runtime.LockOSThread() // the slack is that of the thread that executes
	defer runtime.UnlockOSThread()
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || time.Duration(now) >= timerSlack {
		return // systemd may have set it: TimerSlackNSec=
	}
	if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) != nil {
		return
	}
	path, err := os.Executable() // not /proc/self/exe, by which nobody finds the process
	if err != nil {
		return
	}
	_ = syscall.Exec(path, os.Args, append(os.Environ(), tuned+"=1"))
}

// tuneProcs bounds how many threads run Go code at a time. One is enough for layer
// 2, and idle threads that look for work cost more than they help; BGP gets a
// second one. Who sets GOMAXPROCS knows better.
func tuneProcs(bgp bool, log *slog.Logger) {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	n := 1
	if bgp {
		n = min(2, runtime.NumCPU())
	}
	if was := runtime.GOMAXPROCS(n); was != n {
		log.Debug("threads", "gomaxprocs", n, "was", was)
	}
}

// manyVIPs is from how many on the collector of garbage runs three times as often: the
// heap is as large as all the rest of the daemon then.
const manyVIPs = 1000

// tuneMemory lets the heap grow less between two collections where it is large. An
// idle daemon with a few VIPs has 3 MB and would only spend processor time; and one
// with the Services of a cluster, most of whose VIPs it does not have, would spend
// more of it on them than on all else. Who sets GOGC knows better.
func tuneMemory(files, cluster int) {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := 100
	if files >= manyVIPs && files > cluster {
		percent = 30
	}
	debug.SetGCPercent(percent)
}
