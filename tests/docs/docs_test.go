package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/model"
)

func read(t *testing.T) []page {
	t.Helper()
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func readPage(t *testing.T, name string) page {
	t.Helper()
	for _, p := range read(t) {
		if p.path == name {
			return p
		}
	}
	t.Fatalf("there is no %s", name)
	return page{}
}

// TestConfigurations takes every block of YAML that is a configuration, and
// parses all other YAML and JSON.
func TestConfigurations(t *testing.T) {
	found := 0
	for _, p := range read(t) {
		for _, b := range p.blocks() {
			switch {
			case b.lang == "yaml" && clusterKind(b.text) != nil:
				for text := range strings.SplitSeq(b.text, "\n---\n") {
					ofCluster(t, fmt.Sprintf("%s:%d", b.page, b.line), text)
				}
			case b.lang == "yaml" && strings.Contains("\n"+b.text, "\napiVersion: "+v1alpha1.Group+"/"):
				found++
				file := filepath.Join(t.TempDir(), "lbd.yaml")
				if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := config.Validate(file); err != nil {
					t.Errorf("%s:%d: %v", b.page, b.line, err)
				}
			case b.lang == "yaml":
				if err := foreign(b.text); err != nil {
					t.Errorf("%s:%d: %v", b.page, b.line, err)
				}
			case b.lang == "json":
				d := json.NewDecoder(bytes.NewReader([]byte(b.text)))
				d.DisallowUnknownFields()
				var into any = new(v1alpha1.NodeStatus)
				if strings.Contains(b.text, `"kind": "`+v1alpha1.NodeEventsKind+`"`) {
					into = new(v1alpha1.NodeEvents)
				}
				if err := d.Decode(into); err != nil {
					t.Errorf("%s:%d: %v", b.page, b.line, err)
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d configurations found", found)
	}
}

// parts are the objects that a page may show a part of, without its head. Each has the field by
// which such a part begins.
var parts = map[string]func() any{
	"kubernetes:": func() any { return new(v1alpha1.NodeConfiguration) },
	"spec:":       func() any { return new(v1alpha1.LoadBalancer) },
}

// others are how YAML begins that other programs read, besides objects of a cluster. Other tests
// look at what of it is for lbd.
var others = []string{"#cloud-config\n", "monitoring:\n", "scrape_configs:\n"}

// foreign checks YAML that is no whole configuration: it is a part of one, or for another program.
func foreign(text string) error {
	begin, _, _ := strings.Cut(text, ":")
	if part := parts[begin+":"]; part != nil {
		return strict(text, part())
	}
	if !strings.HasPrefix(text, "apiVersion: ") && !slices.ContainsFunc(others, func(o string) bool { return strings.HasPrefix(text, o) }) {
		return fmt.Errorf("nobody knows what begins with %q, so no test looks at it", begin)
	}
	return yaml.Unmarshal([]byte(text), new(any))
}

// strict reads a text into an object that must have all its fields.
func strict(text string, into any) error {
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// object is one of lbd.dev.
type object interface {
	Default()
	Validate() []v1alpha1.FieldError
}

// clusterKind returns an object of the kind of a text that is for clusters only, or nil.
func clusterKind(text string) object {
	for kind, o := range map[string]object{
		v1alpha1.KindMachineLoadBalancer: &v1alpha1.MachineLoadBalancer{}, v1alpha1.KindTenant: &v1alpha1.Tenant{},
		v1alpha1.KindTenantNodes: &v1alpha1.TenantNodes{}, v1alpha1.KindTenantService: &v1alpha1.TenantService{}, v1alpha1.KindTenantRoute: &v1alpha1.TenantRoute{},
	} {
		if strings.Contains(text, "kind: "+kind+"\n") {
			return o
		}
	}
	return nil
}

// ofCluster checks an object that is for clusters only.
func ofCluster(t *testing.T, where, text string) {
	t.Helper()
	o := clusterKind(text)
	if o == nil {
		t.Errorf("%s: objects for clusters and others in one block", where)
		return
	}
	if err := strict(text, o); err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	o.Default()
	for _, e := range o.Validate() {
		t.Errorf("%s: %v", where, e)
	}
}

// TestTenLines holds the README to the length that it names.
func TestTenLines(t *testing.T) {
	for _, b := range readPage(t, "README.md").blocks() {
		if b.lang == "yaml" {
			if n := strings.Count(b.text, "\n"); n != 10 {
				t.Errorf("the first configuration has %d lines, the text says ten", n)
			}
			return
		}
	}
	t.Error("no configuration")
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinks(t *testing.T) {
	all := read(t)
	anchors := map[string]map[string]bool{}
	for _, p := range all {
		anchors[p.path] = p.anchors()
	}
	for _, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.prose(), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target, fragment, _ := strings.Cut(m[1], "#")
			file := p.path
			if target != "" {
				file = path.Join(path.Dir(p.path), target)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err != nil {
				t.Errorf("%s: link %s: %v", p.path, m[1], err)
			} else if fragment != "" && !anchors[file][fragment] {
				t.Errorf("%s: link %s: %s has no such heading", p.path, m[1], file)
			}
		}
	}
}

func TestReasons(t *testing.T) {
	var want, got []string
	for _, r := range model.Reasons() {
		want = append(want, r.String())
	}
	for _, row := range readPage(t, "docs/reasons.md").rows("Each reason") {
		got = append(got, codes(row[0])...)
		if len(row) != 4 || row[2] == "" || row[3] == "" {
			t.Errorf("%s: the row needs a meaning and what to do", row[0])
			continue
		}
		want := "normal"
		if r, _ := model.ParseReason(strings.Trim(row[0], "`")); r.Look() {
			want = "look"
		}
		if row[1] != want {
			t.Errorf("docs/reasons.md says of %s %q, the program %q", row[0], row[1], want)
		}
	}
	same(t, "docs/reasons.md", got, want)
}

// TestEventKinds wants a row for every kind of event, and no others.
func TestEventKinds(t *testing.T) {
	p := readPage(t, "docs/commands.md")
	_, section, found := strings.Cut(p.text, "| kind | from, to |")
	if !found {
		t.Fatal("docs/commands.md has no table of kinds")
	}
	var rows []string
	for line := range strings.Lines(section) {
		if kind, is := strings.CutPrefix(line, "| `"); is {
			kind, _, _ = strings.Cut(kind, "`")
			rows = append(rows, kind)
		}
	}
	var kinds []string
	for _, k := range v1alpha1.EventKinds() {
		kinds = append(kinds, string(k))
	}
	if !slices.Equal(rows, kinds) {
		t.Errorf("docs/commands.md has %q, the kinds are %q", rows, kinds)
	}
}

// TestClasses: what the page says becomes of a VIP is what the class of the reason says.
func TestClasses(t *testing.T) {
	var want, got []string
	for _, r := range model.Reasons() {
		if r.Class() != model.ClassProgress {
			want = append(want, r.String())
		}
	}
	seen := map[model.Class]bool{}
	for _, row := range readPage(t, "docs/reasons.md").rows("What becomes of the VIP") {
		first, _ := model.ParseReason(codes(row[0])[0])
		if seen[first.Class()] {
			t.Errorf("%s: another row has reasons of the same class", row[0])
		}
		seen[first.Class()] = true
		for _, name := range codes(row[0]) {
			got = append(got, name)
			if r, _ := model.ParseReason(name); r.Class() != first.Class() {
				t.Errorf("docs/reasons.md has %v and %v in one row", first, r)
			}
		}
		if says := becomes(first); !slices.Equal(row[1:], says) {
			t.Errorf("docs/reasons.md says of %v %q, the program %q", first, row[1:], says)
		}
	}
	same(t, "docs/reasons.md", got, want)
}

// becomes puts in words what becomes of a VIP.
func becomes(r model.Reason) []string {
	lan, routers, earlier := "kept", "withdrawn at once", "let go"
	switch {
	case r.Leaves() && r.LetsGo():
		lan = "handed over, else let go"
	case r.Leaves():
		lan = "handed over, else kept"
	case r.LetsGo():
		lan = "let go at once"
	case r.Planned():
		lan = "kept; handed over if another node passes both checks"
	}
	switch {
	case r.Planned() && r.Eligible():
		routers = "the same, after GRACEFUL_SHUTDOWN"
	case r.Planned():
		routers = "withdrawn after GRACEFUL_SHUTDOWN, else kept"
	case r.Eligible():
		routers = "kept"
	}
	if r.Adopts() {
		earlier = "kept"
	}
	return []string{lan, routers, earlier}
}

// TestOfNoMachine keeps the paths of whoever wrote a page out of it.
func TestOfNoMachine(t *testing.T) {
	bad := regexp.MustCompile(`(^|[\s"'(` + "`" + `])/(tmp|work|root|home)/`)
	for _, p := range read(t) {
		if m := bad.FindString(p.text); m != "" {
			t.Errorf("%s names %s", p.path, strings.TrimSpace(m))
		}
	}
}

// same compares two lists of names as sets, and finds names that come twice.
func same(t *testing.T, where string, got, want []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, g := range got {
		if seen[g] {
			t.Errorf("%s has %s twice", where, g)
		}
		seen[g] = true
		if !slices.Contains(want, g) {
			t.Errorf("%s has %s, which the program does not have", where, g)
		}
	}
	for _, w := range want {
		if !seen[w] {
			t.Errorf("%s lacks %s", where, w)
		}
	}
}
