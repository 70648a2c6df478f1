package docs

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/convert"
)

// TestConvertExample holds the pages for those who come from another program to what lbd makes of
// their examples.
func TestConvertExample(t *testing.T) {
	for _, c := range []struct{ from, begin, file string }{
		{"metallb", "apiVersion: metallb.io/", "metallb.yaml"},
		{"keepalived", "vrrp_instance ", "keepalived.conf"},
		{"kube-vip", "cp_enable", "kube-vip.yaml"},
	} {
		page := "docs/" + c.from + ".md"
		blocks := readPage(t, page).blocks()
		var in, out, said string
		for i, b := range blocks {
			if strings.Contains(b.text, c.begin) && i+2 < len(blocks) {
				in, out, said = b.text, blocks[i+1].text, blocks[i+2].text
				break
			}
		}
		if in == "" {
			t.Fatalf("%s has no example", page)
		}
		dir := t.TempDir()
		put(t, filepath.Join(dir, c.file), in)
		got, notes, code := call(t, program(t), dir, "", "convert", c.from, c.file)
		if got != out || notes != said || code != 0 {
			t.Errorf("%s: exit code %d\n%s\n%s\nwant\n%s\n%s", page, code, got, notes, out, said)
		}
		put(t, filepath.Join(dir, "converted"), got)
		if _, said, code := call(t, program(t), dir, "", "validate", "converted"); code != 0 {
			t.Errorf("%s: what comes out is refused: %s", page, said)
		}
		if _, said, code := call(t, program(t), dir, "", "validate", c.file); code != 1 || !strings.Contains(said, "lbd convert "+c.from) {
			t.Errorf("lbd validate %s: exit code %d, %s", c.file, code, said)
		}
	}
}

// TestConvertCommand: what is not carried over is warned about, and with --strict makes the exit
// code 1; what cannot be read makes it 1 and prints no object.
func TestConvertCommand(t *testing.T) {
	bin, dir := program(t), t.TempDir()
	good := "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: a}\nspec: {addresses: [10.0.0.0/24]}\n"
	put(t, filepath.Join(dir, "good.yaml"), good)
	put(t, filepath.Join(dir, "kept.yaml"), strings.Replace(good, "name: a", "name: a, namespace: b", 1))
	put(t, filepath.Join(dir, "bad.yaml"), "a: [\n")
	put(t, filepath.Join(dir, "other.yaml"), "kind: Pod\nmetadata: {name: x}\n")
	for _, tt := range []struct {
		stdin        string
		args         []string
		code         int
		objects, say string // must be part of it, or "" for nothing at all
	}{
		{"", []string{"good.yaml"}, 0, "apiVersion: lbd.dev/v1alpha1\nkind: IPAddressPool\n", ""},
		{good, []string{"-"}, 0, "kind: IPAddressPool\n", ""},
		{"", []string{"good.yaml", "other.yaml"}, 0, "kind: IPAddressPool\n", `warning: other.yaml:1: Pod "x": kind: "Pod" is not converted`},
		{"", []string{"--strict", "good.yaml", "other.yaml"}, 1, "kind: IPAddressPool\n", "\nerror: lbd convert metallb: --strict: not everything was carried over\n"},
		{"", []string{"--strict", "good.yaml"}, 0, "kind: IPAddressPool\n", ""},
		{"", []string{"--strict", "kept.yaml"}, 0, "kind: IPAddressPool\n", `note: kept.yaml:3: IPAddressPool "a": metadata.namespace: "b" is left out`},
		{"", []string{"good.yaml", "bad.yaml"}, 1, "", "error: bad.yaml"},
		{"", []string{"good.yaml", "none.yaml"}, 1, "", "error: open none.yaml: no such file"},
		{"", nil, 2, "", "wants a file"},
	} {
		out, said, code := call(t, bin, dir, tt.stdin, append([]string{"convert", "metallb"}, tt.args...)...)
		if code != tt.code || !strings.Contains(out, tt.objects) || (out == "") != (tt.objects == "") ||
			!strings.Contains(said, tt.say) || (said == "") != (tt.say == "") {
			t.Errorf("%v: exit code %d\n%s\n%s", tt.args, code, out, said)
		}
	}
}

// TestConvertedIsValid: what comes out of the examples passes validation, unless a
// note has said that lbd refuses it.
func TestConvertedIsValid(t *testing.T) {
	inputs, err := filepath.Glob(filepath.Join(root, "internal", "convert", "testdata", "*.in.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	good := 0
	for _, in := range inputs {
		data, err := os.ReadFile(in)
		if err != nil {
			t.Fatal(err)
		}
		r := convert.MetalLB([]convert.File{{Name: "in", Data: data}})
		if len(r.Errors) > 0 {
			continue
		}
		out, err := r.YAML()
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		for _, n := range r.Notes {
			for _, word := range []string{"lbd refuses the object", "is required:"} {
				if strings.Contains(n.String(), word) {
					refused++
					break
				}
			}
		}
		file := filepath.Join(t.TempDir(), "out.yaml")
		put(t, file, string(out))
		_, err = config.Validate(file)
		if (err != nil) != (refused > 0) {
			t.Errorf("%s: %d notes about what is refused, and validate says %v", in, refused, err)
		}
		if err == nil {
			good++
		}
	}
	if good < 5 {
		t.Errorf("only %d examples are valid", good)
	}
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// call runs the program in a folder.
func call(t *testing.T, bin, dir, stdin string, args ...string) (out, said string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(stdin), &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}
