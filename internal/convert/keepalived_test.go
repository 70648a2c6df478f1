package convert

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeepalived converts testdata/NAME.keepalived.conf, and compares as TestGolden does.
func TestKeepalived(t *testing.T) {
	inputs, err := filepath.Glob(filepath.Join("testdata", "*.keepalived.conf"))
	if err != nil || len(inputs) < 4 {
		t.Fatal(inputs, err)
	}
	for _, in := range inputs {
		name := strings.TrimSuffix(filepath.Base(in), ".conf")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			r := Keepalived([]File{{filepath.Base(in), data}})
			out, err := r.YAML()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".out.yaml", out)
			golden(t, name+".notes", []byte(lines(r.Notes)+lines(r.Errors)))
		})
	}
}

// TestKeepalivedOfManyFiles: a script may be in another file than the instance that names it.
func TestKeepalivedOfManyFiles(t *testing.T) {
	r := Keepalived([]File{
		{"a", []byte("vrrp_instance x {\n track_script { s }\n virtual_ipaddress { 10.0.0.1 }\n}\n")},
		{"b", []byte("\nvrrp_script s { script /bin/true }\nvirtual_server fwmark 1 { }")},
	})
	if said := lines(r.Notes); !strings.Contains(said, "b:2: vrrp_instance") || !strings.Contains(said, "b:3: virtual_server") {
		t.Errorf("notes name other files or lines:\n%s", said)
	}
	out, err := r.YAML()
	if err != nil || !bytes.Contains(out, []byte("- /bin/true")) {
		t.Errorf("%s, %v, %s", out, err, lines(r.Errors))
	}
}

// FuzzKeepalived: whatever is read, what comes out can be written.
func FuzzKeepalived(f *testing.F) {
	inputs, _ := filepath.Glob(filepath.Join("testdata", "*.keepalived.conf"))
	for _, in := range inputs {
		data, err := os.ReadFile(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := Keepalived([]File{{"x", data}})
		if _, err := r.YAML(); err != nil {
			t.Errorf("%v", err)
		}
		for _, n := range append(r.Notes, r.Errors...) {
			if s := n.String(); strings.Contains(s, "\n") {
				t.Errorf("%q has more than a line", s)
			}
		}
		if len(r.Errors) > 0 && len(r.Objects) > 0 {
			t.Error("objects beside errors")
		}
	})
}
