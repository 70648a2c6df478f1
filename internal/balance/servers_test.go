package balance

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// wantState compares what became of a server: state, reason, who says so, for how long.
func (x *bed) wantState(what string, addr netip.Addr, want string) {
	x.Helper()
	i := slices.IndexFunc(x.out.Memory.Servers, func(m model.ServerMemory) bool { return m.Addr == addr })
	if i < 0 {
		if want != "" {
			x.Errorf("%s: %s is forgotten, want %q", what, addr, want)
		}
		return
	}
	m := x.out.Memory.Servers[i]
	if got := fmt.Sprintf("%s %s %s %s", m.State, m.Why, m.By, x.in.Now.Sub(m.Since)); got != want {
		x.Errorf("%s: %s is %q, want %q", what, addr, got, want)
	}
}

// after decides a while later.
func (x *bed) after(d time.Duration) {
	x.Helper()
	x.in.Now = x.in.Now.Add(d)
	x.step()
}

// TestWhyAServerIsOut: it is said why a server gets no new connections, by whom and since when.
func TestWhyAServerIsOut(t *testing.T) {
	x := newBed(t)
	x.step()
	x.wantState("nothing is known", b, "pending CheckPending  0s")
	x.is(model.HealthUp, a, b, c, six)
	x.after(time.Second)
	x.wantState("all are well", b, "in   0s")
	x.in.Health[b.String()] = model.HealthState{State: model.HealthUp, Failing: "timeout"}
	x.after(time.Second)
	x.wantState("the last check failed", b, "out LastCheckFailed  0s")
	x.is(model.HealthDown, b)
	x.after(time.Second)
	x.wantState("it is down", b, "out CheckFails  1s")
	x.is(model.HealthUp, b)
	x.ownerSays(b)
	x.after(time.Second)
	x.wantState("the owner says so", b, "out OwnerSays m2 2s")
	x.wantState("the owner says so", a, "in   3s")
	x.is(model.HealthDown, b)
	x.after(time.Second)
	x.wantState("both say so", b, "out CheckFails  3s")
	x.ownerSays()
	x.in.Health[b.String()] = model.HealthState{State: model.HealthUp, Failing: "timeout"}
	x.after(time.Second)
	x.wantState("the owner has it in", b, "in OwnerSays m2 0s")
	x.in.Told[0] = model.FollowedVerdict{}
	x.after(time.Second)
	x.wantState("the owner is gone", b, "out LastCheckFailed  0s")
	for _, addr := range []netip.Addr{a, c} {
		x.in.Health[addr.String()] = x.in.Health[b.String()]
	}
	x.after(0)
	x.wantState("the last checks of all failed", b, "in NoneBetter  0s")
	x.is(model.HealthUp, a, c)
	x.after(0)
	x.after(FollowFor)
	x.is(model.HealthUnknown, b)
	x.after(0)
	x.wantState("it is new", b, "out CheckPending  30s")
	x.is(model.HealthDown, a, b, c)
	x.after(time.Second)
	x.wantState("all fail", a, "in NoneBetter  37s")
	x.wantState("all fail", b, "out CheckFails  31s")
	x.wantState("the other family", six, "in   37s")
	x.in.VIPs = []model.VIP{{Addr: six}}
	x.after(0)
	x.is(model.HealthUp, a)
	x.in.Wanted.Servers = append(slices.Clone(x.in.Wanted.Servers), model.Server{Addr: netip.MustParseAddr("fd00::12"), Weight: 10})
	x.after(0)
	x.wantState("it is a VIP", six, "out IsVIP  0s")
}

// TestServersThatLeave: they are drained, and after that out. One that is configured no more is
// forgotten.
func TestServersThatLeave(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.weight(b, 0)
	x.after(time.Second)
	x.wantState("no weight", b, "draining NoWeight  0s")
	x.remove(b)
	x.after(29 * time.Second)
	x.wantState("and removed", b, "draining Removed  29s")
	x.after(2 * time.Second)
	x.wantState("after the drain timeout", b, "out Removed  1s")
	if want := x.in.Now.Add(CutFor - time.Second); !x.out.Wake.Equal(want) {
		t.Errorf("wake at %s, want %s", x.out.Wake, want)
	}
	x.after(CutFor)
	x.wantState("in the end", b, "")
	x.weight(a, 0)
	x.after(time.Minute)
	x.after(time.Minute)
	x.wantState("no weight for long", a, "out NoWeight  30s")
	x.weight(a, 10)
	x.after(0)
	x.wantState("it is back", a, "in   0s")
}

// TestRemovedWhileOut: a server that gets no new connections as it is removed is drained as any
// other: with `onFailure: keep` it may have some.
func TestRemovedWhileOut(t *testing.T) {
	x := newBed(t)
	x.in.Wanted.KeepFailed = true
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.is(model.HealthDown, b)
	x.step()
	x.remove(b)
	x.step()
	x.wantState("removed", b, "draining Removed  0s")
	x.wantCut("removed")
	if !slices.Contains(x.out.Services[0].Servers, netip.AddrPortFrom(b, 6443)) {
		t.Error("it is forgotten although it has connections")
	}
	x.after(x.in.Wanted.DrainTimeout)
	x.wantCut("after the timeout", b)
}
