package record

import (
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestOwnOfMany: of 5000 VIPs that one is told that has changed, and the rest costs
// nothing.
func TestOwnOfMany(t *testing.T) {
	var vips []model.GroupVIP
	for a := vip1; len(vips) < 5000; a = a.Next() {
		vips = append(vips, model.GroupVIP{Addr: a, Standing: model.ReasonStandby})
	}
	o := NewOwn("a", time.Now(), 1, "v", nil)
	if o.ManyEntries() {
		t.Error("a record without entries is large")
	}
	if part, ok := o.Update(&model.GroupState{VIPs: vips}); !ok || len(part.Entries) != len(vips) {
		t.Fatalf("%d entries at first", len(part.Entries))
	}
	if !o.ManyEntries() {
		t.Error("5000 entries are few")
	}
	same := &model.GroupState{VIPs: vips}
	if n := testing.AllocsPerRun(5, func() { o.Update(same) }); n > 1 {
		t.Errorf("%v allocations for nothing", n)
	}
	next := slices.Clone(vips)
	next[77].Claim = model.Claim{Owner: "a", Epoch: 4}
	next = slices.Delete(next, 1000, 1001)
	part, ok := o.Update(&model.GroupState{VIPs: next})
	if !ok || len(part.Entries) != 2 || part.Entries[0].Addr != vips[77].Addr || part.Entries[0].Epoch != 4 ||
		part.Entries[1].Addr != vips[1000].Addr || !part.Entries[1].Gone {
		t.Errorf("told %+v", part.Entries)
	}
	if part.Head != nil {
		t.Errorf("told what has not changed of the node: %+v", part.Head)
	}
	part, ok = o.Update(&model.GroupState{VIPs: next, Draining: true})
	if !ok || len(part.Entries) != 0 || part.Head == nil || !part.Head.Draining {
		t.Errorf("the node is draining: told %+v", part)
	}
	turns := 0
	if n := testing.AllocsPerRun(5, func() {
		turns++
		one := slices.Clone(next)
		one[5].Claim = model.Claim{Owner: "a", Epoch: uint64(turns)}
		o.Update(&model.GroupState{VIPs: one})
	}); n > 20 {
		t.Errorf("%v allocations for one VIP", n)
	}
	if got := o.Full(); len(got.Entries) != len(next) || got.Entries[77].Epoch != 4 {
		t.Errorf("the whole record has %d entries", len(got.Entries))
	}
	// What the decision has given is not changed by a goodbye.
	o.Leave()
	if next[77].Claim.Epoch != 4 {
		t.Error("the list of the decision was changed")
	}
}
