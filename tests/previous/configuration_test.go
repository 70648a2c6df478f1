package previous

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/config"
)

// refused are configurations that the previous version took and this one does not, by a
// part of the error, each with the reason. An entry goes with the next release.
var refused = map[string]string{}

// gone are flags that the previous version had and this one has not, each with the reason.
// An entry goes with the next release.
var gone = map[string]string{}

// TestConfigurations has every configuration in the pages, tests and packages of the
// previous version that its program takes read by this one.
func TestConfigurations(t *testing.T) {
	v := For(t)
	lbd, err := v.LBD(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	read, told := 0, make(map[string]bool)
	for name, text := range configurations(t, v) {
		file := filepath.Join(t.TempDir(), "lbd.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := command(t.Context(), "", lbd, "validate", file); err != nil {
			continue // an example of what is refused, or not for lbd
		}
		read++
		_, err := config.Validate(file)
		if err == nil {
			continue
		}
		why := ""
		for part := range refused {
			if strings.Contains(err.Error(), part) {
				why, told[part] = part, true
			}
		}
		if why == "" {
			t.Errorf("%s: the previous version took it, this one says: %v", name, err)
		}
	}
	t.Logf("%d configurations", read)
	if read < 30 {
		t.Errorf("%s took only %d configurations", v.Name, read)
	}
	for part := range refused {
		if !told[part] {
			t.Errorf("no configuration is refused with %q: remove it from refused", part)
		}
	}
}

// configurations are texts with objects of lbd, by where they stood.
func configurations(t *testing.T, v *Version) map[string]string {
	t.Helper()
	names, err := v.Files(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, name := range names {
		ext := path.Ext(name)
		if ext != ".yaml" && ext != ".md" {
			continue
		}
		data, err := v.File(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		blocks := []string{string(data)}
		if ext == ".md" {
			blocks = fenced(string(data))
		}
		for i, b := range blocks {
			if strings.Contains(b, "apiVersion: lbd.dev/") {
				all[fmt.Sprintf("%s, block %d", name, i+1)] = b
			}
		}
	}
	return all
}

// fenced are the blocks of YAML of a page.
func fenced(page string) []string {
	var out []string
	for i, b := range strings.Split(page, "\n```") {
		if rest, ok := strings.CutPrefix(b, "yaml\n"); ok && i > 0 {
			out = append(out, rest+"\n")
		}
	}
	return out
}

var (
	commandRow = regexp.MustCompile("(?m)^\\| `(lbd [a-z ]+|--[a-z]+)[^`]*` \\|.*$")
	flagName   = regexp.MustCompile("`(-[-a-z]+)")
)

// TestFlags wants every command and every flag of the table in docs/commands.md to be there
// still: units, manifests and scripts of the previous version name them. That the table is
// what the program has is a test of tests/docs.
func TestFlags(t *testing.T) {
	v := For(t)
	old, err := v.File(t.Context(), "docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(filepath.Join(v.root, "docs", "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	before, after := flags(string(old)), flags(string(now))
	if len(before) < 40 {
		t.Fatalf("only %d commands and flags: %v", len(before), before)
	}
	for flag := range before {
		if !after[flag] && gone[flag] == "" {
			t.Errorf("%s is gone: units and scripts of %s may have it; say why in gone, and in CHANGELOG.md", flag, v.Name)
		}
	}
	for flag := range gone {
		if after[flag] || !before[flag] {
			t.Errorf("%s is not gone: remove it from gone", flag)
		}
	}
}

// flags are the commands of the table, and each with each of its flags.
func flags(page string) map[string]bool {
	all := make(map[string]bool)
	for _, row := range commandRow.FindAllStringSubmatch(page, -1) {
		name := strings.TrimSpace(row[1])
		all[name] = true
		for _, f := range flagName.FindAllStringSubmatch(row[0], -1) {
			all[name+" "+f[1]] = true
		}
	}
	return all
}
