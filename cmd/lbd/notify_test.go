package main

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/daemon"
	"lbd.dev/lbd/internal/gossip"
	"lbd.dev/lbd/internal/health"
	"lbd.dev/lbd/internal/model"
)

// TestReloadReachesNotify: the programs of a changed file are told of addresses, and counted.
func TestReloadReachesNotify(t *testing.T) {
	const node = "apiVersion: lbd.dev/v1alpha1\nkind: NodeConfiguration\nnodeName: m1\ngossip: {insecure: true}\n"
	const vip = "---\napiVersion: lbd.dev/v1alpha1\nkind: VirtualIP\nmetadata: {name: web}\nspec: {addresses: [10.0.0.200]}\n"
	file := filepath.Join(t.TempDir(), "lbd.yaml")
	put := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(node + vip)
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	group, err := gossip.New(gossip.Options{Name: "m1", BindAddr: netip.MustParseAddr("127.0.0.1"), Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Driver().Close(t.Context())
	p := &parts{gossip: group, notify: newNotify(cfg, log)}
	p.daemon, err = daemon.New(daemon.Options{Logger: log, Metrics: prometheus.NewRegistry(), Node: "m1"})
	if err != nil {
		t.Fatal(err)
	}
	p.config = p.watch(cfg, file, new(slog.LevelVar), &joined{parts: p, checks: health.New(health.Options{}), log: log, files: cfg}, log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.config.Run(ctx, func(func(*model.View)) {}) }()
	defer func() {
		cancel()
		<-ended
	}()

	put(node + "notify:\n  - command: [\"true\"]\n  - command: [\"false\"]\n  - command: [\"true\"]\n    states: [fault]\n" + vip)
	if err := p.config.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	status := model.VIPStatus{VIP: model.VIP{Addr: netip.MustParseAddr("10.0.0.200")}, Standing: model.ReasonStandby, Reason: model.ReasonStandby}
	if _, err := p.notify.Apply(ctx, &model.Desired{Synced: true, Status: []model.VIPStatus{status}}); err != nil {
		t.Fatal(err)
	}
	defer p.notify.Close(t.Context())
	for end := time.Now().Add(30 * time.Second); len(p.notify.Runs()) < 2 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	counted := prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) { (&adapterMetrics{notify: p.notify}).collectNotify(ch) })
	if err := testutil.CollectAndCompare(counted, strings.NewReader(`# HELP lbd_notify_runs_total Runs of notify programs that have ended.
# TYPE lbd_notify_runs_total counter
lbd_notify_runs_total{result="failure",vip="web"} 1
lbd_notify_runs_total{result="success",vip="web"} 1
`)); err != nil {
		t.Error(err)
	}
}
