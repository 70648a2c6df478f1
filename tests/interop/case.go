package interop

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"lbd.dev/lbd/api/v1alpha1"
)

// Case is one case of the matrix: a node and a router, both configured by the
// files of a folder.
type Case struct {
	Net     *Net
	Router  Daemon
	speaker *LBD
}

// StartCase configures the first node and the first router of a net by the files
// of dir and starts lbd, with that log level, and the named routing software:
// frr, bird or gobgp.
func StartCase(ctx context.Context, n *Net, dir, router, logLevel string) (*Case, error) {
	c := &Case{Net: n, speaker: &LBD{LogLevel: logLevel}}
	conf, err := os.ReadFile(filepath.Join(dir, routers()[router]))
	if err != nil {
		return nil, err
	}
	text, err := expand(string(conf))
	if err != nil {
		return nil, err
	}
	tor, m := n.ToRs[0], n.Nodes[0]
	switch router {
	case "frr":
		c.Router, err = StartFRR(ctx, n, tor, text)
	case "bird":
		c.Router, err = StartBIRD(ctx, n, tor, text)
	default:
		c.Router, err = StartGoBGP(ctx, n, tor, text)
	}
	if err != nil {
		return nil, err
	}
	more, err := os.ReadFile(filepath.Join(dir, "lbd.yaml"))
	if err != nil {
		return nil, err
	}
	// Keys and passwords.
	for _, pattern := range []string{"*.password", "*.key"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is well formed
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			if err := os.WriteFile(filepath.Join(m.Dir, filepath.Base(f)), b, 0o600); err != nil {
				return nil, err
			}
		}
	}
	return c, c.speaker.startWith(ctx, n, m, "---\n"+string(more))
}

// routers are the configuration files of the routing software.
func routers() map[string]string {
	return map[string]string{"frr": "frr.conf", "bird": "bird.conf", "gobgp": "gobgp.toml"}
}

func expand(text string) (string, error) {
	t, err := template.New("router").Funcs(templateFuncs()).Parse(text)
	if err != nil {
		return "", fmt.Errorf("router: %w", err)
	}
	var b bytes.Buffer
	err = t.Execute(&b, nil)
	return b.String(), err
}

// Status asks the node's daemon.
func (c *Case) Status(ctx context.Context) (*v1alpha1.NodeStatus, error) {
	return c.speaker.Status(ctx, c.Net, c.Net.Nodes[0])
}

// CheckNode compares the node with an expectation, whose only command of the
// daemon is "status", and CheckRouter the router.
func (c *Case) CheckNode(ctx context.Context, e *Expectation) error {
	m := c.Net.Nodes[0]
	return e.Check(ctx, func(ctx context.Context, _ string) (string, error) { return c.speaker.status(ctx, c.Net, m) },
		func(ctx context.Context, cmd string) (string, error) {
			return c.Net.Exec(ctx, &m.Host, strings.Fields(cmd)...)
		})
}

// CheckRouter compares the router with an expectation.
func (c *Case) CheckRouter(ctx context.Context, e *Expectation) error {
	return e.Check(ctx, c.Router.Show, func(ctx context.Context, cmd string) (string, error) {
		return c.Net.Exec(ctx, c.Net.ToRs[0], strings.Fields(cmd)...)
	})
}

// Logs returns the last lines of both.
func (c *Case) Logs(lines int) string { return c.Net.Lab.Logs(lines) + c.Router.Tail(lines) }
