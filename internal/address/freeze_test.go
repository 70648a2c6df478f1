package address

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"lbd.dev/lbd/internal/model"
)

// late delays the first batch with such a request, as if the process was frozen
// between its last look at the clock and the call.
func late(v Verb, by time.Duration) func([]*Op) {
	done := false
	return func(ops []*Op) {
		if !done && ops[0].Verb == v {
			done = true
			time.Sleep(by)
		}
	}
}

// TestLateCalls freezes the driver at the worst moment, just before a call.
func TestLateCalls(t *testing.T) {
	if !isolated(t) {
		return
	}
	for _, c := range []struct {
		name string
		verb Verb
		then []Verb // what follows the late call
	}{
		{"renew", Renew, nil},
		// A removed address can only be put back by a call that creates, and no
		// clock can be read inside of it: it is unbound at once.
		{"put back", Create, []Verb{Remove, Remove}},
	} {
		t.Run(c.name, func(t *testing.T) {
			veth(t, "a0", "b0")
			d := start(t, 4*time.Second)
			o := observe(t, both...)
			apply(t, d, want(on("a0", 1)...))
			d.mu.Lock()
			delay, frozen := late(c.verb, 4500*time.Millisecond), false
			var then []Verb
			d.kernel.(*linux).before = func(ops []*Op) {
				for _, o := range ops {
					if frozen {
						then = append(then, o.Verb)
					}
				}
				delay(ops)
				frozen = frozen || ops[0].Verb == c.verb
			}
			if c.verb == Create {
				removeByHand(t, "a0", v4)
				removeByHand(t, "a0", v6)
			}
			d.mu.Unlock() // the driver finds both
			fired(t, d)
			eventually(t, "gone", func() bool {
				a, b := o.of(v4), o.of(v6)
				return !a[len(a)-1].there && !b[len(b)-1].there && len(find(t, v4))+len(find(t, v6)) == 0
			})
			vips := apply(t, d, want(on("a0", 1)...))
			for _, addr := range both {
				if v := vips[addr]; v.Bound || !v.Expired {
					t.Errorf("%s: %+v", addr, v)
				}
				checkBlink(t, o, addr, c.verb == Create)
			}
			d.mu.Lock()
			if c.verb == Renew { // the kernel may be later than the driver, which then removes what is left
				then = slices.DeleteFunc(then, func(v Verb) bool { return v == Remove })
			}
			if !slices.Equal(then, c.then) {
				t.Errorf("the late call was followed by %v, want %v", then, c.then)
			}
			d.mu.Unlock()
			if s := d.Stats(); s.Expirations != 2 {
				t.Errorf("stats %+v", s)
			}
			removeLink(t, "a0")
		})
	}
}

// TestRemovedWhileFrozen: the lifetime would go on, but the address was away for
// so long that another node may have found it gone.
func TestRemovedWhileFrozen(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, 4*time.Second)
	applyAll(t, d, want(onBoth("a0", 1, 15*time.Second)...))
	o := observe(t, both...)
	time.Sleep(20 * time.Millisecond)
	d.mu.Lock() // nothing of the driver runs
	for _, addr := range both {
		removeByHand(t, "a0", addr)
		removeByHand(t, lo, addr)
	}
	time.Sleep(2200 * time.Millisecond)
	d.mu.Unlock()
	fired(t, d)
	applied := applyAll(t, d, want(onBoth("a0", 1, 15*time.Second)...))
	time.Sleep(50 * time.Millisecond)
	for _, addr := range both {
		if v := applied.VIPs[addr]; v.Bound || !v.Expired {
			t.Errorf("%s: %+v", addr, v)
		}
		checkBlink(t, o, addr, false)
		// Half of the lifetime on lo is not over.
		if v := applied.Loopback[addr]; !v.Bound || v.Expired {
			t.Errorf("%s on lo: %+v", addr, v)
		}
	}
}

// TestLateEvenIfTheKernelCreates: where renewals could create, the clock that is
// read after the call stands alone.
func TestLateEvenIfTheKernelCreates(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, 2*time.Second)
	apply(t, d, want(on("a0", 1)...))
	d.mu.Lock()
	defer d.mu.Unlock()
	// The hold believes that its lifetime ended during the call.
	for _, h := range d.holds.list {
		h.bound = time.Now().Add(margin + 20*time.Millisecond)
	}
	d.kernel.(*linux).before = late(Renew, 250*time.Millisecond)
	d.renew(t.Context(), everything)
	for _, h := range d.holds.list {
		if !h.expired || h.there || len(find(t, h.want.Addr)) != 0 {
			t.Errorf("%+v", h)
		}
	}
	// The same for an address that is put back.
	d.kernel.(*linux).before = nil
	for _, h := range d.holds.list {
		h.expired, h.bound, h.seen = false, time.Now().Add(margin+20*time.Millisecond), time.Now()
	}
	d.kernel.(*linux).before = late(Create, 250*time.Millisecond)
	d.lookAgain(t.Context())
	for _, h := range d.holds.list {
		if !h.expired || h.there || len(find(t, h.want.Addr)) != 0 {
			t.Errorf("put back: %+v", h)
		}
	}
}

// checkBlink fails if an address that had gone was seen again, unless that may be for
// a moment, or if it is not gone at the end.
func checkBlink(t *testing.T, o *observer, addr netip.Addr, may bool) {
	t.Helper()
	log := o.of(addr)
	if len(log) == 0 || log[len(log)-1].there {
		t.Errorf("%s is not gone at the end: %v", addr, log)
		return
	}
	gone := false
	for i, s := range log {
		if !s.there {
			gone = gone || i > 0
			continue
		}
		if gone {
			if seen := log[i+1].at.Sub(s.at); may {
				t.Logf("%s came back for %s", addr, seen)
			} else {
				t.Errorf("%s came back for %s", addr, seen)
			}
		}
	}
}

