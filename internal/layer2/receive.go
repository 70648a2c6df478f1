package layer2

import (
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// sighting is what a frame says about an address.
type sighting struct {
	addr netip.Addr
	mac  model.MAC
	// uses: the host with mac holds the address. Otherwise it asks whether it may.
	uses bool
}

// sight reads a frame; it is false if the frame says nothing about who holds an
// address.
func sight(f family, frame []byte) (sighting, bool) {
	if f == silence.ND {
		m, ok := nd.Parse(frame)
		uses := m.Type == nd.Advertisement
		return sighting{m.Target, m.MAC, uses}, ok && (uses || m.Probe())
	}
	p, ok := arp.Parse(frame)
	if ok && p.Probe() {
		return sighting{p.TPA, p.SHA, false}, true
	}
	return sighting{p.SPA, p.SHA, true}, ok
}

// unicast tells whether a hardware address can be that of a host.
func unicast(m model.MAC) bool { return m != model.MAC{} && m[0]&1 == 0 }

// receive handles a frame from a port.
func (d *Driver) receive(key portKey, frame []byte) {
	s, ok := sight(key.family, frame)
	if !ok || !unicast(s.mac) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, own := d.own[s.mac]; own {
		return
	}
	e, ok := d.entries[s.addr]
	if !ok || e.want.Interface != key.iface {
		return
	}
	now := time.Now()
	switch {
	case e.series.running() && s.uses:
		d.finish(e, model.ProbeResult{Answered: true, By: s.mac}, now)
	case e.series.running():
		e.series.heard(s.mac)
	case e.burst.on && s.uses:
		d.dispute(e, s.mac, now)
	}
	d.queue.update(e)
	d.rouse()
}

// dispute notes that a foreign host uses a VIP that is announced here.
func (d *Driver) dispute(e *entry, by model.MAC, now time.Time) {
	c := &e.conflict
	d.counters.conflicts.Add(1)
	fresh := c.count == 0 || c.foreign != by
	if since := now.Sub(c.logged); !e.want.Yield && (fresh && since >= defendInterval || since >= conflictLogInterval) {
		c.logged = now
		d.log.Info("another host uses the VIP", "vip", e.want.Addr, "iface", e.want.Interface, "peer", by.String())
	}
	if fresh || e.want.Yield || now.Sub(c.told) >= defendInterval {
		c.told = now
		d.notify()
	}
	c.seen(by, now, e.want.Yield)
}
