package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/beat"
	"lbd.dev/lbd/internal/gossip/record"
)

const (
	// receiveBuffer is asked for; the kernel grants at most net.core.rmem_max.
	receiveBuffer = 2 << 20
	// maxStreams bounds the streams that others who have a key hold open to this node.
	maxStreams = 256
	// classCS6 is DSCP class selector 6, network control (RFC 4594 section 3.2),
	// as VRRP and BGP use it, in the place of the old TOS byte.
	classCS6 = 0xc0
	// prioInteractive is TC_PRIO_INTERACTIVE, the highest that needs no
	// capability: a host that saturates its link still gets heartbeats out.
	prioInteractive = 6
)

// transport carries packets over one UDP socket and streams over TCP, on the
// same address and port. It exists besides memberlist's own because that one
// allocates 64 KiB for each packet, cannot cancel a dial at shutdown and hides
// the reason when a bind fails.
type transport struct {
	udp  *datagrams
	tcp  *net.TCPListener
	addr netip.AddrPort
	log  *slog.Logger
	// take is offered each packet first; what it takes memberlist does not see. It
	// must not keep the packet.
	take func(b []byte, from netip.AddrPort, at time.Time) bool

	seal     *beat.Sealer
	mismatch func(why error, from netip.AddrPort, at time.Time)
	unproven unproven
	greeting greeting

	faults  faults
	packets chan *memberlist.Packet
	streams chan net.Conn
	ctx     context.Context // ends with the transport
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu   sync.Mutex
	open map[*stream]struct{}
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// listen binds both sockets. Port 0 lets the kernel choose, for tests.
func (g *Gossip) listen(addr netip.Addr, port uint16) (*transport, error) {
	var t *transport
	var err error
	for range 10 { // the port that TCP was given may be taken for UDP
		if t, err = listenOnce(netip.AddrPortFrom(addr, port), g.log); err == nil || port != 0 {
			break
		}
	}
	if err != nil {
		return nil, bindError(netip.AddrPortFrom(addr, port), err)
	}
	t.take, t.seal, t.mismatch = g.takeBeat, g.seal, g.writer.mismatch
	t.wg.Go(t.readPackets)
	t.wg.Go(t.acceptStreams)
	return t, nil
}

func listenOnce(addr netip.AddrPort, log *slog.Logger) (*transport, error) {
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	bound := netip.AddrPortFrom(addr.Addr(), tcp.Addr().(*net.TCPAddr).AddrPort().Port())
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(bound))
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	tuneUDP(udp, addr.Addr(), log)
	quiet, err := newDatagrams(udp)
	if err != nil {
		return nil, errors.Join(err, udp.Close(), tcp.Close())
	}
	t := &transport{
		udp: quiet, tcp: tcp, addr: bound, log: log,
		packets: make(chan *memberlist.Packet, 64), streams: make(chan net.Conn),
		open: map[*stream]struct{}{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// bindError says what to do about the two usual causes.
func bindError(addr netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("gossip: bind %s: another process uses the port: stop it or set gossip.port: %w", addr, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("gossip: bind %s: the address is not on this host: set gossip.bindAddress to one that is: %w", addr, err)
	}
	return fmt.Errorf("gossip: bind %s: %w", addr, err)
}

// tuneUDP sets what only helps; a kernel that refuses is no reason to fail.
func tuneUDP(udp *net.UDPConn, addr netip.Addr, log *slog.Logger) {
	err := udp.SetReadBuffer(receiveBuffer)
	raw, rerr := udp.SyscallConn()
	if rerr == nil {
		cerr := raw.Control(func(fd uintptr) {
			if addr.Is4() {
				err = errors.Join(err, syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_TOS, classCS6))
			} else {
				err = errors.Join(err, syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_TCLASS, classCS6))
			}
			// After IP_TOS, which resets it.
			err = errors.Join(err, syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PRIORITY, prioInteractive))
		})
		err = errors.Join(err, cerr)
	}
	if err := errors.Join(err, rerr); err != nil {
		log.Debug("gossip socket not tuned", "err", err)
	}
}

// FinalAdvertiseAddr returns the bound address.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addr.Addr().AsSlice(), int(t.addr.Port()), nil
}

// WriteTo sends one packet.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, err
	}
	return time.Now(), t.send(b, to)
}

// send sends one packet and notes what came of it.
func (t *transport) send(b []byte, to netip.AddrPort) error {
	err := t.udp.write(b, to)
	t.faults.note(to.Addr(), err)
	return err
}

// WriteToAddress sends one packet.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

// PacketCh delivers received packets.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh delivers accepted streams.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout opens a stream; Shutdown ends the attempt and the stream. It comes
// from the bound address so that a firewall sees the address it was told of.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	s, to, err := t.dial(addr, timeout)
	if err != nil {
		return nil, err
	}
	if t.greeting.without(to, time.Now()) {
		return s, nil
	}
	err = t.prove(s.Conn, to, timeout)
	if err == nil {
		return s, nil
	}
	s.Close()
	if errors.Is(err, errUngreeted) && t.greeting.ungreeted(to, time.Now()) {
		s, _, err = t.dial(addr, timeout)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// dial opens a stream without a word.
func (t *transport) dial(addr string, timeout time.Duration) (*stream, netip.AddrPort, error) {
	d := net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{IP: t.addr.Addr().AsSlice()}}
	c, err := d.DialContext(t.ctx, "tcp", addr)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	to, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		c.Close()
		return nil, netip.AddrPort{}, err
	}
	s := t.track(c, false)
	if s == nil {
		return nil, netip.AddrPort{}, net.ErrClosed
	}
	return s, netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), nil
}

