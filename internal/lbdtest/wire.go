package lbdtest

import (
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// kind is what a frame says.
type kind uint8

const (
	probe        kind = iota // may I have it? (RFC 5227)
	request                  // who has it?
	reply                    // I have it, to the one that asked
	announcement             // I have it, to all
)

// frame is ARP and neighbour discovery in one.
type frame struct {
	kind kind
	addr netip.Addr
	mac  model.MAC // sender
}

// send puts a frame on the wire. The net is locked.
func (n *Net) send(p *port, f frame) {
	for _, h := range n.sorted() {
		for _, q := range h.sortedPorts() {
			if n.reach(p, q) {
				n.transmit(p, q, f)
			}
		}
	}
}

// transmit brings a frame to one machine after a delay.
func (n *Net) transmit(p, q *port, f frame) {
	time.AfterFunc(n.between(frameMin, frameMax), func() { n.arrive(p, q, f) })
}

// arrive lets the kernel answer, and hands the frame to the processes.
func (n *Net) arrive(p, q *port, f frame) {
	n.mu.Lock()
	if !n.reach(p, q) {
		n.mu.Unlock()
		return
	}
	if (f.kind == probe || f.kind == request) && slices.Contains(q.host.kernelAnswers(f.addr), q) {
		n.transmit(q, p, frame{reply, f.addr, q.mac})
	}
	if q.host.client && (f.kind == reply || f.kind == announcement) {
		q.host.neigh[f.addr] = f.mac
		n.look(f.addr)
	}
	watchers := q.host.watching()
	iface := q.iface
	n.mu.Unlock()
	for _, w := range watchers {
		w.frame(iface, f)
	}
}

// transmitFrom sends a frame of a process; an interface without carrier is an
// error.
func (h *Host) transmitFrom(iface string, k kind, a netip.Addr) error {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	p := h.ports[iface]
	if p == nil || !p.up() {
		return errGone
	}
	h.net.send(p, frame{k, a, p.mac})
	return nil
}

// replyTo sends the answer of a process to the machine that has asked.
func (h *Host) replyTo(iface string, mac model.MAC, a netip.Addr) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	p := h.ports[iface]
	for _, o := range h.net.sorted() {
		for _, q := range o.sortedPorts() {
			if q.mac == mac && h.net.reach(p, q) {
				h.net.transmit(p, q, frame{reply, a, p.mac})
			}
		}
	}
}

// usable tells whether frames can be sent on the interface.
func (h *Host) usable(iface string) bool {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	p := h.ports[iface]
	return p != nil && p.up()
}

// owns tells whether the hardware address is one of this machine.
func (h *Host) owns(m model.MAC) bool {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for _, p := range h.ports {
		if p.mac == m {
			return true
		}
	}
	return false
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
	switch p := h.ports["eth0"]; {
	case h.net.served(h, a):
	case !known:
		h.net.send(p, frame{request, a, p.mac})
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
