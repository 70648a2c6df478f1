package forward

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/testnet"
)

// What many services have in common.
const (
	sameTable = "shared" // all
	samePorts = "ports"  // their servers, at another port for each
	ownTable  = "own"    // nothing
)

// many are services with 1024 slots and 100 servers each, four ports to a VIP.
func many(services int, common string) *model.ForwardState {
	out := &model.ForwardState{}
	var shared *model.SlotTable
	var servers []netip.AddrPort
	for i := range services {
		if common != sameTable || i == 0 {
			servers = make([]netip.AddrPort, 100)
			for n := range servers {
				a := [4]byte{10, 1, 0, byte(n)}
				if common == ownTable {
					a[1], a[2] = byte(3+i/250), byte(i%250)
				}
				servers[n] = netip.AddrPortFrom(netip.AddrFrom4(a), uint16(1000+i))
			}
			shared = &model.SlotTable{Slots: make([]netip.AddrPort, 1024)}
			for n := range shared.Slots {
				shared.Slots[n] = servers[n*7%len(servers)]
			}
		}
		out.Services = append(out.Services, model.ForwardService{
			Addr: netip.AddrFrom4([4]byte{10, 2, byte(i / 4 / 250), byte(i/4%250) + 1}), Protocol: model.TCP, Port: uint16(1 + i%4), Slots: shared, Servers: servers,
		})
	}
	return out
}

// without a server: its slots go to the next one.
func without(state *model.ForwardState, n int) *model.ForwardState {
	out := &model.ForwardState{Services: slices.Clone(state.Services)}
	tables := make(map[*model.SlotTable]*model.SlotTable)
	for i := range out.Services {
		s := &out.Services[i]
		if tables[s.Slots] == nil {
			t := &model.SlotTable{Slots: slices.Clone(s.Slots.Slots)}
			for slot, to := range t.Slots {
				if to == s.Servers[n] {
					t.Slots[slot] = s.Servers[(n+slot+1)%len(s.Servers)]
				}
			}
			tables[s.Slots] = t
		}
		s.Slots = tables[s.Slots]
	}
	return out
}

// host is a host of its own with a driver.
func host(t testing.TB) func(*model.ForwardState) time.Duration {
	t.Helper()
	n := testnet.New(t)
	n.Add("h")
	n.ExecOn("h", "sysctl", "-qw", "net.ipv4.ip_forward=1")
	d := New(Options{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return func(state *model.ForwardState) (took time.Duration) {
		n.In("h", func() {
			start := time.Now()
			got, err := d.Apply(context.Background(), &model.Desired{Synced: true, Forward: *state})
			took = time.Since(start)
			if err != nil {
				t.Error(err)
			}
			for a, v := range got.VIPs {
				if !v.Forwarding {
					t.Errorf("%s: %+v", a, v)
				}
			}
		})
		return took
	}
}

// TestManyServices: a thousand that share their table or but for the port, or some that do not.
func TestManyServices(t *testing.T) {
	for _, common := range []string{sameTable, samePorts, ownTable} {
		t.Run(common, func(t *testing.T) {
			apply, count := host(t), 1000
			if common == ownTable {
				count = 200
			}
			state := many(count, common)
			user, kernel := used()
			took, again, changed := apply(state), apply(state), apply(without(state, 0))
			userAfter, kernelAfter := used()
			one := &model.ForwardState{Services: slices.Clone(state.Services)}
			one.Services[0].Slots = without(state, 1).Services[0].Slots
			t.Logf("loaded in %s, unchanged %s, without a server %s, back %s, one service %s, removed %s",
				took, again, changed, apply(state), apply(one), apply(&model.ForwardState{}))
			// Processor time: on a busy machine the rest is waiting.
			if cost := userAfter - user + kernelAfter - kernel; cost > 15*time.Second {
				t.Errorf("it took %s of processors", cost)
			}
		})
	}
}

// used is the time that processors have spent on this process, in its own code and in the kernel's.
func used() (user, kernel time.Duration) {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // fails for no process that asks about itself
	return time.Duration(r.Utime.Nano()), time.Duration(r.Stime.Nano())
}

// BenchmarkLoad is the time until the rules of a thousand services are in force where there
// were none, until a server is out of all of them and back, and until one service has changed.
// For the first it tells how much of the time of processors was the kernel's.
func BenchmarkLoad(b *testing.B) {
	for _, common := range []string{sameTable, samePorts, ownTable} {
		b.Run(common, func(b *testing.B) {
			apply := host(b)
			state := many(1000, common)
			fewer := without(state, 0)
			one := &model.ForwardState{Services: slices.Clone(state.Services)}
			one.Services[0].Slots = without(state, 1).Services[0].Slots
			took := make(map[string][]time.Duration)
			for b.Loop() {
				user, kernel := used()
				took["load"] = append(took["load"], apply(state))
				userAfter, kernelAfter := used()
				took["load-user"], took["load-kernel"] = append(took["load-user"], userAfter-user), append(took["load-kernel"], kernelAfter-kernel)
				took["one"] = append(took["one"], apply(one))
				apply(state)
				took["server"] = append(took["server"], apply(fewer))
				took["back"] = append(took["back"], apply(state))
				took["remove"] = append(took["remove"], apply(&model.ForwardState{}))
			}
			b.ReportMetric(0, "ns/op")
			for what, all := range took {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, what+"-ms")
			}
		})
	}
}

// TestWatchesAfterManySlots: so many slots are loaded without a watch. Once they are loaded, a
// table that somebody removes is noticed at once again.
func TestWatchesAfterManySlots(t *testing.T) {
	n := testnet.New(t)
	n.Add("h")
	d := New(Options{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	state := many(heavy/1024+2, ownTable)
	n.In("h", func() {
		if _, err := d.Apply(t.Context(), &model.Desired{Synced: true, Forward: *state}); err != nil {
			t.Error(err)
		}
	})
	n.ExecOn("h", "nft", "flush", "ruleset")
	for start := time.Now(); !d.removed.Load(); time.Sleep(time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("nobody noticed that the table is gone")
		}
	}
}
