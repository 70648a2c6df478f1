package record

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestHolders: who has a VIP is known until it says otherwise, also over a goodbye and
// the beginning of its next life, in which it does not know its links at first.
func TestHolders(t *testing.T) {
	now := time.Unix(1000, 0)
	vip := netip.MustParseAddr("10.0.0.200")
	table := NewTable("self")
	v := &model.View{}
	table.Whole().Apply(v)
	tell := func(o *Own) {
		r := o.Full()
		table.Merge(&r, now)
		table.Flush().Apply(v)
	}
	holds := func(when string, want ...model.NodeName) {
		t.Helper()
		if got := v.Gossip.Holders[vip]; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
		if m := v.Gossip.Members["a"]; len(m.MACs) != 1 || len(m.Addrs) != 1 {
			t.Errorf("%s: at %v, %v", when, m.MACs, m.Addrs)
		}
	}
	state := &model.GroupState{
		MACs: []model.MAC{{2, 0, 0, 0, 0, 1}}, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		VIPs: []model.GroupVIP{{Addr: vip, Standing: model.ReasonDraining, Holds: true}},
	}
	a := NewOwn("a", time.Now(), 1, "", nil)
	a.Update(state)
	tell(a)
	holds("told", "a")
	a.Leave()
	tell(a)
	holds("left", "a")
	if m := v.Gossip.Members["a"]; !m.Gone.Equal(now) {
		t.Errorf("gone since %v, want %v", m.Gone, now)
	}
	b := NewOwn("a", time.Now(), 1, "", nil)
	b.inc = a.inc + 1
	tell(b)
	holds("begun", "a")
	b.Update(state)
	tell(b)
	holds("back", "a")
	state.VIPs = []model.GroupVIP{{Addr: vip, Standing: model.ReasonStandby}}
	b.Update(state)
	tell(b)
	holds("let go")
}
