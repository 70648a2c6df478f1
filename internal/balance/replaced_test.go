package balance

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

var d, e = netip.MustParseAddr("10.0.0.21"), netip.MustParseAddr("10.0.0.22")

// replace puts others in place of the servers of IPv4.
func (x *bed) replace(by ...netip.Addr) {
	lb := *x.in.Wanted
	lb.Servers = nil
	for _, addr := range append(by, six) {
		lb.Servers = append(lb.Servers, model.Server{Addr: addr, Weight: 10, Check: addr.String()})
	}
	x.in.Wanted = &lb
}

// replaced is a bed of servers that are well, all of which were just replaced by new ones.
func replaced(t *testing.T) *bed {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.replace(d, e)
	x.after(time.Second)
	return x
}

// TestAllAreReplaced: the old servers go on until one of the new ones has passed its check, so that
// no connection is refused meanwhile.
func TestAllAreReplaced(t *testing.T) {
	x := replaced(t)
	x.in.Wanted.DrainTimeout = 0
	x.after(time.Second)
	x.want("nothing is known of the new ones", a, b, c)
	x.wantCut("nothing is known of the new ones")
	x.wantStanding("nothing is known of the new ones", model.ReasonOwner)
	x.wantState("an old one", a, "in   2s")
	x.wantState("a new one", d, "out CheckPending  1s")
	x.is(model.HealthDown, d)
	x.step()
	x.want("one of the new ones is down", a, b, c)
	x.is(model.HealthUp, e)
	x.after(0)
	x.want("one is up", e)
	x.wantCut("one is up", a, b, c, d)
	x.wantStanding("one is up", model.ReasonOwner)
	x.wantState("an old one", a, "out Removed  0s")
}

// TestAllAreReplacedAtOnce: where the old servers may have lost the right to connections, they get no
// more of them.
func TestAllAreReplacedAtOnce(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.replace(d, e)
	x.in.Wanted.AtOnce = true
	x.after(0)
	x.want("nothing is known of the new ones")
	x.wantStanding("nothing is known of the new ones", model.ReasonUnhealthy)
}

// TestAllNewOnesAreDown: the old servers do not go on for ever.
func TestAllNewOnesAreDown(t *testing.T) {
	x := replaced(t)
	x.is(model.HealthDown, d, e)
	x.after(0)
	x.want("all are down")
	x.wantStanding("all are down", model.ReasonUnhealthy)
	x.wantState("an old one", a, "draining Removed  0s")
	x.is(model.HealthUp, d)
	x.step()
	x.want("one is up", d)
}

// TestDeadOnesAreReplaced: what did not work does not while nothing is known.
func TestDeadOnesAreReplaced(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.is(model.HealthDown, a, b, c)
	x.step()
	x.replace(d, e)
	x.step()
	x.wantStanding("nothing is known of the new ones", model.ReasonUnhealthy)
}

// TestAllAreReplacedByWeight: so is it if the old ones are only taken out of service.
func TestAllAreReplacedByWeight(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.replace(a, b, c, d)
	for _, old := range []netip.Addr{a, b, c} {
		x.weight(old, 0)
	}
	x.after(time.Second)
	x.want("nothing is known of the new one", a, b, c)
	x.wantState("an old one", b, "in   1s")
	x.is(model.HealthUp, d)
	x.after(0)
	x.want("it is up", d)
	x.wantState("an old one", b, "draining NoWeight  0s")
}

// TestNotAllAreReplaced: where one of the old servers stays, new ones wait for their check.
func TestNotAllAreReplaced(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.replace(b, d, e)
	x.step()
	x.want("one stays", b)
	x.replace()
	x.step()
	if got := x.serving(vip4, 443); len(got) > 0 {
		t.Errorf("without any server %v serve", got)
	}
	x.wantStanding("without any server", model.ReasonUnhealthy)
}
