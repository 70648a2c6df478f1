package tenants

import (
	"fmt"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
)

// Announced is how addresses of a pool are announced for tenants. The node that owns an address at layer
// 2 is the one that routers are told of, as with every address that is forwarded: with BGP alone there is
// none.
type Announced struct{ L2, BGP bool }

// unowned is what is said of a pool whose addresses no node owns.
const unowned = "the pool %s of the hub has a BGPAdvertisement and no L2Advertisement, which addresses of tenants need beside it"

// announced tells which pools a Service may not get addresses of, and leaves them out of the request.
// What it has stays, as it does with other changes of the hub.
func (c *cluster) announced(in *Input, r *Request, given []netip.Addr) Verdict {
	var without []string
	r.Pools = slices.DeleteFunc(slices.Clone(r.Pools), func(pool string) bool {
		out := in.unowned(pool) && !slices.ContainsFunc(given, func(a netip.Addr) bool { return in.in(pool, a) })
		if out {
			without = append(without, pool)
		}
		return out
	})
	for _, pool := range without {
		if len(r.Pools) == 0 || slices.ContainsFunc(r.Fixed, func(a netip.Addr) bool { return in.in(pool, a) }) {
			return Verdict{ReasonPool, fmt.Sprintf(unowned, pool)}
		}
	}
	return Verdict{ReasonAccepted, ""}
}

// heard tells who hears of the addresses that a Service has, if not everybody does.
func (c *cluster) heard(in *Input, s *Service, given []netip.Addr) Verdict {
	for _, a := range given {
		for _, pool := range c.pools(s) {
			switch {
			case !in.in(pool, a):
			case in.unowned(pool):
				return Verdict{ReasonNotAnnounced, fmt.Sprintf(unowned+": nobody announces %s", pool, a)}
			case in.Announced[pool].BGP && s.Spec.Source == v1alpha1.SourceClient:
				return Verdict{ReasonAccepted, fmt.Sprintf("%s is announced at layer 2 only, although its pool is by BGP too: with the source client, answers would not come back by a router", a)}
			}
		}
	}
	return Verdict{ReasonAccepted, ""}
}

// unowned tells whether routers alone are to hear of a pool.
func (in *Input) unowned(pool string) bool { return in.Announced[pool].BGP && !in.Announced[pool].L2 }

// in tells whether a pool has an address.
func (in *Input) in(pool string, a netip.Addr) bool {
	return slices.ContainsFunc(in.Pools[pool], func(r v1alpha1.AddressRange) bool { return r.Contains(a) })
}
