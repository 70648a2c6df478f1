package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"lbd.dev/lbd/tests/lab"
)

// BIRD is BIRD 2.
type BIRD struct {
	Host *lab.Host
	proc *lab.Proc
	net  *Net
	sock string
}

// StartBIRD starts it with a configuration (bird.conf).
func StartBIRD(ctx context.Context, n *Net, h *lab.Host, config string) (*BIRD, error) {
	b := &BIRD{Host: h, net: n, sock: filepath.Join(h.Dir, "bird.ctl")}
	file := filepath.Join(h.Dir, "bird.conf")
	if err := os.WriteFile(file, []byte("log stderr all;\n"+config), 0o600); err != nil {
		return nil, fmt.Errorf("bird: %w", err)
	}
	var err error
	if b.proc, err = n.Start(h, "bird", nil, "bird", "-f", "-c", file, "-s", b.sock, "-P", filepath.Join(h.Dir, "bird.pid")); err != nil {
		return nil, err
	}
	return b, there(ctx, b.proc, b.sock)
}

// Show runs a command of birdc.
func (b *BIRD) Show(ctx context.Context, command string) (string, error) {
	return b.net.Exec(ctx, b.Host, append([]string{"birdc", "-r", "-s", b.sock}, strings.Fields(command)...)...)
}

// Stop ends it.
func (b *BIRD) Stop() error { return end(b.proc) }

// Tail returns the last lines of the log.
func (b *BIRD) Tail(lines int) string { return "--- bird\n" + b.proc.Tail(lines) + "\n" }
