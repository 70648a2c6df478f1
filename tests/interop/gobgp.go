package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// GoBGP is gobgpd.
type GoBGP struct {
	Host *lab.Host
	Proc *lab.Proc
	net  *Net
}

// StartGoBGP starts it with a configuration in TOML.
func StartGoBGP(ctx context.Context, n *Net, h *lab.Host, config string) (*GoBGP, error) {
	g := &GoBGP{Host: h, net: n}
	file := filepath.Join(h.Dir, "gobgp.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("gobgp: %w", err)
	}
	var err error
	g.Proc, err = n.Start(h, "gobgpd", nil, "gobgpd", "-f", file, "-p", "--pprof-disable", "--api-hosts", "127.0.0.1:50051")
	if err != nil {
		return nil, err
	}
	return g, Eventually(ctx, 10*time.Second, "gobgpd", func() error {
		if !g.Proc.Alive() {
			return fmt.Errorf("it ended: %s", g.Proc.Tail(5))
		}
		_, err := g.Show(ctx, "global")
		return err
	})
}

// Show runs a command of gobgp.
func (g *GoBGP) Show(ctx context.Context, command string) (string, error) {
	return g.net.Exec(ctx, g.Host, append([]string{"gobgp"}, strings.Fields(command)...)...)
}

// Stop ends it.
func (g *GoBGP) Stop() error { return end(g.Proc) }

// Tail returns the last lines of the log.
func (g *GoBGP) Tail(lines int) string { return "--- gobgpd\n" + g.Proc.Tail(lines) + "\n" }
