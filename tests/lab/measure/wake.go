package measure

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// WakeCost is the share of a core that a thread takes that waits for a timer, as
// often in a second as told, and does only what work does each time. It is what the
// machine itself asks of whoever wakes up so often: on a virtual machine that halts
// when it is idle, many times of what it is on bare metal.
func WakeCost(hz int, during time.Duration, work func() error) (float64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		return 0, os.NewSyscallError("timerfd_create", err)
	}
	defer unix.Close(fd)
	every := unix.NsecToTimespec(int64(time.Second) / int64(hz))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		return 0, os.NewSyscallError("timerfd_settime", err)
	}
	start, before := time.Now(), threadCPU()
	var expirations [8]byte
	for time.Since(start) < during {
		if _, err := unix.Read(fd, expirations[:]); err != nil && err != unix.EINTR {
			return 0, fmt.Errorf("timer: %w", err)
		}
		if err := work(); err != nil {
			return 0, err
		}
	}
	return float64(threadCPU()-before) / float64(time.Since(start)), nil
}

// threadCPU is the time that this thread has been on a processor.
func threadCPU() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
