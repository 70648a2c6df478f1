package ring

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/internal/model"
)

// ProxyPatience is how long the rules of kube-proxy may be away before they count as gone: after
// somebody has flushed the firewall, or while kube-proxy changes its mode. Rings do no harm
// meanwhile, for what is tracked goes on to be translated without those rules.
const ProxyPatience = time.Minute

// startPatience is how long after its start a daemon that does not know the Services of its cluster
// looks for what their connections depend on. By then it has told the group what it knows.
const startPatience = 10 * time.Second

// Serving is what is decided for the VIPs of Services together.
type Serving struct {
	model.Services
	Memory model.ProxyMemory // for the next decision
	// Wake is when something changes by itself; zero: never.
	Wake time.Time

	some bool // Works tells of one VIP at least
}

// tell adds what is in the way of the connections to one of their VIPs, and whether they are kept.
func (s *Serving) tell(why string, keeps bool) {
	s.Unfit = cmp.Or(s.Unfit, why)
	s.Works = keeps || s.some && s.Works
	s.some = true
}

// Services decides whether this node takes part in the rings of Services.
func Services(v *model.View) (s Serving) {
	if v.ServiceConnections == model.ServicesReset || v.NoRelay {
		return s
	}
	ask := ofEachFamily(v.VIPs)
	soon := awaited(v)
	if s.Asked = len(ask) > 0 || soon; !s.Asked {
		return s
	}
	seen := v.Applied[model.SinkRelay].Ring
	is := model.ProxyUnknown
	if seen != nil {
		is = seen.Proxy
	}
	s.Known = is != model.ProxyUnknown
	s.Memory, s.Wake = recall(v.Memory.Proxy, is, v.Now, func() bool { return translates(v, seen, soon) })
	if soon {
		s.Wake = model.Earliest(s.Wake, v.Started.Add(startPatience))
	}
	s.NoProxy, s.Unfit = noProxy(s.Memory.Mode, v.Links), unfitServices(seen, ask)
	// Whoever asks for it may have something else that translates packets as kube-proxy does.
	_, ipvs := v.Links[model.IPVSInterface]
	s.Kept = s.NoProxy == "" || v.ServiceConnections == model.ServicesKeep && !ipvs
	s.Works = s.Kept
	return s
}

// awaited tells whether there may be Services soon.
func awaited(v *model.View) bool {
	synced, reads := v.Synced[model.SourceKube]
	return reads && !synced && v.Now.Before(v.Started.Add(startPatience))
}

// translates tells whether this node translates connections to Services; to anything, while it does
// not know them.
func translates(v *model.View, seen *model.RingHost, soon bool) bool {
	return soon && len(seen.Tracked) > 0 ||
		slices.ContainsFunc(v.VIPs, func(vip model.VIP) bool { return ofService(&vip) && seen.Tracks(vip.Addr) })
}

// ofEachFamily is one address of each family that Services have.
func ofEachFamily(vips []model.VIP) (ask []netip.Addr) {
	for i := range vips {
		if v := &vips[i]; ofService(v) && (len(ask) == 0 || ask[0].Is4() != v.Addr.Is4()) {
			if ask = append(ask, v.Addr); len(ask) == 2 {
				break
			}
		}
	}
	return ask
}

// ofService tells whether the VIP is that of a Service, whose packets kube-proxy translates.
func ofService(vip *model.VIP) bool { return vip.Unbound && !vip.Forwarded() && !vip.Learned() }

// recall is what counts of kube-proxy, by what is seen of it now. Connections that are translated
// when a daemon starts tell that rules were there a moment ago.
func recall(m model.ProxyMemory, is model.Proxy, now time.Time, translates func() bool) (model.ProxyMemory, time.Time) {
	switch {
	case is == model.ProxyUnknown:
		return m, time.Time{}
	case is.Tracks() || m.Mode == model.ProxyNone || m.Mode == model.ProxyHidden || m.Mode == model.ProxyUnknown && !translates():
		return model.ProxyMemory{Mode: is}, time.Time{}
	case m.Gone.IsZero():
		m.Gone = now
	}
	end := m.Gone.Add(ProxyPatience)
	if !now.Before(end) {
		return model.ProxyMemory{Mode: is}, time.Time{}
	}
	return m, end
}

// noProxy says why connections to Services cannot be found by a ring with what translates their
// packets on this node; empty if they can.
func noProxy(mode model.Proxy, links map[string]model.Link) string {
	if _, is := links[model.IPVSInterface]; is {
		return "kube-proxy is in IPVS mode: only the modes nftables and iptables track connections where lbd looks for them"
	}
	if mode == model.ProxyUnknown || mode.Tracks() {
		return ""
	}
	none := "kube-proxy has no rules of the mode nftables or iptables on this node"
	if mode == model.ProxyHidden {
		none += ", or iptables-legacy has them, which this user may not read"
	}
	if _, is := links[model.CiliumInterface]; is {
		return none + "; Cilium is here, and may stand in for it"
	}
	return none
}

// untracked says why connections that are tracked cannot be found by a ring, besides what is in
// the way of all rings; empty if they can.
func untracked(seen *model.RingHost, a netip.Addr) string {
	switch {
	case seen == nil:
		return ""
	case seen.Untracked.Of(a) != "":
		return "the kernel cannot look for tracked connections (CONFIG_NFT_CT, or an option that all rings need): " + seen.Untracked.Of(a)
	}
	return untold(seen)
}

func untold(seen *model.RingHost) string {
	if seen.Untold == "" {
		return ""
	}
	return "tracked connections cannot be listed: " + seen.Untold
}

// unfitServices says what of this host is in the way of the rings of Services, by an address of
// each family.
func unfitServices(seen *model.RingHost, ask []netip.Addr) string {
	var words []string
	for _, a := range ask {
		why := cmp.Or(unfitFamily(seen, a, ""), untracked(seen, a))
		switch {
		case why == "":
			continue
		case len(ask) > 1 && a.Is4():
			why = "IPv4: " + why
		case len(ask) > 1:
			why = "IPv6: " + why
		}
		words = append(words, why)
	}
	return strings.Join(words, "; ")
}

// ServiceUnfit says why this node can have no ring for Services besides what is in the way of all
// rings and of those of one family, by what its relay driver has seen; empty if it can.
func ServiceUnfit(seen *model.RingHost, links map[string]model.Link) string {
	return cmp.Or(noProxy(seen.Proxy, links), untold(seen))
}
