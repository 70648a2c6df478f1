package lbdtest

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/internal/model"
)

// Host is one machine with its kernel. What it holds outlives its processes, but
// not its power.
type Host struct {
	net    *Net
	name   string
	on     bool
	booted int // how often it got power
	client bool

	ports    map[string]*port
	addrs    map[slot]*address
	quiet    map[netip.Addr]time.Time // silenced until then
	conns    map[netip.Addr]int       // established connections, while lingering
	neigh    map[netip.Addr]model.MAC // of a client
	watchers map[*watcher]struct{}

	responders map[netip.Addr]responder
}

// responder is a process that answers for an address that is not bound.
type responder struct {
	iface string
	now   func() bool // whether it does; it must not block
}

// port is one interface.
type port struct {
	host     *Host
	iface    string
	index    int
	lan      string
	mac      model.MAC
	carrier  bool
	since    time.Time
	prefixes []netip.Prefix
}

func (p *port) up() bool { return p.host.on && p.carrier }

// address is one address in the kernel.
type address struct {
	iface string
	end   time.Time // of the lifetime; zero: for ever
	timer *time.Timer
	mark  bool // lbd's
}

// watcher is what a process wants to hear. The functions must not block.
type watcher struct {
	frame   func(iface string, f frame)
	removed func(netip.Addr)
	links   func()
}

// errGone is what the kernel says of an address or interface that is not there.
var errGone = errors.New("cannot assign requested address")

// Name is that of the machine.
func (h *Host) Name() string { return h.name }

// Attach adds an interface with carrier on a wire.
func (h *Host) Attach(iface, lan string, prefixes ...netip.Prefix) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.net.nextMAC++
	h.ports[iface] = &port{
		host: h, iface: iface, index: len(h.ports) + 2, lan: lan, carrier: true, since: time.Now(),
		mac: model.MAC{2, 0, 0, 0, 0, h.net.nextMAC}, prefixes: prefixes,
	}
}

// SetCarrier pulls or plugs the cable of an interface.
func (h *Host) SetCarrier(iface string, on bool) {
	h.net.mu.Lock()
	p := h.ports[iface]
	if p.carrier != on {
		p.carrier, p.since = on, time.Now()
	}
	h.net.changed()
	watchers := h.watching()
	h.net.mu.Unlock()
	for _, w := range watchers {
		w.links()
	}
}

// Power turns the machine on or off. Off, it forgets all addresses.
func (h *Host) Power(on bool) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.on = on
	if !on {
		for _, x := range h.addrs {
			x.stop()
		}
		clear(h.addrs)
		clear(h.quiet)
		clear(h.conns)
		clear(h.watchers)
		clear(h.responders)
	} else {
		h.booted++
		for _, p := range h.ports {
			p.since = time.Now()
		}
	}
	h.net.changed()
}

// SetConnections sets how many connections the machine has to a VIP while it
// lingers.
func (h *Host) SetConnections(a netip.Addr, n int) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.conns[a] = n
}

// Connections are those of SetConnections that have not been reset.
func (h *Host) Connections(a netip.Addr) int {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.conns[a]
}

// Configure gives the machine an address that lbd does not know of.
func (h *Host) Configure(iface string, a netip.Addr) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	at := slotOn(iface, a)
	h.addrs[at] = &address{iface: iface}
	h.net.look(a)
	if !at.loopback {
		h.net.send(h.ports[iface], frame{kind: announcement, addr: a, mac: h.ports[iface].mac})
	}
}

// Remove takes an address away from the wire, as somebody with `ip address delete`
// does. It reports whether it was there.
func (h *Host) Remove(a netip.Addr) bool { return h.remove(slot{addr: a}) }

// RemoveLoopback is Remove on lo.
func (h *Host) RemoveLoopback(a netip.Addr) bool { return h.remove(slot{a, true}) }

