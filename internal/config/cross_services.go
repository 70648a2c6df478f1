package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/resolve"
)

// crossServices checks the rules between the objects for Services and others.
func crossServices(objects, vips []*object, node *object, names *named) {
	var pools, peers []*object
	for _, o := range objects {
		switch {
		case o.pool != nil:
			pools = append(pools, o)
		case o.peer != nil:
			peers = append(peers, o)
		}
		if node != nil && (o.pool != nil || o.l2 != nil || o.bgp != nil) {
			o.breaks("kind", o.kind, "is for Services, which `lbd run` does not serve from files; keep it apart from %s (%s)",
				node.title(), node.place())
		}
	}
	entries := poolEntries(pools)
	uniqueRanges(entries)
	notInPools(entries, vips, peers)
	for _, o := range objects {
		switch {
		case o.l2 != nil:
			knownNames(o, "spec.ipAddressPools", o.l2.Spec.IPAddressPools, v1alpha1.KindIPAddressPool, names.pools, names)
		case o.bgp != nil:
			s := &o.bgp.Spec
			knownNames(o, "spec.ipAddressPools", s.IPAddressPools, v1alpha1.KindIPAddressPool, names.pools, names)
			knownNames(o, "spec.peers", s.Peers, v1alpha1.KindBGPPeer, names.peers, names)
			knownCommunities(o, "spec.communities", s.Communities, names)
			roomForPrefixes(o, pools)
		}
	}
}

// knownNames refuses names that no object of a kind has.
func knownNames(o *object, path string, list []string, kind string, have map[string]*object, names *named) {
	for i, name := range list {
		if have[name] == nil {
			names.unknown(o, fmt.Sprintf("%s[%d]", path, i), name, kind, maps.Keys(have))
		}
	}
}

// poolEntry is an entry of spec.addresses of a pool.
type poolEntry struct {
	pool  *object
	order int // of the entry among all
	index int // in the pool
	v1alpha1.AddressRange
}

func (e poolEntry) path() string { return fmt.Sprintf("spec.addresses[%d]", e.index) }

// place says where the entry is.
func (e poolEntry) place() string {
	return fmt.Sprintf("%s of %s (%s:%d)", e.path(), e.pool.title(), e.pool.file, e.pool.lineOf(e.path()))
}

// poolEntries returns the good entries of all pools by their first address.
func poolEntries(pools []*object) []poolEntry {
	var all []poolEntry
	for _, o := range pools {
		for i, text := range o.pool.Spec.Addresses {
			if r, err := v1alpha1.ParseAddressRange(text); err == nil {
				all = append(all, poolEntry{o, len(all), i, r})
			}
		}
	}
	slices.SortFunc(all, func(a, b poolEntry) int {
		if c := a.First.Compare(b.First); c != 0 {
			return c
		}
		return a.order - b.order
	})
	return all
}

// uniqueRanges refuses entries that overlap one of another pool. The pool itself
// is checked by its own rules.
func uniqueRanges(entries []poolEntry) {
	far := 0 // of the entries so far, the one that reaches furthest
	for i := 1; i < len(entries); i++ {
		first, second := entries[far], entries[i]
		if first.Last.Less(second.Last) {
			far = i
		}
		if first.pool == second.pool || !first.Overlaps(second.AddressRange) {
			continue
		}
		if first.order > second.order { // the later one is at fault
			first, second = second, first
		}
		if at := second.path(); !second.pool.isBroken(at) {
			second.pool.breaks(at, second.pool.pool.Spec.Addresses[second.index], "overlaps %s", first.place())
		}
	}
}

// notInPools refuses addresses that are in use already and that a Service could be
// given.
func notInPools(entries []poolEntry, vips, peers []*object) {
	inPool := func(addr netip.Addr) (poolEntry, bool) {
		// The last entry that begins at or before the address: others overlap.
		n, found := slices.BinarySearchFunc(entries, addr, func(e poolEntry, a netip.Addr) int { return e.First.Compare(a) })
		if !found {
			n--
		}
		if n < 0 || !entries[n].Contains(addr) {
			return poolEntry{}, false
		}
		return entries[n], true
	}
	eachAddress(vips, func(o *object, path, text string, addr netip.Addr) {
		if e, ok := inPool(addr); ok {
			o.breaks(path, text, "is in %s; a Service could be given it", e.place())
		}
	})
	for _, o := range peers {
		const path = "spec.peerAddress"
		if addr := o.addrAt(path, o.peer.Spec.PeerAddress); addr.IsValid() {
			if e, ok := inPool(addr); ok {
				o.breaks(path, o.peer.Spec.PeerAddress, "is in %s; a Service could be given it", e.place())
			}
		}
	}
}

// roomForPrefixes refuses aggregation to prefixes that are larger than an entry of
// a pool: routers would be told of addresses that are not in it.
func roomForPrefixes(o *object, pools []*object) {
	s := &o.bgp.Spec
	all := make([]*v1alpha1.IPAddressPool, len(pools))
	for i, p := range pools {
		all[i] = p.pool
	}
	check := func(path string, length, single int32, v6 bool) {
		if length == single || o.isBroken(path) {
			return
		}
		if p, i, found := resolve.TooWide(s, all, length, v6); found {
			e := poolEntry{pool: pools[p], index: i}
			o.breaks(path, length, "makes prefixes larger than %s, %q", e.place(), strings.TrimSpace(all[p].Spec.Addresses[i]))
		}
	}
	check("spec.aggregationLength", *s.AggregationLength, v1alpha1.DefaultAggregationLength, false)
	check("spec.aggregationLengthV6", *s.AggregationLengthV6, v1alpha1.DefaultAggregationLengthV6, true)
}
