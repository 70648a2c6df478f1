package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/fileaccess"
)

// Configuration is the part with the files of the configuration, of which shown is what may be
// seen.
func Configuration(path string, shown *config.Shown, limit time.Duration) Part {
	return Part{
		Names: []string{"config/files.txt", "config/validate.txt"},
		Limit: limit,
		Collect: func(_ context.Context, to *Sink) error {
			files := to.Writer("config/files.txt")
			for i, f := range shown.Files {
				describeFile(files, f.Path)
				name := fmt.Sprintf("config/%02d-%s", i+1, filepath.Base(f.Path))
				if f.Err != nil {
					to.Add(name+".missing.txt", []byte("nothing of it may be shown: "+f.Err.Error()+"\n"))
					continue
				}
				head := fmt.Sprintf("# %s, without comments and with secrets blanked, so lines have other numbers.\n", f.Path)
				to.Add(name, []byte(head+f.Text))
			}
			fmt.Fprintln(files, "\nFiles with secrets that the configuration names; their contents are not in this bundle:")
			for _, f := range shown.SecretFiles {
				describeFile(files, f)
			}
			validate(to.Writer("config/validate.txt"), path)
			return nil
		},
	}
}

// validate writes what is wrong with the configuration. Errors show no secret.
func validate(w io.Writer, path string) {
	sum, err := config.Validate(path)
	for _, e := range sum.Errors {
		fmt.Fprintf(w, "error: %v\n", e)
	}
	for _, e := range sum.Warnings {
		fmt.Fprintf(w, "warning: %v\n", e)
	}
	if err == nil {
		fmt.Fprintf(w, "%s: valid, %d objects\n", path, sum.Objects)
	}
}

// describeFile writes whose a file is, what its mode is, and whether it can be read.
func describeFile(w io.Writer, path string) {
	info, err := os.Stat(path)
	if err != nil {
		fmt.Fprintf(w, "%s: %v\n", path, why(err))
		return
	}
	line := fmt.Sprintf("%s: %s, owner %s, %d bytes, changed %s", path, info.Mode(), fileaccess.Owner(path), info.Size(), info.ModTime().UTC().Format(time.RFC3339))
	if to, err := filepath.EvalSymlinks(path); err == nil && to != path {
		line += ", leads to " + to
	}
	fmt.Fprintln(w, line+", "+readable(path, info))
	if u, ok := fileaccess.Lookup("lbd"); ok {
		if err := u.Read(path); err != nil {
			fmt.Fprintf(w, "  the unit of systemd could not read it: %v\n", err)
		}
	}
}

// readable opens nothing that could make it wait.
func readable(path string, info fs.FileInfo) string {
	if !info.Mode().IsRegular() {
		return "no regular file"
	}
	f, err := os.Open(path)
	if err != nil {
		return "cannot be read by this process: " + why(err)
	}
	_ = f.Close()
	return "can be read by this process"
}

// why is an error about a file without its name.
func why(err error) string {
	if at, ok := errors.AsType[*fs.PathError](fileaccess.Explain(err)); ok {
		err = at.Err
	}
	return strings.TrimSpace(err.Error())
}
