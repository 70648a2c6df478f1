// Package convert turns the objects of others into those of lbd, and says line by
// line what has no equal. It is pure: bytes in, objects and notes out.
package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"lbd.dev/lbd/api/v1alpha1"
)

// File is what is converted.
type File struct {
	Name string // for notes
	Data []byte // YAML or JSON, any number of documents
}

// Note is about one field of one object.
type Note struct {
	File   string
	Line   int    // 0 if it is about the whole file
	Object string // such as `BGPPeer "tor1"`
	// Field has the path, the value where it helps, and what it means for the
	// user.
	Field v1alpha1.FieldError
	// Kept: the field is carried over in another form, or means nothing to lbd. Of all others
	// something is missing in the objects until somebody adds it.
	Kept bool

	order int // of the file
}

// String returns "file:line: object: path: value meaning", one line.
func (n Note) String() string {
	var b strings.Builder
	b.WriteString(n.File)
	if n.Line > 0 {
		fmt.Fprintf(&b, ":%d", n.Line)
	}
	b.WriteString(": ")
	if n.Object != "" {
		b.WriteString(n.Object + ": ")
	}
	b.WriteString(n.Field.Error())
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return '?' // part of what somebody else wrote
		}
		return r
	}, b.String())
}

// Result is what became of the files.
type Result struct {
	// Objects are pointers to structs of v1alpha1, without defaults, in an order
	// that does not depend on that of the files: by kind, what others refer to
	// first, then by name.
	Objects []any
	// Notes are about what has no equal, in the order of the files.
	Notes []Note
	// Errors are about what could not be read. There are no objects then: a part of
	// them could do something else than all.
	Errors []Note
}

// converter collects the objects of all files.
type converter struct {
	order   int // of the file at work
	result  Result
	objects []*object
	first   map[string]*object // by kind and name
	aliases map[string]alias   // of communities
	// gone are BGPPeers that are left out.
	gone       map[string]bool
	namespaces map[string]bool // about which there is a note
}

// object is one object of a file.
type object struct {
	c          *converter
	file       string
	order      int // of the file
	line       int
	kind, name string
	namespace  string
	version    string         // of the API, such as v1beta2
	lines      map[string]int // by path
	noted      []string       // paths with a note or an error
	finish     func()         // what needs all other objects
	body       any            // of v1alpha1; nil: left out
}

// kinds are those of lbd that come out, in order.
var kinds = []string{
	v1alpha1.KindCommunity, v1alpha1.KindBFDProfile, v1alpha1.KindBGPPeer,
	v1alpha1.KindIPAddressPool, v1alpha1.KindL2Advertisement, v1alpha1.KindBGPAdvertisement,
}

// MetalLB converts objects of metallb.io.
func MetalLB(files []File) Result {
	c := &converter{
		first: make(map[string]*object), aliases: make(map[string]alias),
		gone: make(map[string]bool), namespaces: make(map[string]bool),
	}
	for i, f := range files {
		c.order = i
		c.file(f)
	}
	for _, o := range c.objects {
		if o.finish != nil && o.body != nil {
			o.finish()
		}
	}
	slices.SortStableFunc(c.objects, func(a, b *object) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, a.kind), slices.Index(kinds, b.kind)), strings.Compare(a.name, b.name))
	})
	for _, o := range c.objects {
		if o.body == nil {
			continue
		}
		o.validate()
		c.result.Objects = append(c.result.Objects, o.body)
	}
	if len(c.result.Errors) > 0 {
		c.result.Objects = nil
	}
	sortNotes(c.result.Notes)
	sortNotes(c.result.Errors)
	return c.result
}

func sortNotes(notes []Note) {
	slices.SortStableFunc(notes, func(a, b Note) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Line, b.Line)) })
}

func (o *object) title() string {
	if o.kind == "" {
		return ""
	}
	return fmt.Sprintf("%s %q", cut(o.kind), cut(o.name))
}

// cut keeps a name fit for one line.
func cut(s string) string { return s[:min(len(s), 100)] }

// lineOf returns where a path was written, or the nearest part of it.
func (o *object) lineOf(path string) int {
	for ; path != ""; path = path[:max(strings.LastIndexAny(path, ".["), 0)] {
		if line, ok := o.lines[path]; ok {
			return line
		}
	}
	return o.line
}

// about makes a note about a field. A nil value is not shown.
func (o *object) about(path string, value any, format string, args ...any) Note {
	o.noted = append(o.noted, path)
	return Note{File: o.file, Line: o.lineOf(path), Object: o.title(), order: o.order,
		Field: v1alpha1.FieldError{Path: path, Value: value, Rule: fmt.Sprintf(format, args...)}}
}

// keep says how a field is carried over that looks otherwise.
func (o *object) keep(path string, value any, format string, args ...any) {
	n := o.about(path, value, format, args...)
	n.Kept = true
	o.c.result.Notes = append(o.c.result.Notes, n)
}

// note says what is not carried over, and what that means for the user.
func (o *object) note(path string, value any, format string, args ...any) {
	o.c.result.Notes = append(o.c.result.Notes, o.about(path, value, format, args...))
}

// fail says that a field could not be read. No value is shown: it may be a
// secret.
func (o *object) fail(path string, format string, args ...any) {
	o.c.result.Errors = append(o.c.result.Errors, o.about(path, nil, format, args...))
}

// leaveOut drops the object; a note has said why.
func (o *object) leaveOut() { o.body = nil }

// validate notes each rule of lbd that the object breaks, unless there is a note
// about that field already.
func (o *object) validate() {
	var errs []v1alpha1.FieldError
	switch v := o.body.(type) {
	case *v1alpha1.Community:
		errs = check(*v)
	case *v1alpha1.BFDProfile:
		errs = check(*v)
	case *v1alpha1.BGPPeer:
		errs = check(*v)
	case *v1alpha1.IPAddressPool:
		errs = check(*v)
	case *v1alpha1.L2Advertisement:
		errs = check(*v)
	case *v1alpha1.BGPAdvertisement:
		errs = check(*v)
	}
	for _, e := range errs {
		if !slices.Contains(o.noted, e.Path) {
			o.note(e.Path, e.Value, "%s; lbd refuses the object until that is mended", e.Rule)
		}
	}
}

// target is what the objects of v1alpha1 can do.
type target[T any] interface {
	*T
	Default()
	Validate() []v1alpha1.FieldError
}

// check validates a copy, so that defaults do not get into the output.
func check[T any, P target[T]](v T) []v1alpha1.FieldError {
	p := P(new(T))
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, p)
	}
	if err != nil {
		return []v1alpha1.FieldError{{Rule: err.Error()}}
	}
	p.Default()
	return p.Validate()
}
