package crds

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Definition answers for a CustomResourceDefinition as an API server does, by the
// same code.
type Definition struct {
	// CRD is the definition with the defaults of the API server.
	CRD *v1.CustomResourceDefinition

	schema    *structural.Structural
	validator validation.SchemaValidator
	rules     *cel.Validator
}

// NewDefinition reads a definition. The error has everything for which an API
// server would refuse it.
func NewDefinition(data []byte) (*Definition, error) {
	d := &Definition{CRD: new(v1.CustomResourceDefinition)}
	if err := yaml.UnmarshalStrict(data, d.CRD); err != nil {
		return nil, err
	}
	v1.SetDefaults_CustomResourceDefinition(d.CRD)
	v1.SetDefaults_CustomResourceDefinitionSpec(&d.CRD.Spec)
	internal := new(apiextensions.CustomResourceDefinition)
	if err := v1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d.CRD, internal, nil); err != nil {
		return nil, err
	}
	internal.Status.StoredVersions = []string{d.CRD.Spec.Versions[0].Name}
	if errs := crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if err := d.compile(); err != nil {
		return nil, err
	}
	d.rules = cel.NewValidator(d.schema, true, celconfig.PerCallLimit)
	return d, nil
}

// compile makes all of a Definition but its rules in CEL.
func (d *Definition) compile() error {
	props := new(apiextensions.JSONSchemaProps)
	err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(d.CRD.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil)
	if err != nil {
		return err
	}
	if d.schema, err = structural.NewStructural(props); err != nil {
		return err
	}
	d.validator, _, err = validation.NewSchemaValidator(props)
	return err
}

// Create returns what an API server makes of an object that somebody creates: the
// object with defaults, and the rules that it breaks.
func (d *Definition) Create(ctx context.Context, object map[string]any) (map[string]any, field.ErrorList) {
	u := (&unstructured.Unstructured{Object: object}).DeepCopy()
	var errs field.ErrorList
	if v := d.CRD.Spec.Group + "/" + d.CRD.Spec.Versions[0].Name; u.GetAPIVersion() != v {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), u.GetAPIVersion(), "must be "+v))
	}
	if u.GetKind() != d.CRD.Spec.Names.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), u.GetKind(), "must be "+d.CRD.Spec.Names.Kind))
	}
	u.SetNamespace("") // as the API server does for what is cluster-scoped
	errs = append(errs, metavalidation.ValidateObjectMetaAccessor(u, false, metavalidation.NameIsDNSSubdomain, field.NewPath("metadata"))...)
	for _, path := range pruning.PruneWithOptions(u.Object, d.schema, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, field.Invalid(field.NewPath(path), nil, "is not a known field"))
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, d.schema)
	defaulting.Default(u.Object, d.schema)
	errs = append(errs, validation.ValidateCustomResource(nil, u.Object, d.validator)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.schema, u.Object)...)
	if slices.ContainsFunc(errs, blocks) || d.rules == nil {
		return u.Object, errs
	}
	broken, _ := d.rules.Validate(ctx, nil, d.schema, u.Object, nil, celconfig.RuntimeCELCostBudget)
	return u.Object, append(errs, broken...)
}

// blocks tells whether an API server does not look at rules in CEL any more after
// an error.
func blocks(e *field.Error) bool {
	switch e.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

// Rules are the messages of the rules in CEL, each with the path of its schema.
func (d *Definition) Rules() map[string][]string {
	found := make(map[string][]string)
	var walk func(path string, s *v1.JSONSchemaProps)
	walk = func(path string, s *v1.JSONSchemaProps) {
		for _, rule := range s.XValidations {
			found[rule.Message] = append(found[rule.Message], path)
		}
		for name, p := range s.Properties {
			walk(strings.TrimPrefix(path+"."+name, "."), &p)
		}
		if s.Items != nil {
			walk(path+"[]", s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			walk(path+"{}", s.AdditionalProperties.Schema)
		}
	}
	walk("", d.CRD.Spec.Versions[0].Schema.OpenAPIV3Schema)
	return found
}

// String names the definition.
func (d *Definition) String() string { return fmt.Sprintf("CustomResourceDefinition %s", d.CRD.Name) }
