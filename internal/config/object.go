package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"lbd.dev/lbd/api/v1alpha1"
)

// object is one document of a file.
type object struct {
	file string
	mode fs.FileMode // of file
	at   position
	doc  int // counts from 1 in the file
	kind string
	name string
	// foreign: of another API group, or only for clusters. A misspelt group is neither.
	foreign bool
	body    target                      // nil if the kind is not known
	meta    *v1alpha1.ObjectMeta        // of the body; nil for a NodeConfiguration
	node    *v1alpha1.NodeConfiguration // the body, if it is one
	peer    *v1alpha1.BGPPeer           // the same

	places map[string]position // by path
	hidden []hidden            // values that no excerpt shows
	errs   []*Error
	broken brokenPaths // about which errs has an error
}

// title names the object in errors.
func (o *object) title() string {
	switch {
	case o.name != "":
		return fmt.Sprintf("%s %q", o.kind, o.name)
	case o.kind != "":
		return fmt.Sprintf("%s (document %d)", o.kind, o.doc)
	}
	return fmt.Sprintf("document %d", o.doc)
}

// placeOf returns where a path was written, or of what it is part of the key.
func (o *object) placeOf(path string) position {
	for p := path; p != ""; p = parent(p) {
		if place, ok := o.places[p]; ok {
			if p != path {
				place.value = place.key
			}
			return place
		}
	}
	return o.at
}

// lineOf returns the line where a path was written, or the nearest part of it.
func (o *object) lineOf(path string) int { return o.placeOf(path).line }

// about is an error, or a warning, about a field.
func (o *object) about(p position, f v1alpha1.FieldError) *Error {
	return &Error{File: o.file, Line: p.line, Column: p.value, Object: o.title(), Field: f}
}

// bad adds an error about a field.
func (o *object) bad(p position, f v1alpha1.FieldError) {
	o.errs = append(o.errs, o.about(p, f))
	o.broken.add(f.Path)
}

// breaks adds an error about a field at the line where it was written.
func (o *object) breaks(path string, value any, format string, args ...any) {
	o.bad(o.placeOf(path), v1alpha1.FieldError{Path: path, Value: value, Rule: fmt.Sprintf(format, args...)})
}

// isBroken tells whether there is an error about the path, what it is part of,
// or what is part of it.
func (o *object) isBroken(path string) bool { return o.broken.touches(path) }

// brokenPaths is a set of paths that is asked about the relatives of a path. A
// file may have as many errors as it has fields.
type brokenPaths struct {
	at    map[string]struct{} // the paths
	above map[string]struct{} // they and all that they are part of
}

func (b *brokenPaths) add(path string) {
	if b.at == nil {
		b.at, b.above = make(map[string]struct{}), make(map[string]struct{})
	}
	b.at[path] = struct{}{}
	for p := path; ; p = parent(p) {
		if _, known := b.above[p]; known {
			return
		}
		b.above[p] = struct{}{}
		if p == "" {
			return
		}
	}
}

func (b *brokenPaths) touches(path string) bool {
	if _, ok := b.above[path]; ok {
		return true
	}
	for p := path; ; p = parent(p) {
		if _, ok := b.at[p]; ok {
			return true
		}
		if p == "" {
			return false
		}
	}
}

// within tells whether path is outer or lies in it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || outer == "" || rest[0] == '.' || rest[0] == '[')
}

// parent is what the path is part of; "" is the whole object.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// parseFile returns the objects of a file, each with what is wrong with it, and
// the error that ended the reading, if any. hostName stands in for a nodeName
// that is missing.
func parseFile(file string, data []byte, hostName string) ([]*object, *Error) {
	var objects []*object
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	for number := 1; ; number++ {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return objects, syntaxError(file, data, err)
		}
		for _, root := range roots(&doc) {
			if root.Kind != yaml.MappingNode && keepalived.Match(data) {
				return objects, keepalivedError(file)
			}
			objects = append(objects, parseObject(file, number, root, hostName))
		}
	}
}

// yamlLine finds the line in an error of the YAML library, which has no type for
// it.
var yamlLine = regexp.MustCompile(`^line (\d+): `)

// parserErrors are the errors of the library's parser; all others with a line are those of
// its scanner. A test compares some of each.
var parserErrors = []string{
	"did not find expected <stream-start>", "did not find expected <document start>", "found undefined tag handle",
	"did not find expected node content", "did not find expected '-' indicator", "did not find expected key",
	"did not find expected ',' or ']'", "did not find expected ',' or '}'", "found duplicate %YAML directive",
	"found incompatible YAML document", "found duplicate %TAG directive",
}

