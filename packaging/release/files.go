package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// file is one file of an archive or package.
type file struct {
	name string // without a leading slash
	data []byte
	mode fs.FileMode
}

// tree reads the files below a folder whose names end in suffix, sorted by name.
func tree(dir, suffix string) ([]file, error) {
	var out []file
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path) // of a link, what it leads to
		if err != nil {
			if info, err2 := os.Stat(path); err2 == nil && info.IsDir() {
				inner, err3 := tree(path+string(filepath.Separator), suffix)
				for _, f := range inner {
					out = append(out, file{filepath.Join(name, f.name), f.data, f.mode})
				}
				return err3
			}
			return err
		}
		out = append(out, file{name, data, 0o644})
		return nil
	})
	return out, err
}

// zippedTar writes files as tar and gzip with one time and one owner.
func zippedTar(w io.Writer, files []file, at time.Time) error {
	z := gzip.NewWriter(w) // no name and no time
	return errors.Join(packed(z, files, at), z.Close())
}

// packed writes files as tar with one time and one owner. A name with a slash at its end is a
// folder.
func packed(w io.Writer, files []file, at time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Size: int64(len(f.data)), Mode: int64(f.mode), ModTime: at, Format: tar.FormatUSTAR, Uname: "root", Gname: "root"}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}

// zipped is data with gzip, without a time.
func zipped(data []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = z.Write(data)
	err = errors.Join(err, z.Close())
	return out.Bytes(), err
}

// makePages has the program of this computer write man pages, completions and an example.
func (r *Release) makePages(ctx context.Context, work string) ([]file, error) {
	man := filepath.Join(work, "man")
	if err := os.MkdirAll(man, 0o755); err != nil {
		return nil, err
	}
	program := filepath.Join(work, "pages")
	err := r.run(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-tags", "manpages", "-o", program, "-ldflags", "-X main.version="+r.Version, "./cmd/lbd")
	if err != nil {
		return nil, err
	}
	say := func(args ...string) ([]byte, error) {
		c := exec.CommandContext(ctx, program, args...)
		c.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.Time.Unix()))
		out, err := c.Output()
		if err != nil {
			return nil, fmt.Errorf("lbd %s: %w", strings.Join(args, " "), err)
		}
		return out, nil
	}
	if _, err := say("manpages", man); err != nil {
		return nil, err
	}
	pages, err := tree(man, ".1")
	if err != nil {
		return nil, err
	}
	if len(pages) < 10 {
		return nil, fmt.Errorf("%d man pages", len(pages))
	}
	var out []file
	for _, p := range pages {
		data, err := zipped(p.data)
		if err != nil {
			return nil, err
		}
		out = append(out, file{"usr/share/man/man1/" + p.name + ".gz", data, 0o644})
	}
	for _, x := range []struct {
		name string
		args []string
	}{
		{"usr/share/bash-completion/completions/lbd", []string{"completion", "bash"}},
		{"usr/share/fish/vendor_completions.d/lbd.fish", []string{"completion", "fish"}},
		{zshCompletion, []string{"completion", "zsh"}},
		{"usr/share/doc/lbd/examples/lbd.yaml", []string{"manifest", "config"}},
	} {
		data, err := say(x.args...)
		if err != nil {
			return nil, err
		}
		out = append(out, file{x.name, data, 0o644})
	}
	return out, nil
}

// zshCompletion is where Debian looks for it; others look elsewhere, see packaged.
const zshCompletion = "usr/share/zsh/vendor-completions/_lbd"
