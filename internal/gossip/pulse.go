package gossip

import (
	"encoding/binary"
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

// newPulse returns a stopped pulse. A real one is a timer of the kernel: a timer
// of Go wakes the monitor thread of the runtime as well each time it is due, and
// is due up to the timer slack too late. Simulated time needs a timer of Go.
func newPulse(every time.Duration, real bool, log *slog.Logger) pulse {
	if real {
		p, err := newKernelPulse(every)
		if err == nil {
			return p
		}
		log.Debug("no kernel timer for heartbeats", "err", err)
	}
	p := &goPulse{t: time.NewTicker(every), every: every}
	p.stop()
	return p
}

// goPulse is a time.Ticker.
type goPulse struct {
	t     *time.Ticker
	every time.Duration
}

func (p *goPulse) ticks() <-chan time.Time { return p.t.C }
func (p *goPulse) start()                  { p.t.Reset(p.every) }
func (p *goPulse) stop()                   { p.t.Stop() }
func (p *goPulse) close()                  { p.t.Stop() }

// kernelPulse is a timerfd(2) that the network poller of Go waits for.
type kernelPulse struct {
	file  *os.File
	raw   syscall.RawConn
	every time.Duration
	c     chan time.Time
	wg    sync.WaitGroup
}

func newKernelPulse(every time.Duration) (*kernelPulse, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	p := &kernelPulse{file: file, raw: raw, every: every, c: make(chan time.Time, 1)}
	p.wg.Go(p.run)
	return p, nil
}

func (p *kernelPulse) ticks() <-chan time.Time { return p.c }
func (p *kernelPulse) start()                  { p.set(p.every) }

// stop also takes back a tick that has not been delivered.
func (p *kernelPulse) stop() {
	p.set(0)
	select {
	case <-p.c:
	default:
	}
}

func (p *kernelPulse) close() {
	p.file.Close()
	p.wg.Wait()
}

// set cannot fail with these arguments but on a closed file.
func (p *kernelPulse) set(every time.Duration) {
	at := unix.NsecToTimespec(every.Nanoseconds())
	spec := &unix.ItimerSpec{Interval: at, Value: at}
	_ = p.raw.Control(func(fd uintptr) {
		_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(spec)), 0, 0, 0)
	})
}

func (p *kernelPulse) run() {
	var buf [8]byte
	read := func(fd uintptr) bool {
		_, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&buf)), unsafe.Sizeof(buf))
		return errno == 0
	}
	for p.raw.Read(read) == nil {
		if binary.NativeEndian.Uint64(buf[:]) == 0 {
			continue
		}
		select {
		case p.c <- time.Now():
		default:
		}
	}
}
