package control

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
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
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
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
