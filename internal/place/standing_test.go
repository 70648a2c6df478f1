package place

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestFirstReason: of all that is in the way an operator hears first what must be mended first.
func TestFirstReason(t *testing.T) {
	v := model.View{Unable: "no permission", Health: map[string]model.HealthState{"cp": {State: model.HealthDown, Detail: "refused"}}}
	vip := model.VIP{NodeSelector: map[string]string{"role": "edge"}, Check: "cp", Barred: model.ReasonNodeExcluded, BarredDetail: "label"}
	where, leaves := Verdict{model.ReasonNoSubnet, "no subnet"}, Verdict{model.ReasonDraining, "stops"}
	standing := func() Verdict {
		health := Health(&v, &vip)
		return Standing(&v, &vip, &health, where, leaves)
	}
	for _, c := range []struct {
		mend func()
		want Verdict
	}{
		{func() {}, Verdict{model.ReasonDriverError, "no permission"}},
		{func() { v.Unable = "" }, Verdict{model.ReasonNotSelected, ""}},
		{func() { v.Labels = map[string]string{"role": "core"} }, Verdict{model.ReasonNotSelected, ""}},
		{func() { v.Labels = map[string]string{"role": "edge", "zone": "a"} }, where},
		{func() { where = Verdict{} }, Verdict{model.ReasonUnhealthy, "refused"}},
		{func() { v.Health["cp"] = model.HealthState{Detail: "first check"} }, Verdict{model.ReasonHealthPending, "first check"}},
		{func() { v.Health["cp"] = model.HealthState{State: model.HealthDegraded} }, leaves},
		{func() { leaves = Verdict{} }, Verdict{model.ReasonNodeExcluded, "label"}},
		{func() { vip.Barred = model.ReasonNoEndpoint }, Verdict{model.ReasonNoEndpoint, "label"}},
		{func() { vip.Barred = model.ReasonOwner }, Verdict{Reason: model.ReasonStandby}},
	} {
		if c.mend(); standing() != c.want {
			t.Errorf("%+v, want %+v", standing(), c.want)
		}
	}
	leaves = Verdict{model.ReasonDraining, "stops"}
	if vip.Barred = model.ReasonNoEndpoint; standing() != (Verdict{model.ReasonNoEndpoint, "label"}) {
		t.Error("a node whose Service has no endpoint here gives it up at once, not in order")
	}
}

// TestFirstReasonOnLAN: what layer 2 asks beside that, in order, and when the answer changes.
func TestFirstReasonOnLAN(t *testing.T) {
	now := time.Unix(1000, 0)
	v, health := model.View{Now: now}, model.HealthState{State: model.HealthDegraded, Detail: "etcd"}
	var vip model.VIP
	var m model.VIPMemory
	m.Lost, m.LostDetail, m.Deferred = model.ReasonDriverError, "no memory", now.Add(time.Second)
	lan := LAN{Interface: "eth0", Where: Verdict{model.ReasonNoSubnet, "no subnet"}, TellsDegraded: true, Memory: &m}
	dark, asked := true, 0
	for _, c := range []struct {
		mend  func()
		want  model.Reason
		words string
		retry time.Time
		asks  int
	}{
		{func() {}, model.ReasonNotAnnounced, "", time.Time{}, 0},
		{func() { vip.L2 = true }, model.ReasonNoSubnet, "no subnet", time.Time{}, 0},
		{func() { lan.Where = Verdict{} }, model.ReasonNotSettled, "", time.Time{}, 0},
		{func() { lan.Settled = true }, model.ReasonWireDark, "nobody answers on eth0, where other nodes hear each other: is its VLAN missing on a port of the switch?", time.Time{}, 1},
		{func() { dark = false }, model.ReasonDriverError, "no memory", m.Deferred, 2},
		{func() { m.Phase = model.PhaseUnbinding }, model.ReasonDriverError, "no memory", m.Deferred, 3},
		{func() { m.Phase = model.PhaseReleasing }, model.ReasonDegraded, "etcd", time.Time{}, 4},
		{func() { m.Phase, v.Now = model.PhaseIdle, m.Deferred }, model.ReasonDegraded, "etcd", time.Time{}, 5},
		{func() { v.Now, m.Lost = now, model.ReasonUnhealthy }, model.ReasonDegraded, "etcd", time.Time{}, 6},
		{func() { lan.TellsDegraded = false }, model.ReasonStandby, "", time.Time{}, 7},
	} {
		c.mend()
		why, retry := StandingOnLAN(&v, &vip, &health, &lan, func() bool { asked++; return dark })
		if why != (Verdict{c.want, c.words}) || !retry.Equal(c.retry) || asked != c.asks {
			t.Errorf("%+v until %v after %d questions, want %v %q until %v after %d", why, retry, asked, c.want, c.words, c.retry, c.asks)
		}
	}
}

