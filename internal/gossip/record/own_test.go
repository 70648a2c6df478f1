package record

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestOwnRecordHasAVersion: whatever changes in the own record, its version does.
func TestOwnRecordHasAVersion(t *testing.T) {
	o := NewOwn("a", time.Now(), 1, "v", nil)
	vip := model.GroupVIP{Addr: vip1, Standing: model.ReasonStandby}
	gs := &model.GroupState{VIPs: []model.GroupVIP{vip}}
	again := func() *model.GroupState { // the same list of the decision before is no change
		next := *gs
		next.VIPs = slices.Clone(gs.VIPs)
		gs = &next
		return gs
	}
	var before Record
	var last [2]uint64
	version := func(o *Own) [2]uint64 { inc, seq := o.Version(); return [2]uint64{inc, seq} }
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
		got, version := o.Full(), version(o)
		if reflect.DeepEqual(got, before) || version == last {
			t.Errorf("%s: nothing has changed, version %v", c.name, version)
		}
		before, last = got, version
	}
}
