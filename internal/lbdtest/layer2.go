package lbdtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/layer2"
	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// Layer2 is the layer 2 driver of a process on a machine. It is asked, as by a host on the
// wire, whether it answers for what is not bound, whenever that may have changed.
type Layer2 struct {
	*layer2.Driver
	kernel *frames
	asking announce.Mutex
}

// NewLayer2 returns the driver. Pace is how long the kernel takes to say whether an
// interface works, as on a machine that has much else to do.
func NewLayer2(p *Process, h *Host, log *slog.Logger, pace time.Duration) *Layer2 {
	k := &frames{kernel: kernel{p, h}, pace: pace, announced: map[netip.Addr]time.Time{}}
	d := &Layer2{layer2.NewOn(k, layer2.Options{Logger: log}), k, &mutex{NewProcess(), make(chan struct{}, 1)}}
	p.onChange(func() {
		if p.Running() {
			d.ask()
		} else {
			h.lookResponders()
		}
	})
	return d
}

// Apply is that of the driver.
func (d *Layer2) Apply(ctx context.Context, want *model.Desired) (model.Applied, error) {
	got, err := d.Driver.Apply(ctx, want)
	n := d.kernel.h.net
	n.mu.Lock()
	for a := range d.kernel.announced {
		if !got.VIPs[a].Announcing {
			delete(d.kernel.announced, a)
		}
	}
	responds := map[netip.Addr]bool{}
	all := d.kernel.h.responders
	for _, w := range want.L2 {
		if responds[w.Addr] = w.Respond; w.Respond && (all[w.Addr] == nil || all[w.Addr].p != d.kernel.p) {
			all[w.Addr] = &responder{p: d.kernel.p, addr: w.Addr, iface: w.Interface}
		}
	}
	for a, r := range all {
		if !responds[a] && r.p == d.kernel.p {
			delete(all, a)
			n.look(a)
		}
	}
	n.mu.Unlock()
	d.ask()
	return got, err
}

// Close is that of the driver; it answers for nothing any more.
func (d *Layer2) Close(ctx context.Context) error {
	err := d.Driver.Close(ctx)
	d.ask()
	return err
}

// Announced is when the address was first announced since it was last given up;
// zero if it is not announced.
func (d *Layer2) Announced(a netip.Addr) time.Time {
	d.kernel.h.net.mu.Lock()
	defer d.kernel.h.net.mu.Unlock()
	return d.kernel.announced[a]
}

// nobody is who asks.
var nobody = model.MAC{2, 0, 0, 0, 1, 0}

// ask asks a process that runs for each address that it may answer for.
func (d *Layer2) ask() {
	d.asking.Lock()
	defer d.asking.Unlock()
	n, h := d.kernel.h.net, d.kernel.h
	n.mu.Lock()
	var all []*responder
	for _, r := range h.responders {
		if r.p == d.kernel.p {
			all = append(all, r)
		}
	}
	n.mu.Unlock()
	for _, r := range all {
		answers := false
		if r.p.Running() {
			answers = d.kernel.answers(r)
		}
		n.mu.Lock()
		r.answers = answers
		n.look(r.addr)
		n.mu.Unlock()
	}
}

// responder is a process that may answer for an address that is not bound.
type responder struct {
	p       *Process
	addr    netip.Addr
	iface   string
	answers bool // when it was last asked
}

// frames is the kernel of a machine as the layer 2 driver sees it.
type frames struct {
	kernel
	pace    time.Duration
	readers sync.WaitGroup
	// announced are the addresses by when they were first announced; with the lock of the net.
	announced map[netip.Addr]time.Time
}

var _ layer2.Kernel = (*frames)(nil)

// Links lists the interfaces.
func (k *frames) Links() (map[string]layer2.Link, error) {
	if err := k.call(); err != nil {
		return nil, err
	}
	k.h.net.mu.Lock()
	defer k.h.net.mu.Unlock()
	out := map[string]layer2.Link{model.LoopbackInterface: {Name: model.LoopbackInterface, Index: loopbackIndex, Up: true, Carrier: true}}
	for _, p := range k.h.ports {
		out[p.iface] = layer2.Link{Name: p.iface, Index: p.index, MAC: p.mac, Up: k.h.on, Carrier: p.carrier}
	}
	return out, nil
}

// Addresses lists those of the machine, and what processes have bound.
func (k *frames) Addresses() ([]layer2.Address, error) {
	if err := k.p.Wait(); err != nil {
		return nil, err
	}
	k.h.net.mu.Lock()
	defer k.h.net.mu.Unlock()
	var out []layer2.Address
	for _, p := range k.h.ports {
		out = append(out, layer2.Address{Index: p.index, Prefix: netip.PrefixFrom(p.link, 64), Usable: true})
		for _, own := range p.prefixes {
			out = append(out, layer2.Address{Index: p.index, Prefix: own, Usable: true})
		}
	}
	for at := range k.h.addrs {
		out = append(out, layer2.Address{Index: k.h.indexOf(at.iface), Prefix: netip.PrefixFrom(at.addr, at.addr.BitLen()), Usable: true})
	}
	return out, nil
}

