package control

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"lbd.dev/lbd/internal/wake"
)

// listener is a TCP port on which the server answers, opened as often as it takes.
type listener struct {
	what, serves string // for errors and the log
	address      string // "" and "off": none
	handler      http.Handler
	tls          *tls.Config  // nil: plain HTTP
	ready        func() error // with tls: nil if there is a certificate
	stopping     func()       // called when the server begins to stop; nil: nothing is

	mu   sync.Mutex // guards all below
	err  error
	addr net.Addr
}

// error is why the listener is not open.
func (l *listener) error() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// open is the address of the listener; nil while it is not open.
func (l *listener) open() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addr
}

// run opens the listener and serves until ctx ends. After an error it tries again.
func (l *listener) run(ctx context.Context, retry time.Duration, log *slog.Logger) {
	if l.address == "" || l.address == "off" {
		return
	}
	for ctx.Err() == nil {
		err := l.serve(ctx, log)
		if err != nil {
			err = fmt.Errorf("%s: %w", l.what, err)
		}
		l.set(nil, err, log)
		wake.Sleep(ctx, retry)
	}
}

func (l *listener) serve(ctx context.Context, log *slog.Logger) error {
	if l.ready != nil {
		if err := l.ready(); err != nil {
			return err
		}
	}
	var config net.ListenConfig
	port, err := config.Listen(ctx, "tcp", l.address)
	if err != nil {
		return err
	}
	l.set(port.Addr(), nil, log)
	port = &bounded{Listener: port}
	if l.tls != nil {
		port = tls.NewListener(port, l.tls)
	}
	server := &http.Server{
		Handler:           l.handler,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      2 * time.Minute, // a CPU profile takes 30 s by default
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	if l.stopping != nil {
		server.RegisterOnShutdown(l.stopping)
	}
	return serve(ctx, server, port)
}

// set notes the state of the listener and logs its changes.
func (l *listener) set(addr net.Addr, err error, log *slog.Logger) {
	l.mu.Lock()
	before := l.err
	l.addr, l.err = addr, err
	l.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		log.Error(l.serves+" are not served; trying again", "err", err)
	case addr != nil:
		log.Info(l.serves+" are served", "scheme", l.what, "address", addr.String())
	}
}

// maxConns is how many connections a listener has at a time, of some 20 KiB each.
const maxConns = 256

// bounded is a listener of which one connection more ends the oldest: who opens many takes neither
// the memory nor the files of the daemon, and keeps nobody else from an answer.
type bounded struct {
	net.Listener

	mu   sync.Mutex // guards open
	open []net.Conn // the oldest first
}

func (b *bounded) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	x := &boundedConn{c, b}
	b.mu.Lock()
	b.open = append(b.open, x)
	oldest := b.open[0]
	full := len(b.open) > maxConns
	b.mu.Unlock()
	if full {
		_ = oldest.Close() // whoever has it finds out
	}
	return x, nil
}

// boundedConn is a connection that is counted until it is closed.
type boundedConn struct {
	net.Conn
	of *bounded
}

func (c *boundedConn) Close() error {
	c.of.mu.Lock()
	c.of.open = slices.DeleteFunc(c.of.open, func(x net.Conn) bool { return x == c })
	c.of.mu.Unlock()
	return c.Conn.Close()
}
