package gobgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	bgptypes "lbd.dev/lbd/internal/bgp"
)

// After a restart the server waits with its paths for the End-of-RIB of all peers
// (RFC 4724 section 4.1). It takes a peer that has no session yet for one that has
// sent it: the first router that is there ends the restart for all, the OPEN to
// each later one lacks Restart State and Forwarding State, and that router drops
// the paths it kept (section 4.2).
//
// No setting prevents that, and to replace the later peers once the first is there
// may come too late and begins their wait for a connection again each time. So for
// a while after the start the server has one more peer, the witness: this process
// itself, which agrees to graceful restart and never sends End-of-RIB. Then each
// peer ends its restart on its own, with its deferral time. The witness does not
// confirm the session either, so the server advertises nothing to it.
const (
	// witnessFor is longer than any restart time whose paths could still be kept.
	witnessFor = time.Minute
	// witnessWait bounds how long restarting peers wait for the witness.
	witnessWait = 3 * time.Second
	// witnessLead is how long they wait if no router may connect. The server connects
	// to a new peer after 1.5 s to 2 s, so then the witness is first.
	witnessLead = 1200 * time.Millisecond
)

// witnessAddr is on loopback, where no router is.
var witnessAddr = netip.AddrFrom4([4]byte{127, 255, 255, 254})

// restart guards the first sessions after a start. Speaker.mu guards it.
type restart struct {
	began time.Time // when the server was given the witness; zero: there is none
	ready bool      // the server waits for the End-of-RIB of the witness
}

// notBefore is when a peer may be given to the server; zero is now. A router that
// keeps paths for a shorter time than the wait is not made to wait; the others have
// nothing to lose yet while the server does not know them.
func (s *Speaker) notBefore(p *peer) time.Time {
	r := &s.restart
	if !p.restarting || r.ready || r.began.IsZero() || p.conf.RestartTime < witnessWait {
		return time.Time{}
	}
	wait := witnessWait
	if len(s.global.Listen) == 0 {
		wait = witnessLead
	}
	if at := r.began.Add(wait); time.Now().Before(at) {
		return at
	}
	return time.Time{}
}

// beginWitness gives the server the witness. To have none is no reason not to
// start. s.mu is held.
func (s *Speaker) beginWitness() {
	l, err := net.Listen("tcp", netip.AddrPortFrom(witnessAddr, 0).String())
	if err == nil {
		err = s.server.AddPeer(s.ctx, &api.AddPeerRequest{Peer: s.witness(l.Addr().(*net.TCPAddr).AddrPort().Port())})
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}
	if err != nil {
		s.log.Warn("a graceful restart may be hidden from some routers", "err", err)
		return
	}
	s.restart.began = time.Now()
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, witnessFor)
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = l.Close() })()
		if err := s.testify(ctx, l); err != nil && ctx.Err() == nil {
			s.log.Warn("a graceful restart may be hidden from some routers", "err", err)
		}
		_ = l.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.restart = restart{}
		if err := s.server.DeletePeer(context.WithoutCancel(ctx), &api.DeletePeerRequest{Address: witnessAddr.String()}); err != nil {
			s.log.Debug("witness not deleted", "err", err)
		}
	})
}

// witness is the peer as the server wants it.
func (s *Speaker) witness(port uint16) *api.Peer {
	return &api.Peer{
		Conf:            &api.PeerConf{NeighborAddress: witnessAddr.String(), LocalAsn: s.global.ASN, PeerAsn: s.global.ASN},
		Timers:          &api.Timers{Config: &api.TimersConfig{HoldTime: holdSeconds(0), ConnectRetry: 1}},
		Transport:       &api.Transport{RemotePort: uint32(port)},
		GracefulRestart: &api.GracefulRestart{Enabled: true, RestartTime: 1, DeferralTime: 1},
		AfiSafis: []*api.AfiSafi{{
			Config:            &api.AfiSafiConfig{Family: ipv4, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
		}},
	}
}

// testify is the far end of the witness, until the context is done.
func (s *Speaker) testify(ctx context.Context, l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		done := context.AfterFunc(ctx, func() { _ = conn.Close() })
		err = s.agree(conn)
		done()
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil
		}
		s.log.Debug("the session with the witness ended", "err", err) // the server connects again
	}
}

// agree holds one session of the witness open.
func (s *Speaker) agree(conn net.Conn) error {
	me := bgptypes.Peer{}
	me.LocalASN, me.IPv4 = s.global.ASN, true
	m := openMessage(&me, witnessAddr)
	body := m.Body.(*bgp.BGPOpen)
	body.OptParams = append(body.OptParams, bgp.NewOptionParameterCapability([]bgp.ParameterCapabilityInterface{
		bgp.NewCapGracefulRestart(false, false, 1, []*bgp.CapGracefulRestartTuple{bgp.NewCapGracefulRestartTuple(bgp.RF_IPv4_UC, false)}),
	}))
	if err := send(conn, m); err != nil {
		return err
	}
	defer s.witnessed(false)
	for {
		m, err := receive(conn)
		if err != nil {
			return err
		}
		switch body := m.Body.(type) {
		case *bgp.BGPKeepAlive: // it has read the OPEN
			s.witnessed(true)
		case *bgp.BGPNotification:
			return fmt.Errorf("the server refuses the witness: %d/%d", body.ErrorCode, body.ErrorSubcode)
		}
	}
}

// witnessed lets the peers begin that wait for the witness.
func (s *Speaker) witnessed(ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.restart.ready == ready {
		return
	}
	s.restart.ready = ready
	if !ready {
		return
	}
	for _, p := range s.peers {
		if !p.in && !p.held && p.ended == nil && p.restarting && !p.due.IsZero() {
			p.tryAt(time.Now())
		}
	}
	s.wake()
}
