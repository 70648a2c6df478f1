package route

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// defaultBuckets is the size of a table of buckets if none is asked for.
const defaultBuckets = 1024

// pass is one Apply.
type pass struct {
	*Driver
	keep bool            // what an earlier process left stays
	used map[uint32]bool // groups that a route of this pass leads to
	// foreign are the next hops and groups in routes of others, by interface.
	foreign map[int]map[uint32]bool
	errs    []error
}

// fail notes what went wrong with a route.
func (p *pass) fail(a *model.AppliedRoute, prefix netip.Prefix, err error) {
	a.Err = strings.TrimPrefix(a.Err+"; "+err.Error(), "; ")
	p.errs = append(p.errs, fmt.Errorf("route to %s: %w", prefix, err))
}

// bring makes one route true and tells what it is now.
func (p *pass) bring(r *model.Route) (a model.AppliedRoute) {
	im, to := p.image, r.Prefix
	if _, there := im.unreachable[to]; !there {
		e := entry{prefix: to, metric: model.UnreachableMetric, unreachable: true}
		if err := p.kernel.route(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, e); err != nil {
			p.fail(&a, to, err)
		} else {
			im.unreachable[to] = e
		}
	}
	hops := p.hops(r, &a)
	if len(hops) == 0 {
		if err := p.drop(to); err != nil {
			p.fail(&a, to, err)
		}
		return a
	}
	id, err := p.group(r, hops)
	if err == nil {
		err = p.lead(to, id)
	}
	if err != nil {
		p.fail(&a, to, err)
	}
	if e, there := im.routes[to]; there && im.hops[e.hop] != nil {
		g := im.hops[e.hop]
		a.Resilient = g.resilient
		for _, m := range g.group {
			if h := im.hops[m.id]; h != nil {
				a.NextHops = append(a.NextHops, model.NextHop{Gateway: h.gateway, Interface: p.linkName(h.index), Weight: m.weight})
			}
		}
		slices.SortFunc(a.NextHops, model.NextHop.Compare)
	}
	return a
}

// reached is a next hop of a route, and its object.
type reached struct {
	model.NextHop
	id uint32
}

// hops are those of a route that the kernel can have, in order. While next hops may not have
// been heard of, those that are in its group and that this process never asked for stay.
func (p *pass) hops(r *model.Route, a *model.AppliedRoute) (out []reached) {
	asked := make(map[target]bool, len(r.NextHops))
	for _, h := range r.NextHops {
		index, err := p.link(h.Interface)
		t := target{h.Gateway, index}
		if err == nil && asked[t] {
			continue
		}
		var id uint32
		if err == nil {
			asked[t] = true
			id, err = p.hop(t)
		}
		if err != nil {
			p.fail(a, r.Prefix, fmt.Errorf("next hop %s by %s: %w", h.Gateway, h.Interface, err))
			continue
		}
		h.Weight = h.Share()
		out = append(out, reached{h, id})
	}
	if p.keep {
		for t := range p.asked[r.Prefix] {
			asked[t] = true
		}
		out = append(out, p.unheard(r, asked)...)
	}
	p.asked[r.Prefix] = asked
	slices.SortFunc(out, func(a, b reached) int { return a.Compare(b.NextHop) })
	return out
}

// unheard are the next hops in the group of a route that this process never asked for.
func (p *pass) unheard(r *model.Route, asked map[target]bool) (out []reached) {
	g := p.image.hops[p.image.routes[r.Prefix].hop]
	if g == nil || !g.own() {
		return nil
	}
	for _, m := range g.group {
		if h := p.image.hops[m.id]; h != nil && h.own() && h.group == nil && !asked[h.target()] {
			out = append(out, reached{model.NextHop{Gateway: h.gateway, Interface: p.linkName(h.index), Weight: m.weight}, m.id})
		}
	}
	return out
}

// hop is the object of a next hop, which is made if there is none.
func (p *pass) hop(t target) (uint32, error) {
	if id, there := p.image.at[t]; there {
		return id, nil
	}
	h := &hop{id: p.image.free(), protocol: model.RouteProtocol, gateway: t.gateway, index: t.index}
	if err := p.kernel.put(h, false); err != nil {
		return 0, err
	}
	p.image.hops[h.id], p.image.at[t] = h, h.id
	return h.id, nil
}

// group makes the group of a route have these next hops. It is changed in place, so that the
// buckets of those that stay are not touched; one that cannot be is replaced by another.
func (p *pass) group(r *model.Route, hops []reached) (uint32, error) {
	want := p.shape(r.Spread)
	for _, h := range hops {
		want.group = append(want.group, member{h.id, h.Weight})
	}
	id := p.image.routes[r.Prefix].hop
	is := p.image.hops[id]
	if is == nil || !is.own() || is.group == nil || is.resilient != want.resilient || is.buckets != want.buckets || p.used[id] {
		id = p.image.free()
		want.id = id
		err := p.kernel.put(want, false)
		if want.resilient && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)) {
			without := *want
			without.resilient, without.buckets, without.idle, without.unbalanced = false, 0, 0, 0
			if p.kernel.put(&without, false) == nil {
				p.log.Warn("the kernel has no resilient groups of next hops", "err", err)
				p.plain, want, err = true, &without, nil
			}
		}
		if err != nil {
			return 0, err
		}
	} else if want.id = id; !want.equal(is) {
		if err := p.kernel.put(want, true); err != nil {
			return 0, err
		}
	}
	p.image.hops[id], p.used[id] = want, true
	return id, nil
}

// shape is a group without its members.
func (p *pass) shape(s model.Spread) *hop {
	g := &hop{protocol: model.RouteProtocol}
	if s.Resilient && !p.plain {
		const tick = 10 * time.Millisecond
		g.resilient, g.buckets = true, s.Buckets
		g.buckets = cmp.Or(g.buckets, defaultBuckets)
		g.idle, g.unbalanced = uint32(s.Idle/tick), uint32(s.Unbalanced/tick)
	}
	return g
}

// equal tells whether two groups are of the same next hops and timers. The kernel counts in ticks
// of its own and may report a hundredth of a second less or more.
func (h *hop) equal(o *hop) bool {
	near := func(a, b uint32) bool { return max(a, b)-min(a, b) <= 1 }
	return slices.Equal(h.group, o.group) && near(h.idle, o.idle) && near(h.unbalanced, o.unbalanced)
}

// lead makes the route to a prefix lead to a group.
func (p *pass) lead(to netip.Prefix, id uint32) error {
	flags := unix.NLM_F_CREATE | unix.NLM_F_EXCL
	if is, there := p.image.routes[to]; there {
		if is.hop == id {
			return nil
		}
		flags = unix.NLM_F_REPLACE
	}
	e := entry{prefix: to, metric: model.RouteMetric, hop: id}
	if err := p.kernel.route(unix.RTM_NEWROUTE, flags, e); err != nil {
		return err
	}
	p.image.routes[to] = e
	return nil
}

// drop removes the route by next hops to a prefix.
func (p *pass) drop(to netip.Prefix) error {
	e, there := p.image.routes[to]
	if !there {
		return nil
	}
	err := p.kernel.route(unix.RTM_DELROUTE, 0, e)
	if err == nil {
		delete(p.image.routes, to)
	}
	return err
}