func (h *Host) remove(at slot) bool {
	h.net.mu.Lock()
	x := h.addrs[at]
	h.net.mu.Unlock()
	return x != nil && h.drop(at, x)
}

// Addresses are the VIPs on wires that carry lbd's mark, sorted.
func (h *Host) Addresses() []netip.Addr { return h.marked(false) }

// Loopback are the VIPs on lo that carry lbd's mark, sorted.
func (h *Host) Loopback() []netip.Addr { return h.marked(true) }

func (h *Host) marked(loopback bool) []netip.Addr {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	var out []netip.Addr
	for at, x := range h.addrs {
		if x.mark && at.loopback == loopback {
			out = append(out, at.addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// MAC is that of an interface.
func (h *Host) MAC(iface string) model.MAC {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.ports[iface].mac
}

// Links are the interfaces as package link publishes them.
func (h *Host) Links() map[string]model.Link {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	out := make(map[string]model.Link, len(h.ports))
	for _, p := range h.ports {
		out[p.iface] = model.Link{
			Name: p.iface, Index: p.index, Up: p.up(), MAC: p.mac, MTU: 1500, IPv6: true, Prefixes: p.prefixes, Since: p.since,
		}
	}
	return out
}

// bind creates an address with a lifetime, or renews one that is there.
func (h *Host) bind(iface string, a netip.Addr, lifetime time.Duration) error {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	at := slotOn(iface, a)
	if h.ports[iface] == nil && !at.loopback || !h.on {
		return errGone
	}
	if x := h.addrs[at]; x != nil {
		if !x.mark {
			return errors.New("is already configured by somebody else")
		}
		if x.iface == iface {
			h.extend(at, x, lifetime)
			return nil
		}
		x.stop()
	}
	x := &address{iface: iface, mark: true}
	h.addrs[at] = x
	h.extend(at, x, lifetime)
	h.net.look(a)
	return nil
}

// renew sets the lifetime of an address that is there; the kernel refuses to
// create it.
func (h *Host) renew(iface string, a netip.Addr, lifetime time.Duration) error {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	at := slotOn(iface, a)
	x := h.addrs[at]
	if x == nil || x.iface != iface {
		return errGone
	}
	h.extend(at, x, lifetime)
	return nil
}

func (h *Host) extend(at slot, x *address, lifetime time.Duration) {
	x.stop()
	x.end = time.Now().Add(lifetime)
	x.timer = time.AfterFunc(lifetime+h.net.between(fuzzMin, fuzzMax), func() { h.drop(at, x) })
}

func (x *address) stop() {
	if x.timer != nil {
		x.timer.Stop()
	}
}

// unbind removes an address with lbd's mark; that it is not there is a success.
func (h *Host) unbind(at slot) {
	h.net.mu.Lock()
	x := h.addrs[at]
	h.net.mu.Unlock()
	if x != nil && x.mark {
		h.drop(at, x)
	}
}

// drop removes an address if it is still the same one.
func (h *Host) drop(at slot, x *address) bool {
	h.net.mu.Lock()
	if h.addrs[at] != x {
		h.net.mu.Unlock()
		return false
	}
	x.stop()
	delete(h.addrs, at)
	h.net.look(at.addr)
	watchers := h.watching()
	h.net.mu.Unlock()
	for _, w := range watchers {
		w.removed(at.addr)
	}
	return true
}

// held is an address with lbd's mark as a dump of the kernel shows it.
type held struct {
	iface string
	left  time.Duration
}

// dump lists the addresses: those with lbd's mark, and the others.
func (h *Host) dump() (own map[slot]held, foreign map[netip.Addr]bool) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	own, foreign = map[slot]held{}, map[netip.Addr]bool{}
	for at, x := range h.addrs {
		if x.mark {
			own[at] = held{x.iface, time.Until(x.end)}
		} else {
			foreign[at.addr] = true
		}
	}
	return own, foreign
}

// silence makes exactly these addresses of a family silent.
func (h *Host) silence(v4 bool, addrs []netip.Addr, until time.Time) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for a := range h.quiet {
		if a.Is4() == v4 {
			delete(h.quiet, a)
		}
	}
	for _, a := range addrs {
		h.quiet[a] = until
		time.AfterFunc(time.Until(until), func() {
			h.net.mu.Lock()
			defer h.net.mu.Unlock()
			h.net.look(a)
		})
	}
	h.net.changed()
}

// respond lets a process answer for an address, or no more if now is nil.
func (h *Host) respond(iface string, a netip.Addr, now func() bool) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if now == nil {
		delete(h.responders, a)
	} else {
		h.responders[a] = responder{iface, now}
	}
	h.net.look(a)
}

// lookResponders looks at all addresses that processes answer for.
func (h *Host) lookResponders() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for a := range h.responders {
		h.net.look(a)
	}
}

