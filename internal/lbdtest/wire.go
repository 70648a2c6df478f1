package lbdtest

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/layer2"
	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// frame is what the wire carries, and what it says.
type frame struct {
	bytes  []byte
	family layer2.Family
	addr   netip.Addr // what it is about
	by     model.MAC  // who says so
	asks   bool       // who has the address
	uses   bool       // the sender says that it has it
	arp    arp.Packet
	nd     nd.Message
}

// parse reads a frame as a kernel does.
func parse(b []byte) *frame {
	f := &frame{bytes: b}
	var ok bool
	if f.nd, ok = nd.Parse(b); ok {
		f.family, f.addr, f.by = silence.ND, f.nd.Target, f.nd.MAC
		f.asks, f.uses = f.nd.Type == nd.Solicitation, f.nd.Type == nd.Advertisement
		return f
	}
	if f.arp, ok = arp.Parse(b); !ok {
		panic("lbdtest: a frame that is neither ARP nor neighbour discovery")
	}
	f.family, f.addr, f.by = silence.ARP, f.arp.TPA, f.arp.SHA
	f.asks = f.arp.Question()
	if f.uses = !f.asks; f.uses {
		f.addr = f.arp.SPA
	}
	return f
}

// to is the destination of the frame, all that of a group.
func (f *frame) to(m model.MAC) bool { return f.bytes[0]&1 == 1 || model.MAC(f.bytes[:6]) == m }

// announces tells whether the frame tells all that the sender has the address.
func (f *frame) announces() bool { return f.uses && f.bytes[0]&1 == 1 }

// announcement is what a kernel sends for a new address.
func announcement(mac model.MAC, a netip.Addr) []byte {
	if a.Is4() {
		return arp.Announcement(mac, a)
	}
	return nd.Announce(mac, a, false)
}

// question is what a kernel asks that wants to send to an address.
func question(mac model.MAC, a netip.Addr) []byte {
	if a.Is4() {
		return arp.Request(mac, netip.AddrFrom4([4]byte{192, 0, 2, mac[5]}), a)
	}
	// A probe without its nonce, which is empty: the checksum, a one's complement sum, is without
	// its type and length, and the message is shorter by it (RFC 4443 section 2.3).
	const ip, icmp, nonce = 14, 54, 8
	b := nd.Probe(mac, netip.AddrFrom16([16]byte{0xfe, 0x80, 15: mac[5]}), a, nd.Nonce{})
	b = b[:len(b)-nonce]
	binary.BigEndian.PutUint16(b[ip+4:], uint16(len(b)-icmp))
	sum := uint32(^binary.BigEndian.Uint16(b[icmp+2:]))
	sum += 0xffff - nonce + 0xffff - 0x0e01
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[icmp+2:], ^uint16(sum))
	return b
}

// send puts a frame on the wire, which brings it to each machine that it is for after a
// delay. The net is locked.
func (n *Net) send(p *port, b []byte) {
	f := parse(b)
	for _, h := range n.order {
		for _, q := range h.ports {
			if f.to(q.mac) && n.reach(p, q) {
				time.AfterFunc(n.between(frameMin, frameMax), func() { n.arrive(p, q, f) })
			}
		}
	}
}

// arrive lets the kernel answer, and hands the frame to the processes.
func (n *Net) arrive(p, q *port, f *frame) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.reach(p, q) {
		return
	}
	if f.asks && slices.Contains(q.host.kernelAnswers(f.addr), q) {
		if f.family == silence.ARP {
			n.send(q, arp.Reply(q.mac, f.addr, f.arp))
		} else {
			n.send(q, nd.Reply(q.mac, f.addr, false, f.nd))
		}
	}
	if q.host.client && f.uses {
		q.host.neigh[f.addr] = f.by
		n.look(f.addr)
	}
	for s := range q.host.sockets {
		if s.port == q && s.family == f.family && s.about[f.addr] {
			s.arrive(f.bytes)
		}
	}
}

// served tells whether what the client sends to the address is taken: by a
// machine that it reaches and that has the address, silently or not.
func (n *Net) served(client *Host, a netip.Addr) bool {
	m, ok := client.neigh[a]
	if !ok {
		return false
	}
	for _, h := range n.hosts {
		for _, q := range h.ports {
			if q.mac != m {
				continue
			}
			for _, p := range client.ports {
				if h.takes(a, q) && n.reach(p, q) {
					return true
				}
			}
		}
	}
	return false
}

// clientPatience is how long a client sends in vain before it asks everybody
// (Linux: three unicast probes of a stale entry, one second apart).
const clientPatience = 3 * time.Second

// Client adds a machine that sends to these addresses all the time: it learns
// from announcements and answers, and asks again when nobody takes its packets.
func (n *Net) Client(name, lan string, addrs ...netip.Addr) *Host {
	h := n.Host(name)
	h.Attach("eth0", lan)
	n.mu.Lock()
	defer n.mu.Unlock()
	h.client = true
	for _, a := range addrs {
		h.ask(a)
	}
	return h
}

// ask asks for an address while it is not served. The net is locked.
func (h *Host) ask(a netip.Addr) {
	if h.net.stopped {
		return
	}
	h.net.look(a)
	_, known := h.neigh[a]
	wait := time.Second
	switch p := h.port("eth0"); {
	case h.net.served(h, a):
	case !known:
		h.net.send(p, question(p.mac, a))
	default:
		delete(h.neigh, a)
		wait = clientPatience
	}
	time.AfterFunc(wait, func() {
		h.net.mu.Lock()
		defer h.net.mu.Unlock()
		h.ask(a)
	})
}
