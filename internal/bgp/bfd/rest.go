package bfd

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	restLoss = 2 * MinSessionInterval // for how long a peer must not miss packets at least, so that the thread rests
	tardy    = 5 * time.Millisecond   // from which on a thread that was late
	alert    = 5 * time.Second        // does not rest for this long,
	alertMax = 5 * time.Minute        // or up to this long: doubled each time
	peace    = time.Minute            // that it was late again before this time of rest
)

// rest is how the thread waits while the machine has time: in the network poller
// of Go, which watches an epoll instance with all sockets and a timer.
//
// A system call of its own keeps the monitor of the Go runtime awake for 10 ms,
// every time: that costs more than all else of BFD. But it is woken by the kernel
// alone, and not by another thread that waits for its turn. So the first packet
// that is late ends the rest, for a while that begins anew with each that is, and
// is longer the sooner the rest has turned out to be too early.
type rest struct {
	file      *os.File // of ep
	raw       syscall.RawConn
	ep, timer int
	fds       []int // in ep beside timer
	// What the kernel reads and writes; here nothing has to be allocated for it.
	spec  unix.ItimerSpec
	event unix.EpollEvent
}

func newRest() (*rest, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	_ = unix.SetNonblock(ep, true) // else it is no file for the poller
	r := &rest{ep: ep, timer: -1, file: os.NewFile(uintptr(ep), "bfd")}
	if r.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err == nil {
		err = r.control(unix.EPOLL_CTL_ADD, r.timer)
	}
	if err == nil {
		r.raw, err = r.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rest) close() error {
	shut(&r.timer)
	return r.file.Close()
}

func (r *rest) control(op, fd int) error {
	return unix.EpollCtl(r.ep, op, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// watch makes fds what is watched. One that was closed is no longer in ep, and a
// number may be of another file by now.
func (r *rest) watch(fds []unix.PollFd, anew bool) error {
	if !anew && slices.EqualFunc(fds, r.fds, func(p unix.PollFd, fd int) bool { return int(p.Fd) == fd }) {
		return nil
	}
	for _, fd := range r.fds {
		_ = r.control(unix.EPOLL_CTL_DEL, fd)
	}
	r.fds = r.fds[:0]
	for _, p := range fds {
		if err := r.control(unix.EPOLL_CTL_ADD, int(p.Fd)); err != nil {
			return err
		}
		r.fds = append(r.fds, int(p.Fd))
	}
	return nil
}

// leave watches nothing: another one waits for the sockets.
func (r *rest) leave() {
	if len(r.fds) > 0 {
		_ = r.watch(nil, false)
		r.spec = unix.ItimerSpec{}
		_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(r.timer), 0, uintptr(unsafe.Pointer(&r.spec)), 0, 0, 0)
	}
}

// until waits until one of the sockets has something, or until t, if not zero.
func (r *rest) until(t time.Time) error {
	r.spec = unix.ItimerSpec{} // disarms
	if !t.IsZero() {
		r.spec.Value = unix.NsecToTimespec(int64(max(1, time.Until(t))))
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(r.timer), 0, uintptr(unsafe.Pointer(&r.spec)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return r.raw.Read(r.ready)
}

// ready tells whether there is something. The poller asks once before it waits.
func (r *rest) ready(uintptr) bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(r.ep), uintptr(unsafe.Pointer(&r.event)), 1, 0, 0, 0)
	return n > 0 || errno != 0
}

// alarm is how long the thread does not rest because it was late.
type alarm struct {
	until time.Time
	last  time.Duration // for how long the last one was
}

// delayed learns by how much the thread was late.
func (l *loop) delayed(by time.Duration, now time.Time) {
	l.stats.Lateness = max(l.stats.Lateness, by)
	if by > tardy {
		l.alarm.sound(now)
	}
}

// sound begins an alarm, longer than the last one if that was a short time ago.
func (a *alarm) sound(now time.Time) {
	switch {
	case now.Before(a.until):
	case now.Sub(a.until) < peace:
		a.last = min(2*a.last, alertMax)
	default:
		a.last = alert
	}
	a.until = now.Add(a.last)
}

// rests tells whether the thread may wait in the poller.
func (l *loop) rests(now time.Time) bool {
	if l.rest == nil || now.Before(l.alarm.until) || len(l.table.byDiscr) > many {
		return false
	}
	for _, w := range l.table.byDiscr {
		if time.Duration(w.m.set.mult-1)*w.m.interval() < restLoss || w.m.state == Up && w.m.detection() < restLoss {
			return false
		}
	}
	return true
}
