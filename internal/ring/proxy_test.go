package ring

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestServicesAreKept: by default where kube-proxy tracks connections and the host can find them,
// and silently; for whoever asks for it also with what may do the same as kube-proxy, and as a
// problem. Until the driver has looked it is taken for granted.
func TestServicesAreKept(t *testing.T) {
	// Nothing is kept although it is tried, for each address has something in its way.
	unkept := []string{"no NFT_CT", "cannot be listed", "a firewall for what there is", "a firewall of both", "the way back, for what there is"}
	const none, ipvs = "kube-proxy has no rules of the mode nftables or iptables on this node", "kube-proxy is in IPVS mode"
	both := []model.VIP{{Addr: four, Unbound: true, L2: true}, {Addr: six, Unbound: true, L2: true}}
	has := func(name string) func(*model.View) {
		return func(v *model.View) { v.Links[name] = model.Link{Name: name} }
	}
	only4 := func(v *model.View) { v.VIPs = v.VIPs[:1] }
	strict := func(v *model.View) {
		is := v.Links["eth0"]
		is.Strict, is.Gateway = true, false
		v.Links["eth0"], v.Links["eth1"] = is, model.Link{Name: "eth1", Gateway: true}
	}
	far := func(v *model.View) {
		m := v.Gossip.Members["m2"]
		m.Addrs = []netip.Addr{netip.MustParseAddr("10.9.0.2")}
		v.Gossip.Members["m2"], v.Gossip.Holders = m, map[netip.Addr][]model.NodeName{four: {"m2"}}
	}
	for _, c := range []struct {
		what       string
		seen       *model.RingHost
		change     func(*model.View)
		auto, keep bool
		why        string
	}{
		{"nobody has looked", nil, nil, true, true, ""},
		{"nobody has looked for kube-proxy", &model.RingHost{}, nil, true, true, ""},
		{"nftables", &model.RingHost{Proxy: model.ProxyNFTables}, nil, true, true, ""},
		{"iptables", &model.RingHost{Proxy: model.ProxyIPTables}, nil, true, true, ""},
		{"no rules", &model.RingHost{Proxy: model.ProxyNone}, nil, false, true, none},
		{"no rules that may be read", &model.RingHost{Proxy: model.ProxyHidden}, nil, false, true, none + ", or iptables-legacy has them, which this user may not read"},
		{"Cilium", &model.RingHost{Proxy: model.ProxyNone}, has(model.CiliumInterface), false, true, none + "; Cilium is here, and may stand in for it"},
		{"Cilium beside kube-proxy", &model.RingHost{Proxy: model.ProxyIPTables}, has(model.CiliumInterface), true, true, ""},
		{"IPVS", &model.RingHost{Proxy: model.ProxyIPTables}, has(model.IPVSInterface), false, false, ipvs},
		{"IPVS, and nobody has looked", nil, has(model.IPVSInterface), false, false, ipvs},
		{"no NFT_CT", &model.RingHost{Proxy: model.ProxyNFTables, Untracked: model.PerFamily{"no ct", "no ct"}}, nil, true, true, "IPv4: the kernel cannot look for tracked connections (CONFIG_NFT_CT, or an option that all rings need): no ct; IPv6: the kernel"},
		{"no NFT_CT, one family", &model.RingHost{Proxy: model.ProxyNFTables, Untracked: model.PerFamily{"", "no ct"}}, nil, true, true, "IPv6: the kernel cannot look for"},
		{"no NFT_CT for what there is", &model.RingHost{Proxy: model.ProxyNFTables, Untracked: model.PerFamily{"", "no ct"}}, only4, true, true, ""},
		{"a firewall", &model.RingHost{Proxy: model.ProxyNFTables, Drops: model.PerFamily{"output", ""}}, nil, true, true, "IPv4: output drops"},
		{"cannot be listed", &model.RingHost{Proxy: model.ProxyNFTables, Untold: "no"}, only4, true, true, "tracked connections cannot be listed: no"},
		{"a firewall for what there is", &model.RingHost{Proxy: model.ProxyNFTables, Drops: model.PerFamily{"output", ""}}, only4, true, true, "output drops what is relayed; let it accept `ct state untracked`"},
		{"a firewall of both", &model.RingHost{Proxy: model.ProxyNFTables, Drops: model.PerFamily{"output", "input"}}, nil, true, true, "IPv4: output drops what is relayed; let it accept `ct state untracked`; IPv6: input"},
		{"a server on one", &model.RingHost{Proxy: model.ProxyNFTables, Listeners: []netip.AddrPort{netip.AddrPortFrom(six, 80)}}, nil, true, true, "a server listens on the address itself, port 80"},
		{"the way back", &model.RingHost{Proxy: model.ProxyNFTables}, strict, true, true, "rp_filter is 1 on eth0"},
		{"the way back, for what there is", &model.RingHost{Proxy: model.ProxyNFTables}, func(v *model.View) { strict(v); only4(v) }, true, true, "rp_filter is 1 on eth0"},
		{"nobody is near", &model.RingHost{Proxy: model.ProxyNFTables}, far, true, true, "some nodes that have such an address have none in a subnet of this node"},
	} {
		for mode, want := range map[model.ServiceConnections]bool{model.ServicesReset: false, model.ServicesAuto: c.auto, model.ServicesKeep: c.keep} {
			v := world(2)
			v.VIPs, v.ServiceConnections = both, mode
			v.Applied[model.SinkRelay] = model.Applied{Ring: c.seen}
			if c.change != nil {
				c.change(v)
			}
			all := New(v, 1, 0)
			vip, said, works := &v.VIPs[len(v.VIPs)-1], "", false
			for i := range v.VIPs {
				said += all.Obstacle(&v.VIPs[i], "eth0")
				works = works || all.KeepsService(&v.VIPs[i], "eth0")
			}
			got := all.Services()
			why := c.why
			if mode == model.ServicesReset {
				why = ""
			}
			if got.Kept != want || got.Asked != (mode != model.ServicesReset) || !strings.HasPrefix(got.Why(), why) || why == "" && got.Why() != "" {
				t.Errorf("%s, %d: %+v, want %v %q", c.what, mode, got.Services, want, why)
			}
			if known := mode != model.ServicesReset && c.seen != nil && c.seen.Proxy != model.ProxyUnknown; got.Known != known {
				t.Errorf("%s, %d: known %v", c.what, mode, got.Known)
			}
			if got.Works != works || works != (want && !slices.Contains(unkept, c.what)) {
				t.Errorf("%s, %d: works %v, of the VIPs %v", c.what, mode, got.Works, works)
			}
			if (said != "") != (why != "") {
				t.Errorf("%s, %d: says of the VIPs %q", c.what, mode, said)
			}
			if all.Quiet(vip) != (mode == model.ServicesAuto) || all.Quiet(&model.VIP{Addr: four, L2: true}) {
				t.Errorf("%s, %d: quiet about the Service %v", c.what, mode, all.Quiet(vip))
			}
		}
	}
}

