package lbdtest

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// A question is one that drivers do not take for that of a rival, and what answers it uses
// the address.
func TestFramesInMemory(t *testing.T) {
	mac := model.MAC{2, 0, 0, 0, 0, 7}
	for _, a := range []netip.Addr{vip4, vip6} {
		q := parse(question(mac, a))
		if !q.asks || q.uses || q.addr != a || q.by != mac || q.nd.Probe() || q.arp.Probe() {
			t.Errorf("question for %s: %+v", a, q)
		}
		if q = parse(announcement(mac, a)); q.asks || !q.announces() || q.addr != a || q.by != mac {
			t.Errorf("announcement of %s: %+v", a, q)
		}
	}
}

// What is silent ends by itself, and to add it again does not renew it.
func TestSilenceInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewNet(1).Host("m1")
		r := &rules{kernel{NewProcess(), h}, silence.ARP, time.Second}
		expect := func(want ...netip.Addr) {
			t.Helper()
			if got, err := r.Silent(); err != nil || !slices.Equal(got, want) {
				t.Errorf("silent %v, %v; want %v", got, err, want)
			}
		}
		if err := r.Change(false, []netip.Addr{vip4}); !errors.Is(err, unix.ENOENT) {
			t.Errorf("without a table: %v", err)
		}
		for _, change := range []func() error{
			func() error { return r.Install(silence.Want{Addrs: []netip.Addr{vip4}}) },
			func() error { return r.Change(false, []netip.Addr{vip4}) },
			func() error { return r.Change(true, []netip.Addr{vip4}) },
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			expect(vip4)
			time.Sleep(600 * time.Millisecond)
		}
		expect(vip4) // since it was renewed
		time.Sleep(600 * time.Millisecond)
		expect()
	})
}

// Nobody gets a lock in a frozen process, and time passes for whoever waits for one.
func TestFrozenInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcess()
		mu := kernel{p, NewNet(1).Host("m1")}.Mutex()
		begin := time.Now()
		mu.Lock()
		got := make(chan time.Duration)
		go func() {
			mu.Lock()
			got <- time.Since(begin)
		}()
		time.Sleep(time.Second)
		p.Freeze()
		mu.Unlock()
		time.Sleep(time.Second)
		if mu.TryLock() {
			t.Error("locked by a frozen process")
		}
		p.Thaw()
		if after := <-got; after != 2*time.Second {
			t.Errorf("locked after %s", after)
		}
	})
}
