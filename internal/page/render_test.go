package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/html"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// sample is a group in which much is wrong at once, and what the node explains.
func sample(t testing.TB) (*Snapshot, []v1alpha1.Explanation) {
	t.Helper()
	var s Snapshot
	var list []v1alpha1.Explanation
	for name, into := range map[string]any{"status": &s.Status, "events": &s.Events, "explain": &list} {
		text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.Forwards, s.ID = list[1:2], "1"
	return &s, list
}

// parsed is a page as a browser reads it.
type parsed struct {
	t    *testing.T
	root *html.Node
	size int
}

func parse(t *testing.T, body []byte) *parsed {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return &parsed{t, root, len(body)}
}

// all are the elements of one of these names, in their order.
func (p *parsed) all(names ...string) []*html.Node { return within(p.root, names...) }

func within(n *html.Node, names ...string) (out []*html.Node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && (len(names) == 0 || slices.Contains(names, d.Data)) {
			out = append(out, d)
		}
	}
	return out
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// text is what a person reads, with single spaces.
func text(n *html.Node) string {
	var out strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			out.WriteString(d.Data + " ")
		}
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// byID is the element with an id.
func (p *parsed) byID(id string) *html.Node {
	p.t.Helper()
	for _, n := range p.all() {
		if attribute(n, "id") == id {
			return n
		}
	}
	p.t.Fatalf("there is no #%s", id)
	return nil
}

// rows are the rows of the tables in a part, each with its cells joined.
func rows(n *html.Node) (out []string) {
	for _, tr := range within(n, "tr") {
		if tr.Parent.Data == "tbody" {
			var cells []string
			for _, c := range within(tr, "th", "td") {
				cells = append(cells, text(c))
			}
			out = append(out, strings.Join(cells, " | "))
		}
	}
	return out
}

// wellFormed holds every page to what somebody needs who does not see it, has a keyboard only,
// or a browser that obeys the policy.
func (p *parsed) wellFormed() {
	p.t.Helper()
	p.headings()
	p.tables()
	ids := map[string]bool{}
	for _, n := range p.all() {
		if id := attribute(n, "id"); id != "" {
			if ids[id] {
				p.t.Errorf("two elements are #%s", id)
			}
			ids[id] = true
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" {
				p.t.Errorf("<%s %s=%q>: inline", n.Data, a.Key, a.Val)
			}
		}
		switch {
		case n.Data == "style", n.Data == "script" && (attribute(n, "src") != "/page.js" || n.FirstChild != nil):
			p.t.Errorf("<%s> with %q", n.Data, text(n))
		case n.Data == "meta" && attribute(n, "http-equiv") != "":
			p.t.Error("a page without a script is as of its load")
		case slices.Contains([]string{"iframe", "object", "embed", "form", "base", "img"}, n.Data):
			p.t.Errorf("<%s>", n.Data)
		}
	}
	for _, n := range p.all("a", "link") {
		to := attribute(n, "href")
		fragment, local := strings.CutPrefix(to, "#")
		switch {
		case local && !ids[fragment]:
			p.t.Errorf("the link %s leads nowhere", to)
		case !local && !strings.HasPrefix(to, "/"), strings.HasPrefix(to, "//"):
			p.t.Errorf("the link %s leads elsewhere", to)
		}
	}
	for _, n := range p.all("section") {
		if !ids[attribute(n, "aria-labelledby")] {
			p.t.Errorf("#%s has no name", attribute(n, "id"))
		}
	}
	if lang := attribute(p.all("html")[0], "lang"); lang != "en" {
		p.t.Errorf("language %q", lang)
	}
	if n := p.byID("live"); attribute(n, "aria-live") != "polite" {
		p.t.Error("news is not read out")
	}
	for _, n := range p.all("span") {
		if strings.HasPrefix(attribute(n, "class"), "mark") && (attribute(n, "aria-hidden") != "true" || len(text(n.Parent)) <= len(text(n))) {
			p.t.Errorf("a mark without a word beside it: %q", text(n.Parent))
		}
	}
}

