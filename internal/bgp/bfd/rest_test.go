package bfd

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func eventfd(t *testing.T) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func poke(fd int) { _, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// resting is a rest under test.
type resting struct {
	*testing.T
	*rest
}

func newResting(t *testing.T) *resting {
	t.Helper()
	r, err := newRest()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.close() })
	return &resting{t, r}
}

func (r *resting) watches(anew bool, fds ...int) {
	r.Helper()
	var list []unix.PollFd
	for _, fd := range fds {
		list = append(list, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if err := r.watch(list, anew); err != nil {
		r.Fatal(err)
	}
}

// slept tells whether a rest lasted to its end.
func (r *resting) slept(d time.Duration) bool {
	r.Helper()
	end := time.Now().Add(d)
	if err := r.until(end); err != nil {
		r.Fatal(err)
	}
	return !time.Now().Before(end)
}

// TestRest: a rest ends at its time and with what is watched, and with nothing else.
func TestRest(t *testing.T) {
	r := newResting(t)
	one, two := eventfd(t), eventfd(t)
	const short, long = 20 * ms, time.Minute
	r.watches(false, one)
	for range 3 {
		if !r.slept(short) {
			t.Error("woken by nothing")
		}
	}
	if !r.slept(-time.Second) {
		t.Error("a time that has passed is not the end")
	}
	poke(two)
	if !r.slept(short) {
		t.Error("woken by what is not watched")
	}
	r.watches(false, one, two)
	if r.slept(long) {
		t.Error("not woken")
	}
	r.watches(false, one)
	if !r.slept(short) {
		t.Error("woken by what is not watched any more")
	}
	go func() {
		time.Sleep(short)
		poke(one)
	}()
	if r.slept(long) {
		t.Error("not woken while at rest")
	}
}

// TestRestAnew: a file that took the place of another has its number, and is watched.
// A rest without end has one when something comes.
func TestRestAnew(t *testing.T) {
	r := newResting(t)
	one, two := eventfd(t), eventfd(t)
	r.watches(false, one)
	if !r.slept(ms) {
		t.Error("woken by nothing")
	}
	if err := unix.Dup3(two, one, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	poke(two)
	r.watches(true, one)
	if r.slept(time.Minute) {
		t.Fatal("not woken by the file that took the place of another")
	}
	if err := r.until(time.Time{}); err != nil {
		t.Error("without a time:", err)
	}
}

// TestRests: the thread rests only with a bounded number of sessions that are missed late enough, and not
// after it was late.
func TestRests(t *testing.T) {
	now := time.Now()
	fresh := func(n int, interval time.Duration) *loop {
		l := &loop{rest: new(rest), table: table{map[uint32]*watch{}, map[netip.Addr][]*watch{}}}
		for i := range n {
			m := newMachine(now, usual, uint32(i+1), 1, func() float64 { return 0.5 })
			m.terms.usedTx = interval
			l.table.add(&watch{m: m})
		}
		return l
	}
	only := func(change func(*machine)) *loop {
		l := fresh(1, MinSessionInterval)
		for _, w := range l.table.byDiscr {
			change(w.m)
		}
		return l
	}
	for _, c := range []struct {
		name string
		l    *loop
		want bool
	}{
		{"peer that misses packets soon", only(func(m *machine) { m.set.mult = 2 }), false},
		{"peer to be missed soon", only(func(m *machine) {
			m.state, m.remote.DetectMult, m.remote.DesiredMinTx, m.terms.usedRx = Up, 3, 10*ms, 10*ms
		}), false},
		{"not up yet", only(func(m *machine) { m.remote.DetectMult, m.remote.DesiredMinTx, m.terms.usedRx = 3, 10*ms, 10*ms }), true},
		{"many", fresh(many, MinSessionInterval), true},
		{"none", fresh(0, 0), true},
		{"too many", fresh(many+1, MinSessionInterval), false},
	} {
		if got := c.l.rests(now); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	l := fresh(2, MinSessionInterval)
	l.delayed(tardy, now)
	if !l.rests(now) {
		t.Error("not at rest after a delay that is none")
	}
	l.delayed(tardy+1, now)
	if l.rests(now) || l.rests(now.Add(alert-1)) || l.stats.Lateness != tardy+1 {
		t.Error("at rest after a delay")
	}
	for _, c := range []struct {
		after, want time.Duration // since the last alert ended or, negative, before it does; until the next one does
	}{
		{-time.Second, alert}, {0, 2 * alert}, {peace - 1, 4 * alert}, {-time.Second, 4 * alert}, {peace, alert},
		{0, 2 * alert}, {0, 4 * alert}, {0, 8 * alert}, {0, 16 * alert}, {0, 32 * alert}, {0, alertMax}, {0, alertMax},
	} {
		now = l.alarm.until.Add(c.after)
		l.delayed(tardy+1, now)
		if l.rests(now.Add(c.want-1)) || !l.rests(now.Add(c.want)) {
			t.Errorf("late %v after an alert: one of %v, want %v", c.after, l.alarm.until.Sub(now), c.want)
		}
	}
}

// TestRestLeft: a thread that waits by itself has nothing in the poller, which each packet
// would wake as well, and comes back to it.
func TestRestLeft(t *testing.T) {
	l := newLab(t)
	s := session("10.0.0.1", "10.0.0.2")
	l.peer("b", session("10.0.0.2", "10.0.0.1"))
	a := l.node("a")
	a.apply(s)
	a.upWith(s)
	loop := a.m.loop
	// A thread that was late is on the alert by itself: it is told anew each time.
	watches := func(alert time.Duration) (some bool) {
		loop.orders.do(func(now time.Time) { loop.alarm.until = now.Add(alert) })
		loop.orders.do(func(time.Time) { some = len(loop.rest.fds) > 0 })
		return some
	}
	l.within("at rest", func() bool { return watches(0) })
	l.within("left", func() bool { return !watches(time.Hour) })
	l.within("at rest again", func() bool { return watches(0) })
}

// TestRestless: sessions go on where the poller cannot be had.
func TestRestless(t *testing.T) {
	l := newLab(t)
	s := session("10.0.0.1", "10.0.0.2")
	p := l.peer("b", session("10.0.0.2", "10.0.0.1"))
	a := l.node("a")
	a.apply(s)
	a.upWith(s)
	loop := a.m.loop
	var had bool
	loop.orders.do(func(time.Time) {
		if had = loop.rest != nil; had {
			_ = loop.rest.file.Close()
			loop.alarm.until = time.Time{}
		}
	})
	sent := a.one().Out
	l.within("20 packets more", func() bool { return a.one().Out > sent+20 })
	left := true
	loop.orders.do(func(time.Time) { left = loop.rest != nil })
	if st := a.one(); !had || left || st.State != Up || st.Transitions != 1 || changes(p.status()) != 1 {
		t.Errorf("%v, %v, %+v", had, left, st)
	}
}
