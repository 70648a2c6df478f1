package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const root = "../.."

// monthEnd is in the next month already in the east.
var monthEnd = time.Date(2023, 11, 30, 23, 30, 0, 0, time.UTC)

// made is a release of this tree for the architecture of this computer, in a folder.
func made(t *testing.T, root string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "dist")
	r := Release{Root: root, Out: out, Version: "v0.1.0-9-g0123abc", Commit: "0123abc", Time: monthEnd, Archs: []string{"amd64"}, Image: "lbd.dev/lbd:v0.1.0", Dirty: true}
	if err := r.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out
}

// copied is a copy of the tree somewhere else, with other times.
func copied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "sh", "-c", `git ls-files -z -co --exclude-standard | tar -c --null -T - | tar -x -m -C "$0"`, dir)
	c.Dir = root
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return dir
}

// TestReproducible: the same source makes the same bytes, wherever, whenever and in whatever time zone.
func TestReproducible(t *testing.T) {
	one := made(t, root)
	t.Setenv("TZ", "Asia/Tokyo")
	two := made(t, copied(t))
	a, err := os.ReadFile(filepath.Join(one, "SHA256SUMS"))
	b, err2 := os.ReadFile(filepath.Join(two, "SHA256SUMS"))
	if err = errors.Join(err, err2); err != nil || !bytes.Equal(a, b) {
		t.Errorf("%v\n%s\n%s", err, a, b)
	}
	if lines := strings.Count(string(a), "\n"); lines != 8 {
		t.Errorf("%d files:\n%s", lines, a)
	}
	testDeb(t, one)
	testRPM(t, one)
	testArchive(t, one)
	testChart(t, one)
	testRealImage(t, one)
}

// only is the file of a folder that a pattern matches.
func only(t *testing.T, dir, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) != 1 {
		t.Fatalf("%s: %v, %v", pattern, names, err)
	}
	return names[0]
}

// needed are files that a package must have, with their modes.
var needed = []string{
	"-rwxr-xr-x usr/bin/lbd", "-rw-r--r-- usr/lib/systemd/system/lbd.service", "-rw-r--r-- usr/lib/systemd/system/lbd-drain.service",
	"-rw-r--r-- usr/lib/sysusers.d/lbd.conf", "-rw-r--r-- usr/share/bash-completion/completions/lbd", "-rw-r--r-- usr/share/doc/lbd/copyright",
	"-rw-r--r-- usr/share/doc/lbd/THIRD-PARTY-LICENCES", "-rw-r--r-- usr/share/doc/lbd/examples/lbd.yaml", "-rw-r--r-- usr/share/man/man1/lbd-status.1.gz",
	"drwxr-xr-x etc/lbd/",
}

