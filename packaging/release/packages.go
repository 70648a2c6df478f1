package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	nfpmfiles "github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// Package writes the archive and the packages of a binary.
func (r *Release) Package(arch, binary string) error {
	files, err := r.files(binary)
	if err != nil {
		return err
	}
	number := strings.TrimPrefix(r.Version, "v")
	base := fmt.Sprintf("lbd_%s_linux_%s", number, arch)
	modules, err := modulesOf(binary)
	if err != nil {
		return err
	}
	licences, err := modules.licences(r.Root, arch)
	if err != nil {
		return err
	}
	files = append(files, file{"usr/share/doc/lbd/THIRD-PARTY-LICENCES", licences, 0o644})
	err = errors.Join(
		r.write(base+".tar.gz", func(w *os.File) error { return zippedTar(w, below(base, files), r.Time) }),
		r.write(base+".cdx.json", func(w *os.File) error { return modules.list(w, r) }),
	)
	for _, format := range []string{"deb", "rpm"} {
		err = errors.Join(err, r.pack(format, arch, files))
	}
	return err
}

// files are those of a package.
func (r *Release) files(binary string) ([]file, error) {
	files := []file{{"usr/bin/lbd", nil, 0o755}}
	var err error
	if files[0].data, err = os.ReadFile(binary); err != nil {
		return nil, err
	}
	for name, from := range map[string]string{
		"usr/lib/systemd/system/lbd.service":       "systemd/lbd.service",
		"usr/lib/systemd/system/lbd-drain.service": "systemd/lbd-drain.service",
		"usr/lib/sysusers.d/lbd.conf":              "systemd/lbd.sysusers",
		"usr/share/doc/lbd/copyright":              "LICENSE",
		"usr/share/doc/lbd/CHANGELOG.md":           "CHANGELOG.md",
	} {
		data, err := os.ReadFile(filepath.Join(r.Root, from))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, data, 0o644})
	}
	return sorted(append(files, r.pages...)), nil
}

// below puts the files of a package into a folder, without usr/share and the like: who
// unpacks an archive looks for them by their names.
func below(dir string, files []file) []file {
	var out []file
	for _, f := range files {
		name := filepath.Base(f.name)
		switch {
		case strings.HasSuffix(name, ".1.gz"):
			name = "man/" + name
		case strings.Contains(f.name, "completion"):
			name = "completions/" + name
		case strings.Contains(f.name, "systemd/"), strings.Contains(f.name, "sysusers"):
			name = "systemd/" + name
		case name == "copyright":
			name = "LICENSE"
		}
		out = append(out, file{dir + "/" + name, f.data, f.mode})
	}
	return sorted(out)
}

// described is what git describe says of a commit after a tag.
var described = regexp.MustCompile(`^(.*)-([0-9]+)-g([0-9a-f]+)$`)

// packageVersion is the version in the order of packages: what comes after a release is
// newer than it. A version that is none, as in a clone without tags, is older than all.
func packageVersion(version string) string {
	version = strings.TrimPrefix(version, "v")
	if m := described.FindStringSubmatch(version); m != nil {
		version = m[1] + "+" + m[2] + ".g" + m[3]
	}
	if !strings.ContainsRune(version, '.') {
		version = "0.0.0+" + version
	}
	return strings.ReplaceAll(version, "-", "~") // v1.0.0-rc.1 is older than v1.0.0
}

// pack writes a package.
func (r *Release) pack(format, arch string, list []file) error {
	work, err := os.MkdirTemp("", "lbd-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	info := &nfpm.Info{
		Name: "lbd", Arch: arch, Platform: "linux", Version: packageVersion(r.Version), VersionSchema: "none", Release: "1",
		Section: "net", Priority: "optional", Maintainer: "The lbd authors <maintainers@lbd.dev>", Homepage: "https://lbd.dev", License: "Apache-2.0",
		Description: "Keeps addresses of on-premises Kubernetes reachable\n" +
			"One daemon on each node keeps the address of the control plane, and those\nof load balancers, on a node that serves them, by ARP, NDP and BGP.",
		MTime: r.Time,
	}
	info.Deb.Compression = "gzip"
	info.RPM.Compression, info.RPM.BuildHost, info.RPM.Group = "gzip", "lbd.dev", "System Environment/Daemons"
	if info.Contents, err = r.contents(format, list, work); err != nil {
		return err
	}
	scripts := filepath.Join(r.Root, "packaging", "release", "scripts")
	info.Scripts = nfpm.Scripts{
		PostInstall: filepath.Join(scripts, "postinstall.sh"), PreRemove: filepath.Join(scripts, "preremove.sh"), PostRemove: filepath.Join(scripts, "postremove.sh"),
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	// Forges put another character in the place of ~, and SHA256SUMS must name what they offer.
	name := strings.ReplaceAll(packager.ConventionalFileName(info), "~", "-")
	return r.write(name, func(w *os.File) error { return packager.Package(info, w) })
}

// contents are the files of a package for nfpm, which reads them from a folder.
func (r *Release) contents(format string, list []file, work string) (nfpmfiles.Contents, error) {
	var out nfpmfiles.Contents
	for _, dir := range []string{"/etc/lbd", "/usr/share/doc/lbd", "/usr/share/doc/lbd/examples"} {
		out = append(out, &nfpmfiles.Content{
			Destination: dir, Type: nfpmfiles.TypeDir,
			FileInfo: &nfpmfiles.ContentFileInfo{Mode: 0o755, MTime: r.Time, Owner: "root", Group: "root"},
		})
	}
	for i, f := range list {
		from := filepath.Join(work, fmt.Sprint(i))
		if err := os.WriteFile(from, f.data, 0o600); err != nil {
			return nil, err
		}
		name := f.name
		if format == "rpm" && name == zshCompletion {
			name = "usr/share/zsh/site-functions/_lbd"
		}
		out = append(out, &nfpmfiles.Content{
			Source: from, Destination: "/" + name, Type: nfpmfiles.TypeFile,
			FileInfo: &nfpmfiles.ContentFileInfo{Mode: f.mode, MTime: r.Time, Owner: "root", Group: "root"},
		})
	}
	return out, nil
}
