package convert

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"lbd.dev/lbd/api/v1alpha1"
)

// maxNested bounds lists in lists.
const maxNested = 4

// file reads all documents of a file.
func (c *converter) file(f File) {
	dec := yaml.NewDecoder(bytes.NewReader(f.Data))
	found := false
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.syntax(f.Name, err)
			return
		}
		if len(doc.Content) == 0 {
			continue
		}
		root := doc.Content[0]
		if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
			continue
		}
		found = true
		c.document(f.Name, root, 0)
	}
	if !found {
		o := c.newObject(f.Name, 0)
		o.note("", nil, "has no object")
	}
}

func (c *converter) newObject(file string, line int) *object {
	return &object{c: c, file: file, order: c.order, line: line, lines: make(map[string]int)}
}

// yamlLine finds the line in an error of the YAML library, which has no type for
// it.
var yamlLine = regexp.MustCompile(`^line (\d+): `)

// syntax adds an error of the YAML library.
func (c *converter) syntax(file string, err error) {
	o := c.newObject(file, 0)
	line, rule := syntaxOf(err)
	o.line = line
	o.fail("", "%s", rule)
}

// syntaxOf is what an error of the YAML library says, and of which line; 0: of none.
func syntaxOf(err error) (line int, rule string) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	if strings.HasPrefix(text, "unknown anchor") {
		text = "a value that begins with * needs quotes" // it may be a password
	}
	return line, "is not valid YAML: " + text
}

// document reads one object, or those of a list.
func (c *converter) document(file string, root *yaml.Node, depth int) {
	o := c.newObject(file, root.Line)
	f := o.mapping(root, "")
	if root.Kind != yaml.MappingNode {
		return
	}
	api, kind := f.text("apiVersion"), f.text("kind")
	if items := f.items("items"); items != nil && strings.HasSuffix(kind, "List") {
		if depth == maxNested {
			o.fail("items", "has lists in lists")
			return
		}
		for _, item := range items {
			c.document(file, item, depth+1)
		}
		return
	}
	o.kind = kind
	if kind == "" {
		o.fail("kind", "is required")
		return
	}
	c.dispatch(o, f, api)
}

// dispatch converts an object by its kind, or says why not.
func (c *converter) dispatch(o *object, f *fields, api string) {
	group, version, _ := strings.Cut(api, "/")
	meta := f.take("metadata")
	o.name, o.version = nameOf(meta), version
	switch {
	case group == v1alpha1.Group:
		o.note("apiVersion", api, "is of lbd already; the object is left out")
	case group == "metallb.io" && converters[o.kind] != nil:
		if version != "v1beta1" && version != "v1beta2" {
			o.keep("apiVersion", api, "is of a version that lbd does not know; it is read as v1beta1")
		}
		c.convert(o, f, meta)
	case group == "metallb.io" && o.kind == "AddressPool":
		o.note("kind", o.kind, "is not converted: it is of MetalLB before 0.13; write an IPAddressPool, and an L2Advertisement or BGPAdvertisement that names it")
	case group == "metallb.io" && strings.HasSuffix(o.kind, "Status"), group == "metallb.io" && o.kind == "ConfigurationState":
		o.keep("kind", o.kind, "is not converted: MetalLB writes it; `lbd status` shows what lbd does")
	case o.kind == "ConfigMap" && isLegacy(f):
		o.note("data.config", nil, "is the configuration of MetalLB before 0.13 and is not converted; "+
			"write it as objects first (MetalLB 0.13 came with configmaptocrs for that), then convert those")
	case o.kind == "Secret":
		o.note("kind", o.kind, "is not converted: copy one that a BGPPeer names in passwordSecret into the namespace of lbd")
	case o.kind == "Service":
		o.note("kind", o.kind, "needs no conversion: lbd reads it from the cluster, with the annotations of MetalLB")
	default:
		o.note("kind", o.kind, "is not converted: it does not configure pools, peers or advertisements")
	}
}

// nameOf returns metadata.name, for notes.
func nameOf(meta *yaml.Node) string {
	if meta == nil || meta.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i+1 < len(meta.Content); i += 2 {
		if meta.Content[i].Value == "name" {
			return meta.Content[i+1].Value
		}
	}
	return ""
}

// isLegacy tells whether a ConfigMap has the configuration of MetalLB before 0.13.
func isLegacy(f *fields) bool {
	data := f.take("data")
	if data == nil || data.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i+1 < len(data.Content); i += 2 {
		text := data.Content[i+1].Value
		if data.Content[i].Value == "config" && (strings.Contains(text, "address-pools:") || strings.Contains(text, "peers:")) {
			return true
		}
	}
	return false
}

// converters make an object of lbd from spec, by kind.
var converters = map[string]func(o *object, meta v1alpha1.ObjectMeta, spec *fields){
	"IPAddressPool":    ipAddressPool,
	"L2Advertisement":  l2Advertisement,
	"BGPAdvertisement": bgpAdvertisement,
	"BGPPeer":          bgpPeer,
	"BFDProfile":       bfdProfile,
	"Community":        community,
}

func (c *converter) convert(o *object, f *fields, metaNode *yaml.Node) {
	meta := o.meta(metaNode)
	spec := o.mapping(f.take("spec"), "spec")
	f.take("status") // is MetalLB's
	f.done()
	key := o.kind + " " + o.name
	if other := c.first[key]; other != nil {
		o.note("metadata.name", o.name, "is the name of another %s (%s:%d); this one is left out", o.kind, other.file, other.line)
		return
	}
	c.first[key] = o
	converters[o.kind](o, meta, spec)
	spec.done()
	c.objects = append(c.objects, o)
}

// ofServer are fields of metadata that the API server, not the user, writes.
var ofServer = []string{"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation",
	"managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"}

// lastApplied is what kubectl apply remembers: the object of MetalLB.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func (o *object) meta(n *yaml.Node) v1alpha1.ObjectMeta {
	f := o.mapping(n, "metadata")
	m := v1alpha1.ObjectMeta{Name: f.text("name"), Labels: f.stringMap("labels"), Annotations: f.stringMap("annotations")}
	delete(m.Annotations, lastApplied)
	o.namespace = f.text("namespace")
	if ns := o.namespace; ns != "" && !o.c.namespaces[ns] {
		o.c.namespaces[ns] = true
		o.keep("metadata.namespace", ns, "is left out, here and wherever it is written")
	}
	for _, name := range ofServer {
		f.take(name)
	}
	f.done()
	return m
}

func typeMeta(kind string) v1alpha1.TypeMeta {
	return v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: kind}
}
