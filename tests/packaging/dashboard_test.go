package packaging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/testnet"
)

// lonely is a daemon on a host of its own with a bit of everything that has metrics: an address that it
// announces, one that fails its check, a server that fails its check, a router that is not there.
const lonely = `apiVersion: lbd.dev/v1alpha1
kind: NodeConfiguration
nodeName: m1
gossip: {bindAddress: 10.99.0.11, peers: [10.99.0.12], insecure: true}
socket: SOCKET
---
apiVersion: lbd.dev/v1alpha1
kind: VirtualIP
metadata: {name: good}
spec: {addresses: [10.99.0.200]}
---
apiVersion: lbd.dev/v1alpha1
kind: VirtualIP
metadata: {name: bad}
spec: {addresses: [10.99.0.201], healthCheck: {tcp: {port: 1}, interval: 100ms, timeout: 50ms}}
---
apiVersion: lbd.dev/v1alpha1
kind: LoadBalancer
metadata: {name: lb}
spec: {addresses: [10.99.0.202], ports: [{port: 80}], backends: [{address: 10.99.0.50}], healthCheck: {tcp: {port: 80}}}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: tor}
spec: {myASN: 64512, peerASN: 64513, peerAddress: 10.99.0.1}
`

// scraping is a Prometheus that reads it as the ServiceMonitor of the chart has it.
const scraping = `global: {scrape_interval: 500ms}
scrape_configs:
- {job_name: lbd, static_configs: [{targets: ["127.0.0.1:7477"]}]}
`

// quiet are the metrics of which that daemon has none, and why a query of them gives nothing.
var quiet = map[string]string{
	"lbd_allocator_":        "it is no controller",
	"lbd_controller_":       "it is no controller",
	"lbd_tenant_":           "it is no controller",
	"lbd_kubernetes_":       "it has no cluster",
	"lbd_bfd_":              "no session has BFD",
	"lbd_heartbeats_":       "it has no peer that is alive",
	"changes(lbd_vip_owner": "the owner does not change",
	"lbd_bgp_session_flaps": "no session is lost",
	"lbd_conntrack_":        "the kernel of the host may not count connections",
	"lbd_vip_takeover_":     "nobody is taken over from",
	"lbd_vip_duplicate":     "no other host uses an address",
}

// metricUsed is a metric in a query: for one that does not exist "or vector(0)" gives something.
var metricUsed = regexp.MustCompile(`\b(lbd|process)_[a-z0-9_]+\b`)

// TestDashboardQueries has a real Prometheus read a real daemon, and asks each query of the
// dashboard: none may be refused, and each gives something where there is something to show.
func TestDashboardQueries(t *testing.T) {
	testnet.NeedRoot(t)
	server, err := ofPrometheus(t.Context(), "prometheus")
	tool, err2 := ofPrometheus(t.Context(), "promtool")
	testnet.Require(t, errors.Join(err, err2))
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("lbd.yaml", strings.Replace(lonely, "SOCKET", filepath.Join(dir, "lbd.sock"), 1))
	put("prometheus.yaml", scraping)
	pid := host(t, dir, fmt.Sprintf(`ip link set lo up && ip link add eth0 type veth peer name eth1 && ip link set eth1 up && ip addr add 10.99.0.11/24 dev eth0 && ip link set eth0 up
		%s run --config lbd.yaml & exec %s --config.file=prometheus.yaml --storage.tsdb.path=data --web.listen-address=127.0.0.1:9090 --log.level=error`, lbd, server))
	ask := func(query string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, "nsenter", "-t", fmt.Sprint(pid), "-n", tool, "query", "instant", "http://127.0.0.1:9090", query).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		return strings.TrimSpace(string(out)), nil
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		// Three readings in which the first address is announced, so that rates are known.
		out, err := ask(`count_over_time((lbd_vip_announced{vip="good"} == 1)[1m:500ms]) > 2`)
		if err == nil && out != "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no metrics: %v", err)
		}
	}
	excuse := func(query string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(quiet)), func(part string) bool { return strings.Contains(query, part) })
	}
	asked, known := 0, map[string]bool{}
	for _, query := range queries(t) {
		asked++
		for _, name := range metricUsed.FindAllString(query, -1) {
			if !known[name] && !excuse(query) {
				out, err := ask("count(" + name + ")")
				if err != nil || out == "" {
					t.Errorf("%s: there is no metric %s, %v", query, name, err)
				}
				known[name] = true
			}
		}
		out, err := ask(query)
		excused := excuse(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
		} else if out == "" && !excused {
			t.Errorf("%s gives nothing", query)
		}
	}
	if asked < 25 {
		t.Errorf("%d queries", asked)
	}
	if out, err := ask(`count(sum by (vip, address) (lbd_vip_announced) == 0)`); err != nil || !strings.HasPrefix(out, "{} => 2 ") {
		t.Errorf("two of the addresses have no owner, and the query says %q, %v", out, err)
	}
}

// host runs a shell script as a host of its own until the test ends. It returns its process.
func host(t *testing.T, dir, script string) int {
	t.Helper()
	var said bytes.Buffer
	c := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c", script)
	c.Dir, c.Stdout, c.Stderr = dir, &said, &said
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	return c.Process.Pid
}

// panel is one of the dashboard, as far as it is looked at here.
type panel struct {
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct {
		Defaults struct {
			Unit, NoValue string
			Min           *float64
			Decimals      *int
			Color         struct{ Mode string }
			Thresholds    *struct{}
		}
	}
	Targets []struct{ Expr string }
}

// panels are those of the dashboard that the program prints.
func panels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal([]byte(run(t, "manifest", "dashboard")), &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

// TestDashboardReads: panels do not lie over each other, a tile has room for its title, curves
// begin at zero, whole numbers are whole, and a panel without data says why in words.
func TestDashboardReads(t *testing.T) {
	taken := map[[2]int]string{}
	for _, p := range panels(t) {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q lies over %q or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		// 22 letters are what Grafana shows in 4 columns of a window that is 1440 wide.
		if p.GridPos.W <= 4 && len(p.Title) > 22 {
			t.Errorf("%q is cut off", p.Title)
		}
		d := p.FieldConfig.Defaults
		if p.Type != "row" && d.NoValue == "" {
			t.Errorf("%q says only that there is no data", p.Title)
		}
		if p.Type == "timeseries" && (d.Min == nil || *d.Min != 0) {
			t.Errorf("%q does not begin at zero", p.Title)
		}
		if p.Type == "timeseries" && d.Unit == "short" && (d.Decimals == nil || *d.Decimals != 0) {
			t.Errorf("%q counts, and has fractions", p.Title)
		}
		// By itself Grafana turns a tile red from 80 on.
		if p.Type == "stat" && d.Thresholds == nil && d.Color.Mode != "fixed" {
			t.Errorf("%q has the thresholds of Grafana", p.Title)
		}
	}
	if len(taken) < 1000 {
		t.Errorf("the panels take %d places", len(taken))
	}
}

// queries are those of the dashboard, with all instances chosen.
func queries(t *testing.T) (out []string) {
	t.Helper()
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			out = append(out, strings.NewReplacer("$instance", ".*", "$__rate_interval", "5m").Replace(target.Expr))
		}
	}
	return out
}
