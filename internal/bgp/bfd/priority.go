package bfd

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	niceness = -10
	slice    = 100_000 // ns
)

// prioritise asks the kernel to run a thread soon after it woke, 0 for the own
// one: with a short slice, which everybody may ask for and which since Linux
// 6.12 counts against other cgroups too, and with more weight, which takes
// CAP_SYS_NICE. All of it is best effort. It is no real-time priority: a flood
// of packets must not take a core from everybody else.
func prioritise(tid int) {
	if unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Nice: niceness, Runtime: slice}, 0) == nil {
		return
	}
	now, err := unix.SchedGetAttr(tid, 0)
	if err == nil && now.Policy == 0 { // SCHED_OTHER
		now.Runtime = slice
		_ = unix.SchedSetAttr(tid, now, 0)
	}
}

// prioritiseAll is for a process that does nothing else. Later threads inherit
// it.
func prioritiseAll() {
	all, _ := os.ReadDir("/proc/self/task")
	for _, t := range all {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			prioritise(tid)
		}
	}
}