func (p *parsed) headings() {
	p.t.Helper()
	level := 0
	for i, n := range p.all("h1", "h2", "h3", "h4", "h5", "h6") {
		now := int(n.Data[1] - '0')
		if now > level+1 || (now == 1) != (i == 0) || text(n) == "" {
			p.t.Errorf("heading %d is <%s>%s after level %d", i, n.Data, text(n), level)
		}
		level = now
	}
	if level == 0 {
		p.t.Error("no heading")
	}
}

func (p *parsed) tables() {
	p.t.Helper()
	for _, n := range p.all("table") {
		if c := within(n, "caption"); len(c) != 1 || text(c[0]) == "" {
			p.t.Errorf("a table has no caption: %s", text(n))
		}
		heads := 0
		for _, th := range within(n, "th") {
			switch attribute(th, "scope") {
			case "col":
				heads++
			case "row":
			default:
				p.t.Errorf("the scope of %q is %q", text(th), attribute(th, "scope"))
			}
		}
		for _, tr := range within(n, "tr") {
			if cells := len(within(tr, "th", "td")); cells != heads {
				p.t.Errorf("a row has %d cells, the table %d columns: %s", cells, heads, text(tr))
			}
		}
	}
}

func TestOverview(t *testing.T) {
	s, _ := sample(t)
	p := parse(t, Overview(s, false))
	p.wellFormed()
	if got, want := text(p.all("title")[0]), "(3) m1 · lbd"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
	for id, want := range map[string][]string{
		"problems": {"configured peers that are not members: 10.0.0.14", "BGP session with tor-b is Active; lbd status bgp says why", "10.0.0.200, 2001:db8::c8: the health check of the service fails on this node"},
		"vips": {
			"10.0.0.200 control-plane | ! m3 | no | ✗ fails | 96s ago | the health check of the service fails on this node: https://127.0.0.1:6443/livez?exclude=etcd: connection refused Unhealthy",
			"192.0.2.53 anycast-dns | ✓ every healthy node | advertised | ✓ passes | 3d ago | this node advertises the VIP by BGP Advertised",
		},
		"nodes":    {"m4 | ✗ dead | 0 | 10.0.0.14 | v0.1.0 | –", "m2 | ! alive | 0 | 10.0.0.12 | v0.1.0 | draining", "m1 this node | ✓ alive | 2 | – | v0.1.0 | –"},
		"health":   {"registry/10.0.1.33 | ✗ down | 10m ago | 3.4ms | http://10.0.1.33:5000/v2/: 503 Service Unavailable"},
		"bgp":      {"tor-a 10.0.0.1 | 64500 | ✓ Established | 3d ago | ✓ Up detects in 150ms | 1 path | –", "tor-b 10.0.0.2 | 64500 | ✗ Active lost 2 times | 5m ago | ✗ Down | 0 paths | 5m ago the BFD session went down: control detection time expired"},
		"forwards": {"10.0.1.31:5000 | in | 50.0 % | 100 | ✓ up | –", "10.0.1.34:5000 | draining | 0.0 % | 0 | ✓ up | its weight is 0"},
		"changes": {
			"07:28:36.331 96s ago | control-plane 2001:db8::c8 | owner | m1 → m3 | Unhealthy | –",
			"06:00:12.531 89m ago | ingress/web 10.0.0.220 | announced | m4 → m1 | – | missed for 204ms",
			"2026-11-24 06:29:11.431 25h ago | m1 | daemon | started | v0.1.0 | –",
		},
	} {
		part := p.byID(id)
		got := append(rows(part), text(part))
		for _, w := range want {
			if !slices.ContainsFunc(got, func(g string) bool { return g == w || id == "problems" && strings.Contains(g, w) }) {
				t.Errorf("#%s has not\n%s\nbut\n%s", id, w, strings.Join(got, "\n"))
			}
		}
	}
}

