package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/internal/model"
)

// alert is a rule of packaging/kustomize/monitoring/rules.yaml.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

const monitoring = "packaging/kustomize/monitoring/"

func readMonitoring(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(monitoring), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var rule struct {
		Spec struct{ Groups []struct{ Rules []alert } }
	}
	if err := yaml.Unmarshal([]byte(readMonitoring(t, "rules.yaml")), &rule); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range rule.Spec.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("only %d alerts", len(all))
	}
	return all
}

// TestAlerts: each alert says what it is about and where to read on, and has a section that
// says what it means, what to look at and what to do. No section is of an alert that is gone.
func TestAlerts(t *testing.T) {
	p := readPage(t, "docs/alerts.md")
	sections := map[string]string{}
	for _, part := range strings.Split(p.text, "\n## ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		sections[title] = text
	}
	var names, titles []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		if s := a.Labels["severity"]; s != "critical" && s != "warning" || len(a.Labels) != 1 {
			t.Errorf("%s: labels %v", a.Alert, a.Labels)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" || a.Expr == "" {
			t.Errorf("%s: it needs an expression, a summary and a description", a.Alert)
		}
		if want := "docs/alerts.md#" + strings.ToLower(a.Alert); a.Annotations["runbook"] != want {
			t.Errorf("%s: runbook %q, want %q", a.Alert, a.Annotations["runbook"], want)
		}
		rest := sections[a.Alert]
		for _, begin := range []string{"\n- **Means:** ", "\n- **Look at:** ", "\n- **Do:** "} {
			_, after, ok := strings.Cut(rest, begin)
			if !ok || len(after) < 20 {
				t.Errorf("docs/alerts.md: %s has no %s", a.Alert, strings.TrimSpace(begin))
			}
			rest = begin[:1] + after
		}
	}
	for title := range sections {
		titles = append(titles, title)
	}
	same(t, "docs/alerts.md", titles, names)
}

var seriesName = regexp.MustCompile(`\b(lbd_[a-z0-9_]+)\b`)

// TestAlertMetrics: rules and dashboard ask for metrics that exist. Prometheus itself and the
// collectors of Go give the others.
func TestAlertMetrics(t *testing.T) {
	known := metricNames(t)
	texts := map[string]string{"rules.yaml": readMonitoring(t, "rules.yaml"), "dashboard.json": readMonitoring(t, "dashboard.json")}
	for file, text := range texts {
		found := 0
		for _, m := range seriesName.FindAllStringSubmatch(text, -1) {
			found++
			name := m[1]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} { // of a histogram
				if base := strings.TrimSuffix(name, suffix); slices.Contains(known, base) {
					name = base
				}
			}
			if !slices.Contains(known, name) {
				t.Errorf("%s asks for %s, which does not exist", file, m[1])
			}
		}
		if found < 20 {
			t.Errorf("%s: only %d metrics", file, found)
		}
	}
}

var reasonMatch = regexp.MustCompile(`reason[=!]~?\\?"([A-Za-z|]+)\\?"`)

// TestAlertReasons: rules and dashboard ask for reasons that exist, and LbdNodeCannotOwn for all
// that need a person.
func TestAlertReasons(t *testing.T) {
	for _, text := range []string{readMonitoring(t, "rules.yaml"), readMonitoring(t, "dashboard.json")} {
		for _, m := range reasonMatch.FindAllStringSubmatch(text, -1) {
			for name := range strings.SplitSeq(m[1], "|") {
				if _, ok := model.ParseReason(name); !ok {
					t.Errorf("there is no reason %s", name)
				}
			}
		}
	}
	var look []string
	for _, r := range model.Reasons() {
		if r.Look() {
			look = append(look, r.String())
		}
	}
	for _, a := range alerts(t) {
		if a.Alert == "LbdNodeCannotOwn" {
			same(t, a.Alert, strings.Split(reasonMatch.FindStringSubmatch(a.Expr)[1], "|"), look)
		}
	}
}
