package config

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"lbd.dev/lbd/api/v1alpha1"
)

// maxAliased bounds how many nodes of one document are reached through aliases,
// so that a few lines cannot stand for millions of values.
const maxAliased = 10000

// position is where a path was written. Lines and columns count from 1, columns in characters.
type position struct {
	line int
	// key and value are columns; they are the same unless both are on the line.
	key, value int
}

// positionOf is that of a node without a key.
func positionOf(n *yaml.Node) position { return position{n.Line, n.Column, n.Column} }

// located is a broken rule and where it was found.
type located struct {
	position
	v1alpha1.FieldError
}

// decoder fills in one object from YAML nodes. It goes on after an error.
type decoder struct {
	// notYet tells for a path that this version has no field for whether a later
	// one has, in a sentence; else "".
	notYet func(path string) string
	// passed tells whether a field that the object lacks is passed over.
	passed func(path string) bool
	// secret is the path of a field whose value no error shows; empty: none.
	secret string

	errs []located
	// places says where each path was written.
	places map[string]position
	// hidden are values that no excerpt of the file shows.
	hidden []hidden
	// broken are the paths about which there is an error already.
	broken []string
	// zeros are numbers and durations that were written as zero. Defaults must not
	// hide them.
	zeros   []reflect.Value
	aliased int // nodes reached through aliases
	inAlias int // depth of aliases at present
}

// literal is the text of a scalar that is not a string.
type literal string

// String returns the text, quoted if it could confuse a terminal.
func (l literal) String() string {
	s := string(l)
	if len(s) > 100 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return strconv.Quote(s[:min(len(s), 100)])
	}
	return s
}

// isSecret tells whether no error shows what is at a path. A password that was written where the
// name of its Secret belongs is one, too.
func (d *decoder) isSecret(path string) bool {
	return d.secret != "" && (within(path, d.secret) || within(path, d.secret+"Secret"))
}

// bad adds an error about a node.
func (d *decoder) bad(n *yaml.Node, path string, value any, format string, args ...any) {
	if d.isSecret(path) {
		value = nil
	}
	d.errs = append(d.errs, located{positionOf(n), v1alpha1.FieldError{Path: path, Value: value, Rule: fmt.Sprintf(format, args...)}})
	d.broken = append(d.broken, path)
}

// value decodes n into v, which is settable.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value) {
	if _, again := d.places[path]; !again {
		d.places[path] = positionOf(n)
	}
	if n.Kind == yaml.AliasNode {
		d.inAlias++
		defer func() { d.inAlias-- }()
		n = n.Alias
	}
	if d.inAlias > 0 {
		if d.aliased++; d.aliased > maxAliased {
			if d.aliased == maxAliased+1 {
				d.bad(n, path, nil, "is reached through too many aliases")
			}
			return
		}
	}
	if n.ShortTag() == "!!null" {
		d.bad(n, path, nil, "has no value; give one or remove it")
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(n, path, v, u)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.object(n, path, v)
	case reflect.Map:
		d.stringMap(n, path, v)
	case reflect.Slice:
		d.list(n, path, v)
	default:
		d.scalar(n, path, v)
	}
}

// expect adds an error unless n is of the kind that the field has.
func (d *decoder) expect(n *yaml.Node, path string, kind yaml.Kind, rule string) bool {
	if n.Kind == kind {
		return true
	}
	command := strings.HasSuffix(path, ".command") // its arguments may be secrets
	if n.Kind != yaml.ScalarNode || command {
		d.hide(n, n)
	}
	switch n.Kind {
	case yaml.ScalarNode:
		var value any
		if !command {
			value = shown(n)
		}
		d.bad(n, path, value, "%s", rule)
	case yaml.SequenceNode:
		d.bad(n, path, nil, "%s, not a list", rule)
	default:
		d.bad(n, path, nil, "%s, not a mapping", rule)
	}
	return false
}

// shown is a scalar as an error shows it.
func shown(n *yaml.Node) any {
	if n.ShortTag() == "!!str" {
		return n.Value
	}
	return literal(n.Value)
}

// pairs calls each for every key and value of a mapping, after it has checked
// that the key is a string and that it is the first of its name.
func (d *decoder) pairs(n *yaml.Node, path string, each func(key *yaml.Node, value *yaml.Node)) {
	first := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		line, again := first[key.Value]
		switch {
		case key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge":
			d.bad(key, child(path, "<<"), nil, "merge keys are not supported; write the fields out")
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			d.bad(key, child(path, key.Value), nil, "is a key that is not a string; write it in quotes")
		case again:
			d.bad(key, child(path, key.Value), nil, "is given twice, first in line %d", line)
		default:
			first[key.Value] = key.Line
			each(key, value)
			continue
		}
		d.hide(n, value)
	}
}

// object decodes a mapping into a struct.
func (d *decoder) object(n *yaml.Node, path string, v reflect.Value) {
	if !d.expect(n, path, yaml.MappingNode, "must be a mapping") {
		return
	}
	fields := make(map[string]reflect.Value)
	structFields(v, fields)
	d.pairs(n, path, func(key, value *yaml.Node) {
		at := child(path, key.Value)
		field, known := fields[key.Value]
		if !known || d.isSecret(at) || at == "metadata.annotations" { // kubectl puts the whole object into one
			d.hide(n, value)
		}
		if known {
			p := position{key.Line, key.Column, key.Column}
			if value.Line == key.Line {
				p.value = value.Column
			}
			d.places[at] = p
			d.value(value, at, field)
			return
		}
		if !d.passed(at) {
			d.unknown(n, key, path, fields)
		}
	})
}

