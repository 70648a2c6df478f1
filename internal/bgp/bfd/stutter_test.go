package bfd

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// capture records when packets of host a arrive on a host, by the clock of the
// kernel, so that it does not matter when they are read.
func (l *lab) capture(host string) func() []time.Time {
	l.Helper()
	fd := -1
	l.In(host, func() {
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_IP))); err != nil {
			l.Error(err)
			return
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if fd < 0 {
		l.FailNow()
	}
	l.Cleanup(func() { _ = unix.Close(fd) })
	return func() (at []time.Time) {
		buf := new(inbound)
		for {
			n, err := buf.receive(fd)
			if err != nil {
				l.Fatal(err)
			}
			if n == 0 {
				return at
			}
			for i := range n {
				d := buf.get(i)
				if len(d.payload) == 20+8+headerLen && string(d.payload[12:16]) == "\x0a\x00\x00\x01" {
					at = append(at, time.Unix(d.at.Unix()))
				}
			}
		}
	}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// busy keeps every P of the scheduler busy and the garbage collector going, until
// the function it returns is called.
func busy(goroutines int) (stop func()) {
	var end atomic.Bool
	var wg sync.WaitGroup
	type tree struct {
		a, b *tree
		_    [32]byte
	}
	var grow func(depth int) *tree
	grow = func(depth int) *tree {
		if depth == 0 {
			return nil
		}
		return &tree{a: grow(depth - 1), b: grow(depth - 1)}
	}
	keep := grow(18) // what the collector has to mark
	for i := range goroutines {
		wg.Go(func() {
			for x := 0; !end.Load(); x++ {
				if i%2 == 0 && x%1000 == 0 {
					_ = grow(6)
				}
			}
		})
	}
	return func() {
		end.Store(true)
		wg.Wait()
		runtime.KeepAlive(keep)
	}
}

// TestStutter measures the gaps between packets of a process that is busy. It
// is quick; LBD_BFD_STUTTER=20s tells more. Whenever the thread gets its turn in
// time, the shortest interval holds.
func TestStutter(t *testing.T) {
	took := time.Second
	if s := os.Getenv("LBD_BFD_STUTTER"); s != "" {
		var err error
		if took, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, burners := range []int{0, runtime.GOMAXPROCS(0), 4 * runtime.GOMAXPROCS(0)} {
		t.Run(fmt.Sprintf("%d busy goroutines", burners), func(t *testing.T) {
			l := newLab(t)
			s := session("10.0.0.1", "10.0.0.2")
			p := l.peer("b", session("10.0.0.2", "10.0.0.1"))
			a := l.node("a")
			a.apply(s)
			a.upWith(s)
			read := l.capture("b")
			stop := busy(burners)
			time.Sleep(took)
			stop()
			at := read()
			flaps, late := p.status()[0].Transitions-1, a.m.Stats().Lateness
			gaps := report(t, at, fmt.Sprintf("flaps: peer %d, own %d; worst lateness %v", flaps, a.one().Transitions-1, late))
			// Nobody but the kernel or the scheduler of Go is to blame for a thread that did not run,
			// nor for a gap that is longer by as much as the thread was late.
			if median := gaps[len(gaps)/2]; late <= s.Transmit && (flaps != 0 || median < s.Transmit*3/4 || median > s.Transmit+late+ms) {
				t.Errorf("median %v, %d flaps, never later than %v", median, flaps, late)
			}
		})
	}
}

// report logs the spread of the gaps.
func report(t *testing.T, at []time.Time, more string) []time.Duration {
	t.Helper()
	var gaps []time.Duration
	for i := 1; i < len(at); i++ {
		gaps = append(gaps, at[i].Sub(at[i-1]))
	}
	if len(gaps) == 0 {
		t.Fatal("no packets")
	}
	slices.Sort(gaps)
	var b strings.Builder
	for _, q := range []float64{0, 0.5, 0.99, 0.999, 1} {
		fmt.Fprintf(&b, " %v", gaps[int(q*float64(len(gaps)-1))].Round(10*time.Microsecond))
	}
	t.Logf("%d packets; gaps min, median, p99, p99.9, max:%s; %s", len(at), b.String(), more)
	return gaps
}
