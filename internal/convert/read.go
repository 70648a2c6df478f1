package convert

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"lbd.dev/lbd/api/v1alpha1"
)

// fields is a mapping that is read field by field. What is of the wrong type is
// an error and reads as absent.
type fields struct {
	o      *object
	path   string
	keys   []string // in the order of the file
	values map[string]*yaml.Node
}

// mapping reads n, which may be nil, as a mapping.
func (o *object) mapping(n *yaml.Node, path string) *fields {
	f := &fields{o: o, path: path, values: make(map[string]*yaml.Node)}
	if n == nil || !o.is(n, yaml.MappingNode, path, "must be a mapping") {
		return f
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := f.at(key.Value)
		if _, again := o.lines[at]; !again {
			o.lines[at] = key.Line
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			o.fail(at, "has a key that is not a string")
			continue
		}
		if _, again := f.values[key.Value]; again {
			o.fail(at, "is given twice")
			continue
		}
		f.keys = append(f.keys, key.Value)
		f.values[key.Value] = value
	}
	return f
}

// is adds an error unless a node is of a kind. Aliases are refused: a few lines of
// them could stand for millions of objects.
func (o *object) is(n *yaml.Node, kind yaml.Kind, path, rule string) bool {
	switch n.Kind {
	case kind:
		return true
	case yaml.AliasNode:
		o.fail(path, "is an alias (*name), which is not supported; write the value out")
	default:
		o.fail(path, "%s", rule)
	}
	return false
}

func (f *fields) at(name string) string {
	if f.path == "" {
		return name
	}
	return f.path + "." + name
}

// take returns the value of a field once; nil if it is absent or null.
func (f *fields) take(name string) *yaml.Node {
	n, ok := f.values[name]
	if !ok {
		return nil
	}
	delete(f.values, name)
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return nil
	}
	return n
}

// done notes every field that was not taken. Values are not shown: one of them may
// be a misspelled password.
func (f *fields) done() {
	for _, key := range f.keys {
		if _, left := f.values[key]; left {
			f.o.note(f.at(key), nil, "is not known to lbd; it is left out")
		}
	}
}

func (f *fields) text(name string) string { return f.o.text(f.take(name), f.at(name)) }

func (o *object) text(n *yaml.Node, path string) string {
	if n == nil || !o.is(n, yaml.ScalarNode, path, "must be a string") {
		return ""
	}
	if n.ShortTag() != "!!str" {
		o.fail(path, "must be a string; write it in quotes")
		return ""
	}
	return n.Value
}

func (f *fields) items(name string) []*yaml.Node {
	n := f.take(name)
	if n == nil || !f.o.is(n, yaml.SequenceNode, f.at(name), "must be a list") {
		return nil
	}
	for i, item := range n.Content {
		f.o.lines[entry(f.at(name), i)] = item.Line
	}
	return n.Content
}

func entry(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func (f *fields) texts(name string) []string {
	var list []string
	for i, n := range f.items(name) {
		list = append(list, f.o.text(n, entry(f.at(name), i)))
	}
	return list
}

// flag reads true or false; nil if it is absent.
func (f *fields) flag(name string) *bool {
	n, v := f.take(name), new(bool)
	if n == nil || !f.o.is(n, yaml.ScalarNode, f.at(name), "must be true or false") {
		return nil
	}
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 || n.Decode(v) != nil {
		f.o.fail(f.at(name), "must be true or false")
		return nil
	}
	return v
}

// isSet tells whether a field reads true.
func (f *fields) isSet(name string) bool {
	v := f.flag(name)
	return v != nil && *v
}

// number reads a whole number; nil if it is absent.
func number[T int32 | uint32](f *fields, name string) *T {
	n, v := f.take(name), new(T)
	if n == nil || !f.o.is(n, yaml.ScalarNode, f.at(name), "must be a whole number") {
		return nil
	}
	if n.ShortTag() != "!!int" || n.Decode(v) != nil {
		f.o.fail(f.at(name), "must be a whole number of 32 bits")
		return nil
	}
	return v
}

// orZero returns what a pointer points to.
func orZero[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

// duration reads a length of time; nil if it is absent.
func (f *fields) duration(name string) *v1alpha1.Duration {
	text := f.text(name)
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		f.o.fail(f.at(name), "must be a duration such as 90s")
		return nil
	}
	return &v1alpha1.Duration{Duration: d}
}

// maxKey bounds a key of labels or annotations, in bytes; those of Kubernetes have
// at most 317. YAML has no short form for one of more than 1024.
const maxKey = 512

// stringMap reads labels or annotations.
func (f *fields) stringMap(name string) map[string]string {
	n := f.take(name)
	if n == nil {
		return nil
	}
	path := f.at(name)
	if !f.o.is(n, yaml.MappingNode, path, "must be a mapping") {
		return nil
	}
	out := make(map[string]string)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := path + "[" + key.Value + "]"
		f.o.lines[at] = key.Line
		switch _, again := out[key.Value]; {
		case again:
			f.o.fail(at, "is given twice")
		case len(key.Value) > maxKey:
			f.o.fail(at, "has a key of %d bytes", len(key.Value))
		default:
			out[f.o.text(key, at)] = f.o.text(value, at)
		}
	}
	return out
}

// selectors reads a list of label selectors.
func (f *fields) selectors(name string) []v1alpha1.Selector {
	var list []v1alpha1.Selector
	for i, n := range f.items(name) {
		list = append(list, f.o.selector(n, entry(f.at(name), i)))
	}
	return list
}

func (o *object) selector(n *yaml.Node, path string) v1alpha1.Selector {
	f := o.mapping(n, path)
	s := v1alpha1.Selector{MatchLabels: f.stringMap("matchLabels")}
	for i, n := range f.items("matchExpressions") {
		e := o.mapping(n, entry(f.at("matchExpressions"), i))
		s.MatchExpressions = append(s.MatchExpressions, v1alpha1.SelectorRequirement{
			Key: e.text("key"), Operator: v1alpha1.SelectorOperator(e.text("operator")), Values: e.texts("values"),
		})
		e.done()
	}
	f.done()
	return s
}
