package sim

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/gossip/memnet"
	"lbd.dev/lbd/internal/lbdtest"
	"lbd.dev/lbd/internal/model"
)

// controlTimeout bounds what a test asks of a daemon.
const controlTimeout = time.Second

// Start turns machines on and starts their daemons where none runs.
func (c *Cluster) Start(names ...string) {
	for _, name := range names {
		n := c.nodes[name]
		if n.running() {
			continue
		}
		c.touch(name)
		if !n.powered {
			n.powered = true
			n.Host.Power(true)
		}
		if err := n.launch(); err != nil {
			c.failf("%s: start: %v", name, err)
		}
	}
}

// StartAll starts every daemon at once.
func (c *Cluster) StartAll() {
	for _, n := range c.all() {
		c.Start(n.Name)
	}
}

// running tells whether there is a process, frozen or not. One that was told to
// stop and has is none any more.
func (n *Node) running() bool {
	if n.proc != nil && n.stopping {
		select {
		case <-n.ended:
			n.proc.Kill()
			n.proc, n.stopping, n.frozen = nil, false, false
			if n.err != nil {
				n.c.failf("%s: stop: %v", n.Name, n.err)
			}
		default:
		}
	}
	return n.proc != nil
}

// touch notes that something happened to nodes, so that their VIPs may move.
func (c *Cluster) touch(names ...string) {
	c.parted = time.Now()
	for _, n := range names {
		c.touched[n] = true
		c.nodes[n].touched = c.parted
	}
}

// Kill ends the daemon without a word; its kernel lives on.
func (c *Cluster) Kill(name string) {
	n := c.nodes[name]
	if !n.running() {
		return
	}
	c.touch(name)
	n.proc.Kill()
	_ = n.transport.Shutdown() // never fails
	n.transport.Pause(false)
	n.cancel()
	<-n.ended
	n.proc, n.frozen, n.stopping = nil, false, false
}

// Crash takes the power away.
func (c *Cluster) Crash(name string) {
	n := c.nodes[name]
	n.powered = false
	n.Host.Power(false)
	n.bgpFile = &lbdtest.BGPFile{} // of another boot
	c.touch(name)
	c.Kill(name)
}

// Replace takes machines away without a goodbye and adds others, numbered; the peers of all
// daemons are then those that there are, as with the Nodes of a cluster.
func (c *Cluster) Replace(away []string, numbers ...int) {
	for _, name := range away {
		c.Crash(name)
		delete(c.nodes, name)
	}
	for _, i := range numbers {
		c.install(i)
	}
	for _, n := range c.all() {
		if n.running() {
			n.gossip.SetPeers(c.members())
			c.touch(n.Name)
		}
	}
	for _, i := range numbers {
		c.Start(fmt.Sprintf("m%d", i))
	}
}

// Stop ends the daemon as SIGTERM does, and waits for it.
func (c *Cluster) Stop(name string) {
	n := c.nodes[name]
	if !n.running() || n.frozen {
		return
	}
	c.StopSoon(name)
	<-n.ended
	n.running()
}

// StopSoon begins to stop a daemon.
func (c *Cluster) StopSoon(name string) {
	n := c.nodes[name]
	if n.running() {
		c.touch(name)
		n.stopping = true
		n.cancel()
	}
}

// Freeze and Thaw are SIGSTOP and SIGCONT.
func (c *Cluster) Freeze(name string) {
	n := c.nodes[name]
	if n.running() && !n.frozen {
		c.touch(name)
		n.frozen = true
		n.transport.Pause(true)
		n.proc.Freeze()
	}
}

// Thaw lets a frozen process go on.
func (c *Cluster) Thaw(name string) {
	n := c.nodes[name]
	if n.running() && n.frozen {
		c.touch(name)
		n.frozen, n.thawed = false, time.Now()
		n.proc.Thaw()
		n.transport.Pause(false)
		n.health.Set(n.checked()) // the loop turns at once: its timer is overdue
	}
}

// Degrade lets the preferred part of the health check fail or pass.
func (c *Cluster) Degrade(name string, on bool) {
	n := c.nodes[name]
	c.touch(name)
	n.degraded = on
	if n.running() && !n.frozen {
		n.health.Set(n.checked())
	}
}

// Drain starts or ends a drain.
func (c *Cluster) Drain(name string, on bool) {
	n := c.nodes[name]
	if !n.running() || n.frozen {
		return
	}
	c.touch(name)
	n.draining = on
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	if err := n.Daemon.SetDraining(ctx, on); err != nil {
		c.failf("%s: drain: %v", name, err)
	}
}

