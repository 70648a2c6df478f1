package relay

import (
	"errors"
	"io/fs"
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

// lookServices finds out, at times, whether connections to Services could be found by a ring. A kernel
// that could not look for tracked connections is asked again: no ring does while this node is in none.
func (d *Driver) lookServices(want *model.Desired, next *model.RingHost, now time.Time) {
	d.lookProxy(want, next, now)
	for f := range families {
		if could := &d.tables[f].untracked; want.Services.Kept && next.Proxy.Tracks() || want.Track && could.why != "" {
			d.tracks(f, now)
		}
		next.Untracked[f] = d.tables[f].untracked.why
	}
}

// lookProxy finds out, at times, which rules of kube-proxy this host has.
func (d *Driver) lookProxy(want *model.Desired, next *model.RingHost, now time.Time) {
	h := &d.host
	if !want.Services.Asked {
		next.Proxy, h.proxy, h.blind = model.ProxyUnknown, time.Time{}, false
		return
	}
	if now.Before(h.proxy) {
		return
	}
	h.proxy = now.Add(proxyEvery)
	is, err := proxy(d.session)
	if err == nil {
		next.Proxy = is
	} else if next.Proxy == model.ProxyUnknown && !h.blind {
		h.blind = true
		d.log.Warn("rules of kube-proxy cannot be looked for; it is not known whether open connections to Services can be kept", "err", err)
	}
}

// proxy finds out which rules of kube-proxy this host has. Either family says enough. One question
// by name each costs nothing, however many rules there are.
func proxy(s *nft.Session) (model.Proxy, error) {
	none := model.ProxyNone
	for f := range families {
		is, err := proxyOf(s, f)
		if err != nil || is.Tracks() {
			return is, err
		}
		none = max(none, is)
	}
	return none, nil
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
		if there, err = legacyChain(f, canaryTable, proxyCanary); errors.Is(err, fs.ErrPermission) {
			return model.ProxyHidden, nil
		}
	}
	switch {
	case err != nil:
		return model.ProxyUnknown, err
	case there:
		return model.ProxyIPTables, nil
	}
	return model.ProxyNone, nil
}
