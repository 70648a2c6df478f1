package packaging

import (
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Where things are, from here.
const (
	root  = "../.."
	base  = root + "/packaging/kustomize"
	chart = root + "/packaging/helm/lbd"
)

// version and commit are what the program is told to be.
const (
	version = "v0.0.0-test"
	commit  = "0123456789012345678901234567890123456789"
)

// lbd is the program that the manifests start.
var lbd string

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // Helm tells of the link to the definitions each time
	dir, err := os.MkdirTemp("", "lbd-packaging-")
	if err == nil {
		lbd = filepath.Join(dir, "lbd")
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build builds the program as everybody does, into bin.
func build(bin string) error {
	cmd := exec.Command("make", "build", "BIN="+bin, "VERSION="+version, "COMMIT="+commit)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make build: %w\n%s", err, out)
	}
	return nil
}

// run returns what the program prints.
func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), lbd, args...).Output()
	if err != nil {
		if exit, ok := err.(*exec.ExitError); ok {
			t.Fatalf("lbd %v: %v\n%s", args, err, exit.Stderr)
		}
		t.Fatal(err)
	}
	return string(out)
}

func kustomized(t *testing.T) []Object {
	t.Helper()
	objects, err := Kustomize(base)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func charted(t *testing.T, values map[string]any) []Object {
	t.Helper()
	objects, err := Chart(chart, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func index(t *testing.T, objects []Object) map[string]Object {
	t.Helper()
	all, err := Index(objects)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
