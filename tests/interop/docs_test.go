package interop_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocumented runs the configurations of docs/bgp.md for one top-of-rack
// router, with the addresses of the lab in place of theirs.
func TestDocumented(t *testing.T) {
	need(t)
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "bgp.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := strings.ReplaceAll(string(b), "10.0.0.", "10.77.0.")
	lbd, _, _ := strings.Cut(block(t, doc, "```yaml\n"), "    https:")
	lbd = strings.TrimSuffix(strings.TrimRight(lbd, " \n"), "healthCheck:") // no service runs
	_, rest, ok := strings.Cut(block(t, doc, "```yaml\n"), "  advertise:")
	if !ok {
		t.Fatal("docs/bgp.md: no advertise in the first example")
	}
	_, router, ok := strings.Cut(doc, "\n## One top-of-rack router\n")
	if !ok {
		t.Fatal("docs/bgp.md: no chapter about one router")
	}
	_, frr, _ := strings.Cut(router, "FRR:\n")
	_, bird, _ := strings.Cut(router, "BIRD 2:\n")
	for name, conf := range map[string]string{
		"frr": block(t, frr, "```\n"),
		// What every bird.conf has.
		"bird": "router id 10.77.0.1;\nprotocol device {}\n" + block(t, bird, "```\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, map[string]string{"frr": "frr.conf", "bird": "bird.conf"}[name]), conf)
			write(t, filepath.Join(dir, "lbd.yaml"), lbd+"\n  advertise:"+rest)
			write(t, filepath.Join(dir, "lbd.want"), `> status
{"bgp": [{"peer": "tor1", "state": "Established", "bfd": "Up", "bfdDetect": "300ms", "advertised": ["10.99.0.200/32"]}]}
`)
			write(t, filepath.Join(dir, name+".want"), "$ ip -j -4 route show 10.99.0.200\n[{\"gateway\": \"10.77.0.11\"}]\n")
			runCase(t, matrixCase{name: name, dir: dir}, name)
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// block returns the first fenced block that begins so.
func block(t *testing.T, text, fence string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, fence)
	body, _, end := strings.Cut(rest, "```")
	if !ok || !end {
		t.Fatalf("docs/bgp.md: no block %q", fence)
	}
	return body
}
