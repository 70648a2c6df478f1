package relay

import (
	"time"

	"github.com/google/nftables"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

const (
	// proxyEvery is how often the rules of kube-proxy are looked for.
	proxyEvery = 5 * time.Second
	// proxyTable is where kube-proxy has its rules in the mode nftables.
	proxyTable = "kube-proxy"
	// proxyCanary is the chain by which kube-proxy in the mode iptables notices that somebody has
	// flushed the firewall, and canaryTable is one in which it has it. In the mode IPVS it has
	// none, although it has many of the other chains.
	proxyCanary, canaryTable = "KUBE-PROXY-CANARY", "mangle"
)

// lookServices finds out, at times, whether connections to Services could be found by a ring.
func (d *Driver) lookServices(want *model.Desired, next *model.RingHost, now time.Time) {
	if !want.Services.Asked {
		next.Proxy, next.Untracked, d.host.proxy = model.ProxyUnknown, model.PerFamily{}, time.Time{}
		return
	}
	for f := range families {
		if want.Services.Kept {
			d.tracks(f, now)
		}
		next.Untracked[f] = d.tables[f].untracked.why
	}
	if now.Before(d.host.proxy) {
		return
	}
	d.host.proxy = now.Add(proxyEvery)
	is, err := proxy(d.session)
	if err != nil {
		d.log.Debug("rules of kube-proxy cannot be looked for", "err", err)
		return
	}
	next.Proxy = is
}

// proxy finds out which rules of kube-proxy this host has. Either family says enough. One question
// by name each costs nothing, however many rules there are.
func proxy(s *nft.Session) (model.Proxy, error) {
	for f := range families {
		is, err := proxyOf(s, f)
		if err != nil || is != model.ProxyNone {
			return is, err
		}
	}
	return model.ProxyNone, nil
}

func proxyOf(s *nft.Session, f family) (model.Proxy, error) {
	there, err := s.Has(&nftables.Table{Name: proxyTable, Family: f.table().Family}, "")
	if err != nil {
		return model.ProxyUnknown, err
	}
	if there {
		return model.ProxyNFTables, nil
	}
	there, err = s.Has(&nftables.Table{Name: canaryTable, Family: f.table().Family}, proxyCanary)
	if err == nil && !there {
		there, err = legacyChain(f, canaryTable, proxyCanary)
	}
	switch {
	case err != nil:
		return model.ProxyUnknown, err
	case there:
		return model.ProxyIPTables, nil
	}
	return model.ProxyNone, nil
}