// answering are the interfaces on which the machine answers for the address.
func (h *Host) answering(a netip.Addr) []*port {
	ports := h.kernelAnswers(a)
	if r, ok := h.responders[a]; ok && r.now() {
		if p := h.ports[r.iface]; p.up() && !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	return ports
}

// Answers tells whether the machine answers for the address on any interface.
func (h *Host) Answers(a netip.Addr) bool {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return len(h.answering(a)) > 0
}

// kernelAnswers are the interfaces on which the kernel answers for the address. For an
// IPv4 address on lo that is every one (arp_ignore is 0), for an IPv6 address on lo
// none: ND looks at the addresses of the interface only. The net is locked.
func (h *Host) kernelAnswers(a netip.Addr) (ports []*port) {
	if h.client || time.Now().Before(h.quiet[a]) {
		return nil
	}
	everywhere := a.Is4() && h.addrs[slot{a, true}] != nil
	x := h.addrs[slot{addr: a}]
	for _, p := range h.sortedPorts() {
		own := func(own netip.Prefix) bool { return own.Addr() == a }
		if p.up() && (everywhere || x != nil && x.iface == p.iface || slices.ContainsFunc(p.prefixes, own)) {
			ports = append(ports, p)
		}
	}
	return ports
}

// takes tells whether packets to the address that come in by an interface are for
// this machine. The net is locked.
func (h *Host) takes(a netip.Addr, p *port) bool {
	x := h.addrs[slot{addr: a}]
	return x != nil && x.iface == p.iface || h.addrs[slot{a, true}] != nil || h.on && h.net.unbound[a]
}

// exposed tells whether the kernel answers for an address that is on lo only,
// which no machine does for an address that others may own on the wire. The net
// is locked.
func (h *Host) exposed(a netip.Addr) bool {
	return h.addrs[slot{addr: a}] == nil && len(h.kernelAnswers(a)) > 0
}

func (h *Host) sortedPorts() []*port {
	out := make([]*port, 0, len(h.ports))
	for _, p := range h.ports {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *port) int { return strings.Compare(a.iface, b.iface) })
	return out
}

// watch subscribes a process until the returned function is called.
func (h *Host) watch(w *watcher) (stop func()) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.watchers[w] = struct{}{}
	return func() {
		h.net.mu.Lock()
		defer h.net.mu.Unlock()
		delete(h.watchers, w)
	}
}

// watching is a copy for use without the lock; missing functions do nothing.
func (h *Host) watching() []*watcher {
	out := make([]*watcher, 0, len(h.watchers))
	for w := range h.watchers {
		c := *w
		if c.frame == nil {
			c.frame = func(string, frame) {}
		}
		if c.removed == nil {
			c.removed = func(netip.Addr) {}
		}
		if c.links == nil {
			c.links = func() {}
		}
		out = append(out, &c)
	}
	return out
}

// Seize binds an address with lbd's mark and for ever, which no driver does: for
// tests of the tests.
func (h *Host) Seize(iface string, a netip.Addr) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.addrs[slotOn(iface, a)] = &address{iface: iface, mark: true}
	h.net.look(a)
}
