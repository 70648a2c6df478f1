package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/decide"
	"lbd.dev/lbd/internal/model"
)

// TestPace: when a decision is made without news, and how long after the last one.
func TestPace(t *testing.T) {
	at := time.Unix(1000, 0)
	after := func(d time.Duration) time.Time { return at.Add(d) }
	var p pace
	last := &model.Desired{}
	still := func(what string, now time.Time, want bool) {
		t.Helper()
		if got := p.still(last, now); got != want {
			t.Errorf("%s: still %v", what, got)
		}
	}
	still("no decision yet", at, false)
	p.decided(at, after(time.Millisecond), false)
	still("a change may be followed by another", after(time.Millisecond), false)
	p.decided(at, after(time.Millisecond), true)
	still("nothing has changed", after(tick), true)
	still("for long", after(relook), false)
	last.Wake = after(time.Second)
	still("before it has to be", after(tick), true)
	still("when it has to be", after(time.Second), false)
	last.Wake = time.Time{}
	last.Group.Ask = true
	still("others are to be asked again", after(tick), false)

	for took, want := range map[time.Duration]time.Duration{
		quick: 0, 5 * time.Millisecond: 5 * time.Millisecond, time.Second: longRest,
	} {
		p.decided(at, after(took), true)
		if got := max(p.rest(after(took)), 0); got != want {
			t.Errorf("rests for %v after a decision of %v, want %v", got, took, want)
		}
	}
	last.Group.Ask = false
	for took, want := range map[time.Duration]time.Duration{quick: relook, 15 * time.Millisecond: 15 * time.Second, time.Second: relookMax} {
		p.decided(at, after(took), true)
		still(fmt.Sprintf("until it is time to look again, after a decision of %v", took), after(want-1), true)
		still(fmt.Sprintf("when it is, after a decision of %v", took), after(want), false)
	}
}

// waits is a driver that goes on for as long as it is asked to.
type waits struct {
	name    model.SinkName
	applied atomic.Int64
	until   atomic.Pointer[time.Time]
	report  model.Applied
}

func (w *waits) Name() model.SinkName        { return w.name }
func (*waits) Changed() <-chan struct{}      { return nil }
func (*waits) Close(context.Context) error   { return nil }
func (w *waits) Extend(until time.Time) bool { w.until.Store(&until); return true }
func (w *waits) Apply(_ context.Context, d *model.Desired) (model.Applied, error) {
	w.applied.Add(1)
	w.until.Store(&d.ValidUntil)
	return w.report, nil
}

