package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Bin holds the programs that a lab runs.
type Bin struct {
	Agent string
	LBD   string // empty if it was not asked for
	// ProbeEvery is the time between two attempts of the client. Build sets 5 ms, which figures need;
	// labs that share the machine do with fewer, and see no gap that is shorter.
	ProbeEvery time.Duration
	dir        string
}

// Build builds the agent, and lbd if asked for; LBD_BIN names an lbd to use
// instead. Close removes the programs.
func Build(ctx context.Context, lbd bool) (*Bin, error) {
	// Not GOMOD: a module of tests beside lbd's may ask too.
	root, err := run(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "lbd.dev/lbd")
	root = strings.TrimSpace(root)
	if err != nil || root == "" {
		return nil, fmt.Errorf("build: run this inside lbd's module: %w", err)
	}
	prefix, err := NewPrefix()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", prefix+"-bin-")
	if err != nil {
		return nil, fmt.Errorf("build: %w", err)
	}
	b := &Bin{ProbeEvery: 5 * time.Millisecond, dir: dir, Agent: filepath.Join(dir, "agent")}
	if err := goBuild(ctx, root, b.Agent, "./tests/lab/agent"); err != nil {
		b.Close()
		return nil, err
	}
	if !lbd {
		return b, nil
	}
	if b.LBD = os.Getenv("LBD_BIN"); b.LBD != "" {
		return b, nil
	}
	b.LBD = filepath.Join(dir, "lbd")
	if err := goBuild(ctx, root, b.LBD, "./cmd/lbd"); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close removes what Build made.
func (b *Bin) Close() { _ = os.RemoveAll(b.dir) }

func goBuild(ctx context.Context, root, out, pkg string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, pkg)
	cmd.Dir = root
	cmd.WaitDelay = time.Second
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %s: %w: %s", pkg, err, firstLines(string(b), 20))
	}
	return nil
}