// bareSecret finds a password that YAML takes for an alias.
var bareSecret = regexp.MustCompile(`password["']?\s*:\s*\*`)

// keepalived finds what a configuration of keepalived has.
var keepalived = regexp.MustCompile(`(?m)^\s*(vrrp_instance|vrrp_script|virtual_server|global_defs)\b.*(\{|$)`)

func keepalivedError(file string) *Error {
	return fileError(file, 0, "is a configuration of keepalived; `lbd convert keepalived %s` turns it into objects of lbd", file)
}

// syntaxError puts an error of the YAML library into our form.
func syntaxError(file string, data []byte, err error) *Error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	// The library counts the lines of its scanner from one, those of its parser from zero, and
	// leaves a zero out.
	if slices.Contains(parserErrors, text) {
		// The end of the file is behind its last line.
		line = min(line+1, max(1, strings.Count(strings.TrimRight(string(data), "\n"), "\n")+1))
	}
	if strings.HasPrefix(text, "unknown anchor") && bareSecret.Match(data) {
		text = "a password that begins with * needs quotes" // and the text has a part of it
	}
	if strings.Contains(text, "cannot start any token") && strings.ContainsRune(string(data), '\t') {
		text += " (a tab cannot indent; use blanks)"
	}
	if keepalived.Match(data) {
		return keepalivedError(file)
	}
	return fileError(file, line, "is not valid YAML: %s", text)
}

// roots are the objects of a document: none if it is empty, several if it is a List as
// kubectl prints it.
func roots(doc *yaml.Node) []*yaml.Node {
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil
	}
	kind, isList := strings.CutSuffix(scalarAt(root, "kind"), "List")
	items := valueOf(root, "items")
	if isList && (kind == "" || slices.Contains(knownKinds(), kind)) && items != nil && items.Kind == yaml.SequenceNode {
		return items.Content
	}
	return []*yaml.Node{root}
}

// parseObject decodes, defaults and validates one object.
func parseObject(file string, number int, root *yaml.Node, hostName string) *object {
	o := &object{file: file, at: positionOf(root), doc: number}
	if root.Kind != yaml.MappingNode {
		o.hidden = []hidden{{root, false}}
		o.bad(o.at, v1alpha1.FieldError{Rule: "must be a mapping with apiVersion and kind"})
		return o
	}
	kind := scalarAt(root, "kind")
	if foreign(root) || !o.newBody(kind) {
		o.badKind(root, kind)
		return o
	}
	o.name = scalarAt(root, "metadata", "name")
	if o.node != nil {
		o.name = scalarAt(root, "nodeName")
	}
	d := decoder{notYet: notYet(kind), passed: passed(kind), secret: secretOf(kind), places: make(map[string]position)}
	d.value(root, "", reflect.ValueOf(o.body).Elem())
	o.places, o.hidden = d.places, d.hidden
	for _, e := range d.errs {
		o.bad(e.position, e.FieldError)
	}
	for _, path := range d.broken {
		o.broken.add(path)
	}
	secretsGiven(o)

	o.body.Default()
	byHost := o.node != nil && o.node.NodeName == ""
	if byHost {
		o.node.NodeName = hostName
	}
	d.restoreZeros()
	for _, e := range o.body.Validate() {
		if byHost && e.Path == "nodeName" {
			e.Rule += "; it is the name of this host, or that of " + NodeNameVariable + ", so give nodeName"
		}
		if !o.isBroken(e.Path) {
			o.bad(o.placeOf(e.Path), e)
		}
	}
	return o
}

// target is what every object of v1alpha1 can do.
type target interface {
	Default()
	Validate() []v1alpha1.FieldError
}

