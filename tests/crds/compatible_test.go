package crds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/tests/previous"
)

// narrowed are the ways in which a definition takes less than that of the previous version,
// each with the reason. An entry goes with the next release.
var narrowed = map[string]string{
	"BGPPeer spec: rule \"is required: from 1 to 4294967294, or dynamicASN in its place\"":                                                                             peerASNOptional,
	"BGPPeer spec: rule \"dynamicASN and peerASN exclude each other\"":                                                                                                 newFields,
	"BGPPeer spec: rule \"passwordSecret excludes password and passwordFile\"":                                                                                         newFields,
	"BGPPeer spec: rule \"no password is for a link-local peerAddress: TCP MD5 needs an address that names one peer\"":                                                 newFields,
	"BGPPeer spec: rule \"is for eBGP (peerASN is not myASN, and dynamicASN not internal), without ttlSecurity and minimumTTL; minimumTTL alone allows several hops\"": newFields,
	"MachineLoadBalancer spec.healthCheck.http.host: default none was \"127.0.0.1\"":                                                                                   hostDefault,
	"MachineLoadBalancer spec.healthCheck.https.host: default none was \"127.0.0.1\"":                                                                                  hostDefault,
	"MachineLoadBalancer spec.healthCheck.tcp.host: default none was \"127.0.0.1\"":                                                                                    hostDefault,
	"VirtualIP spec.healthCheck.http.host: default none was \"127.0.0.1\"":                                                                                             hostDefault,
	"VirtualIP spec.healthCheck.https.host: default none was \"127.0.0.1\"":                                                                                            hostDefault,
	"VirtualIP spec.healthCheck.tcp.host: default none was \"127.0.0.1\"":                                                                                              hostDefault,
}

// These rules say the same as before of what the previous version had.
const (
	peerASNOptional = "the field was required"
	newFields       = "what they refuse has dynamicASN or passwordSecret, which are new"
)

// Daemons of either version fill the host in by themselves.
const hostDefault = "that of a LoadBalancer is the address of each backend, and the type is the same"

// refused are objects that the previous version took and this one does not, by a part of
// the error, each with the reason. An entry goes with the next release.
var refused = map[string]string{}

