package decide

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/internal/model"
)

// way IFACE [strict] [gateway] [silent]: how packets to clients leave, and are taken.
func (s *stage) way(args []string) {
	l := s.v.Links[args[0]]
	l.Strict, l.Gateway, l.ARPIgnore = false, false, 0
	for _, a := range args[1:] {
		switch a {
		case "strict":
			l.Strict = true
		case "gateway":
			l.Gateway = true
		case "silent": // no ARP is answered
			l.ARPIgnore = 8
		default:
			s.t.Fatalf("unknown %q", a)
		}
	}
	s.v.Links[args[0]] = l
}

// host [kernel=WHY] [drops=CHAIN] [listener=ADDRESS:PORT] [tracked=ADDRESS] [untold=WHY] [untracked=WHY] [proxy=none|nftables|iptables]: what the relay driver has seen.
func (s *stage) host(args []string) {
	var seen model.RingHost
	for _, a := range args {
		k, val, _ := strings.Cut(a, "=")
		switch k {
		case "kernel":
			seen.Kernel[0] = val
		case "drops":
			seen.Drops[0] = val
		case "listener":
			seen.Listeners = append(seen.Listeners, netip.MustParseAddrPort(val))
		case "tracked":
			seen.Tracked = append(seen.Tracked, netip.MustParseAddr(val))
		case "untracked":
			seen.Untracked[0] = val
		case "proxy":
			seen.Proxy = map[string]model.Proxy{"none": model.ProxyNone, "nftables": model.ProxyNFTables, "iptables": model.ProxyIPTables}[val]
		case "untold":
			seen.Untold = val
		default:
			s.t.Fatalf("unknown %q", a)
		}
	}
	s.v.Applied[model.SinkRelay] = model.Applied{Ring: &seen}
}

// wire ADDRESS silent|answers: how the series that was asked for an address of a node ended.
func (s *stage) wire(at netip.Addr, how string) {
	i := slices.IndexFunc(s.d.L2, func(a model.L2Advert) bool { return a.Addr == at && a.Mode == model.L2Probe })
	if i < 0 {
		s.t.Fatalf("%s is not asked for", at)
	}
	a := s.v.Applied[model.SinkLayer2]
	if a.VIPs = maps.Clone(a.VIPs); a.VIPs == nil {
		a.VIPs = map[netip.Addr]model.AppliedVIP{}
	}
	a.VIPs[at] = model.AppliedVIP{Probe: model.ProbeResult{Series: s.d.L2[i].Series, Done: true, Answered: how == "answers", At: s.v.Now}}
	s.v.Applied[model.SinkLayer2] = a
}

// with is what a driver says of the VIP, and as before of the nodes that it still asks
// for.
func (s *stage) with(sink model.SinkName, x model.AppliedVIP) map[netip.Addr]model.AppliedVIP {
	all := map[netip.Addr]model.AppliedVIP{scriptVIP: x}
	for _, l := range s.d.L2 {
		if was, known := s.v.Applied[sink].VIPs[l.Addr]; known && l.Addr != scriptVIP {
			all[l.Addr] = was
		}
	}
	return all
}