// Ready tells whether the interface works.
func (k *frames) Ready(l layer2.Link) error {
	time.Sleep(k.pace)
	if err := k.p.Wait(); err != nil {
		return err
	}
	k.h.net.mu.Lock()
	defer k.h.net.mu.Unlock()
	if p := k.h.port(l.Name); p == nil || !p.up() {
		return fmt.Errorf("interface %q: has no carrier", l.Name)
	}
	return nil
}

// Router is false.
func (*frames) Router(string) bool { return false }

// Listen does nothing: the wire brings groups to everybody.
func (*frames) Listen(map[layer2.Group]struct{}) error { return nil }

// Rules are those of the machine.
func (k *frames) Rules(f layer2.Family, lifetime time.Duration) silence.Rules {
	return &rules{k.kernel, f, lifetime}
}

// Close waits for the readers.
func (k *frames) Close() { k.readers.Wait() }

// socket is a packet socket. Who reads from it holds reading until the frame is handled.
type socket struct {
	k        *frames
	port     *port
	family   layer2.Family
	events   layer2.Events
	queue    chan []byte
	news     chan struct{}
	closed   chan struct{}
	reading  announce.Mutex
	about    map[netip.Addr]bool // with the lock of the net
	answered bool                // to nobody; with the lock of the net
}

// Open makes a socket with its reader.
func (k *frames) Open(l layer2.Link, f layer2.Family, addrs []netip.Addr, ev layer2.Events) (layer2.Port, error) {
	k.h.net.mu.Lock()
	defer k.h.net.mu.Unlock()
	p := k.h.port(l.Name)
	if p == nil || !k.h.on {
		return nil, unix.ENODEV
	}
	s := &socket{
		k: k, port: p, family: f, events: ev, queue: make(chan []byte, 4096), news: make(chan struct{}, 1), closed: make(chan struct{}),
		reading: k.Mutex(), about: set(addrs),
	}
	k.h.sockets[s] = struct{}{}
	k.readers.Go(func() {
		for {
			select {
			case <-s.closed:
				return
			case <-s.news:
				s.Drain()
			}
		}
	})
	return s, nil
}

func set(addrs []netip.Addr) map[netip.Addr]bool {
	out := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		out[a] = true
	}
	return out
}

// arrive puts a frame into the socket, which may be full.
func (s *socket) arrive(b []byte) {
	select {
	case s.queue <- b:
		signal(s.news)
	default:
	}
}

// Drain handles what has arrived.
func (s *socket) Drain() {
	s.reading.Lock()
	defer s.reading.Unlock()
	for {
		select {
		case b := <-s.queue:
			s.events.Frame(b)
		default:
			return
		}
	}
}

// Filter sets what the socket gets.
func (s *socket) Filter(addrs []netip.Addr) error {
	s.k.h.net.mu.Lock()
	defer s.k.h.net.mu.Unlock()
	s.about = set(addrs)
	return nil
}

// Send puts a frame on the wire. Without carrier it is lost, and nobody says so.
func (s *socket) Send(b []byte) error {
	if err := s.k.p.Wait(); err != nil {
		return err
	}
	s.k.h.net.mu.Lock()
	defer s.k.h.net.mu.Unlock()
	if _, open := s.k.h.sockets[s]; !open {
		return errors.New("closed")
	}
	f := parse(b)
	switch {
	case model.MAC(b[:6]) == nobody:
		s.answered = true
		return nil
	case f.announces() && s.k.announced[f.addr].IsZero():
		s.k.announced[f.addr] = time.Now()
	}
	s.k.h.net.send(s.port, b)
	return nil
}

// Close ends the socket.
func (s *socket) Close() {
	s.k.h.net.mu.Lock()
	defer s.k.h.net.mu.Unlock()
	delete(s.k.h.sockets, s)
	close(s.closed)
}

// answers asks the process for an address.
func (k *frames) answers(r *responder) bool {
	n := k.h.net
	n.mu.Lock()
	var s *socket
	for x := range k.h.sockets {
		if x.k == k && x.port.iface == r.iface && x.about[r.addr] {
			s = x
			s.answered = false
		}
	}
	n.mu.Unlock()
	if s == nil {
		return false
	}
	s.events.Frame(question(nobody, r.addr))
	n.mu.Lock()
	defer n.mu.Unlock()
	return s.answered
}
