package membership

import (
	"fmt"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// quorum is what most found out, so that it is found out once.
type quorum struct {
	known, enough bool
	detail        string
}

// Where is where a VIP can be, by its interface, unless it needs most of the group and that is
// not there.
func (o *Output) Where(v *model.View, vip *model.VIP, where place.Verdict) place.Verdict {
	if vip.Partition != model.PartitionQuorum || !where.Reason.Eligible() {
		return where
	}
	if !o.quorum.known {
		o.quorum.known = true
		o.quorum.enough, o.quorum.detail = most(v)
	}
	if !o.quorum.enough {
		return place.Verdict{Reason: model.ReasonNoQuorum, Detail: o.quorum.detail}
	}
	return where
}

// most tells whether most of the configured peers are seen, this node included, and
// if not how many. Members that nobody has configured do not count, for two halves of a
// group could both have most of all they know; nor does who has gone.
func most(v *model.View) (enough bool, detail string) {
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
