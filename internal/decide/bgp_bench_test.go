package decide

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// largeBGP is the View of one node among many, all of which advertise many VIPs to
// two routers, and its drivers have done all of it.
func largeBGP(nodes, vips int) model.View {
	v := large(nodes, 0, false)
	v.Links["lo"] = model.Link{Name: "lo", Index: 1, Up: true, IPv6: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}
	both := []string{"tor1", "tor2"}
	bgp := model.Applied{Paths: map[netip.Prefix][]string{}}
	for _, n := range both {
		v.Peers = append(v.Peers, model.BGPPeer{Name: n, LocalASN: 64512, PeerASN: 64513, IPv4: true})
		bgp.Peers = append(bgp.Peers, model.PeerReport{Name: n, State: "Established"})
	}
	address := model.Applied{Loopback: map[netip.Addr]model.AppliedVIP{}}
	advert := []model.BGPAdvert{{}}
	v.Health["livez"] = model.HealthState{State: model.HealthUp}
	for i := range vips {
		a := netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)})
		v.VIPs = append(v.VIPs, model.VIP{Addr: a, Name: "cp", Kind: "VirtualIP", BGP: advert, Check: "livez"})
		bgp.Paths[model.PrefixOf(a, 0)] = both
		address.Loopback[a] = model.AppliedVIP{Bound: true, Interface: "lo", Expires: v.Now.Add(model.LoopbackLifetime), Connections: -1}
	}
	v.Applied[model.SinkAddress], v.Applied[model.SinkBGP] = address, bgp
	for range 2 { // to bind and to advertise
		v.Memory = Decide(&v).Memory
		for n, a := range v.Applied {
			a.Gen = v.Memory.Gen
			v.Applied[n] = a
		}
	}
	v.Memory = Decide(&v).Memory
	return v
}

// inPrefixes is largeBGP with VIPs that are advertised in prefixes of 256 addresses.
func inPrefixes(nodes, vips int) model.View {
	v := largeBGP(nodes, vips)
	advert := []model.BGPAdvert{{Length: 24}}
	has := make(map[netip.Prefix][]string)
	for i := range v.VIPs {
		v.VIPs[i].BGP = advert
		has[advert[0].Prefix(v.VIPs[i].Addr)] = []string{"tor1", "tor2"}
	}
	bgp := v.Applied[model.SinkBGP]
	bgp.Paths = has
	v.Applied[model.SinkBGP] = bgp
	v.Memory = Decide(&v).Memory
	return v
}

