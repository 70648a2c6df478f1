package cluster

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Image is an image of one layer, made of files of this machine.
type Image struct {
	Name       string // with its tag
	Entrypoint []string
	Files      []ImageFile
}

// ImageFile is one file of an image: a copy of From, or a symbolic link to Link.
type ImageFile struct {
	Path       string
	From, Link string
}

// write writes it as `docker save` does, which every container runtime can import.
func (i *Image) write(name string) (err error) {
	layer, err := os.CreateTemp(filepath.Dir(name), "layer-")
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	defer func() { err = errors.Join(err, layer.Close(), os.Remove(layer.Name())) }()
	sum := sha256.New()
	if err := i.layer(io.MultiWriter(layer, sum)); err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	id := hex.EncodeToString(sum.Sum(nil))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": runtime.GOOS, "created": "1970-01-01T00:00:00Z",
		"config": map[string]any{
			"Env":        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			"Entrypoint": i.Entrypoint, "WorkingDir": "/",
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + id}},
	})
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	configSum := sha256.Sum256(config)
	configName := hex.EncodeToString(configSum[:]) + ".json"
	manifest, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": []string{i.Name}, "Layers": []string{id + "/layer.tar"}}})
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	out, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	w := tar.NewWriter(out)
	add := func(name string, size int64, r io.Reader) error {
		err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size})
		if err == nil {
			_, err = io.Copy(w, r)
		}
		return err
	}
	return errors.Join(add(configName, int64(len(config)), strings.NewReader(string(config))), add(id+"/layer.tar", size, layer),
		add("manifest.json", int64(len(manifest)), strings.NewReader(string(manifest))), w.Close(), out.Close())
}

// layer writes the archive of the files, each folder before what is in it.
func (i *Image) layer(to io.Writer) error {
	w := tar.NewWriter(to)
	made := map[string]bool{".": true, "/": true}
	var folder func(dir string, mode int64) error
	folder = func(dir string, mode int64) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		if err := folder(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		return w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: mode})
	}
	if err := folder("tmp", 0o1777); err != nil {
		return err
	}
	for _, f := range i.Files {
		path := strings.TrimPrefix(f.Path, "/")
		if err := folder(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if f.Link != "" {
			if err := w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeSymlink, Linkname: f.Link, Mode: 0o777}); err != nil {
				return err
			}
			continue
		}
		if err := addFile(w, path, f.From); err != nil {
			return err
		}
	}
	return w.Close()
}

func addFile(w *tar.Writer, path, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: int64(info.Mode().Perm()), Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}
