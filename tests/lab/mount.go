package lab

import (
	"fmt"
	"os"
	"path/filepath"
)

// Mount is a folder as kubelet mounts a Secret or a ConfigMap: each entry is a link
// through "..data", which is itself a link to a folder with the content. A change
// replaces that link at once and removes the folder of before.
type Mount struct {
	Dir string
	n   int // of changes
}

// Write changes the whole content.
func (m *Mount) Write(entries map[string]string) error {
	const data, next = "..data", "..data_tmp"
	was := fmt.Sprintf("..%d", m.n)
	m.n++
	stamp := fmt.Sprintf("..%d", m.n)
	if err := os.MkdirAll(filepath.Join(m.Dir, stamp), 0o700); err != nil {
		return err
	}
	for name, content := range entries {
		if err := os.WriteFile(filepath.Join(m.Dir, stamp, name), []byte(content), 0o400); err != nil {
			return err
		}
	}
	if err := os.Symlink(stamp, filepath.Join(m.Dir, next)); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(m.Dir, next), filepath.Join(m.Dir, data)); err != nil {
		return err
	}
	for name := range entries {
		if err := os.Symlink(filepath.Join(data, name), filepath.Join(m.Dir, name)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(m.Dir, was))
}