// TestPlaces: which interface a VIP goes to, or why to none.
func TestPlaces(t *testing.T) {
	link := func(index int, name string, prefixes ...string) model.Link {
		l := model.Link{Name: name, Index: index, Up: true, IPv6: true}
		for _, p := range prefixes {
			l.Prefixes = append(l.Prefixes, netip.MustParsePrefix(p))
		}
		return l
	}
	down := func(l model.Link) model.Link { l.Up = false; return l }
	vip := func(addr string, interfaces ...string) model.VIP {
		return model.VIP{Addr: netip.MustParseAddr(addr), L2: true, Interfaces: interfaces}
	}
	wide, narrow := link(2, "eth0", "10.0.0.11/16"), link(3, "eth1", "10.0.0.12/24")
	for _, c := range []struct {
		name    string
		vip     model.VIP
		present string
		links   []model.Link
		want    string
		why     model.Reason
	}{
		{"the longest prefix", vip("10.0.0.200"), "", []model.Link{wide, narrow}, "eth1", model.ReasonStandby},
		{"where it is", vip("10.0.0.200"), "eth0", []model.Link{wide, narrow}, "eth0", model.ReasonStandby},
		{"where it is, but that is down", vip("10.0.0.200"), "eth0", []model.Link{down(wide), narrow}, "eth1", model.ReasonStandby},
		{"where it was, which lost its subnet", vip("10.0.0.200"), "eth9", []model.Link{link(9, "eth9"), wide}, "eth0", model.ReasonStandby},
		{"the longest prefix although it is down", vip("10.0.0.200"), "", []model.Link{wide, down(narrow)}, "", model.ReasonLinkDown},
		{"of equals the one that works", vip("10.0.0.200"), "", []model.Link{down(link(1, "a", "10.0.0.1/24")), narrow}, "eth1", model.ReasonStandby},
		{"of equals the lower index", vip("10.0.0.200"), "", []model.Link{link(7, "a", "10.0.0.1/24"), narrow}, "eth1", model.ReasonStandby},
		{"no subnet", vip("10.9.0.200"), "", []model.Link{wide, narrow}, "", model.ReasonNoSubnet},
		{"a host route", vip("10.9.0.200"), "", []model.Link{link(1, "a", "10.9.0.1/32")}, "", model.ReasonNoSubnet},
		{"its own address", vip("10.0.0.12"), "", []model.Link{wide, narrow}, "", model.ReasonLocalAddress},
		{"named", vip("10.9.0.200", "eth7", "eth0"), "", []model.Link{wide, narrow}, "eth0", model.ReasonStandby},
		{"named, and there is none", vip("10.9.0.200", "eth7"), "", []model.Link{wide}, "", model.ReasonNoInterface},
		{"named, and down", vip("10.9.0.200", "eth0"), "", []model.Link{down(wide)}, "", model.ReasonLinkDown},
		{"no IPv6", vip("fd00::200"), "", []model.Link{{Name: "eth0", Up: true, Prefixes: link(0, "", "fd00::1/64").Prefixes}}, "", model.ReasonFamilyDisabled},
		{"ARP is off", vip("10.0.0.200"), "", []model.Link{{Name: "eth0", Up: true, ARPIgnore: answersNobody, Prefixes: narrow.Prefixes}}, "", model.ReasonARPDisabled},
	} {
		links := make(map[string]model.Link)
		for _, l := range c.links {
			links[l.Name] = l
		}
		for range 8 { // the order of the map must not matter
			all := LinksOf(links)
			l, why := all.Find(&c.vip, c.present)
			if l.Name != c.want || why.Reason != c.why || (why.Detail == "") != why.Reason.Eligible() {
				t.Errorf("%s: %q, %v (%s)", c.name, l.Name, why.Reason, why.Detail)
			}
		}
	}
	if alone := vip("10.9.0.1"); BelongsOn(&alone, &model.Link{Prefixes: link(0, "", "10.9.0.1/32").Prefixes}) {
		t.Error("a host route is no subnet")
	}
}