// TestLookFirst: what a person should look at comes first, and what is left out is counted.
func TestLookFirst(t *testing.T) {
	s, _ := sample(t)
	for i := range 40 {
		s.Status.VIPs = append(s.Status.VIPs, v1alpha1.VIPStatus{Name: "calm", Address: fmt.Sprintf("10.1.0.%d", i), Mode: "l2", Owner: "m3", Reason: "Standby", Standing: "Standby", Healthy: true})
	}
	s.Status.VIPs = append(s.Status.VIPs, v1alpha1.VIPStatus{Name: "lost", Address: "10.2.0.1", Mode: "l2", Reason: "Unhealthy", Standing: "Unhealthy"})
	p := parse(t, Overview(s, false))
	p.wellFormed()
	part := p.byID("vips")
	got := rows(part)
	if len(got) != screen || !strings.HasPrefix(got[0], "10.2.0.1 lost | ✗ nobody") || !strings.HasPrefix(got[1], "10.0.0.200") || !strings.HasPrefix(got[2], "2001:db8::c8") {
		t.Errorf("%d rows:\n%s", len(got), strings.Join(got, "\n"))
	}
	if want := "27 more are not shown, and all is well with them. Show all"; !strings.HasSuffix(text(part), want) {
		t.Errorf("it ends with %q", text(part))
	}
	p = parse(t, Overview(s, true))
	if part := p.byID("vips"); len(rows(part)) != 47 || strings.Contains(text(part), "not shown") {
		t.Errorf("of all there are %d", len(rows(part)))
	}
}

func TestVIP(t *testing.T) {
	s, list := sample(t)
	p := parse(t, VIP(s, "control-plane", list[:1]))
	p.wellFormed()
	if got := text(p.all("h1")[0]); got != "10.0.0.200" {
		t.Errorf("heading %q", got)
	}
	part := p.byID("vip-0")
	for _, want := range []string{
		"the health check of the service fails on m1: https://127.0.0.1:6443/livez?exclude=etcd: connection refused.",
		"Owner ! m3", "Epoch 7", "Interface eth0", "m3 owns 10.0.0.200 with epoch 7; the owner keeps it as long as it is alive and healthy.",
	} {
		if !strings.Contains(text(part), want) {
			t.Errorf("%q is not in %q", want, text(part))
		}
	}
	want := []string{
		"m3 | 1 | ✓ yes | ✓ yes | epoch 7 | 100 | m3 owns the VIP and announces it",
		"m1 | 2 | ✓ yes | ! no | – | 100 | the health check of the service fails on m1: https://127.0.0.1:6443/livez?exclude=etcd: connection refused",
		"m2 | 3 | ✓ yes | ! no | – | 100 | m2 is draining, so it takes no VIP; lbd undrain ends that",
		"m4 | 4 | ✗ no | ! no | – | 100 | m4 cannot be reached: it is dead",
	}
	if got := rows(part); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, r := range rows(p.byID("changes")) {
		if !strings.Contains(r, "control-plane") {
			t.Errorf("a change of another VIP: %s", r)
		}
	}
	if n := len(rows(p.byID("changes"))); n != 3 {
		t.Errorf("%d changes, want 3", n)
	}
	p = parse(t, VIP(s, "10.0.0.210", list[1:]))
	p.wellFormed()
	if got := rows(p.byID("vip-0")); !slices.Contains(got, "10.0.1.33:5000 | out | 0.0 % | 100 | ✗ down | it fails the check of m1: http://10.0.1.33:5000/v2/: 503 Service Unavailable") {
		t.Errorf("backends:\n%s", strings.Join(got, "\n"))
	}
	p = parse(t, VIP(s, "gone", nil))
	p.wellFormed()
}

// TestNothingToShow: a node that has just begun has a page.
func TestNothingToShow(t *testing.T) {
	s := &Snapshot{Status: v1alpha1.NodeStatus{Node: "m1", Time: time.Unix(1e9, 0)}}
	p := parse(t, Overview(s, false))
	p.wellFormed()
	for id, want := range map[string]string{"problems": "Problems ✓ There is nothing to do.", "vips": "VIPs The configuration has no VIP.", "changes": "Changes Nothing has changed since the daemon started."} {
		if got := text(p.byID(id)); got != want {
			t.Errorf("#%s: %q, want %q", id, got, want)
		}
	}
}