// TestSteadyDecisionMakesNothing: what nobody changed costs no memory for each VIP,
// only what does not depend on their number.
func TestSteadyDecisionMakesNothing(t *testing.T) {
	const vips = 2000
	for name, v := range map[string]model.View{"BGP": largeBGP(3, vips), "layer 2": func() model.View {
		v := large(3, vips, true)
		v.Memory = Decide(&v).Memory
		return v
	}(), "prefixes": inPrefixes(3, vips)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d := Decide(&v)
		runtime.ReadMemStats(&after)
		if len(d.Status) != vips || len(d.Group.VIPs) != vips || name == "BGP" && (len(d.BGP.Paths) != vips || len(d.Bind) != vips) ||
			name == "prefixes" && (len(d.BGP.Paths) != (vips+255)/256 || len(d.Bind) != vips) {
			t.Errorf("%s: %d statuses, %d paths, %d bindings", name, len(d.Status), len(d.BGP.Paths), len(d.Bind))
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 16*vips {
			t.Errorf("%s: a decision that changes nothing makes %d bytes, %d for each VIP", name, n, n/vips)
		}
	}
}

// TestListsOfBeforeStay: a decision never changes the lists of the one before,
// which drivers still read, and it is the same as one that knows no such lists.
func TestListsOfBeforeStay(t *testing.T) {
	v := largeBGP(3, 50)
	for _, change := range []func(){
		func() {},
		func() { v.VIPs = append(v.VIPs[:20:20], v.VIPs[21:]...) },
		func() { v.Peers = v.Peers[:1] },
		func() { v.Applied[model.SinkBGP].Paths[model.PrefixOf(v.VIPs[5].Addr, 0)] = []string{"tor1"} },
		func() { v.VIPs = v.VIPs[1:] },
		func() { v.Peers = append(v.Peers[:1:1], model.BGPPeer{Name: "tor9", IPv4: true}) },
		func() { v.Applied[model.SinkBGP].Paths[model.PrefixOf(v.VIPs[3].Addr, 0)] = []string{"tor2"} },
		func() { v.VIPs = slices.Clone(v.VIPs); v.VIPs[4].Name = "other" },
		func() { v.Health["livez"] = model.HealthState{State: model.HealthDown, Detail: "refused"} },
		func() { v.Now = v.Now.Add(time.Minute) },
		func() { v.VIPs = nil },
	} {
		change()
		was, copied := v.Memory.Lists, clone(v.Memory.Lists)
		with := Decide(&v)
		if !sameLists(was, copied) {
			t.Fatal("the lists of the decision before have changed")
		}
		bare := v
		bare.Memory.Lists = model.Lists{}
		without := Decide(&bare)
		if !sameLists(with.Memory.Lists, without.Memory.Lists) || !sameLists(with.Memory.Lists, model.Lists{Bind: with.Bind, Paths: with.BGP.Paths, Group: with.Group.VIPs, Status: with.Status}) {
			t.Fatal("the lists of the decision before decide something")
		}
		v.Memory = with.Memory
	}
}

// BenchmarkDecideBGP is P11 for VIPs that BGP advertises.
func BenchmarkDecideBGP(b *testing.B) {
	b.Run("2000x10000/steady", func(b *testing.B) {
		v := largeBGP(2000, 10000)
		b.ReportAllocs()
		for b.Loop() {
			Decide(&v)
		}
	})
	b.Run("2000x10000/prefixes", func(b *testing.B) {
		v := inPrefixes(2000, 10000)
		b.ReportAllocs()
		for b.Loop() {
			Decide(&v)
		}
	})
	b.Run("2000x10000/first", func(b *testing.B) {
		v := largeBGP(2000, 10000)
		v.Memory = model.Memory{}
		b.ReportAllocs()
		for b.Loop() {
			Decide(&v)
		}
	})
}

func clone(l model.Lists) model.Lists {
	return model.Lists{Bind: slices.Clone(l.Bind), Paths: slices.Clone(l.Paths), Group: slices.Clone(l.Group), Status: slices.Clone(l.Status)}
}

// sameLists compares all that can be seen.
func sameLists(a, b model.Lists) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }

// TestEachHasItsOwn: what is found once for many VIPs is not given to others.
func TestEachHasItsOwn(t *testing.T) {
	v := largeBGP(3, 6)
	v.Peers[1].IPv6, v.Peers[1].ShutdownDelay = true, time.Minute
	v.VIPs[1].BGP = []model.BGPAdvert{{Peers: []string{"tor2"}}}
	v.VIPs[2].BGP = []model.BGPAdvert{{Peers: []string{"tor1"}}}
	six := v.VIPs[5]
	six.Addr = netip.MustParseAddr("fd00::1")
	v.VIPs = append(v.VIPs, six)
	v.Applied[model.SinkAddress].Loopback[six.Addr] = model.AppliedVIP{Bound: true, Interface: "lo"}
	has := v.Applied[model.SinkBGP].Paths
	delete(has, model.PrefixOf(v.VIPs[1].Addr, 0))
	has[model.PrefixOf(v.VIPs[3].Addr, 0)] = []string{"tor1"}
	delete(has, model.PrefixOf(v.VIPs[4].Addr, 0))
	v.Peers = append(v.Peers, model.BGPPeer{Name: "tor3", IPv4: true})
	for range 3 {
		d := Decide(&v)
		v.Memory = d.Memory
		for i, want := range []string{
			"[tor1 tor2 tor3] Advertised not to tor3 (no session yet)", "[tor2] NoSession not to tor2 (Established)", "[tor1] Advertised ",
			"[tor1 tor2 tor3] Advertised not to tor2 (Established); not to tor3 (no session yet)",
			"[tor1 tor2 tor3] NoSession not to tor1 (Established); not to tor2 (Established); not to tor3 (no session yet)",
			"[tor1 tor2 tor3] Advertised not to tor3 (no session yet)", "[tor2] NoSession not to tor2 (Established)",
		} {
			if got := fmt.Sprint(d.BGP.Paths[i].To[0].Peers, " ", d.Status[i].Reason, " ", d.Status[i].Detail); got != want {
				t.Errorf("%s: %s, want %s", d.Status[i].VIP.Addr, got, want)
			}
		}
	}
}