// TestServicesThatThereMayBe: nothing is looked for, which costs, on a node without Services, but for
// one that does not know its cluster yet.
func TestServicesThatThereMayBe(t *testing.T) {
	bound, learned := model.VIP{Addr: four, L2: true}, model.VIP{Addr: four, Unbound: true, Kind: model.KindBGPListener}
	forwarded := model.VIP{Addr: four, Unbound: true, Kind: model.KindLoadBalancer}
	for _, c := range []struct {
		what   string
		vips   []model.VIP
		synced map[model.SourceName]bool
		off    bool
		after  time.Duration
		want   bool
	}{
		{"none", []model.VIP{bound, learned, forwarded}, nil, false, 0, false},
		{"one", []model.VIP{bound, {Addr: six, Unbound: true}}, nil, false, 0, true},
		{"its cluster is not known", []model.VIP{bound}, map[model.SourceName]bool{model.SourceKube: false}, false, startPatience - 1, true},
		{"its cluster cannot be asked", []model.VIP{bound}, map[model.SourceName]bool{model.SourceKube: false}, false, startPatience, false},
		{"its cluster has none", []model.VIP{bound}, map[model.SourceName]bool{model.SourceKube: true}, false, 0, false},
		{"no rings here", []model.VIP{{Addr: six, Unbound: true}}, nil, true, 0, false},
	} {
		v := world(2)
		v.VIPs, v.Synced, v.NoRelay, v.ServiceConnections = c.vips, c.synced, c.off, model.ServicesAuto
		v.Started, v.Now = now, now.Add(c.after)
		if got := Services(v); got.Asked != c.want || got.Kept != c.want {
			t.Errorf("%s: %+v, want %v", c.what, got.Services, c.want)
		} else if end := v.Started.Add(startPatience); len(c.synced) > 0 && got.Asked && !got.Wake.Equal(end) {
			t.Errorf("%s: wakes %v, want %v", c.what, got.Wake, end)
		}
	}
}

