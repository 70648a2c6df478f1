// Package packaging renders what lbd is installed with, the kustomize base and the
// chart of Helm, by the libraries of both, so that tests can hold one against the
// other and against the program.
//
// It is a module of its own: what these libraries need does not become a dependency
// of lbd.
package packaging

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Namespace is where the base installs, and Release what the chart is called.
const (
	Namespace = "lbd-system"
	Release   = "lbd"
)

// Object is an object of Kubernetes as JSON has it.
type Object map[string]any

// At returns what is below a path of keys, or nil.
func (o Object) At(path ...string) any {
	var v any = map[string]any(o)
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// Text is At for a string; "" if there is none.
func (o Object) Text(path ...string) string {
	s, _ := o.At(path...).(string)
	return s
}

// Key names the object: kind, namespace if it has one, and name.
func (o Object) Key() string {
	if namespace := o.Text("metadata", "namespace"); namespace != "" {
		return o.Text("kind") + "/" + namespace + "/" + o.Text("metadata", "name")
	}
	return o.Text("kind") + "/" + o.Text("metadata", "name")
}

// Kustomize builds the kustomization in dir.
func Kustomize(dir string) ([]Object, error) {
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("kustomize build %s: %w", dir, err)
	}
	data, err := result.AsYaml()
	if err != nil {
		return nil, err
	}
	return Split(data)
}

// Chart renders the chart in dir as `helm template --include-crds` does, with values
// over its own. Values that the schema of the chart refuses are an error.
func Chart(dir string, values map[string]any) ([]Object, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	if values == nil {
		values = map[string]any{}
	}
	options := chartutil.ReleaseOptions{Name: Release, Namespace: Namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, options, nil)
	if err != nil {
		return nil, err
	}
	files, err := (engine.Engine{Strict: true}).Render(c, all)
	if err != nil {
		return nil, err
	}
	var objects []Object
	for _, crd := range c.CRDObjects() {
		found, err := Split(crd.File.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", crd.Filename, err)
		}
		objects = append(objects, found...)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue // notes and helpers
		}
		found, err := Split([]byte(files[name]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, files[name])
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// Split reads a stream of YAML documents; empty ones are left out.
func Split(stream []byte) ([]Object, error) {
	var objects []Object
	for _, document := range bytes.Split(append([]byte("\n"), stream...), []byte("\n---\n")) {
		data, err := yaml.YAMLToJSONStrict(append(slices.Clip(document), '\n'))
		if err != nil {
			return nil, err
		}
		var o Object
		if err := yaml.Unmarshal(data, &o); err != nil {
			return nil, err
		}
		switch {
		case len(o) == 0:
		case o.Text("kind") == "" || o.Text("metadata", "name") == "":
			return nil, fmt.Errorf("a document is no object: %.80s", data)
		default:
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// Write prints objects as a stream that kubectl applies.
func Write(w io.Writer, objects []Object) error {
	for _, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", data); err != nil {
			return err
		}
	}
	return nil
}

// Index returns objects by their keys. Two with one key are an error.
func Index(objects []Object) (map[string]Object, error) {
	index := make(map[string]Object)
	var errs []error
	for _, o := range objects {
		if _, ok := index[o.Key()]; ok {
			errs = append(errs, fmt.Errorf("%s comes twice", o.Key()))
		}
		index[o.Key()] = o
	}
	return index, errors.Join(errs...)
}
