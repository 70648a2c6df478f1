package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// Media types of Helm, https://helm.sh/docs/topics/registries/#helm-chart-manifest.
const (
	helmConfig types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	helmChart  types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// nobody is who an image runs as: the DaemonSet and the static pod need root and say so.
const nobody = "65532:65532"

// inside is what the image of an architecture has: the program, and the licences of what is in it.
func (r *Release) inside(arch, binary string) ([]file, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile(filepath.Join(r.Root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	modules, err := modulesOf(binary)
	if err != nil {
		return nil, err
	}
	others, err := modules.licences(r.Root, arch)
	if err != nil {
		return nil, err
	}
	return []file{
		{"usr/", nil, 0o755}, {"usr/bin/", nil, 0o755}, {"usr/bin/lbd", program, 0o755},
		{"usr/share/", nil, 0o755}, {"usr/share/doc/", nil, 0o755}, {"usr/share/doc/lbd/", nil, 0o755},
		{"usr/share/doc/lbd/THIRD-PARTY-LICENCES", others, 0o644}, {"usr/share/doc/lbd/copyright", own, 0o644},
	}, nil
}

// image is the image of one architecture, of one layer with these files.
func (r *Release) image(arch string, list []file) (v1.Image, error) {
	var files bytes.Buffer
	if err := packed(&files, list, r.Time); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	at := v1.Time{Time: r.Time}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: at,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{User: nobody, Env: []string{"PATH=/usr/bin"}, Entrypoint: []string{"/usr/bin/lbd"}, Labels: r.labels()},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: at, CreatedBy: "make image"}})
}

// labels say to people and registries what an image is.
func (r *Release) labels() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": "lbd", prefix + "description": "Keeps addresses of on-premises Kubernetes reachable",
		prefix + "documentation": "https://lbd.dev/docs", prefix + "licenses": "Apache-2.0",
		prefix + "version": r.Version, prefix + "revision": r.Commit,
	}
}

// images is the image of all architectures, with the files of each.
func (r *Release) images(files map[string][]file) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range r.Archs {
		img, err := r.image(arch, files[arch])
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	return mutate.Annotations(index, r.labels()).(v1.ImageIndex), nil
}

// writeImage writes the image into a tar archive of OCI's layout, which skopeo, crane, ctr and
// docker read.
func (r *Release) writeImage(to string, binaries map[string]string) error {
	files := make(map[string][]file)
	for arch, binary := range binaries {
		var err error
		if files[arch], err = r.inside(arch, binary); err != nil {
			return err
		}
	}
	return r.writeImageOf(to, files)
}

// writeImageOf does so with the files of each architecture.
func (r *Release) writeImageOf(to string, files map[string][]file) error {
	index, err := r.images(files)
	if err != nil {
		return err
	}
	return r.writeLayout(to, r.Image, func(p layout.Path, named layout.Option) error { return p.AppendIndex(index, named) })
}

// writeChart writes the chart as `helm push` puts it into a registry.
func (r *Release) writeChart(to, number string, chart []byte, about []byte) error {
	img, err := chartArtifact(chart, about, r.labels(), r.Time)
	if err != nil {
		return err
	}
	return r.writeLayout(to, number, func(p layout.Path, named layout.Option) error { return p.AppendImage(img, named) })
}

// writeLayout writes what fill puts into a layout, under a name.
func (r *Release) writeLayout(to, name string, fill func(layout.Path, layout.Option) error) error {
	work, err := os.MkdirTemp("", "lbd-layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	p, err := layout.Write(work, empty.Index)
	if err != nil {
		return err
	}
	// The first name is that of the standard, the second what containerd and docker look for.
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name})
	if err := fill(p, named); err != nil {
		return err
	}
	files, err := tree(work, "")
	if err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(packed(f, files, r.Time), f.Close())
}

// artifact is a manifest with a configuration of another kind than that of an image.
type artifact struct {
	config, manifest []byte
	layer            v1.Layer
}

func (a *artifact) RawConfigFile() ([]byte, error)                         { return a.config, nil }
func (a *artifact) RawManifest() ([]byte, error)                           { return a.manifest, nil }
func (a *artifact) MediaType() (types.MediaType, error)                    { return types.OCIManifestSchema1, nil }
func (a *artifact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return a.layer, nil }

// chartArtifact is a chart, whose Chart.yaml is about, in the form that Helm gives it.
func chartArtifact(chart, about []byte, labels map[string]string, at time.Time) (v1.Image, error) {
	config, err := yaml.YAMLToJSON(about)
	if err != nil {
		return nil, err
	}
	layer := static.NewLayer(chart, helmChart)
	described, err := partial.Descriptor(layer)
	if err != nil {
		return nil, err
	}
	sum, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{"org.opencontainers.image.created": at.Format(time.RFC3339)}
	for k, v := range labels {
		annotations[k] = v
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: helmConfig, Digest: sum, Size: size},
		Layers: []v1.Descriptor{*described}, Annotations: annotations,
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(&artifact{config, manifest, layer})
}
