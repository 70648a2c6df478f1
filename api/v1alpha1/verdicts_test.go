package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
)

// verdictsFile has one line for each object that a test of this package looked
// at: the object as a user would write it, what Default makes of it, and what
// Validate says. tests/crds holds the definitions of packaging/crds against it.
const verdictsFile = "testdata/verdicts.jsonl"

var update = flag.Bool("update", false, "write "+verdictsFile)

// verdict is one line of the file.
type verdict struct {
	Kind   string          `json:"kind"`
	Case   string          `json:"case"`
	Object json.RawMessage `json:"object"`
	// Defaulted is absent if Default changes nothing.
	Defaulted json.RawMessage `json:"defaulted,omitempty"`
	Errors    []string        `json:"errors,omitempty"`
}

var recorded struct {
	sync.Mutex
	lines map[string]verdict
}

// record adds the object of a test to the verdicts. The label tells several
// objects of one test apart.
func record(t *testing.T, label string, object any) {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	recordText(t, label, reflect.TypeOf(object).Elem(), data)
}

// recordText does the same for the text of an object.
func recordText(t *testing.T, label string, kind reflect.Type, data []byte) {
	t.Helper()
	v := verdict{Kind: kind.Name(), Case: t.Name(), Object: data}
	if label != "" {
		v.Case += "/" + label
	}
	object := reflect.New(kind).Interface().(interface {
		Default()
		Validate() []FieldError
	})
	if err := json.Unmarshal(data, object); err != nil {
		v.Errors = []string{err.Error()}
	} else {
		object.Default()
		errs := object.Validate()
		if o, ok := object.(interface{ ValidateInCluster() []FieldError }); ok {
			errs = o.ValidateInCluster()
		}
		for _, e := range errs {
			v.Errors = append(v.Errors, e.Error())
		}
		if after, err := json.Marshal(object); err != nil {
			t.Fatal(err)
		} else if string(after) != string(data) {
			v.Defaulted = after
		}
	}
	if kind == reflect.TypeFor[VirtualIP]() {
		if text, ok := asMachines(data); ok {
			recordText(t, label, reflect.TypeFor[MachineLoadBalancer](), text)
		}
		if text, ok := asBalancer(data); ok {
			recordText(t, "as "+KindVirtualIP+" "+label, reflect.TypeFor[LoadBalancer](), text)
		}
	}
	recorded.Lock()
	defer recorded.Unlock()
	key := v.Kind + " " + v.Case
	if old, again := recorded.lines[key]; again && !reflect.DeepEqual(old, v) {
		t.Fatalf("%s has two objects; give them labels", key)
	}
	if recorded.lines == nil {
		recorded.lines = make(map[string]verdict)
	}
	recorded.lines[key] = v
}

// asMachines makes a MachineLoadBalancer of a VirtualIP: both have one check and one
// way to be announced, and so the same constraints.
func asMachines(text []byte) ([]byte, bool) {
	var object map[string]any
	if json.Unmarshal(text, &object) != nil {
		return nil, false
	}
	spec, _ := object["spec"].(map[string]any)
	made := map[string]any{"clusterName": "c", "address": "10.0.0.1"}
	for _, field := range []string{"healthCheck", "advertise"} {
		if value, ok := spec[field]; ok {
			made[field] = value
		}
	}
	object["kind"], object["spec"] = KindMachineLoadBalancer, made
	text, err := json.Marshal(object)
	return text, err == nil && len(made) > 2
}

// asBalancer makes a LoadBalancer of a VirtualIP, which has the same fields beside those of
// its own.
func asBalancer(text []byte) ([]byte, bool) {
	var object map[string]any
	if json.Unmarshal(text, &object) != nil {
		return nil, false
	}
	spec, _ := object["spec"].(map[string]any)
	if spec == nil {
		return nil, false
	}
	var backends []any
	addresses, _ := json.Marshal(spec["addresses"])
	if !bytes.Contains(addresses, []byte(":")) || bytes.Contains(addresses, []byte(".")) {
		backends = append(backends, map[string]any{"address": "192.0.2.77"})
	}
	if bytes.Contains(addresses, []byte(":")) {
		backends = append(backends, map[string]any{"address": "2001:db8:77::1"})
	}
	spec["ports"], spec["backends"] = []any{map[string]any{"port": 443}}, backends
	object["kind"] = KindLoadBalancer
	text, err := json.Marshal(object)
	return text, err == nil
}

// The file is compared after all tests, unless only some of them ran.
func TestMain(m *testing.M) {
	code := m.Run()
	only := func(name string) bool { f := flag.Lookup(name); return f != nil && f.Value.String() != "" }
	if code == 0 && !only("test.run") && !only("test.skip") && !only("test.fuzz") && !only("test.list") {
		if err := compareVerdicts(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func compareVerdicts() error {
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	for _, key := range slices.Sorted(maps.Keys(recorded.lines)) {
		if err := enc.Encode(recorded.lines[key]); err != nil {
			return err
		}
	}
	if *update {
		return os.WriteFile(verdictsFile, want.Bytes(), 0o644)
	}
	have, err := os.ReadFile(verdictsFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !bytes.Equal(have, want.Bytes()) {
		return errors.New(verdictsFile + " is not what the tests found: run go test ./api/v1alpha1 -update, look at the difference, and see `make check` for the definitions")
	}
	return nil
}
