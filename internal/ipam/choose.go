package ipam

import (
	"net/netip"
	"slices"
)

// chooser collects the addresses of one Service.
type chooser struct {
	a    *Allocator
	r    *Request
	got  [2][]netip.Addr // in the order of r.Families
	kept [2]int          // how many of them the Service holds already
	home []*pool         // where it holds them
}

// keep begins with what the Service holds and still fits.
func (c *chooser) keep(o *owner, named []*pool) error {
	if o == nil {
		return nil
	}
	for _, addr := range o.addrs {
		i := slices.Index(c.r.Families, FamilyOf(addr))
		if i < 0 || len(c.got[i]) >= c.r.Count {
			continue
		}
		p := c.a.place(addr).pool
		if p != nil && len(named) > 0 && !slices.Contains(named, p) {
			continue
		}
		if c.r.LeaveStrays && c.a.Stray(addr) != nil {
			continue
		}
		if err := c.a.mayShare(o.name, &c.r.Sharing, addr); err != nil {
			return err
		}
		c.got[i] = append(c.got[i], addr)
		c.kept[i]++
		if p != nil {
			c.home = append(c.home, p)
		}
	}
	return nil
}

// missing is how many addresses of a family are still needed.
func (c *chooser) missing(i int) int { return c.r.Count - len(c.got[i]) }

func (c *chooser) complete() bool {
	for i := range c.r.Families {
		if c.missing(i) > 0 {
			return false
		}
	}
	return true
}

// some tells whether a family is complete, and drops those that are not, but not
// what the Service holds.
func (c *chooser) some() bool {
	done := false
	for i := range c.r.Families {
		if c.missing(i) > 0 {
			c.got[i] = c.got[i][:c.kept[i]]
		}
		done = done || c.missing(i) == 0
	}
	return done
}

func (c *chooser) result() []netip.Addr {
	return slices.Concat(c.got[0], c.got[1])
}

// fill takes what is missing from one pool, first where the Service is at home,
// then in the order of pools; else each family from one pool of a group, else from
// several. From a later group comes only what an earlier one has not: a Service
// whose own pools have one family stays with them for that family.
func (c *chooser) fill(groups [][]*pool) {
	for _, group := range groups {
		for _, p := range c.home {
			if slices.Contains(group, p) && c.from(p) {
				return
			}
		}
	}
	for _, group := range groups {
		if slices.ContainsFunc(group, c.from) {
			return
		}
		if c.spread(group); c.complete() {
			return
		}
		found := c.any()
		c.reset()
		if found {
			break
		}
	}
	c.spread(slices.Concat(groups...))
}

// from takes all that is missing from one pool, or nothing.
func (c *chooser) from(p *pool) bool {
	for i := range c.r.Families {
		c.take(p, i)
	}
	if c.complete() {
		return true
	}
	c.reset()
	return false
}

// spread takes what there is of each family, from one pool if that is enough.
func (c *chooser) spread(pools []*pool) {
	for i := range c.r.Families {
		whole := slices.ContainsFunc(pools, func(p *pool) bool {
			c.take(p, i)
			if c.missing(i) > 0 {
				c.got[i] = c.got[i][:c.kept[i]]
			}
			return c.missing(i) == 0
		})
		for _, p := range pools {
			if !whole {
				c.take(p, i)
			}
		}
	}
}

// any tells whether a family that was missing is complete.
func (c *chooser) any() bool {
	for i := range c.r.Families {
		if c.kept[i] < c.r.Count && c.missing(i) == 0 {
			return true
		}
	}
	return false
}

// reset forgets all but what the Service holds.
func (c *chooser) reset() {
	for i := range c.got {
		c.got[i] = c.got[i][:c.kept[i]]
	}
}

// take takes up to what is missing of a family from a pool: shared addresses
// first, then free ones.
func (c *chooser) take(p *pool, i int) {
	f := c.r.Families[i]
	s := &p.spaces[f.index()]
	if c.r.Sharing.Key != "" {
		c.takeShared(p, s, i)
	}
	from := number{}
	for c.missing(i) > 0 {
		x, ok := s.free.next(from)
		if !ok {
			return
		}
		c.got[i] = append(c.got[i], s.at(x, f))
		from = x.next()
	}
}

// takeShared looks through the addresses of the pool that are shared under the
// key, but not if a port that is needed is in use on all of them.
func (c *chooser) takeShared(p *pool, s *space, i int) {
	f := c.r.Families[i]
	shared := c.a.shared[sharedIn{c.r.Sharing.Key, p, f}]
	if shared == nil {
		return
	}
	for _, port := range c.r.Sharing.Ports {
		if shared.ports[port] == shared.indexes.size.lo {
			return
		}
	}
	for x, ok := shared.indexes.next(number{}); ok && c.missing(i) > 0; x, ok = shared.indexes.next(x.next()) {
		addr := s.at(x, f)
		if c.a.nodes[addr] || slices.Contains(c.got[i], addr) || c.a.mayShare(c.r.Owner, &c.r.Sharing, addr) != nil {
			continue
		}
		c.got[i] = append(c.got[i], addr)
	}
}