// kinds are those of files, in the order in which people are told of them. Each gives an object an empty body.
var kinds = []struct {
	name  string
	begin func(o *object)
}{
	{v1alpha1.KindNodeConfiguration, func(o *object) { o.node = new(v1alpha1.NodeConfiguration); o.body = o.node }},
	{v1alpha1.KindVirtualIP, func(o *object) { b := new(v1alpha1.VirtualIP); o.body, o.meta = b, &b.Metadata }},
	{v1alpha1.KindLoadBalancer, func(o *object) { b := new(v1alpha1.LoadBalancer); o.body, o.meta = b, &b.Metadata }},
	{v1alpha1.KindBGPPeer, func(o *object) { o.peer = new(v1alpha1.BGPPeer); o.body, o.meta = o.peer, &o.peer.Metadata }},
	{v1alpha1.KindBGPListener, func(o *object) { b := new(v1alpha1.BGPListener); o.body, o.meta = b, &b.Metadata }},
	{v1alpha1.KindBFDProfile, func(o *object) { b := new(v1alpha1.BFDProfile); o.body, o.meta = b, &b.Metadata }},
	{v1alpha1.KindCommunity, func(o *object) { b := new(v1alpha1.Community); o.body, o.meta = b, &b.Metadata }},
	{v1alpha1.KindIPAddressPool, func(o *object) { b := new(v1alpha1.IPAddressPool); o.body, o.meta = b, &b.Metadata }},
	{v1alpha1.KindL2Advertisement, func(o *object) { b := new(v1alpha1.L2Advertisement); o.body, o.meta = b, &b.Metadata }},
	{v1alpha1.KindBGPAdvertisement, func(o *object) { b := new(v1alpha1.BGPAdvertisement); o.body, o.meta = b, &b.Metadata }},
}

// newBody gives the object an empty body of the kind. It returns false if the
// kind is not known.
func (o *object) newBody(kind string) bool {
	for _, k := range kinds {
		if k.name == kind {
			o.kind = kind
			k.begin(o)
			return true
		}
	}
	return false
}

func knownKinds() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// foreign tells whether a document says that it is of another API group.
func foreign(root *yaml.Node) bool {
	api := scalarAt(root, "apiVersion")
	return api != "" && api != v1alpha1.Group && !strings.HasPrefix(api, v1alpha1.Group+"/")
}

// badKind adds an error about a kind that is not known, or of another group.
func (o *object) badKind(root *yaml.Node, kind string) {
	where, field := o.at, "kind"
	if foreign(root) {
		field = "apiVersion"
	}
	if n := valueOf(root, field); n != nil {
		where = positionOf(n)
	}
	for i := 0; i+1 < len(root.Content); i += 2 { // whatever it is, it may hold a secret
		if name := root.Content[i].Value; name != "kind" && name != "apiVersion" {
			o.hidden = append(o.hidden, hidden{root.Content[i+1], flows(root)})
		}
	}
	known := knownKinds()
	last := len(known) - 1
	f := v1alpha1.FieldError{Path: "kind", Value: kind}
	switch api := scalarAt(root, "apiVersion"); {
	case kind == "":
		f.Value, f.Rule = nil, "is required: "+strings.Join(known[:last], ", ")+" or "+known[last]
	case foreign(root):
		group, _, _ := strings.Cut(api, "/")
		o.foreign = nearest(group, []string{v1alpha1.Group}) == ""
		f = v1alpha1.FieldError{Path: "apiVersion", Value: api, Rule: "is not of lbd, which reads " + v1alpha1.APIVersion}
		if strings.HasPrefix(api, "metallb.io/") {
			f.Rule += "; `lbd convert metallb` turns objects of MetalLB into such"
		}
		if meta := valueOf(root, "metadata"); meta != nil && strings.Contains(scalarAt(meta, "name"), "kube-vip") {
			f.Rule += "; `lbd convert kube-vip` turns manifests of kube-vip into such"
		}
	case kind == v1alpha1.NodeStatusKind:
		o.foreign = true
		f.Rule = "is not for files: lbd writes it"
	case slices.Contains(clusterKinds(), kind):
		o.foreign = true
		f.Rule = "is not for files: it lives in the management cluster, whose API server checks it; use kubectl apply"
	default:
		f.Rule = "is not a known kind; known are " + strings.Join(known[:last], ", ") + " and " + known[last]
		if near := nearest(kind, append(known, clusterKinds()...)); near != "" {
			f.Rule = fmt.Sprintf("is not a known kind; did you mean %q?", near)
		}
	}
	o.bad(where, f)
}

// scalarAt returns the scalar below a mapping, or "".
func scalarAt(n *yaml.Node, path ...string) string {
	for _, name := range path {
		if n = valueOf(n, name); n == nil {
			return ""
		}
	}
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// valueOf returns the value of a key of a mapping, or nil.
func valueOf(n *yaml.Node, name string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}
