package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
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
func (m *modules) licences(root string) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "lbd contains the following modules of others, unchanged. Their source is at the address\nthat their name is, and at https://proxy.golang.org.\n")
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	if err := passOn(&out, "The standard library of Go, "+m.info.GoVersion, strings.TrimSpace(string(goroot))); err != nil {
		return nil, err
	}
	dirs, err := m.dirs(root)
	if err != nil {
		return nil, err
	}
	for _, d := range m.info.Deps {
		if err := passOn(&out, d.Path+" "+d.Version, dirs[d.Path]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// dirs are the folders in which the source of the modules is.
func (m *modules) dirs(root string) (map[string]string, error) {
	args := []string{"mod", "download", "-json"}
	for _, d := range m.info.Deps {
		args = append(args, d.Path+"@"+d.Version)
	}
	c := exec.Command("go", args...)
	c.Dir, c.Stderr = root, os.Stderr
	text, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	dirs := make(map[string]string)
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var x struct{ Path, Dir string }
		if err := d.Decode(&x); err != nil {
			return nil, err
		}
		dirs[x.Path] = x.Dir
	}
	return dirs, nil
}

// passOn copies the legal files of a folder.
func passOn(out *bytes.Buffer, title, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !legal.MatchString(e.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(out, "\n%s\n%s, %s\n%[1]s\n\n%[4]s\n", strings.Repeat("-", 80), title, e.Name(), bytes.TrimSpace(data))
	}
	if !found {
		return fmt.Errorf("%s: %s has no file with a licence", title, dir)
	}
	return nil
}

// sorted sorts files by name.
func sorted(files []file) []file {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files
}
