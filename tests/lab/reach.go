package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// Dial connects from a host to a literal address and port. The connection stays
// in the host's namespace.
func (l *Lab) Dial(ctx context.Context, h *Host, network, address string) (net.Conn, error) {
	return DialFrom(ctx, h.NS, network, address)
}

// DialFrom is Dial for any network namespace with a name.
func DialFrom(ctx context.Context, ns, network, address string) (c net.Conn, err error) {
	err = inNetns(ns, func() error {
		// A literal address and no fallback: the dialler stays on this thread.
		d := net.Dialer{FallbackDelay: -1}
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Inside runs f on a thread that is in the host's namespace. f must not start processes or
// goroutines: those would be elsewhere.
func (h *Host) Inside(f func() error) error { return inNetns(h.NS, f) }

// AddInner adds a machine that is on no LAN: the caller wires it.
func (l *Lab) AddInner(ctx context.Context, name string) (*Host, error) {
	h := &Host{Name: name, NS: l.ns(name), Dir: filepath.Join(l.Dir, name)}
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("host %q: %w", name, err)
	}
	if _, err := run(ctx, "", "ip", "netns", "add", h.NS); err != nil {
		return nil, fmt.Errorf("host %q: %w", name, err)
	}
	return h, nil
}
