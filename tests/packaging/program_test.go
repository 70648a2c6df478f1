package packaging

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

var flagInHelp = regexp.MustCompile(`(?m)^\s+(?:-[a-zA-Z], )?--([a-z-]+)`)

// flags returns the flags that a command has.
func flags(t *testing.T, command string) []string {
	t.Helper()
	help := run(t, command, "--help")
	if !strings.Contains(help, "lbd "+command+" [flags]") {
		t.Fatalf("there is no command %q", command)
	}
	var all []string
	for _, m := range flagInHelp.FindAllStringSubmatch(help, -1) {
		all = append(all, m[1])
	}
	return all
}

// checkProgram wants every command, flag and variable of the containers to exist in
// the program.
func checkProgram(t *testing.T, objects []Object) {
	t.Helper()
	read := sources(t)
	for _, o := range objects {
		for _, c := range containers(o) {
			where := o.Key() + ": " + c.Text("name")
			if got := fmt.Sprint(c["command"]); got != "[/usr/bin/lbd]" {
				t.Errorf("%s: command %s", where, got)
			}
			args := c["args"].([]any)
			known := flags(t, args[0].(string))
			for _, a := range args[1:] {
				name, _, _ := strings.Cut(a.(string), "=")
				if flag, ok := strings.CutPrefix(name, "--"); !ok || !slices.Contains(known, flag) {
					t.Errorf("%s: lbd %s has no %s", where, args[0], a)
				}
			}
			env, _ := c["env"].([]any)
			for _, e := range env {
				name := e.(map[string]any)["name"].(string)
				if used := strings.Contains(fmt.Sprint(args), "$("+name+")"); !used && !strings.Contains(read, `"`+name+`"`) {
					t.Errorf("%s: nothing reads the variable %s", where, name)
				}
			}
		}
	}
}

// sources returns the text of the program, without tests.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			all.Write(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

func TestProgram(t *testing.T) {
	checkProgram(t, kustomized(t))
	// What can be switched on names flags too.
	checkProgram(t, charted(t, map[string]any{
		"loadBalancerClass": "example.net/lb", "classless": true, "controller": map[string]any{"quarantine": "5m"},
	}))
}

// TestPorts: the ports in the manifests are those on which the program listens.
func TestPorts(t *testing.T) {
	all := index(t, kustomized(t))
	_, http, err := net.SplitHostPort(v1alpha1.DefaultHTTPAddress)
	if err != nil {
		t.Fatal(err)
	}
	speaker := containers(all["DaemonSet/lbd-system/lbd"])[0]
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		if got := fmt.Sprint(speaker.At(probe, "httpGet", "port")); got != http || speaker.Text(probe, "httpGet", "host") != "127.0.0.1" {
			t.Errorf("%s asks port %s, the daemon listens on %s", probe, got, v1alpha1.DefaultHTTPAddress)
		}
	}
	// Of a daemon of the host, which has the same port, it is not the pod that is ready.
	if got := speaker.Text("readinessProbe", "httpGet", "path"); got != "/readyz?daemon=pod" {
		t.Errorf("readiness asks %s", got)
	}
	for _, p := range speaker["ports"].([]any) {
		if got := fmt.Sprint(p.(map[string]any)["containerPort"]); got != fmt.Sprint(v1alpha1.DefaultGossipPort) {
			t.Errorf("port %s is not that of gossip", got)
		}
	}
	controller := all["Deployment/lbd-system/lbd-controller"]
	main := containers(controller)[1]
	port := fmt.Sprint(main["ports"].([]any)[0].(map[string]any)["containerPort"])
	if !slices.Contains(main["args"].([]any), any("--http=:"+port)) {
		t.Errorf("the controller is told %v, and its port is %s", main["args"], port)
	}
	policy := all["NetworkPolicy/lbd-system/lbd-controller"]
	ingress := policy.At("spec", "ingress").([]any)[0].(map[string]any)["ports"].([]any)[0].(map[string]any)["port"]
	if fmt.Sprint(ingress) != port {
		t.Errorf("the policy lets %v in, not %s", ingress, port)
	}
}

// TestConfiguration: the daemon takes what it is given, and it means what the rest of
// the manifests expect.
func TestConfiguration(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"default": nil,
		"all": {
			"loadBalancerClass": "example.net/lb", "classless": true,
			"speaker": map[string]any{"configuration": map[string]any{
				"gossip": map[string]any{"port": 7950, "detection": "fast"}, "http": map[string]any{"address": ":7479"},
				"drain": map[string]any{"timeout": "10s"}, "weight": 10, "kubernetes": map[string]any{"cordonDrains": true},
			}},
		},
	} {
		objects := charted(t, values)
		checkTypes(t, objects)
		all := index(t, objects)
		text := all["ConfigMap/lbd-system/lbd"].Text("data", "lbd.yaml")
		file := filepath.Join(t.TempDir(), "lbd.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := run(t, "validate", file); !strings.Contains(out, "valid") {
			t.Errorf("%s: %s\n%s", name, out, text)
		}
		if !strings.Contains(text, "keyFile: /etc/lbd/gossip.key") {
			t.Errorf("%s: the key file is gone:\n%s", name, text)
		}
		if values == nil {
			continue
		}
		for _, line := range []string{
			"  port: 7950\n", "  detection: fast\n", "  address: :7479\n", "  timeout: 10s\n", "weight: 10\n",
			"  cordonDrains: true\n", "  classless: true\n", "  loadBalancerClass: example.net/lb\n",
		} {
			if !strings.Contains(text+"\n", line) {
				t.Errorf("the configuration lacks %q:\n%s", line, text)
			}
		}
		speaker := containers(all["DaemonSet/lbd-system/lbd"])[0]
		if got := fmt.Sprintf("%v %v %v", speaker.At("readinessProbe", "httpGet", "host"), speaker.At("readinessProbe", "httpGet", "port"),
			speaker["ports"].([]any)[1].(map[string]any)["containerPort"]); got != "127.0.0.1 7479 7950" {
			t.Errorf("probes and ports do not follow the configuration: %s", got)
		}
	}
}
