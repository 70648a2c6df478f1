package route

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// prune removes what is not wanted: first routes, then the groups that none of them needs, then
// the next hops that no group needs. Of what an earlier process left nothing, while it is kept.
func (p *pass) prune(wanted map[netip.Prefix]model.AppliedRoute) {
	im := p.image
	leave := func(prefix netip.Prefix) bool {
		_, is := wanted[prefix]
		return is || p.keep && p.asked[prefix] == nil
	}
	for prefix := range im.routes {
		if !leave(prefix) {
			p.note(prefix, p.drop(prefix))
		}
	}
	for prefix, e := range im.unreachable {
		if leave(prefix) {
			continue
		}
		err := p.kernel.route(unix.RTM_DELROUTE, 0, e)
		if err == nil {
			delete(im.unreachable, prefix)
		}
		p.note(prefix, err)
	}
	for prefix := range p.asked {
		if _, is := wanted[prefix]; !is {
			delete(p.asked, prefix)
		}
	}
	if p.keep {
		return // an earlier process may have made what nothing leads to yet
	}
	for _, e := range im.other {
		p.note(e.prefix, p.kernel.route(unix.RTM_DELROUTE, 0, e))
	}
	im.other = nil
	p.pruneHops()
}

func (p *pass) note(prefix netip.Prefix, err error) {
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("route to %s: remove: %w", prefix, err))
	}
}

// pruneHops removes our groups and next hops that nothing needs. One that somebody else has in a
// group or in a route stays: the kernel would remove their route with it.
func (p *pass) pruneHops() {
	needed := make(map[uint32]bool)
	for _, e := range p.image.routes {
		needed[e.hop] = true
	}
	p.removeHops(func(h *hop) bool { return h.group != nil && !needed[h.id] })
	for _, h := range p.image.hops {
		for _, m := range h.group {
			needed[m.id] = true
		}
	}
	p.removeHops(func(h *hop) bool { return h.group == nil && !needed[h.id] })
}

func (p *pass) removeHops(unneeded func(*hop) bool) {
	im := p.image
	for id, h := range im.hops {
		if !h.own() || !unneeded(h) || im.lent[id] {
			continue
		}
		lent, err := p.isLent(h)
		if lent {
			im.lent[id] = true
			continue
		}
		if err == nil {
			err = p.kernel.remove(id)
		}
		if err != nil {
			p.errs = append(p.errs, fmt.Errorf("next hop %d: remove: %w", id, err))
			continue
		}
		delete(im.hops, id)
		if im.at[h.target()] == id {
			delete(im.at, h.target())
		}
	}
}

// isLent tells whether a route of somebody else leads to a next hop or group.
func (p *pass) isLent(h *hop) (bool, error) {
	index := h.index
	if len(h.group) > 0 { // the route leads by the interfaces of all of them
		if first := p.image.hops[h.group[0].id]; first != nil {
			index = first.index
		}
	}
	if p.foreign[index] == nil {
		used, err := p.kernel.foreign(index)
		if err != nil {
			return false, err
		}
		p.foreign[index] = used
	}
	return p.foreign[index][h.id], nil
}
