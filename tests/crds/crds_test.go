package crds

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const root = "../.."

// definitions are those of packaging/crds by kind.
var definitions = sync.OnceValues(func() (map[string]*Definition, error) {
	paths, err := filepath.Glob(filepath.Join(root, "packaging", "crds", "*.yaml"))
	if err != nil {
		return nil, err
	}
	all := make(map[string]*Definition)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		d, err := NewDefinition(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all[d.CRD.Spec.Names.Kind] = d
	}
	return all, nil
})

func load(t *testing.T) map[string]*Definition {
	t.Helper()
	all, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestGenerated compares the files with what the generator makes.
func TestGenerated(t *testing.T) {
	want, err := Generate(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "packaging", "crds")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		have, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want[e.Name()]) {
			t.Errorf("packaging/crds/%s is not what the generator makes: run make generate", e.Name())
		}
		delete(want, e.Name())
	}
	for name := range want {
		t.Errorf("packaging/crds lacks %s: run make generate", name)
	}
}

// TestDefinitions wants what an API server and people at a terminal expect of
// each definition.
func TestDefinitions(t *testing.T) {
	all := load(t)
	kinds := []string{"BFDProfile", "BGPAdvertisement", "BGPPeer", "Community", "IPAddressPool", "L2Advertisement", "LoadBalancer", "MachineLoadBalancer", "NodeStatus", "Tenant", "TenantNodes", "TenantRoute", "TenantService", "VirtualIP"}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, kinds) {
		t.Errorf("definitions of %v, want %v", got, kinds)
	}
	short := make(map[string]string)
	for kind, d := range all {
		s, v := d.CRD.Spec, d.CRD.Spec.Versions[0]
		scope := "Cluster"
		if slices.Contains([]string{"MachineLoadBalancer", "TenantNodes", "TenantRoute", "TenantService"}, kind) { // beside the Machines, and in that of a cluster
			scope = "Namespaced"
		}
		if string(s.Scope) != scope || !slices.Equal(s.Names.Categories, []string{"lbd"}) || len(s.Versions) != 1 || v.Name != "v1alpha1" || !v.Storage || !v.Served {
			t.Errorf("%v: scope %s, names %+v, version %+v", d, s.Scope, s.Names, v.Name)
		}
		if status := v.Subresources != nil && v.Subresources.Status != nil; status != (kind != "NodeStatus") {
			t.Errorf("%v: subresource status: %v", d, status)
		}
		for _, name := range s.Names.ShortNames {
			if other, twice := short[name]; twice {
				t.Errorf("%s is short for %s and %s", name, other, kind)
			}
			short[name] = kind
		}
		for _, column := range v.AdditionalPrinterColumns {
			if !exists(d, column.JSONPath) {
				t.Errorf("%v: column %s: there is no %s", d, column.Name, column.JSONPath)
			}
		}
		for name, p := range v.Schema.OpenAPIV3Schema.Properties {
			if name != "metadata" && p.Description == "" {
				t.Errorf("%v: %s has no description for kubectl explain", d, name)
			}
		}
	}
}

var selection = regexp.MustCompile(`\[[^]]*\]`)

// exists tells whether a column shows a field that the schema has.
func exists(d *Definition, path string) bool {
	if path == ".metadata.creationTimestamp" {
		return true
	}
	s := d.CRD.Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, name := range strings.Split(strings.TrimPrefix(selection.ReplaceAllString(path, ""), "."), ".") {
		if s.Items != nil {
			s = s.Items.Schema
		}
		p, ok := s.Properties[name]
		if !ok {
			return false
		}
		s = &p
	}
	return true
}

// verdict is what Default and Validate in Go say of one object.
type verdict struct {
	Kind, Case        string
	Object, Defaulted map[string]any
	Errors            []string
}

func (v verdict) String() string { return v.Kind + " " + v.Case }

// verdicts reads what the tests of api/v1alpha1 have written.
func verdicts(t *testing.T) []verdict {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "api", "v1alpha1", "testdata", "verdicts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var list []verdict
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		v := verdict{}
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		// The API server has integers where encoding/json has floats.
		v.Object = integers(v.Object).(map[string]any)
		v.Defaulted = integers(v.Defaulted).(map[string]any)
		list = append(list, v)
	}
	if err := lines.Err(); err != nil || len(list) < 300 {
		t.Fatalf("%d verdicts: %v", len(list), err)
	}
	return list
}

// integers turns whole numbers into int64.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = integers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case float64:
		if float64(int64(v)) == v {
			return int64(v)
		}
	}
	return v
}

// onlyGo are objects that a cluster takes although Validate refuses them, by the
// rule that no schema can have. Whoever reads the object says so in its
// conditions.
var onlyGo = map[string]string{
	"overlaps spec.addresses":                             "no arithmetic on IPv6 addresses, and every pair of entries would cost too much",
	`2001:db8::9-2001:db8::1" ends before`:                "no arithmetic on IPv6 addresses",
	`fe00::-fec0::1" contains`:                            "no arithmetic on IPv6 addresses",
	`.address: "10.0.0.11" is listed twice`:               "comparing each of 1000 backends with the others would cost too much, and one may be there with two ports",
	"overlaps 10.1.0.0/24, spec.clusters[0].nodeCIDRs[0]": "every pair of prefixes would cost too much",
	"has a key that is not":                               "a rule about the keys of a map, which have no bound, would cost too much",
	`metadata.namespace: "a.b"`:                           "the API server removes it",
	`metadata.name: "` + aaa + `"`:                        "the API server takes labels of more than 63 characters",
}

var aaa = strings.Repeat("a", 64)

