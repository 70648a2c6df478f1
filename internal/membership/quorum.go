package membership

import (
	"fmt"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// Quorum tells whether most of the configured peers are seen, this node included, and
// if not how many. Members that nobody has configured do not count, for two halves of a
// group could both have most of all they know; nor does who has gone.
func Quorum(v *model.View) (ok bool, detail string) {
	alive := make(map[netip.Addr]bool, len(v.Gossip.Members))
	for _, m := range v.Gossip.Members {
		if m.State == model.MemberAlive {
			alive[m.Addr] = true
		}
	}
	seen, all := 1, 1+len(v.Gossip.Configured)
	for _, p := range v.Gossip.Configured {
		named, known := v.Gossip.Members[model.NodeName(p.Host)]
		if known && named.State == model.MemberAlive || slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool { return alive[a] }) {
			seen++
		}
	}
	if 2*seen > all {
		return true, ""
	}
	return false, fmt.Sprintf("%d of %d configured nodes seen, %d needed", seen, all, all/2+1)
}
