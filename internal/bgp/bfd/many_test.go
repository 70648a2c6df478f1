package bfd

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMany: 400 sessions on one receiving socket, and what they cost. Each needs two
// entries in the neighbour table, which all namespaces of a host share and which
// takes 1024 by default (net.ipv4.neigh.default.gc_thresh3).
func TestMany(t *testing.T) {
	const n = 400
	l := newLab(t)
	var sa, sb []Session
	for i := range n {
		x, y := fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), fmt.Sprintf("10.2.%d.%d", i/250, i%250+1)
		a, b := session(x, y), session(y, x)
		a.Transmit, a.Receive, b.Transmit, b.Receive = 100*ms, 100*ms, 100*ms, 100*ms
		a.Multiplier, b.Multiplier = 20, 20
		sa, sb = append(sa, a), append(sb, b)
	}
	for ns, half := range map[string]string{"a": "1", "b": "2"} {
		var lines strings.Builder
		for i := range n {
			fmt.Fprintf(&lines, "addr add 10.%s.%d.%d/8 dev eth0\n", half, i/250, i%250+1)
		}
		file := t.TempDir() + "/addresses"
		write(t, file, lines.String())
		l.Exec("ip", "-n", l.NS(ns), "-batch", file)
	}
	b := l.node("b")
	b.apply(sb...)
	p := l.peer("a", sa...)
	begin := time.Now()
	b.each("up", func(st Status) bool { return st.State == Up && st.Transmit == 100*ms && st.Receive == 100*ms })
	t.Logf("%d sessions up and agreed within %v", n, time.Since(begin))
	pid := p.cmd.Process.Pid
	flaps := changes(p.status()) + changes(b.m.Status())
	begin = time.Now()
	cpu, out := cpuOf(t, pid), sum(p.status())
	time.Sleep(4 * time.Second)
	cpu, out = cpuOf(t, pid)-cpu, sum(p.status())-out
	took := time.Since(begin).Seconds()
	share := cpu.Seconds() / took * 100
	t.Logf("one end: %.0f packets/s out, %.1f %% of a core, %d fds", float64(out)/took, share, fds(pid))
	if share > 50 {
		t.Errorf("%.1f %% of a core", share)
	}
	if n := changes(p.status()) + changes(b.m.Status()) - flaps; n != 0 {
		t.Errorf("%d changes of state", n)
	}
	// A socket that nobody reads for that long may overflow.
	if st := b.m.Stats(); st.Dropped.Sum() != 0 || st.Overflow != 0 && st.Lateness < 50*ms {
		t.Errorf("%+v", st)
	}
}

func sum(all []Status) (out uint64) {
	for _, st := range all {
		out += st.Out
	}
	return out
}

func changes(all []Status) (n uint64) {
	for _, st := range all {
		n += st.Transitions
	}
	return n
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
