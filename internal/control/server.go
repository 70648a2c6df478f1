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
	// Metrics serves /metrics by HTTPS, instead of the HTTP listener; nil: it does not.
	Metrics *SecureMetrics
	// InDaemonSet: the daemon is that of a pod of the DaemonSet. /readyz?daemon=pod, which
	// kubelet asks for such a pod, says of another daemon that it is not the one meant.
	InDaemonSet bool
	// Page is served by HTTP at every path that means nothing else; nil: there is none.
	Page Page
	// Backend must not be nil.
	Backend Backend
}

// Page is what people look at with a browser.
type Page interface {
	http.Handler
	// Close ends the answers that would go on for as long as somebody reads them.
	Close()
}

// Server answers on the control socket and on HTTP.
type Server struct {
	opts      Options
	httpRetry time.Duration
	slowest   time.Duration // see readTimeout
	socket    *socket       // nil before Listen
	// secure is nil without Options.Metrics.
	plain, secure *listener
}

// New returns a Server that does not listen yet.
func New(opts Options) *Server {
	s := &Server{opts: opts, httpRetry: httpRetry, slowest: readTimeout, plain: &listener{what: "http", serves: "metrics, liveness and readiness", address: opts.HTTPAddress}}
	s.plain.handler = s.prompt(s.httpHandler())
	if opts.Page != nil {
		s.plain.stopping = opts.Page.Close
	}
	if m := opts.Metrics; m != nil {
		s.plain.serves = "liveness and readiness"
		s.secure = &listener{what: "https", serves: "metrics", address: m.Address, handler: s.prompt(s.metricsHandler())}
		s.secure.tls, s.secure.ready = m.config()
	}
	return s
}

// Listen takes the control socket. It fails with ErrRunning if a daemon has
// it. A daemon calls it before it touches anything that two daemons
// must not both touch; Run does it otherwise.
func (s *Server) Listen() error {
	if s.socket != nil {
		return nil
	}
	socket, err := listenSocket(s.opts.Socket)
	s.socket = socket
	return err
}

// Close gives up what Listen took, if Run does not follow.
func (s *Server) Close() error {
	if s.socket == nil {
		return nil
	}
	defer func() { s.socket = nil }()
	return errors.Join(s.socket.listener.Close(), s.socket.lock.Close())
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
		Handler:           s.prompt(s.socketHandler()),
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

// HTTPError is why HTTP or HTTPS is not served; nil while both are, or are turned off.
func (s *Server) HTTPError() error {
	err := s.plain.error()
	if s.secure != nil {
		err = errors.Join(err, s.secure.error())
	}
	return err
}

// HTTPAddr is the address of the HTTP listener; nil while it is not open.
func (s *Server) HTTPAddr() net.Addr { return s.plain.open() }

// MetricsAddr is the address of the HTTPS listener; nil while it is not open.
func (s *Server) MetricsAddr() net.Addr {
	if s.secure == nil {
		return nil
	}
	return s.secure.open()
}

// runHTTP serves HTTP and HTTPS until ctx ends.
func (s *Server) runHTTP(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.plain.run(ctx, s.httpRetry, s.opts.Logger) })
	if s.secure != nil {
		running.Go(func() { s.secure.run(ctx, s.httpRetry, s.opts.Logger) })
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