// TestIdleWithThousandsOfVIPs: what 5000 VIPs of which nothing is heard cost is a
// decision, and a look of each driver, every few seconds, while drivers may go on at
// any moment.
func TestIdleWithThousandsOfVIPs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newOnlooker(t)
		var drivers []*waits
		for _, n := range []model.SinkName{model.SinkAddress, model.SinkLayer2, model.SinkGossip} {
			d := &waits{name: n, report: model.Applied{VIPs: map[netip.Addr]model.AppliedVIP{}}}
			drivers = append(drivers, d)
			w.opts.Drivers = append(w.opts.Drivers, d)
			w.runners = append(w.runners, announce.NewRunner(d, w.Daemon.log, w.reported))
		}
		w.view.Started = time.Now()
		w.view.Synced = map[model.SourceName]bool{model.SourceConfig: true, model.SourceLink: true, model.SourceGossip: true, model.SourceHealth: true}
		w.view.Links = map[string]model.Link{"eth0": {Name: "eth0", Index: 2, Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/16")}}}
		w.view.Gossip.Members = map[model.NodeName]model.Member{"m2": {Name: "m2", Known: true, Told: true, Settled: true}}
		w.view.Gossip.Claims = map[netip.Addr][]model.Claim{}
		a := netip.MustParseAddr("10.0.1.0")
		for range 5000 {
			w.view.VIPs = append(w.view.VIPs, model.VIP{Addr: a, Name: a.String(), L2: true, Unbound: true})
			w.view.Gossip.Claims[a] = []model.Claim{{Owner: "m2", Epoch: 1}}
			a = a.Next()
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(30 * time.Second) // it has settled
		synctest.Wait()
		generation := func() uint64 {
			var gen uint64
			if err := w.do(t.Context(), func() { gen = w.last.Gen }); err != nil {
				t.Fatal(err)
			}
			return gen
		}
		gen, applied := generation(), make([]int64, len(drivers))
		for i, d := range drivers {
			applied[i] = d.applied.Load()
		}
		const seconds = 60
		for range seconds * 10 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			for _, d := range drivers {
				if left := time.Until(*d.until.Load()); left < decide.Grace-2*tick {
					t.Fatalf("%s may go on for %v only", d.name, left)
				}
			}
		}
		// One every relook, and the two that the questions were.
		if n := generation() - gen; n > seconds/5+2 {
			t.Errorf("%d decisions in %d s", n, seconds)
		}
		for i, d := range drivers {
			if n := d.applied.Load() - applied[i]; n > seconds/5+2 {
				t.Errorf("%s looked %d times in %d s", d.name, n, seconds)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestPodsThatComeAndGoCostNoDecision: fifty veths a second, half of them added and half
// removed, and no decision, and no look of a driver, more than without.
func TestPodsThatComeAndGoCostNoDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newOnlooker(t)
		drivers := []*waits{{name: model.SinkAddress}, {name: model.SinkLayer2}, {name: model.SinkRelay}, {name: model.SinkGossip}}
		for _, d := range drivers {
			w.opts.Drivers = append(w.opts.Drivers, d)
			w.runners = append(w.runners, announce.NewRunner(d, w.Daemon.log, w.reported))
		}
		a := netip.MustParseAddr("10.0.1.0")
		w.view.Started = time.Now()
		w.view.Synced = map[model.SourceName]bool{model.SourceConfig: true, model.SourceLink: true, model.SourceGossip: true, model.SourceHealth: true}
		w.view.VIPs = []model.VIP{{Addr: a, Name: "cp", L2: true, Unbound: true}}
		w.view.Gossip.Members = map[model.NodeName]model.Member{"m2": {Name: "m2", Known: true, Told: true, Settled: true}}
		w.view.Gossip.Claims = map[netip.Addr][]model.Claim{a: {{Owner: "m2", Epoch: 1}}}
		up := true
		links := func(pods ...int) func(*model.View) {
			all := map[string]model.Link{"eth0": {Name: "eth0", Index: 2, Up: up, MAC: model.MAC{0xfe}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/16")}}}
			for _, n := range pods {
				name := fmt.Sprintf("veth%d", n)
				all[name] = model.Link{Name: name, Index: n + 10, Up: true, MAC: model.MAC{2, 0, 0, 0, byte(n >> 8), byte(n)}}
			}
			return func(v *model.View) { v.Links = all }
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		w.publish(links())
		time.Sleep(30 * time.Second) // it has settled
		count := func() (n [5]int64) {
			if err := w.do(t.Context(), func() { n[4] = int64(w.last.Gen) }); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for i, d := range drivers {
				n[i] = d.applied.Load()
			}
			return n
		}
		const seconds = 20
		cost := func(each func(i int)) (more [5]int64) {
			before := count()
			for i := range 50 * seconds {
				each(i)
				time.Sleep(time.Second / 50)
			}
			for i, n := range count() {
				more[i] = n - before[i]
			}
			return more
		}
		without := cost(func(int) {})
		with := cost(func(i int) {
			if i%2 == 0 {
				w.publish(links(i, i+2))
			} else {
				w.publish(links(i + 1))
			}
		})
		t.Logf("looks of address, layer2, relay and gossip, and decisions, in %d s: %v without, %v with pods", seconds, without, with)
		for i := range with {
			if with[i] > without[i]+1 {
				t.Errorf("in %d s: %d without, %d with pods that come and go", seconds, without[i], with[i])
			}
		}
		// What matters is still noticed, also after what did not.
		gen := count()[4]
		up = false
		w.publish(links(1))
		synctest.Wait()
		if count()[4] <= gen+1 { // the question is one
			t.Error("the card lost its carrier, and nothing was decided")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
