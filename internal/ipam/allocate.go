package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// Allocate gives a Service what it asks for. Addresses that it holds and that fit
// the request stay, missing ones are added, and the others are freed, all or
// nothing: with an error, which is an *Error, everything stays as it was, the old
// Sharing of the Service included, and the returned Assignment says how. A Service
// that may no longer share what it holds is such an error; the caller may Free it
// and ask again.
func (a *Allocator) Allocate(r Request, now time.Time) (Assignment, error) {
	a.Expire(now)
	o := a.owners[r.Owner]
	addrs, err := a.plan(&r, o)
	if err != nil {
		return a.describe(o), err
	}
	if o == nil {
		o = &owner{name: r.Owner}
		a.owners[r.Owner] = o
	}
	old := o.addrs
	for _, addr := range old {
		a.detach(o, addr)
	}
	o.created, o.sharing, o.addrs = r.Created, r.Sharing, addrs
	for _, addr := range addrs {
		a.attach(o, addr)
	}
	for _, addr := range old {
		a.tidy(addr, r.Owner, now)
	}
	return a.describe(o), nil
}

// Free takes all addresses from a Service; they go into quarantine unless others
// share them. One that has none is no error.
func (a *Allocator) Free(name model.Key, now time.Time) {
	o := a.owners[name]
	if o == nil {
		return
	}
	for _, addr := range o.addrs {
		a.detach(o, addr)
		a.tidy(addr, name, now)
	}
	delete(a.owners, name)
}

// plan chooses the addresses of a Service.
func (a *Allocator) plan(r *Request, o *owner) ([]netip.Addr, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	named, err := a.named(r)
	if err != nil {
		return nil, err
	}
	if len(r.Addresses) > 0 {
		return a.explicit(r, o)
	}
	return a.choose(r, o, named)
}

func (a *Allocator) named(r *Request) ([]*pool, error) {
	var list []*pool
	for _, name := range r.Pools {
		p := a.pools[name]
		switch {
		case p == nil && a.refused[name]:
			return nil, &Error{Rule: UnknownPool, Pools: []string{name}, words: fmt.Sprintf("pool %q breaks a rule and is not used", name)}
		case p == nil:
			return nil, &Error{Rule: UnknownPool, Pools: []string{name}, words: fmt.Sprintf("pool %q does not exist", name)}
		case !p.serves(r):
			return nil, errNotSelected(name)
		}
		list = append(list, p)
	}
	return list, nil
}

// explicit checks the addresses that the request asks for. Where they lie counts
// only for those that the Service does not hold already.
func (a *Allocator) explicit(r *Request, o *owner) ([]netip.Addr, error) {
	for _, addr := range r.Addresses {
		if f := FamilyOf(addr); !slices.Contains(r.Families, f) {
			return nil, &Error{Rule: FamilyMismatch, Addr: addr, Family: f,
				words: fmt.Sprintf("%s is an %s address, but the Service has only %s", addr, f, r.Families[0])}
		}
		if o == nil || !slices.Contains(o.addrs, addr) {
			if err := a.mayAsk(r, addr); err != nil {
				return nil, err
			}
		}
		if err := a.mayShare(r.Owner, &r.Sharing, addr); err != nil {
			return nil, err
		}
	}
	if r.Policy == RequireDualStack {
		for _, f := range r.Families {
			if !slices.ContainsFunc(r.Addresses, func(addr netip.Addr) bool { return FamilyOf(addr) == f }) {
				return nil, &Error{Rule: FamilyMissing, Family: f,
					words: fmt.Sprintf("RequireDualStack needs an %s address beside those that are asked for", f)}
			}
		}
	}
	return slices.Clone(r.Addresses), nil
}

// mayAsk tells whether the pools give the address to the Service.
func (a *Allocator) mayAsk(r *Request, addr netip.Addr) error {
	if err := a.Stray(addr); err != nil {
		return err
	}
	p := a.place(addr).pool
	until, rests := a.until[addr]
	switch {
	case r.Rested && rests:
		return &Error{Rule: InUse, Addr: addr, Retry: until, words: fmt.Sprintf("%s rests since it was given up", addr)}
	case len(r.Pools) > 0 && !slices.Contains(r.Pools, p.Name):
		return &Error{Rule: WrongPool, Addr: addr, Pools: []string{p.Name},
			words: fmt.Sprintf("%s is in pool %q, but %s is asked for", addr, p.Name, quoted(r.Pools))}
	case !p.serves(r):
		return errNotSelected(p.Name)
	case p.Closed != "" && !r.Shown:
		return errClosed(p)
	}
	return nil
}

// choose keeps what fits and fills up from the pools.
func (a *Allocator) choose(r *Request, o *owner, named []*pool) ([]netip.Addr, error) {
	c := chooser{a: a, r: r}
	if err := c.keep(o, named); err != nil {
		return nil, err
	}
	if c.complete() {
		return c.result(), nil
	}
	var groups [][]*pool
	if len(r.Pools) > 0 {
		groups = [][]*pool{named}
	} else {
		groups = [][]*pool{a.pinnedFor(r), a.defaults}
	}
	closed := shut(groups)
	c.fill(groups)
	if c.complete() || r.Policy == PreferDualStack && c.some() {
		return c.result(), nil
	}
	if closed != nil {
		return nil, errClosed(closed)
	}
	pools := slices.Concat(groups...)
	if len(pools) == 0 {
		return nil, &Error{Rule: NoPool, words: "no pool assigns addresses to this Service: none has autoAssign and a serviceAllocation that fits it"}
	}
	short := r.Families[0]
	if c.missing(0) <= 0 {
		short = r.Families[1]
	}
	return nil, a.errNone(pools, short, r.Count)
}

// shut takes the pools that are closed out of the groups, and returns one of them; nil: none is.
func shut(groups [][]*pool) (closed *pool) {
	for i, group := range groups {
		groups[i] = slices.DeleteFunc(slices.Clone(group), func(p *pool) bool {
			if p.Closed == "" {
				return false
			}
			closed = p
			return true
		})
	}
	return closed
}

// pinnedFor returns the pools with an Allocation that serve the Service, by rank.
func (a *Allocator) pinnedFor(r *Request) []*pool {
	var list []*pool
	for _, candidates := range [][]*pool{a.byNamespace[r.Owner.Namespace], a.pinned} {
		for _, p := range candidates {
			if p.serves(r) {
				list = append(list, p)
			}
		}
	}
	slices.SortFunc(list, rank)
	return list
}
