package record

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestOwnRecordAsSent: what is kept of the own record is what it is, after each change.
func TestOwnRecordAsSent(t *testing.T) {
	o := NewOwn("a", time.Now(), 1, "v", nil)
	vip := model.GroupVIP{Addr: vip1, Standing: model.ReasonStandby}
	gs := &model.GroupState{VIPs: []model.GroupVIP{vip}}
	again := func() *model.GroupState { // the same list of the decision before is no change
		next := *gs
		next.VIPs = slices.Clone(gs.VIPs)
		gs = &next
		return gs
	}
	var before []byte
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"nothing yet", func() {}},
		{"complete, without a VIP", func() { o.Update(&model.GroupState{}) }},
		{"a VIP", func() { o.Update(gs) }},
		{"an epoch that is only seen", func() { again().VIPs[0].Seen = 7; o.Update(gs) }},
		{"a claim", func() { again().VIPs[0].Claim = model.Claim{Owner: "a", Epoch: 8}; o.Update(gs) }},
		{"settled", func() { again().Settled = true; o.Update(gs) }},
		{"a Machine", func() {
			again().Drains = []model.MachineDrain{{Node: "b"}}
			o.Update(gs)
		}},
		{"keys", func() { o.SetKeys([]string{"k"}) }},
		{"another life", func() { o.Raise(o.Life(), time.Now()) }},
		{"a goodbye", func() { o.Leave() }},
	} {
		c.do()
		got := o.Bare()
		if want := bare(o.Full()); !bytes.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, want)
		}
		if bytes.Equal(got, before) {
			t.Errorf("%s: nothing has changed", c.name)
		}
		before = got
	}
	if n := testing.AllocsPerRun(5, func() { o.Bare() }); n != 0 {
		t.Errorf("%v allocations for what is known", n)
	}
}
