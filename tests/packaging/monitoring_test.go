package packaging

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// watched is what makes the chart install what Prometheus and Grafana need.
var watched = map[string]any{"monitoring": map[string]any{"enabled": true}}

// TestSameMonitoring: the component and the chart add the same objects, which an API server
// knows, with flags and fields that exist.
func TestSameMonitoring(t *testing.T) {
	list := overlaid(t, "monitoring")
	checkTypes(t, list)
	checkProgram(t, list)
	want, got := index(t, list), index(t, charted(t, watched))
	delete(want, "Namespace/"+Namespace)
	if len(want) != len(index(t, kustomized(t)))-1+9 || len(got) != len(want) {
		t.Errorf("%d objects by kustomize, %d by Helm", len(want), len(got))
	}
	text := want["ConfigMap/lbd-system/lbd"].Text("data", "lbd.yaml")
	file := filepath.Join(t.TempDir(), "lbd.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run(t, "validate", file); !strings.Contains(out, "valid") {
		t.Errorf("%s\n%s", out, text)
	}
	for key := range want {
		if diff := cmp.Diff(plain(t, want[key]), plain(t, got[key])); diff != "" {
			t.Errorf("%s: kustomize (-) and Helm (+):\n%s", key, diff)
		}
	}
	// Beside what a management cluster needs it says the same.
	both := index(t, overlaid(t, "machines", "monitoring"))
	args := fmt.Sprint(containers(both["Deployment/lbd-system/lbd-controller"])[1]["args"])
	if !strings.Contains(args, " --machines ") || !strings.Contains(args, " --metrics-address=:7479]") {
		t.Errorf("the controller is told %s", args)
	}
}

// TestMonitoringRights: both accounts may ask for reviews and no more, and who reads gets one
// URL.
func TestMonitoringRights(t *testing.T) {
	all := index(t, charted(t, watched))
	want := []string{"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"}
	if got := rights(all["ClusterRole/lbd-metrics-auth"]); !slices.Equal(got, want) {
		t.Errorf("they may %q", got)
	}
	if got := fmt.Sprint(all["ClusterRole/lbd-metrics-reader"]["rules"]); got != "[map[nonResourceURLs:[/metrics] verbs:[get]]]" {
		t.Errorf("who reads may %s", got)
	}
	for _, s := range all["ClusterRoleBinding/lbd-metrics-auth"].At("subjects").([]any) {
		subject := Object(s.(map[string]any))
		if _, ok := all["ServiceAccount/"+subject.Text("namespace")+"/"+subject.Text("name")]; !ok {
			t.Errorf("there is no account %v", subject)
		}
	}
	for key, o := range all {
		if o.Text("kind") == "ClusterRoleBinding" && o.Text("roleRef", "name") == "lbd-metrics-reader" {
			t.Errorf("%s lets somebody read", key)
		}
	}
}

// TestMonitoringPath: from Prometheus to the listener every name and number fits the next.
func TestMonitoringPath(t *testing.T) {
	all := index(t, charted(t, map[string]any{"monitoring": map[string]any{
		"enabled": true, "port": 9443, "tlsConfig": map[string]any{"insecureSkipVerify": false, "serverName": "s"}, "labels": map[string]any{"release": "p"}, "dashboardLabels": map[string]any{"d": "e"},
	}}))
	if text := all["ConfigMap/lbd-system/lbd"].Text("data", "lbd.yaml"); !strings.Contains(text, "metrics:\n  address: :9443\n") {
		t.Errorf("the speaker is told\n%s", text)
	}
	deployment := all["Deployment/lbd-system/lbd-controller"]
	if args := fmt.Sprint(containers(deployment)[1]["args"]); !strings.Contains(args, "--metrics-address=:9443") {
		t.Errorf("the controller is told %s", args)
	}
	policy := all["NetworkPolicy/lbd-system/lbd-controller"].At("spec", "ingress").([]any)[0].(map[string]any)["ports"]
	if !strings.Contains(fmt.Sprint(policy), "port:9443") {
		t.Errorf("the policy lets %v in", policy)
	}
	for job, workload := range map[string]Object{"lbd": all["DaemonSet/lbd-system/lbd"], "lbd-controller": deployment} {
		monitor, service := all["ServiceMonitor/lbd-system/"+job], all["Service/lbd-system/"+job+"-metrics"]
		if monitor == nil || service == nil {
			t.Fatalf("%s is not read", job)
		}
		pod := fmt.Sprint(workload.At("spec", "template", "metadata", "labels"))
		if got := fmt.Sprint(service.At("spec", "selector")); got != pod {
			t.Errorf("the Service selects %s, the pods have %s", got, pod)
		}
		labels := service.At("metadata", "labels").(map[string]any)
		for k, v := range monitor.At("spec", "selector", "matchLabels").(map[string]any) {
			if labels[k] != v {
				t.Errorf("the Service of %s is not selected: %v", job, labels)
			}
		}
		port := service.At("spec", "ports").([]any)[0].(map[string]any)
		endpoint := Object(monitor.At("spec", "endpoints").([]any)[0].(map[string]any))
		if fmt.Sprint(port["port"]) != "9443" || port["name"] != endpoint["port"] || endpoint["path"] != "/metrics" || endpoint["scheme"] != "https" {
			t.Errorf("%s: %v, %v", job, port, endpoint)
		}
		if got := fmt.Sprint(endpoint.At("relabelings").([]any)[0]); got != "map[replacement:"+job+" targetLabel:job]" {
			t.Errorf("the job is %s", got)
		}
		if got := fmt.Sprint(endpoint["tlsConfig"]); got != "map[insecureSkipVerify:false serverName:s]" {
			t.Errorf("%s is verified by %s", job, got)
		}
		if monitor.Text("metadata", "labels", "release") != "p" {
			t.Errorf("%v", monitor.At("metadata", "labels"))
		}
	}
	if all["PrometheusRule/lbd-system/lbd"].Text("metadata", "labels", "release") != "p" {
		t.Error("the rules are not selected")
	}
	if all["ConfigMap/lbd-system/lbd-dashboard"].Text("metadata", "labels", "d") != "e" {
		t.Error("the dashboard is not found")
	}
}

// TestMonitoringSwitches: what is switched off is not there.
func TestMonitoringSwitches(t *testing.T) {
	for _, o := range charted(t, parse(t, "monitoring: {enabled: true, operator: false, dashboard: false}")) {
		if strings.HasPrefix(o.Text("apiVersion"), "monitoring.") || o.Text("metadata", "name") == "lbd-dashboard" {
			t.Errorf("%s is there", o.Key())
		}
	}
}

// TestManifestMonitoring: the program prints what the component has, for a Prometheus without
// the operator and for Grafana.
func TestManifestMonitoring(t *testing.T) {
	all := index(t, overlaid(t, "monitoring"))
	var printed any
	if err := yaml.UnmarshalStrict([]byte(run(t, "manifest", "alerts")), &printed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all["PrometheusRule/lbd-system/lbd"]["spec"], printed); diff != "" {
		t.Errorf("the component (-) and lbd (+):\n%s", diff)
	}
	if got := run(t, "manifest", "dashboard"); got != all["ConfigMap/lbd-system/lbd-dashboard"].Text("data", "lbd.json") {
		t.Errorf("another dashboard: %.100s", got)
	}
}
