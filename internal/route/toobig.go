package route

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// A router on the way to a client says of a packet of a machine that it is too big, and says so to
// the VIP. The kernel chooses the next hop of such a message by the message's own header, in which
// there is neither the client nor a port, so it comes to some machine. That one has no such
// connection, and the one that has goes on with packets that arrive nowhere: what is long stalls.
// Each next hop therefore gets a copy; a machine without the connection passes over it.

const (
	// copyTTL is the TTL of a copy. It is enough for a ring of machines that relay what is not
	// theirs. What has no more when it comes is not copied: so a machine that sends copies back,
	// because it has the VIP no more, makes no further ones.
	copyTTL = model.MaxRing + 2
	// copyRate is how many copies the machine makes in a second at most, of each family. Beyond it
	// messages go where the kernel sends them.
	copyRate = 10_000
)

// audience is who hears of packets that were too big, if they came from an address of prefixes.
type audience struct {
	prefixes []netip.Prefix // in the order of ComparePaths
	hops     []target       // in order, of the family of the prefixes
	rate     uint64         // messages in a second
}

func (a audience) equal(o audience) bool {
	return a.rate == o.rate && slices.Equal(a.prefixes, o.prefixes) && slices.Equal(a.hops, o.hops)
}

// audiences are those of one family: prefixes with the same next hops have one. A single next hop
// gets all without a copy. One of the other family cannot get any, so that nothing is copied there.
func audiences(ways map[netip.Prefix][]target, is4 bool) (out []audience) {
	foreign := func(t target) bool { return t.gateway.Is4() != is4 }
	for _, prefix := range slices.SortedFunc(maps.Keys(ways), model.ComparePaths) {
		hops := slices.Clone(ways[prefix])
		slices.SortFunc(hops, target.compare)
		hops = slices.Compact(hops)
		if prefix.Addr().Is4() != is4 || len(hops) < 2 || slices.ContainsFunc(hops, foreign) {
			continue
		}
		i := slices.IndexFunc(out, func(a audience) bool { return slices.Equal(a.hops, hops) })
		if i < 0 {
			out = append(out, audience{hops: hops})
			i = len(out) - 1
		}
		out[i].prefixes = append(out[i].prefixes, prefix)
	}
	for i := range out {
		out[i].rate = max(copyRate/uint64(len(out)*len(out[i].hops)), 1)
	}
	return out
}

// ways are where the kernel sends packets for prefixes.
func (im *image) ways() map[netip.Prefix][]target {
	out := make(map[netip.Prefix][]target, len(im.routes))
	for prefix, e := range im.routes {
		if g := im.hops[e.hop]; g != nil {
			for _, m := range g.group {
				if h := im.hops[m.id]; h != nil && h.group == nil {
					out[prefix] = append(out[prefix], h.target())
				}
			}
		}
	}
	return out
}