// TestKubeProxyIsAwayAtTheStart: a daemon that starts while the rules of kube-proxy are away, but has
// connections to Services, waits as one that has seen the rules. Before it knows its Services any
// connection counts.
func TestKubeProxyIsAwayAtTheStart(t *testing.T) {
	other := netip.MustParseAddr("172.17.0.2")
	for _, c := range []struct {
		what    string
		tracked []netip.Addr
		unknown bool
		kept    bool
	}{
		{"none", nil, false, false},
		{"to a Service", []netip.Addr{four, other}, false, true},
		{"to something else", []netip.Addr{other}, false, false},
		{"to what may be one", []netip.Addr{other}, true, true},
		{"none, and no Service is known", nil, true, false},
	} {
		v := world(2)
		v.ServiceConnections, v.Started = model.ServicesAuto, now
		if c.unknown {
			v.Synced = map[model.SourceName]bool{model.SourceKube: false}
		} else {
			v.VIPs = []model.VIP{{Addr: four, L2: true}, {Addr: four, Unbound: true}}
		}
		v.Applied[model.SinkRelay] = model.Applied{Ring: &model.RingHost{Proxy: model.ProxyNone, Tracked: c.tracked}}
		got := Services(v)
		if got.Kept != c.kept {
			t.Errorf("%s: kept %v, want %v", c.what, got.Kept, c.kept)
		}
		if !c.kept || c.unknown {
			continue
		}
		v.Memory.Proxy, v.Now = got.Memory, got.Wake
		if got = Services(v); got.Kept || !v.Now.Equal(now.Add(ProxyPatience)) {
			t.Errorf("%s: kept after %v: %v", c.what, v.Now.Sub(now), got.Kept)
		}
	}
}

// TestKubeProxyComesAndGoes: what kube-proxy has in the kernel counts at once, and that it is away
// after a while, however it comes and goes meanwhile.
func TestKubeProxyComesAndGoes(t *testing.T) {
	v := world(2)
	v.VIPs, v.ServiceConnections = []model.VIP{{Addr: four, Unbound: true}}, model.ServicesAuto
	for _, c := range []struct {
		what  string
		after time.Duration
		is    model.Proxy
		kept  bool
		wake  time.Duration
	}{
		{"not looked for", 0, model.ProxyUnknown, true, 0},
		{"kube-proxy has not begun", 0, model.ProxyNone, false, 0},
		{"it still has not", time.Hour, model.ProxyNone, false, 0},
		{"it has", time.Second, model.ProxyIPTables, true, 0},
		{"it changes its mode", time.Hour, model.ProxyNone, true, ProxyPatience},
		{"it is about to", ProxyPatience - 1, model.ProxyNone, true, 1},
		{"it has done so", 0, model.ProxyNFTables, true, 0},
		{"somebody flushes the firewall", time.Second, model.ProxyNone, true, ProxyPatience},
		{"nobody looks", ProxyPatience / 2, model.ProxyUnknown, true, 0},
		{"it stays away", ProxyPatience/2 - 1, model.ProxyNone, true, 1},
		{"for too long", 1, model.ProxyNone, false, 0},
		{"nobody looks again", time.Second, model.ProxyUnknown, false, 0},
		{"it is back", time.Second, model.ProxyNFTables, true, 0},
		{"and away for this user", time.Second, model.ProxyHidden, true, ProxyPatience},
		{"for as long", ProxyPatience, model.ProxyHidden, false, 0},
		{"and still", time.Second, model.ProxyNone, false, 0},
		{"it is back", time.Second, model.ProxyNFTables, true, 0},
		{"and away again", time.Second, model.ProxyNone, true, ProxyPatience},
	} {
		v.Now = v.Now.Add(c.after)
		v.Applied[model.SinkRelay] = model.Applied{Ring: &model.RingHost{Proxy: c.is}}
		got := Services(v)
		v.Memory.Proxy = got.Memory
		want := time.Time{}
		if c.wake != 0 {
			want = v.Now.Add(c.wake)
		}
		if got.Kept != c.kept || !got.Wake.Equal(want) {
			t.Errorf("%s: kept %v, wakes %v, want %v, %v", c.what, got.Kept, got.Wake, c.kept, want)
		}
	}
}

// TestForwardedOnAHostWithoutKubeProxy: lbd forwards those connections itself.
func TestForwardedOnAHostWithoutKubeProxy(t *testing.T) {
	v := world(2)
	v.Links[model.IPVSInterface] = model.Link{Name: model.IPVSInterface}
	v.VIPs = []model.VIP{{Addr: four, Unbound: true, L2: true, Kind: model.KindLoadBalancer}}
	v.Applied[model.SinkRelay] = model.Applied{Ring: &model.RingHost{Proxy: model.ProxyNone}}
	all := New(v, 1, 0)
	if vip := &v.VIPs[0]; !all.KeepsService(vip, "eth0") || all.Obstacle(vip, "eth0") != "" || all.Quiet(vip) {
		t.Errorf("it has no ring: %q", all.Obstacle(vip, "eth0"))
	}
	v.Applied[model.SinkRelay] = model.Applied{Ring: &model.RingHost{Untracked: model.PerFamily{"no ct", ""}}}
	all = New(v, 1, 0)
	if vip := &v.VIPs[0]; all.KeepsService(vip, "eth0") || all.Obstacle(vip, "eth0") == "" {
		t.Error("it has a ring although the kernel tracks nothing")
	}
	if bound := (model.VIP{Addr: netip.MustParseAddr("10.0.0.201"), L2: true}); !all.Keeps(&bound, "eth0") {
		t.Error("what is bound lost its ring")
	}
}
