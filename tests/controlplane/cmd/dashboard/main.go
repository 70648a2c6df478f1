// Dashboard plays nine minutes in a real control plane, in which things break, and
// keeps what a Prometheus reads of lbd meanwhile. tests/page/dashboard draws it for docs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// every is how often Prometheus reads. It is more often than usual, since all of the story has
// to be seen in nine minutes.
const every = 2 * time.Second

func main() {
	out := flag.String("out", "", "folder for the data")
	flag.Parse()
	lab.Program("dashboard", func(ctx context.Context) error { return record(ctx, *out) })
}

// record leaves in the folder data, which Prometheus can serve again, and range.json: from when
// to when, and how often it read, in seconds.
func record(ctx context.Context, out string) (err error) {
	if out == "" {
		return errors.New("-out is missing")
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := errors.Join(lab.Usable(), os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	programs, err := controlplane.Build(ctx)
	if err != nil {
		return err
	}
	bin, err := lab.Build(ctx, true)
	if err != nil {
		return err
	}
	defer bin.Close()
	l, err := lab.New(ctx, bin, 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	s, err := newSite(ctx, l, programs)
	if err != nil {
		return err
	}
	server, err := s.prometheus(out)
	if err != nil {
		return err
	}
	lab.Pause(ctx, 5*every) // rates need two readings
	from := time.Now()
	if err := s.play(ctx); err != nil {
		return err
	}
	span, err := json.Marshal(map[string]float64{"from": float64(from.Unix()), "to": float64(time.Now().Unix()), "step": every.Seconds()})
	return errors.Join(err, os.WriteFile(filepath.Join(out, "range.json"), span, 0o644), server.Signal(syscall.SIGTERM), server.Wait(time.Minute))
}

const scraping = `global: {scrape_interval: %s}
scrape_configs:
- {job_name: lbd, static_configs: [{targets: [%s]}]}
- {job_name: lbd-controller, static_configs: [{targets: ["127.0.0.1:7478"], labels: {instance: "%s:7478"}}]}
`

// prometheus starts one on the host of the control plane, which reads the daemons by the LAN.
func (s *site) prometheus(out string) (*lab.Proc, error) {
	var targets []string
	for _, n := range s.Lab.Nodes {
		targets = append(targets, fmt.Sprintf(`"%s:7477"`, n.IP4))
	}
	config := filepath.Join(s.Host.Dir, "prometheus.yaml")
	text := fmt.Sprintf(scraping, every, strings.Join(targets, ", "), s.Host.IP4)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return s.Lab.Start(s.Host, "prometheus", nil, "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(out, "data"),
		"--web.listen-address=127.0.0.1:9090", "--log.level=warn")
}
