package measure

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticks is USER_HZ, which Linux fixes at 100 for what /proc shows.
const ticks = 100

// CPU is a reading of the whole machine's time in USER_HZ.
type CPU struct{ Busy, Total uint64 }

// ReadCPU reads /proc/stat. Steal counts as busy: the machine was not ours then.
func ReadCPU() (CPU, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return CPU{}, fmt.Errorf("cpu: read: %w", err)
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 9 || fields[0] != "cpu" {
		return CPU{}, fmt.Errorf("cpu: parse: unexpected line %q", line)
	}
	var c CPU
	// user nice system idle iowait irq softirq steal; guest time is in user.
	for i, f := range fields[1:9] {
		v, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return CPU{}, fmt.Errorf("cpu: parse: %w", err)
		}
		c.Total += v
		if i != 3 && i != 4 {
			c.Busy += v
		}
	}
	return c, nil
}

// Load is the busy share of the machine between two readings, 0 to 1.
func Load(from, to CPU) float64 {
	if to.Total <= from.Total {
		return 0
	}
	return float64(to.Busy-from.Busy) / float64(to.Total-from.Total)
}

// RSS is the resident memory of a process in bytes.
func RSS(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("rss: read: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "VmRSS:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("rss: parse: %w", err)
		}
		return kib * 1024, nil
	}
	return 0, fmt.Errorf("rss: process %d has no VmRSS", pid)
}

// ProcessCPU is the time that all threads of a process have been on a processor
// so far, those that have ended too. It reads the CPU clock of the process
// (clock_getcpuclockid(3)), the scheduler's own count in nanoseconds.
//
// The files of /proc say less: /proc/PID/schedstat is the first thread alone,
// /proc/PID/task/*/schedstat forgets threads that have ended, and /proc/PID/stat
// cuts the same count to 10 ms, twice.
func ProcessCPU(pid int) (time.Duration, error) {
	const schedClock = 2 // CPUCLOCK_SCHED of the kernel; without CPUCLOCK_PERTHREAD_MASK
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return 0, fmt.Errorf("cpu clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Usage is what a process group uses.
type Usage struct {
	Processes int
	RSS       int64 // bytes, shared pages counted once per process
	// CPU is that of its processes, see ProcessCPU, and of their children that
	// have ended, which the kernel tells in steps of 10 ms.
	CPU time.Duration
}

// GroupUsage adds up the processes of a process group.
func GroupUsage(pgid int) (Usage, error) {
	var u Usage
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return u, fmt.Errorf("group: %w", err)
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) < 15 || fields[2] != strconv.Itoa(pgid) {
			continue
		}
		cpu, err := ProcessCPU(pid)
		if err != nil {
			continue // it has ended
		}
		u.CPU += cpu
		for _, f := range fields[13:15] { // cutime, cstime
			v, err := strconv.ParseUint(f, 10, 64)
			if err != nil {
				return u, fmt.Errorf("group: parse: %w", err)
			}
			u.CPU += time.Duration(v) * time.Second / ticks
		}
		if rss, err := RSS(pid); err == nil {
			u.RSS += rss
			u.Processes++
		}
	}
	if u.Processes == 0 {
		return u, fmt.Errorf("group: %d has no process", pgid)
	}
	return u, nil
}

// Machine describes for a report what its figures were taken on.
func Machine() string {
	var u unix.Utsname
	kernel := "unknown"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	return fmt.Sprintf("kernel %s, %d cores, %s", kernel, runtime.NumCPU(), runtime.Version())
}