// earlier are the definitions of the previous version by kind.
func earlier(t *testing.T, v *previous.Version) map[string]*Definition {
	t.Helper()
	names, err := v.Files(t.Context(), "packaging/crds/")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*Definition)
	for _, name := range names {
		if path.Ext(name) != ".yaml" {
			continue
		}
		data, err := v.File(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := NewDefinition(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[d.CRD.Spec.Names.Kind] = d
	}
	if len(all) < 9 {
		t.Fatalf("%d definitions", len(all))
	}
	return all
}

// TestNothingIsNarrower compares each definition with that of the previous version: fields
// may be added, and may take more.
func TestNothingIsNarrower(t *testing.T) {
	now, told := load(t), make(map[string]bool)
	for kind, d := range earlier(t, previous.For(t)) {
		for _, change := range narrower(d, now[kind]) {
			change = kind + " " + change
			if told[change] = true; narrowed[change] == "" {
				t.Errorf("%s; the previous version took more: say why in narrowed, and in CHANGELOG.md", change)
			}
		}
	}
	for change := range narrowed {
		if !told[change] {
			t.Errorf("%q is not so: remove it from narrowed", change)
		}
	}
}

// narrower lists what a definition takes no more.
func narrower(old, now *Definition) []string {
	if now == nil {
		return []string{"is gone"}
	}
	var out []string
	a, b := old.CRD.Spec, now.CRD.Spec
	if a.Group != b.Group || a.Scope != b.Scope || a.Names.Plural != b.Names.Plural || a.Names.Singular != b.Names.Singular {
		out = append(out, fmt.Sprintf("was %s %s, scope %s", a.Group, a.Names.Plural, a.Scope))
	}
	for _, version := range a.Versions {
		i := slices.IndexFunc(b.Versions, func(x v1.CustomResourceDefinitionVersion) bool { return x.Name == version.Name && x.Served })
		if i < 0 {
			out = append(out, "has no version "+version.Name)
			continue
		}
		x := b.Versions[i]
		if version.Subresources != nil && version.Subresources.Status != nil && (x.Subresources == nil || x.Subresources.Status == nil) {
			out = append(out, "has no subresource status")
		}
		out = append(out, less("", version.Schema.OpenAPIV3Schema, x.Schema.OpenAPIV3Schema)...)
	}
	return out
}

// less lists what a schema takes no more, below a path.
func less(at string, old, now *v1.JSONSchemaProps) []string {
	var out []string
	say := func(is bool, format string, args ...any) {
		if is {
			out = append(out, strings.TrimPrefix(at, ".")+": "+fmt.Sprintf(format, args...))
		}
	}
	say(old.Type != now.Type, "type %s was %s", now.Type, old.Type)
	say(now.Pattern != old.Pattern && now.Pattern != "", "pattern %s was %q", now.Pattern, old.Pattern)
	say(now.Format != old.Format && now.Format != "", "format %s was %q", now.Format, old.Format)
	say(old.Nullable && !now.Nullable, "must not be null")
	say(old.XIntOrString && !now.XIntOrString, "must not be a number or a word")
	say(isTrue(old.XPreserveUnknownFields) && !isTrue(now.XPreserveUnknownFields), "unknown fields are removed")
	say(listType(now) != listType(old) && listType(now) != "atomic", "list is a %s, was %s", listType(now), listType(old))
	say(raw(old.Default) != raw(now.Default), "default %s was %s", raw(now.Default), raw(old.Default))
	bounds(old, now, say)
	for _, name := range now.Required {
		say(!slices.Contains(old.Required, name), "%s is required", name)
	}
	for _, value := range old.Enum {
		say(len(now.Enum) > 0 && !slices.ContainsFunc(now.Enum, func(x v1.JSON) bool { return bytes.Equal(x.Raw, value.Raw) }), "%s is not a value", value.Raw)
	}
	say(len(old.Enum) == 0 && len(now.Enum) > 0, "only some values")
	for _, rule := range now.XValidations {
		say(!slices.ContainsFunc(old.XValidations, func(x v1.ValidationRule) bool { return x.Rule == rule.Rule }), "rule %q", rule.Message)
	}
	for name, p := range old.Properties {
		q, ok := now.Properties[name]
		if say(!ok, "%s is gone", name); ok {
			out = append(out, less(at+"."+name, &p, &q)...)
		}
	}
	if old.Items != nil && now.Items != nil {
		out = append(out, less(at+"[]", old.Items.Schema, now.Items.Schema)...)
	}
	if old.AdditionalProperties != nil {
		say(now.AdditionalProperties == nil, "is no map")
		if now.AdditionalProperties != nil && now.AdditionalProperties.Schema != nil {
			out = append(out, less(at+"{}", old.AdditionalProperties.Schema, now.AdditionalProperties.Schema)...)
		}
	}
	return out
}

// bounds compares what numbers, words and lists may be.
func bounds(old, now *v1.JSONSchemaProps, say func(bool, string, ...any)) {
	for name, x := range map[string][2]*float64{"minimum": {old.Minimum, now.Minimum}, "maximum": {negative(old.Maximum), negative(now.Maximum)}} {
		say(x[1] != nil && (x[0] == nil || *x[1] > *x[0]), "%s is narrower", name)
	}
	for name, x := range map[string][2]*int64{"minLength": {old.MinLength, now.MinLength}, "minItems": {old.MinItems, now.MinItems}, "minProperties": {old.MinProperties, now.MinProperties}} {
		say(x[1] != nil && (x[0] == nil || *x[1] > *x[0]), "%s is narrower", name)
	}
	for name, x := range map[string][2]*int64{"maxLength": {old.MaxLength, now.MaxLength}, "maxItems": {old.MaxItems, now.MaxItems}, "maxProperties": {old.MaxProperties, now.MaxProperties}} {
		say(x[1] != nil && (x[0] == nil || *x[1] < *x[0]), "%s is narrower", name)
	}
}

func negative(f *float64) *float64 {
	if f == nil {
		return nil
	}
	n := -*f
	return &n
}

func isTrue(b *bool) bool { return b != nil && *b }

func listType(s *v1.JSONSchemaProps) string {
	if s.XListType == nil {
		return "atomic"
	}
	return *s.XListType + " " + strings.Join(s.XListMapKeys, ",")
}

func raw(j *v1.JSON) string {
	if j == nil {
		return "none"
	}
	return string(j.Raw)
}

// TestNarrower: each way to take less is noticed.
func TestNarrower(t *testing.T) {
	const text = `
type: object
required: [a]
x-kubernetes-validations: [{rule: "has(self.a)", message: a rule}]
properties:
  a: {type: string, enum: [x, z], maxLength: 5}
  b: {type: integer, minimum: 1, maximum: 9, default: 3}
  c: {type: array, maxItems: 4, items: {type: string}}
  d: {type: object, additionalProperties: {type: string}}
  e: {type: object, properties: {f: {type: string}}}
`
	schema := func(text string) *v1.JSONSchemaProps {
		s := new(v1.JSONSchemaProps)
		if err := yaml.Unmarshal([]byte(text), s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, x := range []struct{ from, to, want string }{
		{"", "", ""},
		{"enum: [x, z]", "enum: [x, z, w]", ""},
		{"maximum: 9", "maximum: 10", ""},
		{"  e: {", "  g: {type: string, minLength: 3}\n  e: {", ""},
		{"required: [a]", "required: []", ""},
		{"enum: [x, z]", "enum: [x]", `a: "z" is not a value`},
		{"maxLength: 5", "maxLength: 4", "a: maxLength is narrower"},
		{"minimum: 1", "minimum: 2", "b: minimum is narrower"},
		{"maximum: 9", "maximum: 8", "b: maximum is narrower"},
		{"default: 3", "default: 4", "b: default 4 was 3"},
		{"maxItems: 4", "maxItems: 4, x-kubernetes-list-type: set", "c: list is a set , was atomic"},
		{"items: {type: string}", "items: {type: string, pattern: x}", `c[]: pattern x was ""`},
		{"additionalProperties: {type: string}", "additionalProperties: {type: string, maxLength: 1}", "d{}: maxLength is narrower"},
		{"f: {type: string}", "", "e: f is gone"},
		{"f: {type: string}", "f: {type: integer}", "e.f: type integer was string"},
		{"required: [a]", "required: [a, b]", ": b is required"},
		{"has(self.a)", "has(self.b)", `: rule "a rule"`},
	} {
		got := strings.Join(less("", schema(text), schema(strings.Replace(text, x.from, x.to, 1))), "; ")
		if got != x.want {
			t.Errorf("%s -> %s: %q, want %q", x.from, x.to, got, x.want)
		}
	}
}

// TestOlderObjects has all objects in the tests, examples and pages of the previous version
// that its definitions took taken by those of this one, and by Validate.
func TestOlderObjects(t *testing.T) {
	v := previous.For(t)
	before, now := earlier(t, v), load(t)
	told, count := make(map[string]bool), make(map[string]int)
	for _, o := range olderObjects(t, v) {
		kind, _ := o.object["kind"].(string)
		if before[kind] == nil {
			continue
		}
		if _, errs := before[kind].Create(t.Context(), o.object); len(errs) > 0 {
			continue
		}
		count[kind]++
		for _, complaint := range complaints(t, now[kind], o.object) {
			why := ""
			for part := range refused {
				if strings.Contains(complaint, part) {
					why, told[part] = part, true
				}
			}
			if why == "" {
				t.Errorf("%s: the previous version took it, this one says\n%s\n%s", o.from, complaint, shown(o.object))
			}
		}
	}
	t.Logf("objects by kind: %v", count)
	for kind := range before {
		if kind != "NodeStatus" && count[kind] < 3 {
			t.Errorf("%d objects of kind %s", count[kind], kind)
		}
	}
	for part := range refused {
		if !told[part] {
			t.Errorf("no object is refused with %q: remove it from refused", part)
		}
	}
}

// complaints are the errors of the definition and of Validate.
func complaints(t *testing.T, d *Definition, object map[string]any) []string {
	t.Helper()
	var out []string
	var errs field.ErrorList
	if d == nil {
		return []string{"the kind is gone"}
	}
	if _, errs = d.Create(t.Context(), object); len(errs) > 0 {
		for _, e := range errs {
			out = append(out, "definition: "+e.Error())
		}
	}
	return append(out, invalid(d.CRD.Spec.Names.Kind, object)...)
}

// invalid is what Go says of an object.
func invalid(kind string, object map[string]any) []string {
	value := map[string]interface {
		Default()
		Validate() []v1alpha1.FieldError
	}{
		v1alpha1.KindVirtualIP: &v1alpha1.VirtualIP{}, v1alpha1.KindBGPPeer: &v1alpha1.BGPPeer{}, v1alpha1.KindBFDProfile: &v1alpha1.BFDProfile{},
		v1alpha1.KindCommunity: &v1alpha1.Community{}, v1alpha1.KindIPAddressPool: &v1alpha1.IPAddressPool{},
		v1alpha1.KindL2Advertisement: &v1alpha1.L2Advertisement{}, v1alpha1.KindBGPAdvertisement: &v1alpha1.BGPAdvertisement{},
		v1alpha1.KindLoadBalancer: &v1alpha1.LoadBalancer{}, v1alpha1.KindMachineLoadBalancer: &v1alpha1.MachineLoadBalancer{},
		v1alpha1.KindTenant: &v1alpha1.Tenant{}, v1alpha1.KindTenantNodes: &v1alpha1.TenantNodes{}, v1alpha1.KindTenantService: &v1alpha1.TenantService{},
		v1alpha1.KindTenantRoute: &v1alpha1.TenantRoute{},
	}[kind]
	if value == nil {
		return nil // a NodeStatus, which lbd writes
	}
	data, err := json.Marshal(object)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(value)
	}
	if err != nil {
		return []string{"Go: " + err.Error()}
	}
	value.Default()
	var out []string
	for _, e := range value.Validate() {
		out = append(out, "Validate: "+e.Error())
	}
	return out
}

// olderObject is an object of the previous version, and where it stood.
type olderObject struct {
	from   string
	object map[string]any
}

// olderObjects are those of its verdicts, and all in files of YAML and blocks of pages.
func olderObjects(t *testing.T, v *previous.Version) []olderObject {
	t.Helper()
	var all []olderObject
	data, err := v.File(t.Context(), "api/v1alpha1/testdata/verdicts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		x := verdict{}
		if err := json.Unmarshal(line, &x); err != nil {
			t.Fatal(err)
		}
		if len(x.Errors) == 0 {
			all = append(all, olderObject{x.String(), integers(x.Object).(map[string]any)})
		}
	}
	names, err := v.Files(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		ext := path.Ext(name)
		if ext != ".yaml" && ext != ".md" {
			continue
		}
		data, err := v.File(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		blocks := [][]byte{data}
		if ext == ".md" {
			blocks = nil
			for i, b := range bytes.Split(data, []byte("\n```")) {
				if rest, ok := bytes.CutPrefix(b, []byte("yaml\n")); ok && i > 0 {
					blocks = append(blocks, rest)
				}
			}
		}
		for _, b := range blocks {
			for _, doc := range bytes.Split(b, []byte("\n---")) {
				var object map[string]any
				if yaml.Unmarshal(doc, &object) == nil && object["apiVersion"] == v1alpha1.APIVersion { // else a template, or of another program
					all = append(all, olderObject{name, integers(object).(map[string]any)})
				}
			}
		}
	}
	return all
}
