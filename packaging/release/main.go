// Command release makes what a release consists of: for each architecture a static binary in
// a tar archive, a deb and an rpm, a list of what is inside (CycloneDX) and the licences of
// all of it, one image for all of them, the Helm chart as a file and as an OCI artifact, the
// definitions, and a list of checksums. The same source, Go and version give the same bytes. It is a module of its own, so that what makes packages
// is not among what lbd is built from.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	var r Release
	var epoch string
	flag.StringVar(&r.Root, "root", ".", "the repository")
	flag.StringVar(&r.Out, "out", "dist", "the folder for what is made")
	flag.StringVar(&r.Version, "version", "", "the version, as git describe says it")
	flag.StringVar(&r.Commit, "commit", "", "the commit")
	flag.StringVar(&epoch, "epoch", "", "the time of all files, in seconds since 1970")
	flag.StringVar(&r.Image, "image", "", "the name of the image, lbd.dev/lbd and the version if empty")
	only := flag.String("only-image", "", "write the image into this file, and nothing else")
	flag.BoolVar(&r.Dirty, "dirty", false, "take files that no commit has, for tests")
	archs := flag.String("arch", "amd64,arm64", "the architectures, as Go calls them")
	flag.Parse()
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	r.Time, r.Archs = time.Unix(seconds, 0).UTC(), strings.Split(*archs, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if r.Image == "" {
		r.Image = "lbd.dev/lbd:" + r.Version
	}
	switch {
	case err == nil && *only != "":
		err = r.OnlyImage(ctx, *only)
	case err == nil:
		err = r.Make(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

// Release is what is released.
type Release struct {
	Root, Out       string
	Version, Commit string
	Time            time.Time // of every file in every archive
	Archs           []string
	Image           string // the name of the image
	Dirty           bool   // take files that no commit has

	pages []file // man pages and completions, for every architecture
}

// Make builds everything into Out, which is empty or does not exist.
func (r *Release) Make(ctx context.Context) error {
	if !r.Dirty {
		if err := r.committed(ctx); err != nil {
			return err
		}
	}
	if entries, err := os.ReadDir(r.Out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", r.Out)
	}
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "lbd-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if r.pages, err = r.makePages(ctx, work); err != nil {
		return err
	}
	binaries, err := r.binaries(ctx, work)
	if err != nil {
		return err
	}
	for _, arch := range r.Archs {
		if err := r.Package(arch, binaries[arch]); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	name := fmt.Sprintf("lbd-image-%s.tar", strings.TrimPrefix(r.Version, "v"))
	if err := r.writeImage(filepath.Join(r.Out, name), binaries); err != nil {
		return err
	}
	if err := r.shared(); err != nil {
		return err
	}
	return r.checksums()
}

// OnlyImage builds the image into a file, from whatever the working tree has.
func (r *Release) OnlyImage(ctx context.Context, to string) error {
	work, err := os.MkdirTemp("", "lbd-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	binaries, err := r.binaries(ctx, work)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return r.writeImage(to, binaries)
}

// binaries builds the program for each architecture, in a folder of its own.
func (r *Release) binaries(ctx context.Context, work string) (map[string]string, error) {
	out := make(map[string]string)
	for _, arch := range r.Archs {
		out[arch] = filepath.Join(work, arch, "lbd")
		if err := r.build(ctx, arch, filepath.Join(work, arch)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// committed is an error if a file of the working tree is in no commit, whatever the settings
// of git hide.
func (r *Release) committed(ctx context.Context) error {
	c := exec.CommandContext(ctx, "git", "-c", "core.excludesFile=", "status", "--porcelain", "--untracked-files=all")
	c.Dir, c.Stderr = r.Root, os.Stderr
	text, err := c.Output()
	if err != nil {
		return fmt.Errorf("git status: %w", err)
	}
	if len(text) > 0 {
		return fmt.Errorf("the working tree has changes that no commit has:\n%s", bytes.TrimRight(text, "\n"))
	}
	return nil
}

// build makes the binary of an architecture, as `make build` does.
func (r *Release) build(ctx context.Context, arch, dir string) error {
	return r.run(ctx, []string{"GOOS=linux", "GOARCH=" + arch}, "make", "-s", "build", "BIN="+dir, "VERSION="+r.Version, "COMMIT="+r.Commit)
}

// run runs a program at the root of the repository.
func (r *Release) run(ctx context.Context, env []string, argv ...string) error {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Dir, c.Env, c.Stderr = r.Root, append(os.Environ(), env...), os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return nil
}

// shared writes what is the same for all architectures: the chart and the definitions.
func (r *Release) shared() error {
	chart, err := tree(filepath.Join(r.Root, "packaging", "helm"), "")
	if err != nil {
		return err
	}
	number := chartVersion(r.Version)
	var about []byte
	for i, f := range chart {
		if f.name == "lbd/Chart.yaml" {
			about = chartOf(f.data, number, r.Version)
			chart[i].data = about
		}
	}
	var archive bytes.Buffer
	if err := zippedTar(&archive, chart, r.Time); err != nil {
		return err
	}
	err = errors.Join(
		r.write("lbd-chart-"+number+".tgz", func(w *os.File) error { _, err := w.Write(archive.Bytes()); return err }),
		r.writeChart(filepath.Join(r.Out, "lbd-chart-"+number+".oci.tar"), number, archive.Bytes(), about),
	)
	definitions, err2 := tree(filepath.Join(r.Root, "packaging", "crds"), ".yaml")
	return errors.Join(err, err2, r.write("lbd-crds.yaml", func(w *os.File) error {
		for _, f := range definitions {
			if _, err := fmt.Fprintf(w, "---\n%s", f.data); err != nil {
				return err
			}
		}
		return nil
	}))
}

// chartVersion is a version of semver, as Helm wants it. A hash alone, as in a clone without
// tags, gets the g of git describe: it may look like a number, which must not begin with 0.
func chartVersion(version string) string {
	if version = strings.TrimPrefix(version, "v"); !strings.ContainsRune(version, '.') {
		return "0.0.0-g" + version
	}
	return version
}

// chartOf is Chart.yaml with this version.
func chartOf(data []byte, chart, app string) []byte {
	var out []string
	for line := range strings.Lines(string(data)) {
		switch {
		case strings.HasPrefix(line, "version:"):
			line = "version: " + chart + "\n"
		case strings.HasPrefix(line, "appVersion:"):
			line = fmt.Sprintf("appVersion: %q\n", app) // a hash may look like a number
		}
		out = append(out, line)
	}
	return []byte(strings.Join(out, ""))
}

// write makes one file of the release.
func (r *Release) write(name string, fill func(*os.File) error) error {
	f, err := os.OpenFile(filepath.Join(r.Out, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}

// checksums lists all files of the release, for `sha256sum -c`.
func (r *Release) checksums() error {
	entries, err := os.ReadDir(r.Out)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(r.Out, e.Name()))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		fmt.Fprintf(&list, "%s  %s\n", hex.EncodeToString(sum[:]), e.Name())
	}
	return r.write("SHA256SUMS", func(f *os.File) error { _, err := f.WriteString(list.String()); return err })
}