// TestFreeze stops whole processes for times around their lifetimes of 2 s, and of
// 4 s on lo. What has gone must not come back, whoever wakes up first. Their decision never goes
// out of date, so that only the clock of the driver stands between.
func TestFreeze(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	type victim struct {
		freeze time.Duration
		bind   model.Binding
		cmd    *exec.Cmd
		out    *bufio.Reader
	}
	var victims []*victim
	var addrs []netip.Addr
	add := func(freeze time.Duration, bind model.Binding) {
		i := len(victims)
		bind.Epoch, bind.Addr = 1, netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i+1))
		if i%2 == 1 {
			bind.Addr = netip.MustParseAddr(fmt.Sprintf("fd00::%d", i+1))
		}
		victims, addrs = append(victims, &victim{freeze: freeze * time.Millisecond, bind: bind}), append(addrs, bind.Addr)
	}
	for _, freeze := range []time.Duration{300, 1200, 1800, 1850, 1900, 1950, 2000, 2010, 2020, 2050, 2100, 2300} {
		add(freeze, model.Binding{Interface: "a0"})
	}
	for _, freeze := range []time.Duration{2350, 2400, 3900, 4000, 4010, 4100} {
		add(freeze, model.Binding{Interface: lo, Lifetime: 4 * time.Second})
	}
	const long = 6000 // none of them is there when it goes on
	add(long, model.Binding{Interface: "a0"})
	add(long, model.Binding{Interface: lo, Lifetime: 4 * time.Second})
	runtime.LockOSThread() // the helpers die with this thread
	defer runtime.UnlockOSThread()
	for _, v := range victims {
		v.cmd = exec.Command("/proc/self/exe")
		v.cmd.Env = append(os.Environ(), envHelper+"="+fmt.Sprintln(v.bind.Addr, v.bind.Interface, int(v.bind.Lifetime)), "GOMAXPROCS=2")
		v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		v.cmd.Stderr = os.Stderr
		out, err := v.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		v.out = bufio.NewReader(out)
		if err := v.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = v.cmd.Process.Kill()
			_ = v.cmd.Wait()
		}()
	}
	for _, v := range victims {
		if line, err := v.out.ReadString('\n'); line != "bound\n" {
			t.Fatalf("%s: %q, %v", v.bind.Addr, line, err)
		}
	}
	o := observe(t, addrs...)
	time.Sleep(50 * time.Millisecond)
	begin := time.Now()
	for _, v := range victims {
		if err := v.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range victims {
		time.Sleep(time.Until(begin.Add(v.freeze)))
		if err := v.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	survived, early := make(map[bool]int), false // on lo or not; gone before the freeze
	for _, v := range victims {
		at := slotOf(&v.bind)
		log := o.at(at)
		t.Logf("%v frozen for %s: %s", at, v.freeze, describe(log, begin))
		if len(log) == 1 && !log[0].there { // a busy machine had frozen it
			early = true
			continue
		}
		if len(log) > 2 || !log[0].there {
			t.Errorf("%v frozen for %s: it went and came back", at, v.freeze)
		}
		if len(log) == 1 {
			survived[at.loopback]++
			continue
		}
		if gone := log[1].at.Sub(begin); gone > long*time.Millisecond {
			t.Errorf("%v frozen for %s: gone after %s only", at, v.freeze, gone)
		}
		if line, err := v.out.ReadString('\n'); line != "expired\n" {
			t.Errorf("%v: does not report the expiry: %q, %v", at, line, err)
		}
	}
	if early {
		return
	}
	if survived[false] == 0 || survived[false] == 13 || survived[true] == 0 || survived[true] == 7 {
		t.Errorf("%v survived: the times are not around the lifetimes", survived)
	}
}

func describe(log []sight, begin time.Time) string {
	var b strings.Builder
	for i, s := range log {
		if i > 0 {
			fmt.Fprintf(&b, "there=%t at %s ", s.there, s.at.Sub(begin).Round(time.Millisecond))
		}
	}
	if b.Len() == 0 {
		return "there all the time"
	}
	return b.String()
}

// helper is the process that TestFreeze freezes: it applies the same decision
// again and again, and says when it is told of the expiry.
func helper() {
	d, err := New(Options{Lifetime: 2 * time.Second})
	if err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error())
		os.Exit(1)
	}
	bind, addr := model.Binding{Epoch: 1}, ""
	if _, err := fmt.Sscan(os.Getenv(envHelper), &addr, &bind.Interface, (*int64)(&bind.Lifetime)); err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error())
		os.Exit(1)
	}
	bind.Addr = netip.MustParseAddr(addr)
	w := &model.Desired{ValidUntil: time.Now().Add(time.Hour), Bind: []model.Binding{bind}}
	said := ""
	for {
		applied, err := d.Apply(context.Background(), w)
		v := applied.VIPs[bind.Addr]
		if bind.Interface == lo {
			v = applied.Loopback[bind.Addr]
		}
		say := said
		switch {
		case errors.Is(err, errUndelivered): // soon it is bound
		case err != nil:
			say = err.Error()
		case v.Expired:
			say = "expired"
		case v.Bound:
			say = "bound"
		}
		if say != said {
			fmt.Println(say)
			said = say
		}
		select {
		case <-d.Changed():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func removeLink(t *testing.T, name string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		t.Fatal(err)
	}
}
