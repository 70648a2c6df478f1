package main

import (
	"net/netip"

	"lbd.dev/lbd/internal/decide"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/relay"
	"lbd.dev/lbd/internal/sockdiag"
)

// rings returns what tells of a VIP whether open connections to it would survive its
// moves, as far as this node can tell: others have their own say.
func (p *preflight) rings(links map[string]model.Link) func(v *model.VIP, iface string) {
	if why := sockdiag.Undestroyable(); why != "" {
		p.say(warn, "connections", "clients on this node do not come back at once when a VIP moves: their connections cannot be cut: %s", why)
	}
	if p.cfg.Node.NoRelay {
		if p.cfg.Node.KeepServices {
			p.say(warn, servicesPart, "`serviceConnections: keep` does nothing: `connections: reset`")
		}
		return func(v *model.VIP, _ string) {
			p.say(ok, v.Addr.String(), "open connections are reset when it moves: `connections: reset`")
		}
	}
	seen, err := relay.Look()
	if err != nil {
		p.say(warn, "connections", "not all that they need could be looked at: %v", err)
	}
	if seen != nil && p.cfg.Node.KeepServices {
		seen.Untold = relay.Untold()
		p.services(seen, links, relay.Untrackable)
	}
	return func(v *model.VIP, iface string) {
		if why := decide.RingUnfit(seen, links, iface, v.Addr); why != "" {
			p.say(warn, v.Addr.String(), "a move resets open connections: %s", why)
			return
		}
		if v.Balanced && v.L2 {
			if why := relay.Unspreadable(v.Addr); why != "" {
				p.say(warn, v.Addr.String(), "as the owner this node takes all new connections itself: the kernel cannot spread them (CONFIG_NFT_HASH): %s", why)
			}
		}
		p.say(ok, v.Addr.String(), "nothing here keeps open connections from surviving a move")
	}
}

const servicesPart = "Services"

// services tells whether open connections through Services would survive moves of their
// addresses, which the files do not have. untrackable is that of package relay.
func (p *preflight) services(seen *model.RingHost, links map[string]model.Link, untrackable func(netip.Addr) string) {
	why := decide.ServiceRingUnfit(seen, links)
	for i, a := range [...]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		family := [...]string{"IPv4", "IPv6"}[i]
		kernel, chain := seen.Kernel.Of(a), seen.Drops.Of(a)
		if kernel == "" {
			if kernel = untrackable(a); kernel != "" {
				kernel += " (CONFIG_NFT_CT)"
			}
		}
		switch {
		case kernel != "":
			p.say(warn, servicesPart, "a move resets open connections: the kernel has no such rules for %s: %s", family, kernel)
		case why != "":
			p.say(warn, servicesPart, "a move resets open connections: %s", why)
			return // it is the same for both
		case chain != "":
			p.say(warn, servicesPart, "a move resets open connections: %s drops what is relayed of %s; let it accept `ct state untracked`", chain, family)
		default:
			p.say(ok, servicesPart, "nothing here keeps open connections by %s from surviving a move", family)
		}
	}
}
