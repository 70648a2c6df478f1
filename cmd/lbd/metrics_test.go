package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"lbd.dev/lbd/internal/address"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/forward"
	"lbd.dev/lbd/internal/gossip"
	"lbd.dev/lbd/internal/health"
	"lbd.dev/lbd/internal/layer2"
	"lbd.dev/lbd/internal/logqueue"
	"lbd.dev/lbd/internal/model"
)

// scraped are the metrics of adapters that have nothing to do.
func scraped(t *testing.T, files *config.Source, q *logqueue.Queue) *adapterMetrics {
	t.Helper()
	group, err := gossip.New(gossip.Options{Name: "n1", BindAddr: netip.MustParseAddr("127.0.0.1"), Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := address.New(address.Options{})
	if err != nil {
		t.Fatal(err)
	}
	silence := layer2.New(layer2.Options{})
	t.Cleanup(func() {
		for _, end := range []func(context.Context) error{silence.Close, addresses.Close, group.Driver().Close} {
			_ = end(context.Background())
		}
	})
	return &adapterMetrics{
		forward: forward.New(forward.Options{Logger: slog.New(slog.DiscardHandler)}),
		gossip:  group, address: addresses, layer2: silence, health: health.New(health.Options{}),
		bgp: newBGP(&config.Config{}, slog.New(slog.DiscardHandler)), notify: newNotify(&config.Config{}, slog.New(slog.DiscardHandler)), config: files, log: q,
	}
}

// TestHostMetrics: what is wrong with the files shows in the metrics, and when what a
// kubeconfig proves itself with ends.
func TestHostMetrics(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	kubeconfig := put("kubeconfig", `{kind: Config, apiVersion: v1, current-context: a, clusters: [{name: a, cluster: {server: "https://10.0.0.1"}}],
contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {token: e30.eyJleHAiOjE4MDAwMDAwMDB9.c2ln}}]}`)
	good := "apiVersion: lbd.dev/v1alpha1\nkind: NodeConfiguration\nnodeName: n1\ngossip: {insecure: true}\n" +
		fmt.Sprintf("kubernetes: {kubeconfig: %s}\nmachines: {kubeconfig: %[1]s}\n", kubeconfig)
	path := put("lbd.yaml", good)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	files := config.NewSource(config.SourceOptions{Config: cfg, Path: path, Logger: slog.New(slog.DiscardHandler)})
	go func() { _ = files.Run(t.Context(), func(func(*model.View)) {}) }()
	q := logqueue.New(t.Output())
	defer q.Close()
	m := scraped(t, files, q)
	for _, refused := range []int{0, 1, 0} {
		text := good
		if refused == 1 {
			text += "weight: -1\n"
		}
		put("lbd.yaml", text)
		if err := files.Reload(t.Context()); (err != nil) != (refused == 1) {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`# HELP lbd_configuration_refused Whether the files of the configuration are refused as they are now.
# TYPE lbd_configuration_refused gauge
lbd_configuration_refused %d
# HELP lbd_kubernetes_credentials_expiry_timestamp_seconds When the token or the client certificate of a kubeconfig file ends, since 1970.
# TYPE lbd_kubernetes_credentials_expiry_timestamp_seconds gauge
lbd_kubernetes_credentials_expiry_timestamp_seconds{kubeconfig=%q} 1.8e+09
`, refused, kubeconfig)
		if err := testutil.CollectAndCompare(m, strings.NewReader(want), "lbd_configuration_refused", "lbd_kubernetes_credentials_expiry_timestamp_seconds"); err != nil {
			t.Error(err)
		}
	}
}

// TestLogMetric: what the log drops is counted.
func TestLogMetric(t *testing.T) {
	q := logqueue.New(t.Output())
	q.Close()
	_, _ = q.Write([]byte("too late"))
	err := testutil.CollectAndCompare(scraped(t, config.NewSource(config.SourceOptions{Config: &config.Config{}}), q),
		strings.NewReader("# HELP lbd_log_lines_dropped_total Lines of the log that were dropped, since nobody took them.\n"+
			"# TYPE lbd_log_lines_dropped_total counter\nlbd_log_lines_dropped_total 1\n"), "lbd_log_lines_dropped_total")
	if err != nil {
		t.Error(err)
	}
}
