package lbdtest

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/internal/layer2"
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

	ports    []*port // by name
	addrs    map[place]*held
	tables   map[layer2.Family]bool   // of nftables
	quiet    map[netip.Addr]time.Time // silenced until then
	conns    map[netip.Addr]int       // established connections
	neigh    map[netip.Addr]model.MAC // of a client
	watchers map[*watcher]struct{}
	sockets  map[*socket]struct{}

	responders map[netip.Addr]*responder
}

// place is where a kernel has an address.
type place struct {
	addr  netip.Addr
	iface string
}

func (at place) loopback() bool { return at.iface == model.LoopbackInterface }

// port is one interface.
type port struct {
	host     *Host
	iface    string
	index    int
	lan      string
	link     netip.Addr // the IPv6 link-local address
	mac      model.MAC
	carrier  bool
	since    time.Time
	prefixes []netip.Prefix
}

func (p *port) up() bool { return p.host.on && p.carrier }

// held is one address in the kernel.
type held struct {
	end   time.Time // of the lifetime; zero: for ever
	timer *time.Timer
	mark  bool // lbd's
}

// watcher is what a process wants to hear. The functions must not block; nil hears nothing.
type watcher struct {
	removed func(at place, mark bool)
	links   func()
}

// Attach adds an interface with carrier on a wire.
func (h *Host) Attach(iface, lan string, prefixes ...netip.Prefix) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.net.nextMAC++
	h.ports = append(h.ports, &port{
		host: h, iface: iface, index: len(h.ports) + loopbackIndex + 1, lan: lan, carrier: true, since: time.Now(),
		mac: model.MAC{2, 0, 0, 0, 0, h.net.nextMAC}, prefixes: prefixes,
		link: netip.AddrFrom16([16]byte{0xfe, 0x80, 15: h.net.nextMAC}),
	})
	slices.SortFunc(h.ports, func(a, b *port) int { return strings.Compare(a.iface, b.iface) })
}

// loopbackIndex is that of lo.
const loopbackIndex = 1

// port finds an interface of a wire; nil if there is none. The net is locked.
func (h *Host) port(iface string) *port {
	for _, p := range h.ports {
		if p.iface == iface {
			return p
		}
	}
	return nil
}

// SetCarrier pulls or plugs the cable of an interface.
func (h *Host) SetCarrier(iface string, on bool) {
	h.net.mu.Lock()
	p := h.port(iface)
	if p.carrier != on {
		p.carrier, p.since = on, time.Now()
	}
	h.net.changed()
	watchers := slices.Collect(maps.Keys(h.watchers))
	h.net.mu.Unlock()
	for _, w := range watchers {
		if w.links != nil {
			w.links()
		}
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
		clear(h.tables)
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

// SetConnections sets how many clients have a connection to a VIP on this machine.
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
	h.addrs[place{a, iface}] = &held{}
	h.net.look(a)
	if p := h.port(iface); p != nil {
		h.net.send(p, announcement(p.mac, a))
	}
}

// Remove takes an address away from the wire, as somebody with `ip address delete`
// does. It reports whether it was there.
func (h *Host) Remove(a netip.Addr) bool {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	at, x := h.wired(a)
	if x != nil {
		h.drop(at)
	}
	return x != nil
}

// RemoveLoopback is Remove on lo.
func (h *Host) RemoveLoopback(a netip.Addr) bool {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	there := h.onLoopback(a)
	if there {
		h.drop(place{a, model.LoopbackInterface})
	}
	return there
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
		if x.mark && at.loopback() == loopback {
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
	return h.port(iface).mac
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

// wired finds an address on a wire. The net is locked.
func (h *Host) wired(a netip.Addr) (at place, x *held) {
	for _, p := range h.ports {
		at = place{a, p.iface}
		if x = h.addrs[at]; x != nil {
			break
		}
	}
	return at, x
}

// onLoopback tells whether an address is on lo. The net is locked.
func (h *Host) onLoopback(a netip.Addr) bool {
	return h.addrs[place{a, model.LoopbackInterface}] != nil
}

// extend sets a lifetime. The net is locked.
func (h *Host) extend(at place, lifetime time.Duration) {
	x := h.addrs[at]
	x.stop()
	x.end = time.Now().Add(lifetime)
	x.timer = time.AfterFunc(lifetime+h.net.between(fuzzMin, fuzzMax), func() {
		h.net.mu.Lock()
		defer h.net.mu.Unlock()
		if h.addrs[at] == x && !time.Now().Before(x.end) { // or it was renewed at this moment
			h.drop(at)
		}
	})
}

func (x *held) stop() {
	if x.timer != nil {
		x.timer.Stop()
	}
}

// drop removes an address that is there. The net is locked.
func (h *Host) drop(at place) {
	x := h.addrs[at]
	x.stop()
	delete(h.addrs, at)
	h.net.look(at.addr)
	for w := range h.watchers {
		if w.removed != nil {
			w.removed(at, x.mark)
		}
	}
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
	if r := h.responders[a]; r != nil && r.answers && r.p.Running() {
		if p := h.port(r.iface); p.up() && !slices.Contains(ports, p) {
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
	everywhere := a.Is4() && h.onLoopback(a)
	for _, p := range h.ports {
		own := func(own netip.Prefix) bool { return own.Addr() == a }
		if p.up() && (everywhere || h.addrs[place{a, p.iface}] != nil || slices.ContainsFunc(p.prefixes, own)) {
			ports = append(ports, p)
		}
	}
	return ports
}

// takes tells whether packets to the address that come in by an interface are for
// this machine. The net is locked.
func (h *Host) takes(a netip.Addr, p *port) bool {
	return h.addrs[place{a, p.iface}] != nil || h.onLoopback(a) || h.on && h.net.unbound[a]
}

// exposed tells whether the kernel answers for an address that is on lo only,
// which no machine does for an address that others may own on the wire. The net
// is locked.
func (h *Host) exposed(a netip.Addr) bool {
	_, x := h.wired(a)
	return x == nil && len(h.kernelAnswers(a)) > 0
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

// Seize binds an address with lbd's mark and for ever, which no driver does: for
// tests of the tests.
func (h *Host) Seize(iface string, a netip.Addr) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.addrs[place{a, iface}] = &held{mark: true}
	h.net.look(a)
}
