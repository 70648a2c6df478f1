package decide

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// audience are the peers that are to have a path, found once for all VIPs with the
// same advert and family.
type audience struct {
	peers []string
	delay time.Duration
	keep  bool // all of them keep the path over a restart
}

// asked is what an audience depends on.
type asked struct {
	advert *model.BGPAdvert // nil: one that names no peers
	four   bool
}

// audienceOf finds the peers of a VIP.
func (f *facts) audienceOf(vip *model.VIP) *audience {
	k := asked{vip.BGP, vip.Addr.Is4()}
	if len(vip.BGP.Peers) == 0 {
		k.advert = nil
	}
	if a := f.audiences[k]; a != nil {
		return a
	}
	a := &audience{keep: true}
	for i := range f.peers {
		p := &f.peers[i]
		if wants(vip.BGP, p, vip.Addr) {
			a.peers = append(a.peers, p.Name)
			a.delay = max(a.delay, p.ShutdownDelay)
			a.keep = a.keep && p.GracefulRestart
		}
	}
	if f.audiences == nil {
		f.audiences = make(map[asked]*audience)
	}
	f.audiences[k] = a
	return a
}

// lack is in words who of the peers has no path although the others have it. VIPs
// whose lists of peers are the same ones share the words.
type lack struct {
	peers, advertised []string
	words             string
}

func (l *lack) is(peers, advertised []string) bool {
	return len(l.peers) > 0 && identical(l.peers, peers) && identical(l.advertised, advertised)
}

// identical tells whether two lists are one, or both empty.
func identical(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// localLinks are the addresses of this node, each with its link.
func localLinks(links map[string]model.Link) map[addr]string {
	all := make(map[addr]string)
	for _, l := range links {
		for _, p := range l.Prefixes {
			if had, ok := all[p.Addr()]; !ok || l.Name < had {
				all[p.Addr()] = l.Name
			}
		}
	}
	return all
}

// anyServed tells whether a VIP belongs on the link; only those of layer 2 if so
// asked.
func anyServed(vips []model.VIP, l *model.Link, l2 bool) bool {
	for i := range vips {
		x := &vips[i]
		switch {
		case l2 && !x.L2:
		case len(x.Interfaces) > 0:
			if slices.Contains(x.Interfaces, l.Name) {
				return true
			}
		case covers(l, x.Addr) >= 0:
			return true
		}
	}
	return false
}
