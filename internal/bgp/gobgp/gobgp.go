// Package gobgp is the BGP speaker: an embedded GoBGP server that advertises
// and takes nothing, but for what masters tell a listener (listener.go). It is the only
// package that knows GoBGP.
//
// What it adds to the server: who gets which path (policy.go), sessions that
// come back within seconds (keeper.go), and why they do not, in words (words.go).
// It never stops the server: that would tell routers to forget what a restart
// shall keep.
package gobgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/server"

	"lbd.dev/lbd/internal/bgp"
)

var _ bgp.Speaker = (*Speaker)(nil)

// Speaker implements bgp.Speaker. A process has one: the server keeps part of
// its settings in globals.
type Speaker struct {
	log     *slog.Logger
	changed func()

	server *server.BgpServer // nil until Start
	global bgp.Global
	tasks

	// mu serialises what changes the server. No event takes it.
	mu      sync.Mutex
	peers   map[string]*peer
	indices map[string]int // of peers in markers; never given twice
	closing bool

	advertised
	listeners listeners

	inbox inbox
	gauge gauge
}

// tasks are the goroutines beside the server; stop ends them.
type tasks struct {
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// New returns a speaker that does nothing until Start. The function changed is
// called when a session may have changed; it must not block and not call back.
func New(log *slog.Logger, changed func()) *Speaker {
	ctx, stop := context.WithCancel(context.Background())
	s := &Speaker{
		log: log, changed: changed, tasks: tasks{ctx: ctx, stop: stop},
		peers: make(map[string]*peer), indices: make(map[string]int),
		advertised: advertised{paths: make(map[netip.Prefix]path), prepends: map[int]struct{}{0: {}}},
		listeners:  listeners{out: make(map[netip.Addr]keptOut)},
		inbox:      inbox{kick: make(chan struct{}, 1), live: make(map[netip.Addr]*peer)},
	}
	s.gauge.wake = s.wake
	return s
}

// Start starts the server, with policies that refuse everything in both
// directions but what SetPath adds.
func (s *Speaker) Start(g bgp.Global) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		return errors.New("the BGP speaker has started already")
	}
	port := int32(-1)
	listen := make([]string, 0, len(g.Listen))
	if len(g.Listen) > 0 {
		g.ListenPort = cmp.Or(g.ListenPort, defaultPort)
		port = int32(g.ListenPort)
		for _, a := range g.Listen {
			if err := canListen(netip.AddrPortFrom(a, g.ListenPort)); err != nil {
				return err
			}
			listen = append(listen, a.String())
		}
	}
	srv := server.NewBgpServer(server.LoggerOption(slog.New(&logger{log: s.log, tell: s.tell}), nil))
	go srv.Serve() // for the life of the process
	if err := srv.StartBgp(s.ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: g.ASN, RouterId: g.RouterID.String(), ListenPort: port, ListenAddresses: listen,
	}}); err != nil {
		return fmt.Errorf("start BGP: %w", err)
	}
	if err := refuseAll(s.ctx, srv); err != nil {
		return err
	}
	s.server, s.global = srv, g
	s.wg.Go(s.keep)
	return nil
}

// tell takes what the server logs.
func (s *Speaker) tell(addr netip.Addr, e event) {
	if e.kind == updateRead {
		s.gauge.take(addr, e.update.prefixes(), time.Now())
	} else {
		s.inbox.put(addr, e)
	}
	if !s.inbox.has(addr) && s.take(addr, e) {
		s.changed()
	}
}

const defaultPort = 179

// canListen finds out, in words, what the server would only say after it had
// opened half of its sockets.
func canListen(at netip.AddrPort) error {
	l, err := net.Listen("tcp", at.String())
	if err == nil {
		return l.Close()
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen for BGP on %s: the port is in use (does another BGP daemon run on this node?)", at)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("listen for BGP on %s: no such address on this node", at)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen for BGP on %s: not permitted (CAP_NET_BIND_SERVICE)", at)
	}
	return fmt.Errorf("listen for BGP on %s: %w", at, err)
}

// Close ends all sessions without graceful restart and stops keeping any. The
// server itself runs on: the sockets of the others live as long as the process.
func (s *Speaker) Close(words string) {
	s.mu.Lock()
	s.closing = true
	var end []string
	for name, p := range s.peers {
		if !p.conf.GracefulRestart {
			end = append(end, name)
		}
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, name := range end {
		wg.Go(func() { s.RemovePeer(name, words) })
	}
	wg.Wait()
	s.closeListeners(words)
	s.stop()
	s.wg.Wait()
}
