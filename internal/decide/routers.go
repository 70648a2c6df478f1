package decide

import (
	"slices"

	"lbd.dev/lbd/internal/model"
)

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
func identical[T any](a, b []T) bool {
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
