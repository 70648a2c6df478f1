package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"lbd.dev/lbd/internal/fileaccess"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// listFiles returns the files that a path stands for: itself, or in a directory
// all that end in .yaml or .yml, sorted. Names that begin with a dot belong to
// editors and to the mounts of Kubernetes.
func listFiles(path string) ([]string, *Error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fileError(path, 0, "%v", cause(err))
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fileError(path, 0, "%v", cause(err))
	}
	var files []string
	for _, e := range entries {
		name := e.Name()
		if ext := filepath.Ext(name); strings.HasPrefix(name, ".") || ext != ".yaml" && ext != ".yml" {
			continue
		}
		files = append(files, filepath.Join(path, name))
	}
	if len(files) == 0 {
		return nil, fileError(path, 0, "is a directory without a *.yaml file; `lbd manifest config` prints one")
	}
	slices.Sort(files)
	return files, nil
}

// readFile reads a regular file of at most limit bytes. It never waits for a
// pipe or a device.
func readFile(path string, limit int64) ([]byte, fs.FileInfo, *Error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fileError(path, 0, "%v", cause(err))
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fileError(path, 0, "%v", cause(err))
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fileError(path, 0, "is not a regular file")
	}
	data, rerr := readStream(path, f, limit)
	if rerr != nil {
		return nil, nil, rerr
	}
	return data, info, nil
}

// readStream reads at most limit bytes.
func readStream(path string, r io.Reader, limit int64) ([]byte, *Error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fileError(path, 0, "%v", cause(err))
	}
	if int64(len(data)) > limit {
		return nil, fileError(path, 0, "is larger than %d KiB", limit>>10)
	}
	return data, nil
}

// cause strips the operation and the path from an error about a file; errors
// here name the path themselves.
func cause(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](fileaccess.Explain(err)); ok {
		return pathErr.Err
	}
	return err
}

// fingerprint tells cheaply whether the configuration may have changed. It
// follows symbolic links, so that it sees the swap of a ConfigMap, and holds the
// time of change of the inode, which no writer can set back.
func fingerprint(path string, extra ...string) string {
	files, err := listFiles(path)
	if err != nil {
		files = []string{path}
	}
	var b strings.Builder
	for _, file := range append(files, extra...) {
		var st syscall.Stat_t
		if err := syscall.Stat(file, &st); err != nil {
			fmt.Fprintf(&b, "%s: %v\n", file, err)
			continue
		}
		fmt.Fprintf(&b, "%s: %d %d %d %d %d %d\n", file, st.Dev, st.Ino, st.Mode, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
	}
	return b.String()
}
