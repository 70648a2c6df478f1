package config

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"lbd.dev/lbd/api/v1alpha1"
)

// hidden is a value that no excerpt shows: a secret, or one that could be a secret under
// a name that lbd does not know.
type hidden struct {
	value *yaml.Node
	flow  bool // of a collection in brackets, so that something may follow it in its last line
}

// flows tells whether a collection is written in brackets.
func flows(n *yaml.Node) bool { return n.Style&yaml.FlowStyle != 0 }

// hide keeps a value of a collection out of excerpts.
func (d *decoder) hide(in, value *yaml.Node) { d.hidden = append(d.hidden, hidden{value, flows(in)}) }

// excerpts shows lines of a file as far as they hold no secret.
type excerpts struct {
	lines []string
	from  map[int]int // by line: the column from which on nothing is shown
}

// brokenSecret finds what may be a secret in a file that could not be read to its end.
var brokenSecret = regexp.MustCompile(`(?i)(pass\w*|secret|token|key)["']?[ \t]*:`)

// apiVersions finds what the documents of a file say that they are.
var apiVersions = regexp.MustCompile(`apiVersion["']?[ \t]*:[ \t]*["']?([^\s"',}]*)`)

// onlyOurs tells whether all objects of a file are those of lbd, as far as it can be seen
// without reading YAML.
func onlyOurs(text string) bool {
	found := apiVersions.FindAllStringSubmatch(text, -1)
	return len(found) > 0 && !slices.ContainsFunc(found, func(m []string) bool { return !strings.HasPrefix(m[1], v1alpha1.Group+"/") })
}

// otherBreaks are line breaks that YAML knows and nobody else does.
const otherBreaks = "\r\u0085\u2028\u2029"

// newExcerpts returns the excerpts of a file, all of whose objects are given. end is the error
// that ended the reading, if any. It is nil if nothing may be shown.
func newExcerpts(data []byte, objects []*object, end *Error) *excerpts {
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	if !utf8.ValidString(text) || strings.ContainsAny(text, otherBreaks) {
		return nil
	}
	if end != nil && (brokenSecret.MatchString(text) || !onlyOurs(text)) {
		return nil
	}
	x := &excerpts{lines: strings.Split(text, "\n"), from: make(map[int]int)}
	for _, o := range objects {
		for _, h := range o.hidden {
			if !x.hide(h.value, h.value.Line, h.flow) {
				return nil
			}
		}
	}
	return x
}

// hide hides a value that begins in the line first. It returns false if it is not known where
// the value ends.
func (x *excerpts) hide(n *yaml.Node, first int, flow bool) bool {
	column := n.Column
	if n.Line > first {
		column = 1
	}
	if old, known := x.from[n.Line]; !known || column < old {
		x.from[n.Line] = column
	}
	if flow && n.Kind == yaml.ScalarNode && !strings.Contains(x.line(n.Line), n.Value) {
		return false
	}
	for _, c := range n.Content {
		if !x.hide(c, first, flow) {
			return false
		}
	}
	return true
}

func (x *excerpts) line(number int) string {
	if number < 1 || number > len(x.lines) {
		return ""
	}
	return x.lines[number-1]
}

// of returns what may be shown of a line if that includes the column, else "".
func (x *excerpts) of(line, column int) string {
	if x == nil {
		return ""
	}
	text := []rune(x.line(line))
	from, cut := x.from[line]
	switch {
	case !cut || from > len(text):
		return string(text)
	case column > from || column == 0 || strings.TrimSpace(string(text[:from-1])) == "":
		return ""
	}
	return string(text[:from-1]) + "…"
}

// Blank stands for a value in what Show returns.
const Blank = "(blanked)"

// ShownFile is a configuration file as others may see it.
type ShownFile struct {
	Path string
	// Text has the objects of the file, without comments, and with Blank for each value that
	// is a secret or could be one: what an excerpt does not show, and the arguments of
	// programs. Empty if Err is set.
	Text string
	// Blanked are the lines of the file in which these values begin.
	Blanked []int
	// Err is why nothing of the file may be shown.
	Err error
}

// Shown is a configuration, valid or not, as others may see it.
type Shown struct {
	// Node is the name of the node; empty without a NodeConfiguration.
	Node  string
	Files []ShownFile
	// SecretFiles are the files with keys, passwords and credentials that the configuration
	// names, sorted. They need not exist.
	SecretFiles []string
	// Secrets are passwords and keys of the configuration, and of the files that it names as
	// far as they can be read, so that they can be found elsewhere. Never show one.
	Secrets []string
}

// Show reads what Load would read for somebody who must not see secrets. That path cannot be
// read is the error of the one file.
func Show(path string) (s Shown) {
	files, err := listFiles(path)
	if err != nil {
		return Shown{Files: []ShownFile{{Path: path, Err: err}}}
	}
	var all []*object
	for _, file := range files {
		shown, objects := showFile(file)
		s.Files = append(s.Files, shown)
		all = append(all, objects...)
	}
	for _, o := range all {
		if o.node != nil {
			s.Node = o.node.NodeName
		}
		s.SecretFiles = append(s.SecretFiles, o.secretFiles()...)
		if o.peer != nil {
			s.Secrets = append(s.Secrets, o.peer.Spec.Password)
		}
	}
	slices.Sort(s.SecretFiles)
	s.SecretFiles = slices.Compact(s.SecretFiles)
	for _, file := range s.SecretFiles {
		if data, _, err := readFile(file, maxKeyFile); err == nil {
			s.Secrets = append(s.Secrets, secretsIn(strings.TrimSpace(string(data)))...)
		}
	}
	slices.Sort(s.Secrets)
	s.Secrets = slices.Compact(s.Secrets)
	return s
}

