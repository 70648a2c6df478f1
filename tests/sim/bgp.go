package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/internal/lbdtest"
	"lbd.dev/lbd/internal/model"
)

const (
	// convergence is for how long a router may have a path to a node whose address is
	// already gone: it takes as long to program its tables.
	convergence = 100 * time.Millisecond
	// given is the longest time after which a router and a kernel have given up a
	// node that says nothing, and what it had bound.
	given = model.LoopbackLifetime + time.Second
	// shutdownDelay is that of the routers that honour a graceful shutdown.
	shutdownDelay = time.Second
)

// addRouters puts the BGP routers on the wire.
func (c *Cluster) addRouters() {
	if !slices.ContainsFunc(c.vips, func(v model.VIP) bool { return len(v.BGP) > 0 }) {
		return
	}
	kinds := c.opts.Routers
	if kinds == nil {
		kinds = []lbdtest.RouterKind{lbdtest.RouterBFD, lbdtest.RouterGraceful, lbdtest.RouterPlain}
	}
	for _, k := range kinds {
		c.routers = append(c.routers, c.Net.Router(string(k), "lan", k))
	}
}

// peers are the routers as every node has them configured.
func (c *Cluster) peers() []model.BGPPeer {
	var out []model.BGPPeer
	for _, r := range c.routers {
		out = append(out, model.BGPPeer{
			Name: r.Name, LocalASN: 64512, PeerASN: 64513, IPv4: true, IPv6: true,
			GracefulRestart: r.Kind == lbdtest.RouterGraceful, ShutdownDelay: shutdownDelay,
		})
	}
	slices.SortFunc(out, func(a, b model.BGPPeer) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// l2 tells whether layer 2 announces an address of the prefix, as far as anybody
// knows.
func (c *Cluster) l2(p netip.Prefix) bool {
	i := slices.IndexFunc(c.opts.VIPs, func(v model.VIP) bool { return p.Contains(v.Addr) })
	return i < 0 || slices.ContainsFunc(c.opts.VIPs, func(v model.VIP) bool { return p.Contains(v.Addr) && v.L2 })
}

// lookBGP judges what kernels answer for and where routers send packets.
func (m *monitor) lookBGP(c *Cluster) {
	if !c.usesLo() {
		return
	}
	for _, v := range c.opts.VIPs {
		h := c.Net.HistoryFrom(v.Addr, m.exposed[v.Addr])
		h = h[:max(len(h)-1, 0)] // the newest may yet be replaced
		for _, s := range h {
			if v.L2 && len(s.Exposed) > 0 {
				c.failf("%v answer at %s for %s, which is on their lo only", s.Exposed, s.At.Sub(c.Begin), v.Addr)
			}
		}
		m.exposed[v.Addr] += len(h)
	}
	for _, r := range c.routers {
		for _, u := range r.Unbound() {
			if c.excusedPath(r, &u) {
				continue
			}
			if key := fmt.Sprint(r.Name, u.Node, u.Prefix, u.Since); !m.unbound[key] {
				m.unbound[key] = true
				c.failf("%s sends packets for %s to %s, which has had no address in it for %s", r.Name, u.Prefix, u.Node, time.Since(u.Since))
			}
		}
	}
}

// excusedPath: the router does not know better yet. A node that it cannot reach
// serves nobody, whatever it has; the short lifetime of an address that layer 2
// announces too does not outlast the hold time if the daemon is frozen.
func (c *Cluster) excusedPath(r *lbdtest.Router, u *lbdtest.Unbound) bool {
	n := c.nodes[u.Node]
	switch {
	case time.Since(n.removed) <= given && (!n.running() || n.frozen || !n.touched.Before(n.removed)):
		return true // removed by hand, and nobody was there to put it back
	case time.Since(u.Since) <= convergence:
		return true
	case !u.Cut.IsZero() && time.Since(u.Cut) <= lbdtest.HoldTime+u.Restart+convergence:
		return true
	case u.Frozen.IsZero():
		return false
	}
	late := time.Duration(0)
	if u.Dead {
		late = u.Restart
	}
	return (c.l2(u.Prefix) || u.Dead) && time.Since(u.Frozen) <= late+convergence
}

// serves tells whether the node advertises the VIP by BGP, if any router is in
// reach.
func (c *Cluster) serves(n *Node, v model.VIP) bool {
	if v.FollowsOwner() && !slices.Contains(c.Net.Holders(v.Addr), n.Name) {
		return false
	}
	return n.running() && !n.frozen && !n.draining && !n.stopping && (v.Check == "" || !n.sick)
}

// settledBGP checks that exactly those advertise that should, and what is on lo.
func (c *Cluster) settledBGP() {
	if !c.usesLo() {
		return
	}
	for _, v := range c.opts.VIPs {
		i := slices.IndexFunc(c.vips, func(x model.VIP) bool { return x.Addr == v.Addr })
		configured := i >= 0 && len(c.vips[i].BGP) > 0
		for _, n := range c.all() {
			c.advertised(n, v, configured)
			if i >= 0 && !configured && v.Balanced && n.unplugged {
				continue // it may keep it for connections
			}
			c.local(n, v, configured || i >= 0 && v.Balanced)
		}
	}
}

// usesLo tells whether nodes have anything on lo.
func (c *Cluster) usesLo() bool {
	return len(c.routers) > 0 || slices.ContainsFunc(c.opts.VIPs, func(v model.VIP) bool { return v.Balanced })
}

// advertised checks which routers have a path to the node.
func (c *Cluster) advertised(n *Node, v model.VIP, configured bool) {
	for _, r := range c.routers {
		has := slices.Contains(r.Has(v.Addr), n.Name)
		reached := c.Net.Connected(n.Name, r.Name)
		switch {
		case configured && c.serves(n, v) && reached:
			if !has {
				c.failf("%s has no path to %s for %s", r.Name, n.Name, v.Addr)
			}
		case configured && n.draining && c.alone(n, v):
		case has && (n.running() && !n.frozen && reached || time.Since(n.touched) > given):
			c.failf("%s still has a path to %s for %s", r.Name, n.Name, v.Addr)
		}
	}
}

// alone: a drained node, or one that was when the others were away, may be the
// last that serves the VIP.
func (c *Cluster) alone(n *Node, v model.VIP) bool {
	return !slices.ContainsFunc(c.all(), func(o *Node) bool { return o != n && c.serves(o, v) && c.talks(o, n) })
}

// local checks what the node has on lo: what it serves and does not have on the
// wire.
func (c *Cluster) local(n *Node, v model.VIP, configured bool) {
	has := slices.Contains(n.Host.Loopback(), v.Addr)
	if v.Unbound {
		if has {
			c.failf("%s has bound %s", n.Name, v.Addr)
		}
		return
	}
	wired := slices.Contains(n.Host.Addresses(), v.Addr) && slices.Contains(c.Net.Holders(v.Addr), n.Name)
	switch {
	case configured && c.serves(n, v) && !wired:
		if !has {
			c.failf("%s does not have %s on lo", n.Name, v.Addr)
		}
	case configured && n.draining && c.alone(n, v) && !wired:
	case has && (n.running() && !n.frozen || time.Since(n.touched) > given):
		c.failf("%s still has %s on lo", n.Name, v.Addr)
	}
}
