package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// fieldPaths lists the paths of all fields of a type, with [] for any index.
func fieldPaths(t reflect.Type, path string, into map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer:
		fieldPaths(t.Elem(), path, into)
		return
	case reflect.Slice, reflect.Map:
		fieldPaths(t.Elem(), path+"[]", into)
		return
	case reflect.Struct:
		if t == reflect.TypeFor[v1alpha1.Duration]() {
			break
		}
		for _, f := range reflect.VisibleFields(t) {
			if !f.Anonymous && len(f.Index) <= 2 {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "status" || name == "passwordSecret" { // of clusters only
					continue
				}
				fieldPaths(f.Type, child(path, name), into)
			}
		}
		return
	}
	into[path] = true
}

// everyKind has the kinds that users write.
var everyKind = map[string]reflect.Type{
	v1alpha1.KindNodeConfiguration:   reflect.TypeFor[v1alpha1.NodeConfiguration](),
	v1alpha1.KindVirtualIP:           reflect.TypeFor[v1alpha1.VirtualIP](),
	v1alpha1.KindLoadBalancer:        reflect.TypeFor[v1alpha1.LoadBalancer](),
	v1alpha1.KindBGPPeer:             reflect.TypeFor[v1alpha1.BGPPeer](),
	v1alpha1.KindBGPListener:         reflect.TypeFor[v1alpha1.BGPListener](),
	v1alpha1.KindBFDProfile:          reflect.TypeFor[v1alpha1.BFDProfile](),
	v1alpha1.KindCommunity:           reflect.TypeFor[v1alpha1.Community](),
	v1alpha1.KindIPAddressPool:       reflect.TypeFor[v1alpha1.IPAddressPool](),
	v1alpha1.KindL2Advertisement:     reflect.TypeFor[v1alpha1.L2Advertisement](),
	v1alpha1.KindBGPAdvertisement:    reflect.TypeFor[v1alpha1.BGPAdvertisement](),
	v1alpha1.KindMachineLoadBalancer: reflect.TypeFor[v1alpha1.MachineLoadBalancer](),
	v1alpha1.KindTenant:              reflect.TypeFor[v1alpha1.Tenant](),
	v1alpha1.KindTenantNodes:         reflect.TypeFor[v1alpha1.TenantNodes](),
	v1alpha1.KindTenantService:       reflect.TypeFor[v1alpha1.TenantService](),
	v1alpha1.KindTenantRoute:         reflect.TypeFor[v1alpha1.TenantRoute](),
}

// TestEveryKind: the table above has every kind of the package that has them.
func TestEveryKind(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("..", "..", "api", "v1alpha1", "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\tKind\w+ += "(\w+)"$`).FindAllSubmatch(source, -1)
	for _, m := range found {
		if everyKind[string(m[1])] == nil {
			t.Errorf("%s is missing", m[1])
		}
	}
	if len(found) != len(everyKind) {
		t.Errorf("%d kinds, want %d", len(everyKind), len(found))
	}
}

// TestReferenceHasEveryField, also those of kinds that are in it as comments.
func TestReferenceHasEveryField(t *testing.T) {
	objects, end := parseFile("reference.yaml", []byte(Reference()), "host")
	if end != nil {
		t.Fatal(end)
	}
	crossCheck(objects, true)
	for _, o := range objects {
		for _, err := range o.errs {
			t.Error(err)
		}
	}
	files, comments, _ := strings.Cut(Reference(), "\n# ---\n")
	written := map[string]map[string]bool{}
	for d := yaml.NewDecoder(strings.NewReader(files + "\n---\n" + uncommented(comments))); ; {
		var object map[string]any
		if err := d.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kind, _ := object["kind"].(string)
		if written[kind] == nil {
			written[kind] = map[string]bool{}
		}
		writtenPaths(object, "", written[kind])
	}
	for kind, typ := range everyKind {
		want := map[string]bool{}
		fieldPaths(typ, "", want)
		if len(want) < 8 {
			t.Fatalf("%s: only %d fields found", kind, len(want))
		}
		for path := range want {
			asInVirtualIP := strings.HasPrefix(path, "spec.healthCheck.") || strings.HasPrefix(path, "spec.advertise.")
			if asInVirtualIP && kind != v1alpha1.KindVirtualIP {
				path, _, _ = strings.Cut(path[len("spec."):], ".")
				path = "spec." + path
			}
			if !written[kind][path] {
				t.Errorf("%s: %s is not in the reference", kind, path)
			}
		}
	}
}

// uncommented takes the "# " off every line.
func uncommented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimPrefix(line, "# "))
	}
	return b.String()
}

// writtenPaths lists the paths of what a document has, as fieldPaths does those of a type.
func writtenPaths(value any, path string, into map[string]bool) {
	into[path] = true
	switch v := value.(type) {
	case map[string]any:
		for name, below := range v {
			writtenPaths(below, child(path, name), into)
			writtenPaths(below, path+"[]", into) // it may be a map by any name
		}
	case []any:
		for _, below := range v {
			writtenPaths(below, path+"[]", into)
		}
	}
}

