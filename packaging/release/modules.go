package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// modules is what a binary was built from.
type modules struct{ info *debug.BuildInfo }

func modulesOf(binary string) (*modules, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	if len(info.Deps) == 0 {
		return nil, fmt.Errorf("%s names no modules", binary)
	}
	return &modules{info}, nil
}

// list writes a bill of materials in the format of CycloneDX.
func (m *modules) list(w io.Writer, r *Release) error {
	purl := func(path, version string) string { return "pkg:golang/" + path + "@" + version }
	self := purl(m.info.Main.Path, r.Version)
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.Time.Format("2006-01-02T15:04:05Z"),
		Component: &cyclonedx.Component{BOMRef: self, Type: cyclonedx.ComponentTypeApplication, Name: "lbd", Version: r.Version, PackageURL: self},
	}
	std := purl("std", strings.TrimPrefix(m.info.GoVersion, "go"))
	components := []cyclonedx.Component{{BOMRef: std, Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: m.info.GoVersion, PackageURL: std}}
	needs := []string{std}
	for _, d := range m.info.Deps {
		ref := purl(d.Path, d.Version)
		components = append(components, cyclonedx.Component{BOMRef: ref, Type: cyclonedx.ComponentTypeLibrary, Name: d.Path, Version: d.Version, PackageURL: ref})
		needs = append(needs, ref)
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: self, Dependencies: &needs}}
	return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// legal are the names of files that a licence asks to be passed on.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright|authors|patents)([.-].*)?$`)

// licences are the texts of all modules. It is an error if one has none.
func (m *modules) licences(root, arch string) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "lbd contains the following modules of others, unchanged. Their source is at the address\nthat their name is, and at https://proxy.golang.org.\n")
	linked, err := linkedCode(root, arch)
	if err != nil {
		return nil, err
	}
	if err := passOn(&out, "The standard library of Go, "+m.info.GoVersion, linked[""]); err != nil {
		return nil, err
	}
	for _, d := range m.info.Deps {
		if err := passOn(&out, d.Path+" "+d.Version, linked[d.Path]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// code is where a module is, and the folders of it that a program is linked from, with those
// around them: a module may contain code of others, with their licence beside it.
type code struct {
	root string
	dirs map[string]bool // below root, "." is root
}

// linkedCode is what lbd is linked from, by the path of the module; "" is the standard library.
func linkedCode(root, arch string) (map[string]code, error) {
	env := exec.Command("go", "env", "GOROOT")
	env.Dir = root
	goroot, err := env.Output()
	if err != nil {
		return nil, err
	}
	// For what Go has of golang.org/x, go list may give the root of a module that lbd has too.
	std := strings.TrimSpace(string(goroot))
	c := exec.Command("go", "list", "-deps", "-f", "{{if .Standard}}\t"+std+"{{else}}{{.Module.Path}}\t{{.Module.Dir}}{{end}}\t{{.Dir}}", "./cmd/lbd")
	c.Dir, c.Stderr = root, os.Stderr
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	text, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	linked := make(map[string]code)
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 {
			return nil, fmt.Errorf("go list says %q", line)
		}
		if _, found := linked[f[0]]; !found {
			linked[f[0]] = code{f[1], make(map[string]bool)}
		}
		dir, err := filepath.Rel(f[1], f[2])
		if err != nil || !filepath.IsLocal(dir) {
			return nil, fmt.Errorf("the package in %s is not below its module in %s", f[2], f[1])
		}
		for ; dir != "."; dir = filepath.Dir(dir) {
			linked[f[0]].dirs[dir] = true
		}
		linked[f[0]].dirs["."] = true
	}
	return linked, nil
}

// passOn copies the legal files of a module. It is an error if its top folder has none.
func passOn(out *bytes.Buffer, title string, c code) error {
	found := false
	for _, dir := range slices.Sorted(maps.Keys(c.dirs)) {
		entries, err := os.ReadDir(filepath.Join(c.root, dir))
		if err != nil {
			return fmt.Errorf("%s: %w", title, err)
		}
		for _, e := range entries {
			if e.IsDir() || !legal.MatchString(e.Name()) {
				continue
			}
			name := filepath.Join(dir, e.Name())
			data, err := os.ReadFile(filepath.Join(c.root, name))
			if err != nil {
				return err
			}
			found = found || dir == "."
			fmt.Fprintf(out, "\n%s\n%s, %s\n%[1]s\n\n%[4]s\n", strings.Repeat("-", 80), title, name, bytes.TrimSpace(data))
		}
	}
	if !found {
		return fmt.Errorf("%s: %s has no file with a licence", title, c.root)
	}
	return nil
}

// sorted sorts files by name.
func sorted(files []file) []file {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files
}