// testDeb looks into the package as dpkg does.
func testDeb(t *testing.T, dir string) {
	deb := only(t, dir, "*.deb")
	unpacked := t.TempDir()
	t.Setenv("TZ", "UTC")
	text, err := exec.CommandContext(t.Context(), "dpkg-deb", "-c", deb).Output()
	if err = errors.Join(err, exec.CommandContext(t.Context(), "dpkg-deb", "-x", deb, unpacked).Run()); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, " root/root ") || !strings.Contains(line, " 2023-11-30 ") {
			t.Errorf("owner or time: %s", line)
		}
	}
	for _, want := range needed {
		mode, name, _ := strings.Cut(want, " ")
		if !slices.ContainsFunc(strings.Split(string(text), "\n"), func(l string) bool { return strings.HasPrefix(l, mode+" ") && strings.HasSuffix(l, " ./"+name) }) {
			t.Errorf("the deb has no %s", want)
		}
	}
	read := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(unpacked, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	page, err := gzip.NewReader(strings.NewReader(read("usr/share/man/man1/lbd-status.1.gz")))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(page); err != nil || !strings.Contains(string(text), ".SH NAME\nlbd-status - ") || !strings.Contains(string(text), `.TH "LBD-STATUS" "1" "Nov 2023"`) {
		t.Errorf("the man page of lbd status: %v\n%s", err, text)
	}
	licences := read("usr/share/doc/lbd/THIRD-PARTY-LICENCES")
	for _, want := range []string{"github.com/hashicorp/memberlist v0.6.0, LICENSE", "Mozilla Public License, version 2.0", "The standard library of Go",
		"internal/github.com/golang/gddo/LICENSE\n", ", third_party/forked/golang/PATENTS\n", ", internal/third_party/forked/golang/LICENSE\n"} {
		if !strings.Contains(licences, want) {
			t.Errorf("the licences lack %q", want)
		}
	}
	if text, err := exec.CommandContext(t.Context(), filepath.Join(unpacked, "usr/bin/lbd"), "--version").Output(); err != nil || string(text) != "v0.1.0-9-g0123abc\n" {
		t.Errorf("the program says %q, %v", text, err)
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		text, err := exec.CommandContext(t.Context(), "dpkg-deb", "-I", deb, script).Output()
		if err != nil || !strings.HasPrefix(string(text), "#!/bin/sh\n") {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// testRPM looks for the names in the header, since Debian has no rpm.
func testRPM(t *testing.T, dir string) {
	data, err := os.ReadFile(only(t, dir, "lbd-0.1.0+9.g0123abc-1.x86_64.rpm"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Error("no rpm")
	}
	for _, want := range []string{"/usr/share/zsh/site-functions/", "lbd.service", "lbd-status.1.gz", "systemd-sysusers lbd.conf", "Apache-2.0", "\x00examples\x00"} {
		if !bytes.Contains(data[:64<<10], []byte(want)) {
			t.Errorf("the rpm has no %q in its header", want)
		}
	}
}

// testArchive unpacks the program.
func testArchive(t *testing.T, dir string) {
	f, err := os.Open(only(t, dir, "lbd_*_linux_amd64.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int64{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names[strings.TrimPrefix(h.Name, "lbd_0.1.0-9-g0123abc_linux_amd64/")] = h.Mode
	}
	for name, mode := range map[string]int64{"lbd": 0o755, "LICENSE": 0o644, "systemd/lbd.service": 0o644, "man/lbd.1.gz": 0o644, "completions/lbd": 0o644} {
		if names[name] != mode {
			t.Errorf("%s has mode %o: %v", name, names[name], names)
		}
	}
}

// semver is the expression of semver.org.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$`)

// TestVersions: packages of a later commit are newer, and a release candidate is older.
func TestVersions(t *testing.T) {
	order := []string{"0123abc", "v0.1.0-rc.1", "v0.1.0", "v0.1.0-9-g0123abc", "v0.1.0-10-gfff", "v0.1.1", "v0.10.0"}
	for i := range order[1:] {
		a, b := packageVersion(order[i])+"-1", packageVersion(order[i+1])+"-1"
		if err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", a, "lt", b).Run(); err != nil {
			t.Errorf("%s is not older than %s", a, b)
		}
	}
	for _, version := range append(order, "0123456") {
		number := chartVersion(version)
		if !semver.MatchString(number) {
			t.Errorf("the chart of %s has version %s", version, number)
		}
		if text := string(chartOf([]byte("version: 1\nappVersion: v1\nname: lbd\n"), number, version)); text != "version: "+number+"\nappVersion: \""+version+"\"\nname: lbd\n" {
			t.Errorf("%s", text)
		}
	}
}

// TestNames: a file keeps its name when it is put on a forge, so that SHA256SUMS finds it.
func TestNames(t *testing.T) {
	r := Release{Root: root, Out: t.TempDir(), Version: "v0.1.0-rc.1", Time: monthEnd}
	for format, want := range map[string]string{"deb": "lbd_0.1.0-rc.1-1_amd64.deb", "rpm": "lbd-0.1.0-rc.1-1.x86_64.rpm"} {
		if err := r.pack(format, "amd64", []file{{"usr/bin/lbd", nil, 0o755}}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(r.Out, want)); err != nil {
			t.Error(err)
		}
	}
	version, err := exec.CommandContext(t.Context(), "dpkg-deb", "-f", only(t, r.Out, "*.deb"), "Version").Output()
	if err != nil || string(version) != "0.1.0~rc.1-1\n" {
		t.Errorf("the version within is %q, %v", version, err)
	}
}

// TestRefused: what could not be made again is not made.
func TestRefused(t *testing.T) {
	work, out, home := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.org"}, args...)...)
		c.Dir = work
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, text)
		}
	}
	refused := func(words string) {
		t.Helper()
		r := Release{Root: work, Out: out, Version: "v0.1.0"}
		if err := r.Make(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	// Settings of the user that hide files.
	write(filepath.Join(home, "config"), "[core]\nexcludesFile = "+home+"/ignored\n[status]\nshowUntrackedFiles = no\n")
	write(filepath.Join(home, "ignored"), "*.swp\n")
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(home, "config"))
	refused("git status")
	git("init", "-q")
	write(filepath.Join(work, "values.yaml.swp"), "x")
	refused("changes that no commit has:\n?? values.yaml.swp")
	git("add", "-f", ".")
	refused("changes that no commit has:\nA  values.yaml.swp")
	git("commit", "-q", "-m", "x")
	write(filepath.Join(out, "x"), "")
	refused("is not empty")
}
