package gobgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"golang.org/x/sys/unix"

	bgptypes "lbd.dev/lbd/internal/bgp"
)

// diagnoseTime bounds one diagnosis.
const diagnoseTime = 3 * time.Second

// answers are what a peer says of why there is no session.
type answers struct {
	said   string    // what the server said before a change of state
	heard  bool      // that it said what the peer did
	silent bool      // the peer refuses for a reason that did not reach us
	answer string    // what it last said of itself or to a diagnosis
	askAt  time.Time // of the next diagnosis, at the earliest
}

// accepts forgets why the peer refused.
func (a *answers) accepts() { a.silent, a.answer = false, "" }

// blame notes why the session ended; it tells whether the peer has said why, or
// which AS it has, but not to us: the server forgets a NOTIFICATION that it gets
// while a session is opened, and the OPEN that it refuses. That a connection was
// closed says less than what the peer said before.
func (p *peer) blame(e event) bool {
	said, heard := p.said, p.heard
	p.said, p.heard = "", false
	words := endWords(e, said, &p.conf)
	switch {
	case words == "":
		p.silent = true
		words = cmp.Or(p.answer, "the peer refused the session while it was opened")
	case words == wrongASWords(&p.conf):
		p.silent = true
		if strings.HasPrefix(p.answer, words) { // it says which
			words = p.answer
		}
	case isClosed(e):
		words = cmp.Or(p.answer, words)
	default:
		p.accepts()
		if heard {
			p.answer = words
		}
	}
	p.fail(words)
	return p.silent
}

// diagnose asks a peer that has refused a session why. The server drops the
// NOTIFICATION that answers an OPEN, so the OPEN is sent once more, on a
// connection that ends with the answer.
func (s *Speaker) diagnose(p *peer, life int) {
	s.mu.Lock()
	conf := p.conf
	s.mu.Unlock()
	n, err := s.ask(&conf)
	if err != nil && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
		// Some routers answer nobody for 5 s after a refusal.
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(askSoon):
		}
		n, err = s.ask(&conf)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.number != life || p.in || p.held || p.ended != nil || s.closing {
		return
	}
	p.askAt = time.Now().Add(askAgain)
	var wrong wrongASError
	switch {
	case n != nil:
		p.answer = receivedWords(n, &p.conf)
		p.fail(p.answer)
	case errors.As(err, &wrong):
		p.answer = fmt.Sprintf("%s: received %d", wrongASWords(&p.conf), wrong)
		p.fail(p.answer)
	default:
		s.log.Debug("peer did not say why it refuses", "peer", p.conf.Name, "err", err)
	}
	p.tryAfter(time.Now(), 0)
	s.wake()
	s.changed()
}

func (s *Speaker) ask(c *bgptypes.Peer) (*bgp.BGPNotification, error) {
	ctx, cancel := context.WithTimeout(s.ctx, diagnoseTime)
	defer cancel()
	return askOpen(ctx, c, s.global.RouterID)
}

// askOpen opens a connection, sends the OPEN that the server would send, and
// returns the NOTIFICATION that it gets, if any.
func askOpen(ctx context.Context, c *bgptypes.Peer, id netip.Addr) (*bgp.BGPNotification, error) {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) { err = prepare(int(fd), c) }); e != nil {
			return e
		}
		return err
	}}
	if c.Source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.Source, 0))
	}
	conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(c.Address, cmp.Or(c.Port, defaultPort)).String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := send(conn, openMessage(c, id)); err != nil {
		return nil, err
	}
	for {
		m, err := receive(conn)
		if err != nil {
			return nil, err
		}
		switch body := m.Body.(type) {
		case *bgp.BGPNotification:
			return body, nil
		case *bgp.BGPOpen:
			if asn := asnOf(body); c.PeerASN != 0 && asn != c.PeerASN {
				_ = send(conn, bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, bgp.BGP_ERROR_SUB_BAD_PEER_AS, nil))
				return nil, wrongASError(asn)
			}
			// Some routers look at the OPEN only after they got a KEEPALIVE.
			if err := send(conn, bgp.NewBGPKeepAliveMessage()); err != nil {
				return nil, err
			}
		case *bgp.BGPKeepAlive:
			// It accepts by now.
			_ = send(conn, bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_CONNECTION_REJECTED, nil))
			return nil, errors.New("the peer accepts the session now")
		}
	}
}

