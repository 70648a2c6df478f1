package bundle

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Save makes a file of what write writes, readable by its owner only. The file is there when all
// of it is, and nothing is left if write fails. A file of that name is replaced.
func Save(name string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err = errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// Savable is why a file cannot be made, before there is anything to write; nil if it can, as far
// as can be told.
func Savable(name string) error {
	dir := filepath.Dir(name)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no directory", dir)
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is there and no regular file", name)
	}
	return nil
}
