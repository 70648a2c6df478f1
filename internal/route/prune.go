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

// pruneHops removes our groups and next hops that nothing needs. A next hop that somebody else
// has in a group stays.
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
	for id, h := range p.image.hops {
		if !h.own() || !unneeded(h) {
			continue
		}
		if err := p.kernel.remove(id); err != nil {
			p.errs = append(p.errs, fmt.Errorf("next hop %d: remove: %w", id, err))
			continue
		}
		delete(p.image.hops, id)
		if p.image.at[h.target()] == id {
			delete(p.image.at, h.target())
		}
	}
}
