// Package memnet is a network in memory for gossip in tests: packets may be
// lost, delayed and cut off like UDP, streams like TCP. It uses channels and
// package time only, so that whole clusters run in a synctest bubble.
package memnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// packetQueue is how many packets wait for a reader, like a socket buffer.
const packetQueue = 1024

// Network connects transports. The zero value is not usable; see New.
type Network struct {
	mu      sync.Mutex
	hosts   map[netip.AddrPort]*Transport
	cut     map[[2]netip.Addr]Cut
	latency time.Duration
	lose    func(from, to netip.AddrPort, size int) bool
	streams map[*conn]struct{}

	sent, lost, streamed atomic.Uint64
}

// Cut says what a direction between two hosts does not carry.
type Cut uint8

// The parts that can be cut.
const (
	Packets Cut = 1 << iota
	Streams
	All = Packets | Streams
)

// New returns a network without hosts, loss or latency.
func New() *Network {
	return &Network{
		hosts:   map[netip.AddrPort]*Transport{},
		cut:     map[[2]netip.Addr]Cut{},
		streams: map[*conn]struct{}{},
	}
}

// Listen adds a host at the address; a second one at the same address is an
// error like that of a bound port.
func (n *Network) Listen(addr netip.AddrPort) (*Transport, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.hosts[addr]; ok {
		return nil, fmt.Errorf("memnet: listen %s: address already in use", addr)
	}
	t := &Transport{
		net: n, addr: addr,
		packets: make(chan *memberlist.Packet, packetQueue),
		accept:  make(chan net.Conn),
		done:    make(chan struct{}),
	}
	n.hosts[addr] = t
	return t, nil
}

// SetLatency delays every packet and every stream's opening by d.
func (n *Network) SetLatency(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency = d
}

// SetLoss drops the packets for which lose returns true; nil loses none. It is
// called with the network locked.
func (n *Network) SetLoss(lose func(from, to netip.AddrPort, size int) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = lose
}

// Block cuts one direction. Packets vanish, streams hang until their deadline,
// as when a firewall drops.
func (n *Network) Block(from, to netip.Addr, what Cut) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]netip.Addr{from, to}] |= what
	n.dropStreams()
}

// Partition cuts everything between hosts of different groups. Hosts in no
// group stay connected to all.
func (n *Network) Partition(groups ...[]netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, g := range groups {
		for j, h := range groups {
			if i == j {
				continue
			}
			for _, a := range g {
				for _, b := range h {
					n.cut[[2]netip.Addr{a, b}] = All
				}
			}
		}
	}
	n.dropStreams()
}

// Heal removes every cut.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
}

// Sent and Lost count packets.
func (n *Network) Sent() uint64 { return n.sent.Load() }

// Lost counts the packets that were cut off, lost or had no room.
func (n *Network) Lost() uint64 { return n.lost.Load() }

// Streamed counts the bytes that were written to streams.
func (n *Network) Streamed() uint64 { return n.streamed.Load() }

// dropStreams closes the streams that cross a cut. The network is locked.
func (n *Network) dropStreams() {
	for c := range n.streams {
		if n.cut[[2]netip.Addr{c.local.Addr(), c.remote.Addr()}]&Streams != 0 ||
			n.cut[[2]netip.Addr{c.remote.Addr(), c.local.Addr()}]&Streams != 0 {
			c.Conn.Close()
			delete(n.streams, c)
		}
	}
}

// Transport is one host of a Network.
type Transport struct {
	net     *Network
	addr    netip.AddrPort
	packets chan *memberlist.Packet
	accept  chan net.Conn
	done    chan struct{}
	once    sync.Once

	paused  bool                 // guarded by net.mu
	waiting []*memberlist.Packet // for a paused host
}

var _ memberlist.NodeAwareTransport = (*Transport)(nil)

// Addr is the address of the host.
func (t *Transport) Addr() netip.AddrPort { return t.addr }

// FinalAdvertiseAddr returns the address of the host.
func (t *Transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addr.Addr().AsSlice(), int(t.addr.Port()), nil
}

