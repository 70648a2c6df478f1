package layer2

import (
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// message is a frame that was read.
type message struct {
	family Family
	to     model.MAC // destination of the frame
	arp    arp.Packet
	nd     nd.Message
}

// read is false if the frame is none of the family.
func read(f Family, frame []byte) (m message, ok bool) {
	m.family = f
	if f == silence.ND {
		m.nd, ok = nd.Parse(frame)
	} else {
		m.arp, ok = arp.Parse(frame)
	}
	if ok {
		m.to = model.MAC(frame[:len(m.to)])
	}
	return m, ok
}

// sender is the hardware address that the sender gives as its own.
func (m *message) sender() model.MAC {
	if m.family == silence.ND {
		return m.nd.MAC
	}
	return m.arp.SHA
}

// says is what the frame says about an address; uses: the sender holds it,
// otherwise it asks whether it may. It is false if it says nothing about that.
func (m *message) says() (addr netip.Addr, uses, ok bool) {
	if m.family == silence.ND {
		uses = m.nd.Type == nd.Advertisement
		return m.nd.Target, uses, uses || m.nd.Probe()
	}
	if m.arp.Probe() {
		return m.arp.TPA, false, true
	}
	return m.arp.SPA, true, true
}

// asks is the address that the frame asks for, whoever has it; invalid if it is no
// question.
func (m *message) asks() netip.Addr {
	switch {
	case m.family == silence.ND && m.nd.Type == nd.Solicitation:
		return m.nd.Target
	case m.family == silence.ARP && m.arp.Question():
		return m.arp.TPA
	}
	return netip.Addr{}
}

// meant tells whether the frame is for the host with this address: sent to it, to
// all or to a group. A socket may see others, of a bridge or a promiscuous card.
func (m *message) meant(own model.MAC) bool { return m.to[0]&1 == 1 || m.to == own }

// reply answers the question for an entry.
func (m *message) reply(e *entry) []byte {
	mac := e.port.link.MAC
	if m.family == silence.ND {
		return nd.Reply(mac, e.want.Addr, e.router, m.nd)
	}
	return arp.Reply(mac, e.want.Addr, m.arp)
}

// unicast tells whether a hardware address can be that of a host.
func unicast(m model.MAC) bool { return m != model.MAC{} && m[0]&1 == 0 }

// receive handles a frame from a port.
func (d *Driver) receive(key portKey, frame []byte) {
	m, ok := read(key.family, frame)
	if !ok || !unicast(m.sender()) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, own := d.own[m.sender()]; own {
		return
	}
	now := time.Now()
	if e := d.entries[m.asks()]; e != nil && e.want.Respond && e.port != nil && e.port.key == key && m.meant(e.port.link.MAC) {
		d.answer(e, &m, now)
	}
	addr, uses, ok := m.says()
	e := d.entries[addr]
	if !ok || e == nil || e.want.Interface != key.iface {
		return
	}
	switch {
	case e.series.running() && uses:
		d.finish(e, model.ProbeResult{Answered: true, By: m.sender()}, now)
		_ = d.pump() // fail tells what went wrong
	case e.series.running():
		e.series.heard.Meet(m.sender())
	case e.burst.on && uses:
		if !e.want.Yield {
			e.inquiry.heard(m.sender(), now)
		}
		d.dispute(e, m.sender(), now)
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
	c.seen(by, now, e.want.Yield)
	d.tellConflict(e, fresh, now)
}

// tellConflict fires Changed for a frame that is news, but not for each: two hosts that use
// a VIP in turn, or one that makes up its address, may send thousands a second.
func (d *Driver) tellConflict(e *entry, fresh bool, now time.Time) {
	c := &e.conflict
	since := now.Sub(c.told)
	if !fresh && !e.want.Yield && since < defendInterval/2 {
		return // the other one defends it once a second: half of that, or every second time would be told
	}
	c.told = now
	awaited := e.want.Yield && since >= conflictPause // most likely the successor
	if awaited || d.conflicts.news(now) {
		d.notify()
	}
}

// conflictNews paces what is told of the conflicts of all VIPs.
type conflictNews struct {
	told time.Time
	due  time.Time // when what came meanwhile is told; zero: nothing did
}

// news notes one, and tells whether it is told now.
func (c *conflictNews) news(now time.Time) bool {
	if now.Sub(c.told) >= conflictPause {
		*c = conflictNews{told: now}
		return true
	}
	c.due = c.told.Add(conflictPause) // run is roused by receive
	return false
}

// waited tells whether what had to wait is told now.
func (c *conflictNews) waited(now time.Time) bool { return due(c.due, now) && c.news(now) }