// TestReferenceOfOtherPlaces: what is in the reference as comments is valid where it is for.
func TestReferenceOfOtherPlaces(t *testing.T) {
	box, err := elsewhere.ReadFile("testdata/box.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if errs, _ := validate(t, goodNode+"---\n"+string(box)); errs != "" {
		t.Error(errs)
	}
	if errs, warnings := validate(t, services(t)); errs != "" || warnings != "" {
		t.Error(errs, warnings)
	}
	for _, name := range []string{"machines", "tenants"} {
		text, err := elsewhere.ReadFile("testdata/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			ofCluster(t, document)
		}
	}
}

// ofCluster wants an object of a kind that only clusters have to be valid.
func ofCluster(t *testing.T, document string) {
	t.Helper()
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(document), &tree); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	kind, _ := tree["kind"].(string)
	o, ok := reflect.New(everyKind[kind]).Interface().(interface {
		Default()
		Validate() []v1alpha1.FieldError
	})
	if !ok {
		t.Fatalf("%s: is no object", kind)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil {
		t.Fatal(err)
	}
	o.Default()
	for _, e := range o.Validate() {
		t.Error(kind, e)
	}
}

func TestMinimalIsValid(t *testing.T) {
	objects, end := parseFile("minimal.yaml", []byte(Minimal()), "host")
	node := crossCheck(objects, true)
	if end != nil || node == nil || len(objects) != 2 {
		t.Fatal(end, node, len(objects))
	}
	for _, o := range objects {
		for _, err := range o.errs {
			t.Error(err)
		}
	}
}

// JSON is YAML, so what an object marshals to must read back as the same.
func TestRoundTrip(t *testing.T) {
	for _, text := range []string{Reference(), Minimal()} {
		objects, end := parseFile("a", []byte(text), "host")
		if end != nil {
			t.Fatal(end)
		}
		for _, o := range objects {
			data, err := json.Marshal(o.body)
			if err != nil {
				t.Fatal(err)
			}
			again, end := parseFile("b", data, "host")
			if end != nil || len(again) != 1 || len(again[0].errs) > 0 {
				t.Fatalf("%s: %v %v", data, end, again[0].errs)
			}
			if !reflect.DeepEqual(o.body, again[0].body) {
				t.Errorf("got  %+v\nwant %+v", again[0].body, o.body)
			}
		}
	}
}