// wrongASError is that of a peer with another AS than the configured one.
type wrongASError uint32

func (e wrongASError) Error() string { return fmt.Sprintf("the peer is in AS %d", uint32(e)) }

// asnOf is the AS number in an OPEN (RFC 6793 section 3).
func asnOf(open *bgp.BGPOpen) uint32 {
	asn := uint32(open.MyAS)
	for _, o := range open.OptParams {
		caps, _ := o.(*bgp.OptionParameterCapability)
		if caps == nil {
			continue
		}
		for _, c := range caps.Capability {
			if four, ok := c.(*bgp.CapFourOctetASNumber); ok {
				asn = four.CapValue
			}
		}
	}
	return asn
}

// openMessage is the OPEN of RFC 4271 section 4.2 as far as a peer may object to
// it.
func openMessage(c *bgptypes.Peer, id netip.Addr) *bgp.BGPMessage {
	caps := []bgp.ParameterCapabilityInterface{bgp.NewCapRouteRefresh()}
	if c.IPv4 {
		caps = append(caps, bgp.NewCapMultiProtocol(bgp.RF_IPv4_UC))
	}
	if c.IPv6 {
		caps = append(caps, bgp.NewCapMultiProtocol(bgp.RF_IPv6_UC))
	}
	caps = append(caps, bgp.NewCapFourOctetASNumber(c.LocalASN))
	as := c.LocalASN
	if as > 0xffff {
		as = bgp.AS_TRANS
	}
	m, _ := bgp.NewBGPOpenMessage(uint16(as), uint16(holdSeconds(c.HoldTime)), id, // which config has checked
		[]bgp.OptionParameterInterface{bgp.NewOptionParameterCapability(caps)})
	return m
}

func send(w io.Writer, m *bgp.BGPMessage) error {
	b, err := m.Serialize()
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func receive(r io.Reader) (*bgp.BGPMessage, error) {
	head := make([]byte, bgp.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	h := &bgp.BGPHeader{}
	if err := h.DecodeFromBytes(head); err != nil {
		return nil, err
	}
	if h.Len < bgp.BGP_HEADER_LENGTH || h.Len > bgp.BGP_MAX_MESSAGE_LENGTH {
		return nil, fmt.Errorf("message of %d bytes", h.Len)
	}
	body := make([]byte, int(h.Len)-bgp.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return bgp.ParseBGPBody(h, body)
}

// canSign tries the key of a peer on a socket that nobody uses. A kernel without
// TCP_MD5SIG refuses it.
func canSign(c *bgptypes.Peer) error {
	if c.Password == "" {
		return nil
	}
	family := unix.AF_INET6
	if c.Address.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return sign(fd, c)
}

func keyError(err error) error {
	return fmt.Errorf("no session without its TCP MD5 password, which the listening socket does not take: %s", text(err))
}

// prepare sets on a socket what the server sets on its own.
func prepare(fd int, c *bgptypes.Peer) error {
	four := c.Address.Is4()
	ttl := 0
	switch {
	case c.MinTTL > 0, c.External() && c.Multihop:
		ttl = 255
	case c.External():
		ttl = 1
	}
	if ttl != 0 {
		level, name := unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
		if four {
			level, name = unix.IPPROTO_IP, unix.IP_TTL
		}
		if err := unix.SetsockoptInt(fd, level, name, ttl); err != nil {
			return err
		}
	}
	if c.Password == "" {
		return nil
	}
	return sign(fd, c)
}

// sign sets the key of a peer, RFC 2385.
func sign(fd int, c *bgptypes.Peer) error {
	four := c.Address.Is4()
	sig := &unix.TCPMD5Sig{Keylen: uint16(len(c.Password))}
	sig.Addr.Family = unix.AF_INET6
	at := 6 // of the address in sockaddr_in6, after port and flow label
	if four {
		sig.Addr.Family = unix.AF_INET
		at = 2
	}
	copy(sig.Addr.Data[at:], c.Address.AsSlice())
	copy(sig.Key[:], c.Password)
	return unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, sig)
}
