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
	l.in(host, func() {
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
// takes 3 s for each interval; LBD_BFD_STUTTER=20s takes longer.
func TestStutter(t *testing.T) {
	took := 3 * time.Second
	if s := os.Getenv("LBD_BFD_STUTTER"); s != "" {
		var err error
		if took, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, interval := range []time.Duration{100 * ms, 10 * ms} {
		for _, burners := range []int{0, runtime.GOMAXPROCS(0), 4 * runtime.GOMAXPROCS(0)} {
			for _, kind := range []string{"thread", "process"} {
				t.Run(fmt.Sprintf("%s, %v, %d busy goroutines", kind, interval, burners), func(t *testing.T) {
					l := newLab(t)
					s := session("10.0.0.1", "10.0.0.2")
					s.Transmit, s.Receive = interval, interval
					back := session("10.0.0.2", "10.0.0.1")
					back.Transmit, back.Receive = interval, interval
					p := l.peer("b", nil, back)
					a := l.node("a")
					if kind == "process" {
						a = l.apart("a")
					}
					a.apply(s)
					a.upWith(s)
					read := l.capture("b")
					stop := busy(burners)
					time.Sleep(took)
					stop()
					at := read()
					flaps := p.status()[0].Transitions - 1
					report(t, at, fmt.Sprintf("flaps: peer %d, own %d; worst lateness %v", flaps, a.one().Transitions-1, a.m.Stats().Lateness))
				})
			}
		}
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

// TestLateReceiver: a process that did not run for longer than the Detection
// Time finds what its peer sent meanwhile before it blames it; and if the peer
// did die meanwhile, it finds that out at once.
func TestLateReceiver(t *testing.T) {
	l := newLab(t)
	sa, sb := session("10.0.0.1", "10.0.0.2"), session("10.0.0.2", "10.0.0.1")
	sa.Multiplier = 100 // the peer waits for 5 s
	b := l.node("b")
	b.apply(sb)
	p := l.peer("a", nil, sa)
	b.upWith(sb)
	for _, freeze := range []time.Duration{200 * ms, 500 * ms, time.Second} {
		_ = p.cmd.Process.Signal(unix.SIGSTOP)
		time.Sleep(freeze)
		_ = p.cmd.Process.Signal(unix.SIGCONT)
		time.Sleep(300 * ms)
		if st := p.status()[0]; st.Transitions != 1 || st.State != Up {
			t.Fatalf("frozen for %v: %+v", freeze, st)
		}
	}
	_ = p.cmd.Process.Signal(unix.SIGSTOP)
	l.run("ip", "netns", "exec", l.ns("b"), "nft", "add table inet cut; add chain inet cut out { type filter hook output priority 0; policy drop; }")
	time.Sleep(500 * ms)
	_ = p.cmd.Process.Signal(unix.SIGCONT)
	thaw := time.Now()
	l.within(time.Second, "down", func() bool { return p.status()[0].State == Down })
	if took := p.status()[0].Since.Sub(thaw); took > 50*ms {
		t.Errorf("found %v after the thaw that the peer was gone for 500 ms", took)
	}
}

// TestMany: 500 sessions on one receiving socket, and what they cost.
func TestMany(t *testing.T) {
	const n = 500
	l := newLab(t)
	var sa, sb []Session
	for i := range n {
		x, y := fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), fmt.Sprintf("10.2.%d.%d", i/250, i%250+1)
		a, b := session(x, y), session(y, x)
		a.Transmit, a.Receive, b.Transmit, b.Receive = 100*ms, 100*ms, 100*ms, 100*ms
		sa, sb = append(sa, a), append(sb, b)
	}
	for ns, half := range map[string]string{"a": "1", "b": "2"} {
		var lines strings.Builder
		for i := range n {
			fmt.Fprintf(&lines, "addr add 10.%s.%d.%d/8 dev eth0\n", half, i/250, i%250+1)
		}
		file := t.TempDir() + "/addresses"
		write(t, file, lines.String())
		l.run("ip", "-n", l.ns(ns), "-batch", file)
	}
	b := l.node("b")
	b.apply(sb...)
	p := l.peer("a", nil, sa...)
	begin := time.Now()
	b.each("up", func(st Status) bool { return st.State == Up && st.Transmit == 100*ms && st.Receive == 100*ms })
	t.Logf("%d sessions up and agreed within %v", n, time.Since(begin))
	pid := p.cmd.Process.Pid
	p.status()
	cpu, out := cpuOf(t, pid), sum(p.status())
	time.Sleep(4 * time.Second)
	cpu, out = cpuOf(t, pid)-cpu, sum(p.status())-out
	share := cpu.Seconds() / 4 * 100
	t.Logf("one end: %d packets/s out, %.1f %% of a core, %d fds", out/4, share, fds(pid))
	if share > 50 {
		t.Errorf("%.1f %% of a core", share)
	}
	for _, st := range append(p.status(), b.m.Status()...) {
		if st.Transitions != 1 || st.Dropped.Sum() != 0 {
			t.Fatalf("%+v", st)
		}
	}
	if st := b.m.Stats(); st.Dropped.Sum() != 0 || st.Overflow != 0 {
		t.Errorf("%+v", st)
	}
}

func sum(all []Status) (out uint64) {
	for _, st := range all {
		out += st.Out
	}
	return out
}

func fds(pid int) int {
	all, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(all)
}

// cpuOf is the CPU time of a process, of all its threads.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	// clockid of another process: kernel, include/linux/posix-timers_types.h
	const sched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