func TestNearest(t *testing.T) {
	fields := []string{"addresses", "healthCheck", "https", "http", "tcp", "exec", "port", "path", "l2", "fall", "rise"}
	for word, want := range map[string]string{
		"adresses": "addresses", "healthcheck": "healthCheck", "heatlhCheck": "healthCheck", "htttp": "http", "ports": "port",
		"tpc": "tcp", "foo": "", "": "", "bgp": "", "x": "", "L2": "l2", "selector": "", strings.Repeat("addresses", 100): "",
	} {
		if got := nearest(word, fields); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	for pair, want := range map[[2]string]int{{"", ""}: 0, {"a", ""}: 1, {"", "ab"}: 2, {"ab", "ba"}: 1, {"kitten", "sitting"}: 3} {
		if got := distance(pair[0], pair[1]); got != want {
			t.Errorf("%v: %d, want %d", pair, got, want)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, tt := range []struct {
		path, outer string
		want        bool
	}{{"a.b", "a", true}, {"a[0]", "a", true}, {"a", "a", true}, {"ab", "a", false}, {"a", "a.b", false}, {"a", "", true}} {
		if got := within(tt.path, tt.outer); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, text := range []string{
		Reference(), Minimal(), goodNode, goodVIP, "a: &a [*a]", "<<: {a: b}", "? [a]\n: b\n", "!!binary aaa", "--- !x\n...\n", "\t",
		headVIP + "metadata: {name: &x a, labels: {\"\\0\": *x}}\nspec:\n  healthCheck: {https: {}, interval: 0s, timeout: 9999999h}\n",
		bgpNode + peerDoc("a", "peerAddress: 'fe80::1', interface: e, bfdProfile: p, nodeSelectors: [{matchLabels: {a: b}}, {}], families: [ipv6], minimumTTL: 1, holdTime: 0s") +
			doc("BFDProfile", "p", "minimumTtl: 1") + doc("Community", "c", "communities: [{name: x, value: 'large:1:2:3'}]") +
			doc("VirtualIP", "v", "addresses: ['fd00::1'], advertise: {bgp: {peers: [a], communities: [x, '1:2', no-peer], largeCommunities: ['1:2:3'], localPref: 1, med: 0}}"),
		poolDoc("a", "10.0.0.0/24, 'fd00::1-fd00::9'") + poolDoc("b", "10.0.0.9/32") + peerDoc("p", "peerAddress: 10.0.0.1") +
			doc("L2Advertisement", "l", "ipAddressPoolSelectors: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]") +
			doc("BGPAdvertisement", "g", "aggregationLength: 9, localPref: 1, communities: [no-export]"),
		peerDoc("a", "peerAddress: ::, password: *a, holdTime: 9h9m9s, passive: true, vrf: {}, nodeSelectors: [{matchExpressions: 1}]"),
		headNode + "bgp: {listenAddresses: [fe80::1, '::', ::], listenPort: 4294967296, routerID: 1.1.1.1}\n",
		headNode + "gossip: {port: 0x10, peers: ['[::1]:', ::, 'a:b']}\nweight: 1e3\nnodeLabels: {~: ~}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, end := parseFile("lbd.yaml", data, "host")
		node := crossCheck(objects, true)
		bad := end != nil
		if bad {
			checkLine(t, end, "lbd.yaml")
		}
		for _, o := range objects {
			bad = bad || len(o.errs) > 0
			for _, err := range o.errs {
				checkLine(t, err, "lbd.yaml")
				if err.Line < 1 {
					t.Fatalf("no line: %v", err)
				}
			}
		}
		if bad {
			return
		}
		cfg := newConfig(objects, node, nil)
		if !slices.IsSortedFunc(cfg.VIPs, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) }) {
			t.Fatal("not sorted")
		}
		for _, v := range cfg.VIPs {
			if !v.Addr.IsValid() || v.Addr.Is4In6() || v.Addr.Zone() != "" || v.Name == "" {
				t.Fatalf("VIP %+v", v)
			}
			if h, ok := cfg.Checks[v.Check]; v.Check != "" && (!ok || h.Interval.Duration <= 0 || h.Timeout.Duration <= 0 || h.Fall < 1 || h.Rise < 1) {
				t.Fatalf("check %+v", h)
			}
		}
		checkPeers(t, cfg)
		if node != nil && (cfg.Node.Name == "" || cfg.Node.Weight < 1 || cfg.Node.Gossip.Port == 0 ||
			len(cfg.Node.Gossip.Peers) != len(node.node.Gossip.Peers)) {
			t.Fatalf("node %+v", cfg.Node)
		}
	})
}

// checkPeers fails if a peer, or the path of a VIP, is not what a valid object may
// become.
func checkPeers(t *testing.T, cfg *Config) {
	if !slices.IsSortedFunc(cfg.Peers, func(a, b model.BGPPeer) int { return strings.Compare(a.Name, b.Name) }) {
		t.Fatal("peers are not sorted")
	}
	for _, p := range cfg.Peers {
		a := p.Address
		switch {
		case p.Name == "", p.LocalASN == 0, p.PeerASN == 0, p.Port == 0, !p.IPv4 && !p.IPv6, p.MaxPrefixes == 0,
			!a.IsValid(), a.Is4In6(), a.IsLoopback(), a.IsMulticast(), a.IsUnspecified(), (a.Zone() != "") != (a.Is6() && a.IsLinkLocalUnicast()),
			p.Source.IsValid() && p.Source.Is4() != a.Is4(), p.RouterID.IsValid() && !p.RouterID.Is4(),
			p.HoldTime != 0 && (p.HoldTime < 3*time.Second || p.KeepaliveTime < time.Second || p.KeepaliveTime >= p.HoldTime),
			p.HoldTime == 0 && p.KeepaliveTime != 0, p.Passive != (p.ConnectTime == 0), p.MinTTL != 0 && p.Multihop, len(p.Password) > 80:
			t.Fatalf("peer %+v", p)
		}
		if b := p.BFD; b != nil && (b.Transmit < 50*time.Millisecond || b.Receive < 50*time.Millisecond || b.Multiplier < 2 || b.MinTTL == 0) {
			t.Fatalf("profile %+v", b)
		}
	}
	for _, v := range cfg.VIPs {
		if !v.L2 && len(v.BGP) == 0 {
			t.Fatalf("VIP %+v", v)
		}
		for _, b := range v.BGP {
			if !slices.IsSorted(b.Communities) || slices.Contains(b.Communities, v1alpha1.CommunityGracefulShutdown) ||
				!slices.IsSorted(b.Peers) || b.Prepend < 0 || b.Prepend > 10 || b.Length != 0 {
				t.Fatalf("VIP %+v %+v", v, b)
			}
		}
	}
}

func BenchmarkLoad10000(b *testing.B) {
	var text strings.Builder
	text.WriteString(goodNode)
	for i := range 6000 { // what fits into one file
		fmt.Fprintf(&text, "---\n%smetadata: {name: v%d}\nspec: {addresses: [10.0.%d.%d]}\n", headVIP, i, i/256, i%256)
	}
	dir := write(b, map[string]string{"a.yaml": text.String()})
	for b.Loop() {
		if _, err := Load(dir); err != nil {
			b.Fatal(err)
		}
	}
}
