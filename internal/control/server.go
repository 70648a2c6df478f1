package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// stopTimeout bounds how long Run waits for answers that are under way.
	stopTimeout = 2 * time.Second
	// backendTimeout bounds one question to the backend.
	backendTimeout = 4 * time.Second
	// httpRetry is the time between attempts to open the HTTP listener.
	httpRetry = 5 * time.Second
)

// Options are what a Server needs from outside.
type Options struct {
	// Logger must not be nil.
	Logger *slog.Logger
	// Socket is the path of the control socket.
	Socket string
	// HTTPAddress is host:port of /metrics, /healthz and /readyz; "" and "off"
	// turn them off.
	HTTPAddress string
	// Pprof adds /debug/pprof/ to the HTTP listener.
	Pprof bool
	// Gatherer provides /metrics; nil means there is none.
	Gatherer prometheus.Gatherer
	// Backend must not be nil.
	Backend Backend
}

// Server answers on the control socket and on HTTP.
type Server struct {
	opts      Options
	httpRetry time.Duration
	slowest   time.Duration // see readTimeout
	socket    *socket       // nil before Listen

	mu       sync.Mutex
	httpErr  error
	httpAddr net.Addr
}

// New returns a Server that does not listen yet.
func New(opts Options) *Server {
	return &Server{opts: opts, httpRetry: httpRetry, slowest: readTimeout}
}

// Listen takes the control socket. It fails with "another lbd is running" if a
// daemon has it. A daemon calls it before it touches anything that two daemons
// must not both touch; Run does it otherwise.
func (s *Server) Listen() error {
	if s.socket != nil {
		return nil
	}
	socket, err := listenSocket(s.opts.Socket)
	s.socket = socket
	return err
}

// Run serves until ctx ends and then waits a bounded time for answers that are
// under way. A socket that cannot be opened is an error at once. An HTTP address
// that cannot is not: HTTPError tells it, it is logged, and Run tries again
// until it succeeds.
//
// The next daemon can start when Run has returned, so a daemon ends Run after
// everything that two daemons must not both touch.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.runHTTP(ctx) })
	// No WriteTimeout: each handler has its own.
	server := &http.Server{
		Handler:           s.socketHandler(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
	defer s.socket.lock.Close() // last, after the socket is removed
	if err := serve(ctx, server, s.socket.listener); err != nil {
		return fmt.Errorf("socket: %q: %w", s.opts.Socket, err)
	}
	return nil
}

// RunHTTP serves HTTP alone until ctx ends, for a process that nobody looks into by
// a socket. Of the Backend only Healthy and Ready are asked.
func (s *Server) RunHTTP(ctx context.Context) { s.runHTTP(ctx) }

// HTTPError is why the HTTP listener is not open; nil while it is, and while it
// is turned off.
func (s *Server) HTTPError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.httpErr
}

// HTTPAddr is the address of the HTTP listener; nil while it is not open.
func (s *Server) HTTPAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.httpAddr
}

// runHTTP opens the HTTP listener, as often as it takes, and serves until ctx
// ends.
func (s *Server) runHTTP(ctx context.Context) {
	if s.opts.HTTPAddress == "" || s.opts.HTTPAddress == "off" {
		return
	}
	for ctx.Err() == nil {
		err := s.serveHTTP(ctx)
		s.setHTTP(nil, err)
		select {
		case <-ctx.Done():
		case <-time.After(s.httpRetry):
		}
	}
}

func (s *Server) serveHTTP(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.opts.HTTPAddress)
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	s.setHTTP(listener.Addr(), nil)
	server := &http.Server{
		Handler:           s.httpHandler(),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      2 * time.Minute, // a CPU profile takes 30 s by default
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
	if err := serve(ctx, server, listener); err != nil {
		return fmt.Errorf("http: %w", err)
	}
	return nil
}

// setHTTP notes the state of the HTTP listener and logs its changes.
func (s *Server) setHTTP(addr net.Addr, err error) {
	s.mu.Lock()
	before := s.httpErr
	s.httpAddr, s.httpErr = addr, err
	s.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		s.opts.Logger.Error("metrics and readiness are not served; trying again", "err", err)
	case addr != nil:
		s.opts.Logger.Info("metrics and readiness are served", "address", addr.String())
	}
}

// serve runs server until ctx ends, then stops it gracefully, but in bounded
// time. It closes the listener.
func serve(ctx context.Context, server *http.Server, listener net.Listener) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(bounded) != nil {
			_ = server.Close() // the clients that hold it up get an error
		}
	})
	err := server.Serve(listener)
	if stop() { // Serve failed by itself
		return errors.Join(err, server.Close())
	}
	<-stopped
	return nil
}
