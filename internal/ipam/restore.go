package ipam

import (
	"cmp"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// Conflict is an address that Restore did not leave with a Service.
type Conflict struct {
	Owner model.Key
	Addr  netip.Addr
	Err   *Error
}

// Restore replaces all assignments by those that are known from elsewhere, the
// status of Services. Of Services that may not share what they both have, the one
// created first keeps it, then the one whose name sorts first; the others do not
// get it and are reported. Addresses outside every pool are restored all the same;
// see Stray. The order of the list does not count, and restoring the same
// list again changes nothing.
func (a *Allocator) Restore(list []Assignment) []Conflict {
	clear(a.owners)
	clear(a.holds)
	a.reindex()
	sorted := slices.SortedFunc(slices.Values(list), before)
	var conflicts []Conflict
	for _, x := range sorted {
		known := a.owners[x.Owner] != nil
		o := &owner{name: x.Owner, created: x.Created, sharing: x.Sharing.normal()}
		for _, at := range x.Addresses {
			if err := a.restorable(o, at.Addr, known); err != nil {
				conflicts = append(conflicts, Conflict{o.name, at.Addr, err})
				continue
			}
			if !slices.Contains(o.addrs, at.Addr) {
				o.addrs = append(o.addrs, at.Addr)
				a.attach(o, at.Addr)
			}
		}
		if len(o.addrs) > 0 {
			a.owners[o.name] = o
		}
	}
	return conflicts
}

// before orders assignments by age and name; the rest makes the order complete
// for lists that name a Service twice.
func before(a, b Assignment) int {
	return cmp.Or(a.Created.Compare(b.Created), a.Owner.Compare(b.Owner), slices.CompareFunc(a.Addresses, b.Addresses,
		func(x, y Address) int { return x.Addr.Compare(y.Addr) }))
}

func (a *Allocator) restorable(o *owner, addr netip.Addr, known bool) *Error {
	switch {
	case known:
		return &Error{Rule: DuplicateOwner, Addr: addr, By: []string{o.name.String()}, words: o.name.String() + " is listed twice"}
	case !addr.IsValid() || addr.Is4In6() || addr.Zone() != "":
		return &Error{Rule: BadRequest, Addr: addr, words: addr.String() + " is not an address that a Service can have"}
	}
	return a.mayShare(o.name, &o.sharing, addr)
}
