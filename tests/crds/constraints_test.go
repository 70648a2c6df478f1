package crds

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// walk visits the schema of a spec and of all in it, in the same order for equal
// definitions.
func walk(d *Definition, visit func(path string, s *v1.JSONSchemaProps)) {
	var into func(path string, s *v1.JSONSchemaProps)
	into = func(path string, s *v1.JSONSchemaProps) {
		visit(path, s)
		names := make([]string, 0, len(s.Properties))
		for name := range s.Properties {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			p := s.Properties[name]
			into(path+"."+name, &p)
			s.Properties[name] = p
		}
		if s.Items != nil {
			into(path+"[]", s.Items.Schema)
		}
		if s.AdditionalProperties != nil {
			into(path+"{}", s.AdditionalProperties.Schema)
		}
	}
	spec := d.CRD.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	into("spec", &spec)
	d.CRD.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
}

// weaken removes one constraint of a schema at a time: it calls try with what each
// is called, and with a function that removes it. maxLength is not among them: it
// stands beside rules in CEL, whose cost it bounds.
func weaken(s *v1.JSONSchemaProps, try func(name string, remove func(*v1.JSONSchemaProps))) {
	for name, c := range map[string]struct {
		has    bool
		remove func(*v1.JSONSchemaProps)
	}{
		"minimum":  {s.Minimum != nil, func(s *v1.JSONSchemaProps) { s.Minimum = nil }},
		"maximum":  {s.Maximum != nil, func(s *v1.JSONSchemaProps) { s.Maximum = nil }},
		"minItems": {s.MinItems != nil, func(s *v1.JSONSchemaProps) { s.MinItems = nil }},
		"maxItems": {s.MaxItems != nil, func(s *v1.JSONSchemaProps) { s.MaxItems = nil }},
		"pattern":  {s.Pattern != "", func(s *v1.JSONSchemaProps) { s.Pattern = "" }},
		"enum":     {len(s.Enum) > 0, func(s *v1.JSONSchemaProps) { s.Enum = nil }},
		"a unique list": {s.XListType != nil && *s.XListType != "atomic", func(s *v1.JSONSchemaProps) {
			s.XListType, s.XListMapKeys = nil, nil
		}},
	} {
		if c.has {
			try(name, c.remove)
		}
	}
	for _, field := range s.Required {
		try("required "+field, func(s *v1.JSONSchemaProps) {
			s.Required = slices.DeleteFunc(s.Required, func(f string) bool { return f == field })
		})
	}
}

// selectorOf finds what is inside a Selector, whose constraints are written once
// for all fields of that type.
var selectorOf = regexp.MustCompile(`^.*(Selectors\[\]|\.preference|\.machineSelector)\.match`)

// TestEveryConstraint wants an object for each constraint of a schema whose errors
// would be fewer without it, so that the comparison with Go would tell if it were
// missing.
func TestEveryConstraint(t *testing.T) {
	all := load(t)
	told := make(map[string]bool)
	byKind := make(map[string][]verdict)
	for _, v := range verdicts(t) {
		byKind[v.Kind] = append(byKind[v.Kind], v)
	}
	for kind, list := range byKind {
		count := func(d *Definition) []int {
			d.rules = nil
			var n []int
			for _, v := range list {
				_, errs := d.Create(t.Context(), v.Object)
				n = append(n, len(errs))
			}
			return n
		}
		whole := &Definition{CRD: all[kind].CRD.DeepCopy()}
		if err := whole.compile(); err != nil {
			t.Fatal(err)
		}
		want := count(whole)
		walk(whole, func(path string, s *v1.JSONSchemaProps) {
			weaken(s, func(name string, remove func(*v1.JSONSchemaProps)) {
				weak := &Definition{CRD: all[kind].CRD.DeepCopy()}
				walk(weak, func(at string, s *v1.JSONSchemaProps) {
					if at == path {
						remove(s)
					}
				})
				if err := weak.compile(); err != nil {
					t.Fatal(err)
				}
				constraint := kind + " " + path + ": " + name
				if kind != "BGPPeer" { // whose selectors have another type
					constraint = selectorOf.ReplaceAllString(constraint, "Selector.match")
				}
				told[constraint] = told[constraint] || !slices.Equal(count(weak), want)
			})
		})
	}
	if len(told) < 100 {
		t.Errorf("only %d constraints", len(told))
	}
	for constraint, ok := range told {
		if !ok {
			t.Errorf("no object breaks %s", constraint)
		}
	}
}

// compiles returns what an API server of a version says of the rules in CEL.
func compiles(d *Definition, v *version.Version) []error {
	var errs []error
	env := environment.MustBaseEnvSet(v)
	var into func(path string, s *structural.Structural)
	into = func(path string, s *structural.Structural) {
		results, err := cel.Compile(s, model.SchemaDeclType(s, path == ""), celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		for _, r := range results {
			if r.Error != nil {
				errs = append(errs, fmt.Errorf("%s: %w", path, r.Error))
			}
		}
		for name, p := range s.Properties {
			into(path+"."+name, &p)
		}
		if s.Items != nil {
			into(path+"[]", s.Items)
		}
	}
	into("", d.schema)
	return errs
}

// TestOldestVersion: the definitions are for Kubernetes 1.31 and later. An API
// server takes new rules only with what the version before its own had.
func TestOldestVersion(t *testing.T) {
	for _, d := range load(t) {
		for _, err := range compiles(d, version.MajorMinor(1, 30)) {
			t.Errorf("%v: %v", d, err)
		}
	}
	errs := compiles(load(t)["VirtualIP"], version.MajorMinor(1, 29))
	if !slices.ContainsFunc(errs, func(err error) bool { return strings.Contains(err.Error(), "undeclared reference to 'isIP'") }) {
		t.Errorf("an older version would take the rules too, but for %v: say so in docs/custom-resources.md", errs)
	}
}
