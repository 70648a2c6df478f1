package beat

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pulse is a ticker that can be stopped and started again.
type pulse interface {
	// ticks delivers; one that nobody takes in time is dropped.
	ticks() <-chan time.Time
	start()
	stop()
	close()
}

// Alarm is a timer that is set again and again, mostly before it is due. It may
// ring once more for a time that it is not set to any longer.
type Alarm interface {
	Rings() <-chan time.Time
	Set(in time.Duration)
	Close()
}

// newPulse returns a stopped pulse. A real one is a timer of the kernel: a timer
// of Go wakes the monitor thread of the runtime as well each time it is due, and
// also when it would have been due before it was put off, and is up to the timer
// slack too late. Simulated time needs a timer of Go.
func newPulse(every time.Duration, real bool, log *slog.Logger) pulse {
	if real {
		t, err := newKernelTimer()
		if err == nil {
			return &kernelPulse{t, every}
		}
		log.Debug("no kernel timer for heartbeats", "err", err)
	}
	p := &goPulse{t: time.NewTicker(every), every: every}
	p.stop()
	return p
}

// NewAlarm returns an Alarm that is not set.
func NewAlarm(real bool, log *slog.Logger) Alarm {
	if real {
		t, err := newKernelTimer()
		if err == nil {
			return &kernelAlarm{t}
		}
		log.Debug("no kernel timer for deadlines", "err", err)
	}
	a := &goAlarm{time.NewTimer(time.Hour)}
	a.t.Stop()
	return a
}

type goPulse struct {
	t     *time.Ticker
	every time.Duration
}

func (p *goPulse) ticks() <-chan time.Time { return p.t.C }
func (p *goPulse) start()                  { p.t.Reset(p.every) }
func (p *goPulse) stop()                   { p.t.Stop() }
func (p *goPulse) close()                  { p.t.Stop() }

type goAlarm struct{ t *time.Timer }

func (a *goAlarm) Rings() <-chan time.Time { return a.t.C }
func (a *goAlarm) Set(in time.Duration)    { a.t.Reset(in) }
func (a *goAlarm) Close()                  { a.t.Stop() }

type kernelPulse struct {
	*kernelTimer
	every time.Duration
}

func (p *kernelPulse) ticks() <-chan time.Time { return p.c }
func (p *kernelPulse) start()                  { p.arm(p.every, p.every) }

// stop also takes back a tick that has not been delivered.
func (p *kernelPulse) stop() {
	p.arm(0, 0)
	select {
	case <-p.c:
	default:
	}
}

type kernelAlarm struct{ *kernelTimer }

func (a *kernelAlarm) Rings() <-chan time.Time { return a.c }
func (a *kernelAlarm) Set(in time.Duration)    { a.arm(max(in, 1), 0) } // 0 would disarm it
func (a *kernelAlarm) Close()                  { a.close() }

// kernelTimer is a timerfd(2) that the network poller of Go waits for.
type kernelTimer struct {
	file *os.File
	raw  syscall.RawConn
	c    chan time.Time
	wg   sync.WaitGroup
}

func newKernelTimer() (*kernelTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	t := &kernelTimer{file: file, raw: raw, c: make(chan time.Time, 1)}
	t.wg.Go(t.run)
	return t, nil
}

func (t *kernelTimer) close() {
	t.file.Close()
	t.wg.Wait()
}

// arm cannot fail with these arguments but on a closed file.
func (t *kernelTimer) arm(first, every time.Duration) {
	spec := &unix.ItimerSpec{Interval: unix.NsecToTimespec(every.Nanoseconds()), Value: unix.NsecToTimespec(first.Nanoseconds())}
	_ = t.raw.Control(func(fd uintptr) {
		_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(spec)), 0, 0, 0)
	})
}

func (t *kernelTimer) run() {
	var expirations [8]byte
	read := func(fd uintptr) bool {
		_, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&expirations)), unsafe.Sizeof(expirations))
		return errno == 0
	}
	for t.raw.Read(read) == nil {
		select {
		case t.c <- time.Now():
		default:
		}
	}
}