// Sick lets the health check fail or pass.
func (c *Cluster) Sick(name string, on bool) {
	n := c.nodes[name]
	c.touch(name)
	n.sick = on
	if n.running() {
		n.health.Set(n.checked())
	}
}

// Plug puts the cable of a machine in or out: carrier, wire and gossip.
func (c *Cluster) Plug(name string, in bool) {
	n := c.nodes[name]
	c.touch(name)
	n.unplugged = !in
	c.cutGossip()
	n.Host.SetCarrier("eth0", in)
	if in {
		c.healGossip()
	}
}

// CutWire parts the wire in two without loss of carrier; the clients stay with
// all others.
func (c *Cluster) CutWire(names ...string) {
	side := c.split(c.wireSide, names)
	rest := []string{"client"}
	for _, r := range c.routers {
		rest = append(rest, r.Name)
	}
	for _, n := range c.all() {
		if !slices.Contains(side, n.Name) {
			rest = append(rest, n.Name)
		}
	}
	c.Net.Partition(side, rest)
	c.touchAll()
}

// CutGossip keeps gossip from passing between these nodes and all others.
func (c *Cluster) CutGossip(names ...string) {
	c.split(c.gossipSide, names)
	c.unheard = time.Now()
	c.cutGossip()
}

// Heal ends every cut.
func (c *Cluster) Heal() {
	c.HealWire()
	c.HealGossip()
}

// HealWire ends every cut of the wire.
func (c *Cluster) HealWire() {
	if len(c.wireSide) > 0 {
		c.touchAll()
	}
	clear(c.wireSide)
	c.Net.Heal()
}

// HealGossip ends every cut of gossip.
func (c *Cluster) HealGossip() {
	if len(c.gossipSide) > 0 {
		c.rejoined = time.Now()
	}
	clear(c.gossipSide)
	c.healGossip()
}

// touchAll: when a wire is cut or heals any VIP may get another owner.
func (c *Cluster) touchAll() {
	for name := range c.nodes {
		c.touch(name)
	}
}

// split parts the nodes from all others. A cut heals nothing: those that were apart
// before stay apart.
func (c *Cluster) split(sides map[string]int, names []string) []string {
	last := 0
	for _, s := range sides {
		last = max(last, s)
	}
	below := map[int]int{}
	for _, n := range names {
		was := sides[n]
		if below[was] == 0 {
			last++
			below[was] = last
		}
		sides[n] = below[was]
	}
	return names
}

// talks tells whether gossip passes between two nodes.
func (c *Cluster) talks(a, b *Node) bool {
	return !a.unplugged && !b.unplugged && c.gossipSide[a.Name] == c.gossipSide[b.Name]
}

func (c *Cluster) cutGossip() {
	c.parted = time.Now()
	for _, a := range c.all() {
		for _, b := range c.all() {
			if a != b && !c.talks(a, b) {
				c.gossip.Block(a.addr, b.addr, memnet.All)
			}
		}
	}
}

func (c *Cluster) healGossip() {
	c.gossip.Heal()
	c.cutGossip()
}

// AddVIP and RemoveVIP change the configuration of all nodes at once.
func (c *Cluster) AddVIP(v model.VIP) {
	c.vips = append(c.vips, v)
	slices.SortFunc(c.vips, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	c.reconfigure()
}

// RemoveVIP takes the VIPs of an object away.
func (c *Cluster) RemoveVIP(name string) {
	c.vips = slices.DeleteFunc(c.vips, func(v model.VIP) bool { return v.Name == name })
	c.reconfigure()
}

func (c *Cluster) reconfigure() {
	for _, n := range c.all() {
		if n.running() {
			n.config.Set(c.configured())
		}
	}
}

// RemoveByHand takes an address from whoever holds it.
func (c *Cluster) RemoveByHand(a netip.Addr) {
	for _, n := range c.all() {
		n.removed = time.Now()
		n.Host.Remove(a)
	}
}

// RemoveLoopbackByHand takes an address from everybody's lo.
func (c *Cluster) RemoveLoopbackByHand(a netip.Addr) {
	for _, n := range c.all() {
		n.removed = time.Now()
		n.Host.RemoveLoopback(a)
	}
}

// Foreign puts a machine that is no member on the wire and gives it an address,
// or takes that away again.
func (c *Cluster) Foreign(a netip.Addr, on bool) {
	if c.monitor.stranger == nil {
		c.monitor.stranger = c.Net.Host("stranger")
		c.monitor.stranger.Attach("eth0", "lan")
	}
	if on {
		c.monitor.stranger.Configure("eth0", a)
	} else {
		c.monitor.stranger.Remove(a)
	}
}
