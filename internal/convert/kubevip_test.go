package convert

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKubeVIP converts testdata/NAME.kube-vip.yaml, and compares as TestGolden does. No password
// comes out.
func TestKubeVIP(t *testing.T) {
	inputs, err := filepath.Glob(filepath.Join("testdata", "*.kube-vip.yaml"))
	if err != nil || len(inputs) < 4 {
		t.Fatal(inputs, err)
	}
	for _, in := range inputs {
		name := strings.TrimSuffix(filepath.Base(in), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			r := KubeVIP([]File{{filepath.Base(in), data}})
			out, err := r.YAML()
			if err != nil {
				t.Fatal(err)
			}
			notes := []byte(lines(r.Notes) + lines(r.Errors))
			golden(t, name+".out.yaml", out)
			golden(t, name+".notes", notes)
			for _, secret := range []string{"secret", "hidden"} {
				if bytes.Contains(out, []byte(secret)) || bytes.Contains(notes, []byte(secret)) {
					t.Errorf("a password is printed")
				}
			}
		})
	}
}

// FuzzKubeVIP: whatever is read, what comes out can be written.
func FuzzKubeVIP(f *testing.F) {
	inputs, _ := filepath.Glob(filepath.Join("testdata", "*.kube-vip.yaml"))
	for _, in := range inputs {
		data, err := os.ReadFile(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := KubeVIP([]File{{"x", data}})
		if _, err := r.YAML(); err != nil {
			t.Errorf("%v", err)
		}
		if len(r.Errors) > 0 && len(r.Objects) > 0 {
			t.Error("objects beside errors")
		}
	})
}
