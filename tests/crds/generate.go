// Package crds makes the CustomResourceDefinitions of packaging/crds from the
// types and markers of api/v1alpha1, and holds them to what the Go code there
// does. It is a module of its own, so that the generator and the code of an API
// server are not among what lbd is built from.
package crds

import (
	"errors"
	"fmt"
	"go/ast"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-tools/pkg/crd"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
	"sigs.k8s.io/yaml"
)

// apiPackage is where the types are, below the root of the repository.
const apiPackage = "./api/v1alpha1"

const header = "# Made by `make generate` from api/v1alpha1. Do not edit.\n"

// Generate returns the files of packaging/crds by name. The types are those of
// the repository at root.
//
// It runs the generator of controller-gen without its command, which looks for
// objects by the metav1.ObjectMeta in them. Those of lbd have none, since files
// and cluster share them: here every type with the marker
// kubebuilder:resource is an object.
func Generate(root string) (map[string][]byte, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	pkgs, err := loader.LoadRootsWithConfig(&packages.Config{Dir: abs}, apiPackage)
	if err != nil {
		return nil, err
	}
	registry := &markers.Registry{}
	if err := errors.Join(crdmarkers.Register(registry), registry.Register(valuesPattern)); err != nil {
		return nil, err
	}
	parser := &crd.Parser{
		Collector:        &markers.Collector{Registry: registry},
		Checker:          &loader.TypeChecker{NodeFilters: []loader.NodeFilter{func(ast.Node) bool { return true }}},
		PackageOverrides: map[string]crd.PackageOverride{"time": wallClock},
	}
	crd.AddKnownTypes(parser)
	for _, p := range pkgs {
		parser.NeedPackage(p)
	}
	files := make(map[string][]byte)
	for id, info := range parser.Types {
		if info.Markers.Get("kubebuilder:resource") == nil {
			continue
		}
		kind := schema.GroupKind{Group: parser.GroupVersions[id.Package].Group, Kind: id.Name}
		parser.NeedCRDFor(kind, nil)
		object := parser.CustomResourceDefinitions[kind]
		data, err := render(&object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id.Name, err)
		}
		files[object.Spec.Names.Plural+".yaml"] = data
	}
	if loader.PrintErrors(pkgs, packages.TypeError) {
		return nil, errors.New("api/v1alpha1 has errors, which are on stderr")
	}
	files["Kustomization"] = kustomization(slices.Sorted(maps.Keys(files)))
	return files, nil
}

// kustomization lists the files for `kubectl apply -k`. Its name has no .yaml, since
// those files are what `lbd manifest crds` prints and what Helm reads.
func kustomization(names []string) []byte {
	return []byte(header + "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - " +
		strings.Join(names, "\n  - ") + "\n")
}

// render returns one definition as a document of YAML.
func render(object *apiextensions.CustomResourceDefinition) ([]byte, error) {
	crd.FixTopLevelMetadata(*object)
	for i := range object.Spec.Versions {
		fixRoot(object.Spec.Versions[i].Schema.OpenAPIV3Schema)
	}
	data, err := yaml.Marshal(object)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := yaml.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	delete(tree, "status") // the API server fills it in
	delete(tree["metadata"].(map[string]any), "creationTimestamp")
	if data, err = yaml.Marshal(tree); err != nil {
		return nil, err
	}
	return append([]byte(header), data...), nil
}

// fixRoot leaves apiVersion, kind and metadata to the API server, which checks
// them for every object.
func fixRoot(root *apiextensions.JSONSchemaProps) {
	var required []string
	for _, name := range root.Required {
		if name != "apiVersion" && name != "kind" && name != "metadata" {
			required = append(required, name)
		}
	}
	root.Required = required
}

// wallClock says how time.Time is written.
func wallClock(p *crd.Parser, pkg *loader.Package) {
	p.Schemata[crd.TypeIdent{Name: "Time", Package: pkg}] = apiextensions.JSONSchemaProps{Type: "string", Format: "date-time"}
}

// ValuesPattern is a pattern for the values of a map of strings, for which
// controller-gen has no marker.
type ValuesPattern string

var valuesPattern = markers.Must(markers.MakeDefinition("lbd:values:Pattern", markers.DescribesField, ValuesPattern("")))

// ApplyToSchema sets the pattern.
func (p ValuesPattern) ApplyToSchema(s *apiextensions.JSONSchemaProps) error {
	if s.AdditionalProperties == nil || s.AdditionalProperties.Schema == nil || s.AdditionalProperties.Schema.Type != "string" {
		return errors.New("lbd:values:Pattern is for maps of strings")
	}
	s.AdditionalProperties.Schema.Pattern = strings.TrimSpace(string(p))
	return nil
}
