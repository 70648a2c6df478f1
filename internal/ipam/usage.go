package ipam

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// Count says how the addresses of one family of a pool are used. Numbers beyond
// 64 bits are shown as the largest that fits.
type Count struct {
	Size        uint64 // what the pool may give out, nodes' addresses included
	Assigned    uint64
	Quarantined uint64
	Available   uint64
}

// PoolUsage is the use of one pool.
type PoolUsage struct {
	Pool       string
	IPv4, IPv6 Count
}

// Usage returns the use of every pool, by name, as of the last call that was
// given the time.
func (a *Allocator) Usage() []PoolUsage {
	list := make([]PoolUsage, 0, len(a.pools))
	for _, name := range slices.Sorted(maps.Keys(a.pools)) {
		p := a.pools[name]
		list = append(list, PoolUsage{name, p.spaces[0].count(), p.spaces[1].count()})
	}
	return list
}

func (s *space) count() Count {
	return Count{s.size.clamp(), s.assigned, s.quarantined, s.free.size.clamp()}
}

// Get returns what a Service holds.
func (a *Allocator) Get(name model.Key) (Assignment, bool) {
	o := a.owners[name]
	return a.describe(o), o != nil
}

// Assignments returns all assignments by owner. Restore takes them back.
func (a *Allocator) Assignments() []Assignment {
	list := make([]Assignment, 0, len(a.owners))
	for _, name := range slices.SortedFunc(maps.Keys(a.owners), model.Key.Compare) {
		list = append(list, a.describe(a.owners[name]))
	}
	return list
}

// describe is a copy of what the owner holds; nil holds nothing.
func (a *Allocator) describe(o *owner) Assignment {
	if o == nil {
		return Assignment{}
	}
	x := Assignment{Owner: o.name, Created: o.created, Sharing: o.sharing.normal()}
	for _, addr := range o.addrs {
		x.Addresses = append(x.Addresses, Address{addr, a.PoolOf(addr)})
	}
	return x
}

// PoolOf returns the name of the pool that gives out the address; "": none does.
func (a *Allocator) PoolOf(addr netip.Addr) string {
	if at := a.place(addr); at.ok {
		return at.pool.Name
	}
	return ""
}

// Holders returns the Services that have the address, by name.
func (a *Allocator) Holders(addr netip.Addr) (list []model.Key) {
	if h := a.holds[addr]; h != nil {
		for _, o := range h.users {
			list = append(list, o.name)
		}
	}
	return list
}
