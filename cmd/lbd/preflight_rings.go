package main

import (
	"lbd.dev/lbd/internal/decide"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/relay"
)

// rings returns what tells of a VIP whether open connections to it would survive its
// moves, as far as this node can tell: others have their own say.
func (p *preflight) rings(links map[string]model.Link) func(v *model.VIP, iface string) {
	if p.cfg.Node.NoRelay {
		return func(v *model.VIP, _ string) {
			p.say(ok, v.Addr.String(), "open connections are reset when it moves: `connections: reset`")
		}
	}
	seen, err := relay.Look()
	if err != nil {
		p.say(warn, "connections", "not all that they need could be looked at: %v", err)
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
