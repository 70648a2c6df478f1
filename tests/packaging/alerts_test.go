package packaging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/internal/testnet"
)

// ofPrometheus returns one of the programs prometheus and promtool: that of this computer, else
// that of Debian's package, which is unpacked once into the folder lbd/prometheus in LBD_CACHE
// or the user's cache. Nothing is installed.
func ofPrometheus(ctx context.Context, name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	cache := os.Getenv("LBD_CACHE")
	if cache == "" {
		var err error
		if cache, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("no folder for the cache, set LBD_CACHE: %w", err)
		}
	}
	dir := filepath.Join(cache, "lbd", "prometheus")
	path := filepath.Join(dir, name)
	if exec.CommandContext(ctx, path, "--version").Run() == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, "unpack-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := unpack(ctx, tmp); err != nil {
		return "", err
	}
	// Two processes may do this at once: each puts a whole file into its place.
	return path, os.Rename(filepath.Join(tmp, "usr", "bin", name), path)
}

// unpack gets Debian's package of Prometheus into dir. A fresh system has to be told first
// which packages there are, which only root may do.
func unpack(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err := in(ctx, dir, "apt-get", "download", "-q", "prometheus")
	if err != nil {
		if err = errors.Join(err, in(ctx, dir, "apt-get", "update", "-q")); ctx.Err() == nil {
			if again := in(ctx, dir, "apt-get", "download", "-q", "prometheus"); again == nil {
				err = nil
			}
		}
	}
	if err != nil {
		return fmt.Errorf("promtool: install Debian's package prometheus: %w", err)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("promtool: packages %v: %w", debs, err)
	}
	return in(ctx, dir, "dpkg-deb", "-x", debs[0], dir)
}

// in runs a program in a folder; the error has what it says.
func in(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// TestAlertsFire has promtool run testdata/alerts.yaml over the alerts that the program
// prints, in which every alert fires in one group and in no other.
func TestAlertsFire(t *testing.T) {
	tool, err := ofPrometheus(t.Context(), "promtool")
	testnet.Require(t, err)
	dir := t.TempDir()
	cases, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"rules.yaml": run(t, "manifest", "alerts"), "alerts.yaml": string(cases)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "rules.yaml"}, {"test", "rules", "alerts.yaml"}} {
		if err := in(t.Context(), dir, tool, args...); err != nil {
			t.Error(err)
		}
	}
}

var (
	labelUsed  = regexp.MustCompile(`\$labels\.([a-z_]+)`)
	labelGiven = regexp.MustCompile(`([a-z_]+)="`)
)

// TestAlertsAreTested: there is a case in which each alert fires, and one of another group in
// which nothing does; and an alert that fires has the labels that its words name.
func TestAlertsAreTested(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	var cases struct {
		Tests []struct {
			Expect []struct {
				Samples []struct{ Labels string } `json:"exp_samples"`
			} `json:"promql_expr_test"`
		}
	}
	text, err := os.ReadFile("testdata/alerts.yaml")
	if err == nil {
		err = errors.Join(yaml.Unmarshal(text, &cases), yaml.Unmarshal([]byte(run(t, "manifest", "alerts")), &rules))
	}
	if err != nil {
		t.Fatal(err)
	}
	fires := map[string][]string{}
	calm := 0
	for _, c := range cases.Tests {
		for _, e := range c.Expect {
			if len(e.Samples) == 0 {
				calm++
			}
			for _, s := range e.Samples {
				name := regexp.MustCompile(`alertname="(\w+)"`).FindStringSubmatch(s.Labels)[1]
				fires[name] = append(fires[name], s.Labels)
			}
		}
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if len(fires[r.Alert]) == 0 {
				t.Errorf("%s fires in no case", r.Alert)
			}
			for _, sample := range fires[r.Alert] {
				given := map[string]bool{}
				for _, m := range labelGiven.FindAllStringSubmatch(sample, -1) {
					given[m[1]] = true
				}
				for _, m := range labelUsed.FindAllStringSubmatch(fmt.Sprint(r.Annotations), -1) {
					if !given[m[1]] {
						t.Errorf("%s names the label %s, and fires without it: %s", r.Alert, m[1], sample)
					}
				}
			}
		}
	}
	if calm < len(fires) {
		t.Errorf("%d cases in which nothing fires for %d alerts", calm, len(fires))
	}
}