// TestServices: where connections to Services are reset the page says so, and why.
func TestServices(t *testing.T) {
	for want, is := range map[string]*v1alpha1.ServiceConnectionsStatus{
		"Problems ✓ There is nothing to do.": {Kept: true},
		"Problems ✓ There is nothing to do. Services: a move of an address resets open connections: kube-proxy is in IPVS mode": {Reason: "kube-proxy is in IPVS mode"},
	} {
		s := &Snapshot{Status: v1alpha1.NodeStatus{Node: "m1", Time: time.Unix(1e9, 0), ServiceConnections: is}}
		p := parse(t, Overview(s, false))
		p.wellFormed()
		if got := text(p.byID("problems")); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestForeignTextIsText puts what a stranger could have written into every text that there is.
func TestForeignTextIsText(t *testing.T) {
	s, list := sample(t)
	const evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>`<b>`{{.}}\x1b[31m\u202e\njavascript:alert(1)"
	var poison func(v any) any
	poison = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if k != "mode" && k != "state" && k != "kind" {
					v[k] = poison(x)
				}
			}
		case []any:
			for i, x := range v {
				v[i] = poison(x)
			}
		case string:
			if _, err := time.Parse(time.RFC3339Nano, v); err != nil {
				return v + evil
			}
		}
		return v
	}
	again := func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var generic any
		if err := json.Unmarshal(text, &generic); err != nil {
			t.Fatal(err)
		}
		if text, err = json.Marshal(poison(generic)); err == nil {
			err = json.Unmarshal(text, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	again(&s.Status)
	again(&s.Events)
	again(&list)
	s.Forwards = list[1:]
	for i, body := range [][]byte{Overview(s, true), VIP(s, list[1].Address, list), VIP(s, evil, nil)} {
		p := parse(t, body)
		p.wellFormed()
		if len(p.all("script")) != 1 || len(p.all("img", "b")) != 0 {
			t.Errorf("page %d: foreign text has become elements", i)
		}
		for _, n := range p.all() {
			for _, a := range n.Attr {
				if strings.HasPrefix(strings.TrimSpace(a.Val), "javascript") {
					t.Errorf("page %d: %s=%q", i, a.Key, a.Val)
				}
			}
		}
		if got := text(p.root); strings.ContainsAny(got, "\x1b\u202e") || !strings.Contains(got, "<script>alert(1)</script>") {
			t.Errorf("page %d does not show it as it is, without control characters", i)
		}
	}
}

// used is how much of a processor this process has had.
func used(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// TestManyVIPs: a page about 10000 VIPs is small, and made in no time; all of them fit into
// a few megabytes.
func TestManyVIPs(t *testing.T) {
	s, _ := sample(t)
	s.Status.VIPs = nil
	for i := range 10000 {
		v := v1alpha1.VIPStatus{Name: fmt.Sprintf("namespace/service-%d", i), Kind: model.KindLoadBalancer, Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Mode: "l2", Owner: "m3", Reason: "Standby", Standing: "Standby", Healthy: true}
		if i%2 == 0 {
			v.Owner, v.Reason, v.Standing, v.Healthy = "", "Unhealthy", "Unhealthy", false
		}
		s.Status.VIPs = append(s.Status.VIPs, v)
	}
	for all, most := range map[bool]struct {
		size int
		took time.Duration // of the processor, with the race detector
	}{false: {64 << 10, 5 * time.Second}, true: {8 << 20, 30 * time.Second}} {
		began := used(t)
		body := Overview(s, all)
		took := used(t) - began
		t.Logf("all %v: %d bytes in %v", all, len(body), took)
		if p := parse(t, body); p.size > most.size || took > most.took {
			t.Errorf("all %v: %d bytes in %v", all, p.size, took)
		}
	}
}