// structFields adds the fields of a struct by the names of their JSON tags;
// those of embedded structs count as its own.
func structFields(v reflect.Value, into map[string]reflect.Value) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "status" { // for controllers, not for files
			continue
		}
		into[name] = v.FieldByIndex(f.Index)
	}
}

// unknown adds an error about a field of n that does not exist.
func (d *decoder) unknown(n, key *yaml.Node, path string, fields map[string]reflect.Value) {
	at := child(path, key.Value)
	if later := d.notYet(at); later != "" {
		d.bad(key, at, nil, "%s", later)
		return
	}
	if near := nearest(key.Value, slices.Collect(maps.Keys(fields))); near != "" {
		d.bad(key, at, nil, "is not a known field; did you mean %q?", near)
		// What is missing because of the misspelling is not worth a second line. What is given
		// may be wrong by itself.
		if valueOf(n, near) == nil {
			d.broken = append(d.broken, child(path, near))
		}
		return
	}
	d.bad(key, at, nil, "is not a known field")
}

func (d *decoder) stringMap(n *yaml.Node, path string, v reflect.Value) {
	if !d.expect(n, path, yaml.MappingNode, "must be a mapping") {
		return
	}
	m := reflect.MakeMap(v.Type())
	d.pairs(n, path, func(key, value *yaml.Node) {
		at := path + "[" + key.Value + "]"
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(value, at, elem)
		m.SetMapIndex(reflect.ValueOf(key.Value), elem)
	})
	if m.Len() > 0 {
		v.Set(m)
	}
}

// list decodes a sequence into a slice.
func (d *decoder) list(n *yaml.Node, path string, v reflect.Value) {
	if !d.expect(n, path, yaml.SequenceNode, "must be a list") || len(n.Content) == 0 {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.value(item, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
	}
}

// text decodes a scalar into a type that reads itself.
func (d *decoder) text(n *yaml.Node, path string, v reflect.Value, u encoding.TextUnmarshaler) {
	if !d.expect(n, path, yaml.ScalarNode, "must be a single value") {
		return
	}
	if err := u.UnmarshalText([]byte(n.Value)); err != nil {
		d.bad(n, path, shown(n), "%v", err)
		return
	}
	d.noteZero(v)
}

// noteZero remembers a value that was written as zero.
func (d *decoder) noteZero(v reflect.Value) {
	if v.IsZero() {
		d.zeros = append(d.zeros, v)
	}
}

// restoreZeros undoes defaults where a zero was written.
func (d *decoder) restoreZeros() {
	for _, v := range d.zeros {
		v.SetZero()
	}
}

// scalar decodes a string, a whole number or a truth value.
func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value) {
	tag := n.ShortTag()
	switch v.Kind() {
	case reflect.String:
		if !d.expect(n, path, yaml.ScalarNode, "must be a string") {
			return
		}
		if tag != "!!str" {
			d.bad(n, path, literal(n.Value), "must be a string; write it in quotes")
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		if !d.expect(n, path, yaml.ScalarNode, "must be true or false") {
			return
		}
		b, err := strconv.ParseBool(n.Value)
		if tag != "!!bool" || err != nil {
			d.bad(n, path, shown(n), "must be true or false")
			return
		}
		v.SetBool(b)
	case reflect.Int32, reflect.Uint32:
		d.number(n, path, v)
	default:
		panic("config: field of a kind that the decoder does not know: " + path)
	}
}

// number decodes a whole number of 32 bits.
func (d *decoder) number(n *yaml.Node, path string, v reflect.Value) {
	if !d.expect(n, path, yaml.ScalarNode, "must be a whole number") {
		return
	}
	i, err := decimal(n.Value, n.ShortTag())
	switch unsigned := v.Kind() == reflect.Uint32; {
	case err != nil:
	case unsigned && i < 0:
		err = errNegative
	case unsigned && i > math.MaxUint32, !unsigned && (i > math.MaxInt32 || i < math.MinInt32):
		err = errRange
	case unsigned:
		v.SetUint(uint64(i))
	default:
		v.SetInt(i)
	}
	if err != nil {
		d.bad(n, path, shown(n), "%v", err)
		return
	}
	d.noteZero(v)
}

var (
	errWhole    = errors.New("must be a whole number")
	errRange    = errors.New("is too large")
	errNegative = errors.New("must not be negative")
)

// decimal parses a whole number. It refuses the octal, hexadecimal and
// underscored forms of YAML, which readers of a file take for something else.
func decimal(text, tag string) (int64, error) {
	digits := strings.TrimLeft(text, "-")
	if tag != "!!int" || len(digits) > 1 && digits[0] == '0' {
		return 0, errWhole
	}
	i, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errRange
	case err != nil:
		return 0, errWhole
	}
	return i, nil
}

func child(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
