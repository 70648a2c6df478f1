package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nodeOnly is a configuration that this program takes.
const nodeOnly = "apiVersion: lbd.dev/v1alpha1\nkind: NodeConfiguration\nnodeName: m1\ngossip: {insecure: true}\n"

// TestRestartAsksTheNewProgram: a daemon is replaced only by a program that takes its
// configuration, and goes on if that program refuses it, hangs or cannot run.
func TestRestartAsksTheNewProgram(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "lbd.yaml")
	if err := os.WriteFile(file, []byte(nodeOnly), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, script, want string }{
		{"takes it", "#!/bin/sh\n[ \"$*\" = 'validate " + file + "' ]\n", ""},
		{"refuses it", "#!/bin/sh\necho 'lbd.yaml:3: gone: is not a known field' >&2\nexit 1\n", "lbd.yaml:3: gone: is not a known field"},
		{"hangs", "#!/bin/sh\nexec sleep 60\n", "no answer in time"},
		{"is damaged", "no program\n", "exec format error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "lbd")
			if err := os.WriteFile(program, []byte(c.script), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Parallel() // only now: a file that is open for writing cannot be run
			r := newRestarter(file)
			r.program = func() (string, error) { return program, nil }
			from := time.Now()
			err := r.Restart(t.Context())
			if took := time.Since(from); took > 2*validateTimeout {
				t.Errorf("it took %v", took)
			}
			if c.want == "" && (err != nil || len(r.asked) != 1) {
				t.Errorf("%v, %d programs to run", err, len(r.asked))
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(r.asked) != 0) {
				t.Errorf("%v, %d programs to run, want none and %q", err, len(r.asked), c.want)
			}
		})
	}
}