// DialAddressTimeout opens a stream.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// Shutdown closes the sockets and every stream, and waits for the readers.
func (t *transport) Shutdown() error {
	t.cancel()
	err := errors.Join(t.udp.udp.Close(), t.tcp.Close())
	t.mu.Lock()
	for s := range t.open {
		s.Conn.Close()
	}
	t.mu.Unlock()
	t.unproven.close()
	t.wg.Wait()
	return err
}

func (t *transport) readPackets() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := t.udp.read(buf)
		at := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.log.Debug("gossip packet not read", "err", err)
			if !t.pause() {
				return
			}
			continue
		}
		if n == 0 || t.take(buf[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), at) {
			continue
		}
		p := &memberlist.Packet{
			Buf:       append([]byte(nil), buf[:n]...),
			From:      net.UDPAddrFromAddrPort(netip.AddrPortFrom(from.Addr().Unmap(), from.Port())),
			Timestamp: at,
		}
		select {
		case t.packets <- p:
		case <-t.ctx.Done():
			return
		}
	}
}

func (t *transport) acceptStreams() {
	for {
		c, err := t.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, most likely
			t.log.Debug("gossip stream not accepted", "err", err)
			if !t.pause() {
				return
			}
			continue
		}
		if t.unproven.add(c) {
			t.wg.Go(func() { t.admit(c) })
		}
	}
}

// admit gives a stream to memberlist once whoever opened it has proved that it has a key.
func (t *transport) admit(c net.Conn) {
	proved, err := t.challenge(c)
	if err != nil {
		t.unproven.remove(c)
		c.Close()
		from, perr := netip.ParseAddrPort(c.RemoteAddr().String())
		if perr == nil && (errors.Is(err, beat.ErrKey) || errors.Is(err, beat.ErrLabel)) {
			t.mismatch(err, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), time.Now())
		}
		return
	}
	s := t.track(proved, true)
	if s == nil {
		return
	}
	select {
	case t.streams <- s:
	case <-t.ctx.Done():
		s.Close()
	}
}

// pause keeps an error that repeats from taking a whole core.
func (t *transport) pause() bool {
	select {
	case <-time.After(20 * time.Millisecond):
		return true
	case <-t.ctx.Done():
		return false
	}
}

// stream is a connection that its transport can close.
type stream struct {
	net.Conn
	t *transport
}

// track returns nil, and closes the connection, if the transport has ended or
// too many are open.
func (t *transport) track(c net.Conn, limited bool) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil || limited && len(t.open) >= maxStreams {
		c.Close()
		return nil
	}
	s := &stream{Conn: c, t: t}
	t.open[s] = struct{}{}
	return s
}

// Close closes the stream and forgets it.
func (s *stream) Close() error {
	s.t.mu.Lock()
	delete(s.t.open, s)
	s.t.mu.Unlock()
	return s.Conn.Close()
}

// peerAddr formats an address as memberlist and the transport use it.
func peerAddr(a netip.AddrPort) string {
	return net.JoinHostPort(a.Addr().String(), strconv.Itoa(int(a.Port())))
}

func (g *Gossip) sendBeat(to *memberlist.Node, packet []byte) error {
	if g.sockets == nil {
		_, err := g.transport.WriteToAddress(packet, to.FullAddress())
		return err
	}
	addr, ok := netip.AddrFromSlice(to.Addr)
	if !ok {
		return record.ErrInvalid
	}
	return g.sockets.send(packet, netip.AddrPortFrom(addr.Unmap(), to.Port))
}

// takeBeat takes a packet that came in, if it is one for it and not for memberlist.
func (g *Gossip) takeBeat(b []byte, from netip.AddrPort, at time.Time) bool {
	if len(b) == 0 || b[0] != beat.SealByte {
		return false
	}
	msg, err := g.seal.Open(b)
	if err == nil {
		var m record.Message
		if m, err = record.Open(msg); err == nil && m.Type != record.TypeBeat {
			err = record.ErrInvalid
		}
	}
	switch {
	case errors.Is(err, beat.ErrKey), errors.Is(err, beat.ErrLabel):
		g.writer.mismatch(err, from, at)
	case err != nil:
		g.count.refuse(err)
	default:
		if g.keys.ring == nil {
			msg = append([]byte(nil), msg...) // b is not ours
		}
		g.beatbox.push(packet{msg: msg, at: at})
	}
	return true
}

// tapped is a transport of tests from which heartbeats are taken before memberlist
// sees them; that of this package does so by itself.
type tapped struct {
	memberlist.NodeAwareTransport
	packets chan *memberlist.Packet
	done    chan struct{}
}

func tap(inner memberlist.NodeAwareTransport, take func([]byte, netip.AddrPort, time.Time) bool) *tapped {
	t := &tapped{inner, make(chan *memberlist.Packet), make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-inner.PacketCh():
				from, _ := netip.ParseAddrPort(p.From.String())
				if take(p.Buf, from, p.Timestamp) {
					continue
				}
				select {
				case t.packets <- p:
				case <-t.done:
					return
				}
			case <-t.done:
				return
			}
		}
	}()
	return t
}

func (t *tapped) PacketCh() <-chan *memberlist.Packet { return t.packets }

func (t *tapped) Shutdown() error {
	close(t.done)
	return t.NodeAwareTransport.Shutdown()
}
