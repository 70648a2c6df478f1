package ring

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
)

// service is the VIP of a Service, on a node that keeps its connections.
func service(v *model.View) *model.VIP {
	v.ServiceConnections = model.ServicesKeep
	v.VIPs = []model.VIP{{Addr: four, Kind: "Service", L2: true, Unbound: true}}
	return &v.VIPs[0]
}

// TestHolderOfAService: while new connections come in, for a while after it, and as long as the
// driver sees some.
func TestHolderOfAService(t *testing.T) {
	sees := func(tracked ...netip.Addr) *model.RingHost { return &model.RingHost{Tracked: tracked} }
	for _, c := range []struct {
		what   string
		change func(*model.View, *model.VIP)
		seen   *model.RingHost
		serves bool
		until  time.Time
		want   bool
		wake   time.Time
	}{
		{"serves it", nil, sees(), true, time.Time{}, true, time.Time{}},
		{"has just let go", nil, sees(), false, now.Add(time.Second), true, now.Add(time.Second)},
		{"has let go", nil, sees(), false, now, false, time.Time{}},
		{"has some", nil, sees(four), false, time.Time{}, true, time.Time{}},
		{"has some of another one", nil, sees(four.Next()), false, time.Time{}, false, time.Time{}},
		{"nobody has looked", nil, nil, false, time.Time{}, true, time.Time{}},
		{"is bound", func(_ *model.View, vip *model.VIP) { vip.Unbound = false }, sees(four), true, time.Time{}, false, time.Time{}},
		{"nobody asked to keep them", func(v *model.View, _ *model.VIP) { v.ServiceConnections = model.ServicesReset }, sees(four), true, time.Time{}, false, time.Time{}},
		{"no rings here", func(v *model.View, _ *model.VIP) { v.NoRelay = true }, sees(four), true, time.Time{}, false, time.Time{}},
		{"cannot be listed", nil, &model.RingHost{Untold: "no"}, true, time.Time{}, false, time.Time{}},
	} {
		v := world(2)
		vip := service(v)
		if c.change != nil {
			c.change(v, vip)
		}
		v.Applied[model.SinkRelay] = model.Applied{Ring: c.seen}
		all := New(v, 1, 0)
		if got := all.HoldsService(vip, "eth0", c.serves, c.until); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
		if o := all.Output(); !o.Wake.Equal(c.wake) {
			t.Errorf("%s: wakes %v, want %v", c.what, o.Wake, c.wake)
		}
	}
}

// TestLettingGoOfAService: only the moment of letting go counts, and only where connections are
// kept.
func TestLettingGoOfAService(t *testing.T) {
	v := world(2)
	vip := service(v)
	all := New(v, 1, 0)
	was := now.Add(time.Second)
	for _, before := range []bool{true, false} {
		for _, after := range []bool{true, false} {
			want := was
			if before && !after {
				want = now.Add(ServiceHolds)
			}
			if got := all.HeldUntil(vip, before, after, was); !got.Equal(want) {
				t.Errorf("%v, then %v: %v, want %v", before, after, got, want)
			}
		}
	}
	if got := all.HeldUntil(&model.VIP{Addr: four}, true, false, was); !got.Equal(was) {
		t.Errorf("bound: %v", got)
	}
	v.ServiceConnections = model.ServicesReset
	if all = New(v, 1, 0); !all.HeldUntil(vip, true, false, was).Equal(was) {
		t.Error("not kept")
	}
}

// TestWaitsForTheRing: an announcement waits for the driver, never for longer than RelayWait, and
// for no driver that is not there.
func TestWaitsForTheRing(t *testing.T) {
	taking := func(since time.Duration) model.VIPMemory {
		return model.VIPMemory{Phase: model.PhaseTaking, Gen: 5, Takeover: model.Takeover{RelayUntil: now.Add(election.RelayFor - since)}}
	}
	owner, crashed := taking(0), taking(0)
	owner.Phase, crashed.RelayUntil = model.PhaseOwner, time.Time{}
	for _, c := range []struct {
		what string
		m    model.VIPMemory
		gen  uint64
		want time.Duration
	}{
		{"it begins", taking(0), 4, RelayWait},
		{"for a while", taking(RelayWait - 1), 4, 1},
		{"for long enough", taking(RelayWait), 4, 0},
		{"the driver has done it", taking(0), 5, 0},
		{"it owns the VIP", owner, 4, 0},
		{"there was no owner to take it from", crashed, 4, 0},
	} {
		v := world(2)
		v.Applied[model.SinkRelay] = model.Applied{Gen: c.gen}
		all := New(v, 6, 0)
		if got := all.Waits(&c.m); got != (c.want != 0) {
			t.Errorf("%s: %v", c.what, got)
		}
		if o := all.Output(); c.want != 0 && !o.Wake.Equal(now.Add(c.want)) || c.want == 0 && !o.Wake.IsZero() {
			t.Errorf("%s: wakes %v, want in %v", c.what, o.Wake, c.want)
		}
		delete(v.Applied, model.SinkRelay)
		if c.m.Phase, all = model.PhaseTaking, New(v, 6, 0); all.Waits(&c.m) {
			t.Errorf("%s: waits for nobody", c.what)
		}
	}
}

// TestServiceWaits: who is named as the successor waits for its ring, nobody else.
func TestServiceWaits(t *testing.T) {
	v := world(2)
	vip := service(v)
	v.Gossip.Claims = map[netip.Addr][]model.Claim{four: {{Owner: name(2), Epoch: 3, To: v.Self}}}
	all := New(v, 6, 0)
	if all.WaitsService(vip, "eth0") {
		t.Error("waits for nobody")
	}
	v.Applied[model.SinkRelay] = model.Applied{}
	if !all.WaitsService(vip, "eth0") || !all.Output().Wake.Equal(now.Add(RelayWait)) {
		t.Errorf("does not wait, wakes %v", all.Output().Wake)
	}
	if bound := (model.VIP{Addr: four, L2: true}); all.WaitsService(&bound, "eth0") {
		t.Error("what is bound waits")
	}
	v.Gossip.Claims[four][0].To = name(3)
	if all.WaitsService(vip, "eth0") {
		t.Error("another one is named")
	}
}

// Layer 2 lets go of the address on the LAN without waiting for connections only if they
// are kept on lo.
func TestConnectionsOnLoopback(t *testing.T) {
	keeps := Before{OnLoopback: true, Balanced: true, Phase: model.BGPAdvertised}
	for what, c := range map[string]struct {
		change func(*Before)
		want   bool
	}{
		"keeps":           {func(*Before) {}, true},
		"by BGP":          {func(b *Before) { b.Balanced = false }, false},
		"not silent yet":  {func(b *Before) { b.Phase = model.BGPBinding }, false},
		"lingers":         {func(b *Before) { b.Phase = model.BGPLingering }, true},
		"is being let go": {func(b *Before) { b.Phase = model.BGPUnbinding }, false},
		"not bound":       {func(b *Before) { b.OnLoopback = false }, false},
	} {
		b := keeps
		c.change(&b)
		if got := b.ConnectionsOnLoopback(); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