// WriteTo sends one packet. Like UDP it reports no loss.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, err
	}
	select {
	case <-t.done:
		return time.Time{}, net.ErrClosed
	default:
	}
	n := t.net
	n.sent.Add(1)
	n.mu.Lock()
	lost := t.paused || n.cut[[2]netip.Addr{t.addr.Addr(), to.Addr()}]&Packets != 0 ||
		n.lose != nil && n.lose(t.addr, to, len(b))
	latency := n.latency
	n.mu.Unlock()
	if lost {
		n.lost.Add(1)
		return time.Now(), nil
	}
	p := &memberlist.Packet{Buf: append([]byte(nil), b...), From: net.UDPAddrFromAddrPort(t.addr)}
	if latency == 0 {
		n.deliver(p, to)
	} else {
		time.AfterFunc(latency, func() { n.deliver(p, to) })
	}
	return time.Now(), nil
}

func (n *Network) deliver(p *memberlist.Packet, to netip.AddrPort) {
	n.mu.Lock()
	dst := n.hosts[to]
	wait := dst != nil && dst.paused && len(dst.waiting) < packetQueue
	if wait {
		dst.waiting = append(dst.waiting, p)
	}
	n.mu.Unlock()
	if !wait && (dst == nil || !dst.receive(p)) {
		n.lost.Add(1)
	}
}

// receive hands a packet to the reader of the host; it is false if there is no
// room.
func (t *Transport) receive(p *memberlist.Packet) bool {
	p.Timestamp = time.Now()
	select {
	case t.packets <- p:
		return true
	default:
		return false
	}
}

// Pause makes the host look as if its process were stopped: what it sends
// vanishes, packets to it wait in its socket until it goes on, and streams to it
// hang.
func (t *Transport) Pause(on bool) {
	n := t.net
	n.mu.Lock()
	t.paused = on
	var waiting []*memberlist.Packet
	if !on {
		waiting, t.waiting = t.waiting, nil
	}
	n.mu.Unlock()
	for _, p := range waiting {
		if !t.receive(p) {
			n.lost.Add(1)
		}
	}
}

// WriteToAddress sends one packet.
func (t *Transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

// PacketCh delivers packets.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh delivers streams.
func (t *Transport) StreamCh() <-chan net.Conn { return t.accept }

// DialTimeout opens a stream: refused at once where no host listens, and after
// the timeout where the way is cut.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	n := t.net
	n.mu.Lock()
	cut := (n.cut[[2]netip.Addr{t.addr.Addr(), to.Addr()}] | n.cut[[2]netip.Addr{to.Addr(), t.addr.Addr()}]) & Streams
	dst, latency := n.hosts[to], n.latency
	hangs := t.paused || dst != nil && dst.paused
	n.mu.Unlock()
	if cut != 0 || hangs {
		return nil, t.wait(timer.C)
	}
	if latency > 0 {
		if err := t.wait(time.After(latency)); err == net.ErrClosed {
			return nil, err
		}
	}
	if dst == nil {
		return nil, fmt.Errorf("memnet: dial %s: connection refused", to)
	}
	near, far := net.Pipe()
	a, b := n.conn(near, t.addr, to), n.conn(far, to, t.addr)
	select {
	case dst.accept <- b:
		return a, nil
	case <-dst.done:
		err = errors.New("memnet: connection refused")
	case <-t.done:
		err = net.ErrClosed
	case <-timer.C:
		err = errTimeout
	}
	return nil, errors.Join(err, a.Close(), b.Close())
}

var errTimeout = errors.New("memnet: i/o timeout")

func (t *Transport) wait(c <-chan time.Time) error {
	select {
	case <-c:
		return errTimeout
	case <-t.done:
		return net.ErrClosed
	}
}

// DialAddressTimeout opens a stream.
func (t *Transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// Shutdown takes the host off the network, as when its process is killed: its
// streams break and packets to it vanish.
func (t *Transport) Shutdown() error {
	t.once.Do(func() {
		close(t.done)
		n := t.net
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.hosts[t.addr] == t {
			delete(n.hosts, t.addr)
		}
		for c := range n.streams {
			if c.local == t.addr {
				c.Conn.Close()
				delete(n.streams, c)
			}
		}
	})
	return nil
}

// conn is one end of a stream that knows both addresses.
type conn struct {
	net.Conn
	net           *Network
	local, remote netip.AddrPort
}

func (n *Network) conn(c net.Conn, local, remote netip.AddrPort) *conn {
	w := &conn{Conn: c, net: n, local: local, remote: remote}
	n.mu.Lock()
	n.streams[w] = struct{}{}
	n.mu.Unlock()
	return w
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.net.streamed.Add(uint64(n))
	return n, err
}

func (c *conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

func (c *conn) Close() error {
	c.net.mu.Lock()
	delete(c.net.streams, c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}
