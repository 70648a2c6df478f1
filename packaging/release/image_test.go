package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// openLayout unpacks an archive, and returns its only entry and what the archive calls it.
func openLayout(t *testing.T, archive string) (v1.ImageIndex, v1.Descriptor) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	for _, entry := range entries(t, f) {
		to := filepath.Join(dir, entry.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, entry.data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("%v: %v", m, err)
	}
	return index, m.Manifests[0]
}

// entry is a file of a tar archive.
type entry struct {
	*tar.Header
	data []byte
}

func entries(t *testing.T, r io.Reader) []entry {
	t.Helper()
	var out []entry
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		data, err2 := io.ReadAll(archive)
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		out = append(out, entry{h, data})
	}
}

// TestImage: each architecture gets its own program and nothing else; what runs it is told, and registries take it.
func TestImage(t *testing.T) {
	r := Release{Root: root, Version: "v0.1.0", Commit: "0123abc", Time: monthEnd, Archs: []string{"amd64", "arm64"}, Image: "r.example.net/lbd:v0.1.0"}
	files := make(map[string][]file)
	for _, arch := range r.Archs {
		files[arch] = []file{{"usr/", nil, 0o755}, {"usr/bin/lbd", []byte("for " + arch), 0o755}}
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	if err := r.writeImageOf(archive, files); err != nil {
		t.Fatal(err)
	}
	all, named := openLayout(t, archive)
	if got := named.Annotations["io.containerd.image.name"]; got != r.Image {
		t.Errorf("it is called %s", got)
	}
	index, err := all.ImageIndex(named.Digest)
	if err = errors.Join(err, validate.Index(index)); err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil || m.Annotations["org.opencontainers.image.revision"] != "0123abc" {
		t.Fatalf("%v: %v", m, err)
	}
	var platforms []string
	for _, d := range m.Manifests {
		platforms = append(platforms, d.Platform.String())
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		testImage(t, img, d.Platform.Architecture)
	}
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("there are images for %v", platforms)
	}
}

// testImage looks into the image of one architecture.
func testImage(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	said := fmt.Sprintf("%s %s as %s: %q %q with %q", config.Platform(), config.Created.UTC().Format("2006-01-02 15:04"), c.User, c.Entrypoint, c.Cmd, c.Env)
	if want := "linux/" + arch + ` 2023-11-30 23:30 as 65532:65532: ["/usr/bin/lbd"] [] with ["PATH=/usr/bin"]`; said != want {
		t.Errorf("it says %s, want %s", said, want)
	}
	for label, want := range map[string]string{"title": "lbd", "licenses": "Apache-2.0", "version": "v0.1.0", "revision": "0123abc"} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("the label %s is %q", label, got)
		}
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers: %v", len(layers), err)
	}
	files, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	var got []string
	for _, e := range entries(t, files) {
		got = append(got, fmt.Sprintf("%s %o %d %s %s", e.Name, e.Mode, e.Uid, e.ModTime.UTC().Format("2006-01-02"), e.data))
	}
	if want := []string{"usr/ 755 0 2023-11-30 ", "usr/bin/lbd 755 0 2023-11-30 for " + arch}; !slices.Equal(got, want) {
		t.Errorf("it has %q", got)
	}
}

// testRealImage looks for what the image of a release has: the program where the manifests look
// for it, and the licences.
func testRealImage(t *testing.T, dir string) {
	all, named := openLayout(t, only(t, dir, "lbd-image-*.tar"))
	index, err := all.ImageIndex(named.Digest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	img, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(img)
	defer files.Close()
	var got []string
	for _, e := range entries(t, files) {
		if e.Typeflag != tar.TypeDir && len(e.data) > 1000 {
			got = append(got, fmt.Sprintf("%s %o", e.Name, e.Mode))
		}
	}
	if want := []string{"usr/bin/lbd 755", "usr/share/doc/lbd/THIRD-PARTY-LICENCES 644", "usr/share/doc/lbd/copyright 644"}; !slices.Equal(got, want) {
		t.Errorf("the image has %q", got)
	}
}

// testChart compares the artifact with the file of the chart.
func testChart(t *testing.T, dir string) {
	chart, err := os.ReadFile(only(t, dir, "lbd-chart-*.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	all, named := openLayout(t, only(t, dir, "lbd-chart-*.oci.tar"))
	img, err := all.Image(named.Digest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if m.Config.MediaType != "application/vnd.cncf.helm.config.v1+json" || len(m.Layers) != 1 || m.Layers[0].MediaType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" {
		t.Errorf("%+v", m)
	}
	layer, err := img.LayerByDigest(m.Layers[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	r, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if data, err := io.ReadAll(r); err != nil || !slices.Equal(data, chart) {
		t.Errorf("the artifact has another chart than the file: %d and %d bytes, %v", len(data), len(chart), err)
	}
	var about struct{ Name, Version, AppVersion string }
	raw, err := img.RawConfigFile()
	if err = errors.Join(err, json.Unmarshal(raw, &about)); err != nil || about.Name != "lbd" || about.AppVersion != "v0.1.0-9-g0123abc" {
		t.Errorf("%+v: %v", about, err)
	}
	if named.Annotations["org.opencontainers.image.ref.name"] != about.Version || !strings.HasPrefix(about.Version, "0.1.0-9") {
		t.Errorf("the artifact is called %v, the chart %s", named.Annotations, about.Version)
	}
}