// credential finds what a kubeconfig has of secrets.
var credential = regexp.MustCompile(`^(?:- )?(?:token|password|client-key-data): *["']?([^"']+)`)

// secretsIn are the secrets of a file: the one password, or those of its lines that are a key
// or the value of a credential.
func secretsIn(text string) (found []string) {
	if !strings.Contains(text, "\n") {
		return []string{text}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := credential.FindStringSubmatch(line); m != nil {
			found = append(found, m[1])
		} else if !strings.ContainsAny(line, "#: ") {
			found = append(found, line)
		}
	}
	return found
}

// secretFiles are the files with secrets that the object names.
func (o *object) secretFiles() (files []string) {
	switch b := o.body.(type) {
	case *v1alpha1.NodeConfiguration:
		files = []string{b.Gossip.KeyFile, b.Metrics.KeyFile}
		if b.Kubernetes != nil {
			files = append(files, b.Kubernetes.Kubeconfig)
		}
		if b.Machines != nil {
			files = append(files, b.Machines.Kubeconfig)
		}
	case *v1alpha1.BGPPeer:
		files = []string{b.Spec.PasswordFile}
	case *v1alpha1.BGPListener:
		files = []string{b.Spec.PasswordFile}
	case *v1alpha1.BFDProfile:
		files = []string{b.Spec.AuthKeyFile}
	case *v1alpha1.VirtualIP:
		files = keyFiles(b.Spec.HealthCheck)
	case *v1alpha1.LoadBalancer:
		files = keyFiles(b.Spec.HealthCheck)
	}
	return slices.DeleteFunc(files, func(f string) bool { return f == "" })
}

func keyFiles(c *v1alpha1.HealthCheck) []string {
	if c == nil || c.HTTPS == nil {
		return nil
	}
	return []string{c.HTTPS.KeyFile}
}

// showFile also returns the objects of a file.
func showFile(file string) (ShownFile, []*object) {
	s := ShownFile{Path: file}
	data, _, err := readFile(file, maxFile)
	if err != nil {
		s.Err = err
		return s, nil
	}
	var objects []*object
	var text strings.Builder
	encoder := yaml.NewEncoder(&text)
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	for number := 1; ; number++ {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // what is behind it may be anything, and what is before it is little use
			s.Err = syntaxError(file, data, err)
			return s, objects
		}
		var b blanker
		of := roots(&doc)
		if len(of) == 0 {
			continue
		}
		if list := doc.Content[0]; list != of[0] {
			b.aroundItems(list)
		}
		for _, root := range of {
			o := parseObject(file, number, root, hostName())
			objects = append(objects, o)
			for _, h := range o.hidden {
				b.blank(h.value)
			}
		}
		b.tidy(&doc)
		s.Blanked = append(s.Blanked, b.lines...)
		if err := encoder.Encode(&doc); err != nil {
			s.Err = fileError(file, 0, "cannot be shown: %v", err)
			return s, objects
		}
	}
	s.Text = text.String()
	slices.Sort(s.Blanked)
	s.Blanked = slices.Compact(s.Blanked)
	return s, objects
}

// blanker takes out of the nodes of a document what nobody may see.
type blanker struct {
	lines   []int
	anchors int
	// tidied are nodes that tidy has been at.
	tidied map[*yaml.Node]bool
}

// blank takes the value of a node away, also where it is written once for several places.
func (b *blanker) blank(n *yaml.Node) {
	b.lines = append(b.lines, n.Line)
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	*n = yaml.Node{Kind: yaml.ScalarNode, Value: Blank, Line: n.Line, Column: n.Column, Anchor: n.Anchor}
}

// aroundItems blanks what a List has beside its items.
func (b *blanker) aroundItems(list *yaml.Node) {
	for i := 0; i+1 < len(list.Content); i += 2 {
		if name := list.Content[i].Value; name != "kind" && name != "apiVersion" && name != "items" {
			b.blank(list.Content[i+1])
		}
	}
}

// tidy blanks the arguments of programs, and takes away comments and the names of anchors and
// tags: a password that is not in quotes may have become one.
func (b *blanker) tidy(n *yaml.Node) {
	if b.tidied[n] {
		return
	}
	if b.tidied == nil {
		b.tidied = make(map[*yaml.Node]bool)
	}
	b.tidied[n] = true
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	if strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") {
		n.Tag = ""
	}
	if n.Anchor != "" {
		b.anchors++
		n.Anchor = fmt.Sprintf("a%d", b.anchors)
	}
	if n.Kind == yaml.AliasNode {
		n.Value = n.Alias.Anchor // tidied before: an anchor is before its aliases
		return
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if c.Kind != yaml.ScalarNode && c.Kind != yaml.AliasNode {
				b.blank(c)
			}
			if c.Value == "command" {
				b.arguments(n.Content[i+1])
			}
		}
		b.tidy(c)
	}
}

// arguments leaves only the program of a command.
func (b *blanker) arguments(n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.SequenceNode {
		b.blank(n)
		return
	}
	for i, c := range n.Content {
		if i > 0 {
			b.blank(c)
		}
	}
}