// TestVerdicts wants the same verdict from each definition as from Go.
func TestVerdicts(t *testing.T) {
	all := load(t)
	excused := make(map[string]bool)
	for _, v := range verdicts(t) {
		d := all[v.Kind]
		if d == nil {
			t.Fatalf("no definition of %s", v.Kind)
		}
		object, errs := d.Create(t.Context(), v.Object)
		switch {
		case len(v.Errors) == 0 && len(errs) > 0:
			t.Errorf("%v: Go takes it, the cluster says\n%v\n%v", v, errs.ToAggregate(), shown(v.Object))
		case len(v.Errors) > 0 && len(errs) == 0:
			why := excuse(v.Errors)
			if why == "" {
				t.Errorf("%v: the cluster takes it, Go says\n%s\n%v", v, strings.Join(v.Errors, "\n"), shown(v.Object))
			}
			excused[why] = true
		case len(errs) == 0:
			sameDefaults(t, v, object)
		}
	}
	for rule := range onlyGo {
		if !excused[rule] {
			t.Errorf("no object is excused by %q: remove it", rule)
		}
	}
}

// TestLargeLoadBalancer: at the bounds of all lists, with texts as long as they get, an API server can
// still judge the rules of the definition. Only their product is too large.
func TestLargeLoadBalancer(t *testing.T) {
	const prefix = "2001:db8:1111:2222:3333:4444:5555:%x"
	lists := map[string]int{"addresses": 64, "ports": 1000, "backends": 1000, "allowedSources": 1000}
	spec := make(map[string]any)
	for name, n := range lists {
		var list []any
		for i := range n {
			var entry any
			switch name {
			case "ports":
				entry = map[string]any{"port": int64(i + 1), "targetPort": int64(i + 2), "protocol": "TCP"}
			case "backends":
				entry = map[string]any{"address": fmt.Sprintf(prefix, i+0x1000), "port": int64(8080), "weight": int64(1)}
			case "allowedSources":
				entry = fmt.Sprintf("2001:db8:1111:2222:3333:4444:%x:0/112", i+0x1000)
			default:
				entry = fmt.Sprintf(prefix, i+0x8000)
			}
			list = append(list, entry)
		}
		spec[name] = list
	}
	object := map[string]any{"apiVersion": "lbd.dev/v1alpha1", "kind": "LoadBalancer", "metadata": map[string]any{"name": "a"}, "spec": spec}
	if _, errs := load(t)["LoadBalancer"].Create(t.Context(), object); len(errs) != 1 || !strings.Contains(errs[0].Error(), "more than 200000 ways") {
		t.Error(errs.ToAggregate())
	}
}

// excuse returns the entry of onlyGo that covers all errors, or "".
func excuse(errs []string) string {
	for rule := range onlyGo {
		if !slices.ContainsFunc(errs, func(e string) bool { return !strings.Contains(e, rule) }) {
			return rule
		}
	}
	return ""
}

// sameDefaults wants that the cluster sets nothing that Go would not set, and
// nothing to another value.
func sameDefaults(t *testing.T, v verdict, object map[string]any) {
	t.Helper()
	want := v.Defaulted
	if want == nil {
		want = v.Object
	}
	if path := differs("", object, want); path != "" {
		t.Errorf("%v: the cluster has %s, Go has not\n%v\n%v", v, path, shown(object), shown(want))
	}
}

// differs returns the first path of got that want does not have alike, or "".
func differs(path string, got, want any) string {
	switch got := got.(type) {
	case map[string]any:
		w, ok := want.(map[string]any)
		if !ok && len(got) > 0 {
			return path
		}
		for _, key := range slices.Sorted(maps.Keys(got)) {
			if list, ok := got[key].([]any); ok && len(list) == 0 {
				continue // as it was written; Go fills it in
			}
			value, ok := w[key]
			if !ok && !empty(got[key]) {
				return path + "." + key
			}
			if at := differs(path+"."+key, got[key], value); ok && at != "" {
				return at
			}
		}
		return ""
	case []any:
		w, _ := want.([]any)
		if len(w) != len(got) {
			return path
		}
		for i := range got {
			if at := differs(fmt.Sprintf("%s[%d]", path, i), got[i], w[i]); at != "" {
				return at
			}
		}
		return ""
	case string:
		a, errA := time.ParseDuration(got) // "1m30s" is "90s"
		w, _ := want.(string)
		if b, errB := time.ParseDuration(w); got == w || errA == nil && errB == nil && a == b {
			return ""
		}
		return path
	}
	if !reflect.DeepEqual(got, want) && !(empty(got) && empty(want)) {
		return path
	}
	return ""
}

// empty is what Go leaves out when it writes an object.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, inner := range v {
			if !empty(inner) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return reflect.ValueOf(v).IsZero()
}

func shown(v any) string {
	data, _ := json.Marshal(v)
	return string(data[:min(len(data), 2000)])
}

// TestEveryRule wants an object for each rule in CEL that breaks it.
func TestEveryRule(t *testing.T) {
	all := load(t)
	broken := make(map[string]map[string]bool)
	for _, v := range verdicts(t) {
		_, errs := all[v.Kind].Create(t.Context(), v.Object)
		for _, e := range errs {
			if broken[v.Kind] == nil {
				broken[v.Kind] = make(map[string]bool)
			}
			broken[v.Kind][e.Detail] = true
			if e.Type == field.ErrorTypeInternal || strings.Contains(e.Detail, "cost") {
				t.Errorf("%v: %v", v, e)
			}
		}
	}
	for kind, d := range all {
		for message, paths := range d.Rules() {
			if message == "" {
				t.Errorf("%s: a rule at %v has no message", kind, paths)
			}
			if !broken[kind][message] {
				t.Errorf("%s: no object breaks the rule %q at %v", kind, message, paths)
			}
		}
	}
}
