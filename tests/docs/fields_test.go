package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

// fields returns the paths of all fields of a type, as YAML has them.
func fields(t reflect.Type, prefix string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[v1alpha1.Duration]() {
		return nil
	}
	var out []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			out = append(out, fields(f.Type, prefix)...)
			continue
		}
		path := prefix + name
		if path == "status" { // of clusters only
			continue
		}
		inner := fields(f.Type, path+".")
		if len(inner) == 0 || f.Type.Kind() == reflect.Pointer {
			out = append(out, path)
		}
		out = append(out, inner...)
	}
	return out
}

// defaults returns the values that Default sets, by path.
func defaults(t *testing.T, object any) map[string]string {
	t.Helper()
	b, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(b, &tree); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		m, ok := v.(map[string]any)
		if !ok {
			out[prefix] = fmt.Sprint(v)
			return
		}
		for k, v := range m {
			walk(strings.TrimPrefix(prefix+"."+k, "."), v)
		}
	}
	walk("", tree)
	return out
}

func TestFields(t *testing.T) {
	p := readPage(t, "docs/configuration.md")
	node := &v1alpha1.NodeConfiguration{}
	node.Default()
	checkFields(t, p.rows(v1alpha1.KindNodeConfiguration), node)

	for _, check := range []v1alpha1.HealthCheck{
		{HTTPS: &v1alpha1.HTTPSCheck{}}, {HTTP: &v1alpha1.HTTPCheck{}}, {TCP: &v1alpha1.TCPCheck{}},
	} {
		vip := &v1alpha1.VirtualIP{Spec: v1alpha1.VirtualIPSpec{HealthCheck: &check}}
		vip.Default()
		checkFields(t, p.rows(v1alpha1.KindVirtualIP), vip)
	}
	balancer := &v1alpha1.LoadBalancer{}
	balancer.Default()
	checkFields(t, p.rows(v1alpha1.KindLoadBalancer), balancer, "spec.healthCheck", "spec.advertise")
	peer, profile := &v1alpha1.BGPPeer{}, &v1alpha1.BFDProfile{}
	peer.Default()
	profile.Default()
	checkFields(t, p.rows(v1alpha1.KindBGPPeer), peer)
	listener := &v1alpha1.BGPListener{}
	listener.Default()
	checkFields(t, p.rows(v1alpha1.KindBGPListener), listener)
	checkFields(t, p.rows(v1alpha1.KindBFDProfile), profile)
	checkFields(t, p.rows(v1alpha1.KindCommunity), &v1alpha1.Community{})

	pool, advert := &v1alpha1.IPAddressPool{}, &v1alpha1.BGPAdvertisement{}
	pool.Default()
	advert.Default()
	checkFields(t, p.rows(v1alpha1.KindIPAddressPool), pool)
	checkFields(t, p.rows(v1alpha1.KindL2Advertisement), &v1alpha1.L2Advertisement{})
	checkFields(t, p.rows(v1alpha1.KindBGPAdvertisement), advert)
}

// checkFields wants a row for each field of the object, and in it the value that
// the object has after Default. What is in those of others is said there.
func checkFields(t *testing.T, rows [][]string, object any, others ...string) {
	t.Helper()
	var got []string
	column := map[string]string{}
	for _, row := range rows {
		for _, name := range codes(row[0]) {
			got = append(got, name)
			column[name] = row[2]
		}
	}
	elsewhere := func(path string) bool {
		return slices.ContainsFunc(others, func(o string) bool { return strings.HasPrefix(path, o+".") })
	}
	same(t, "docs/configuration.md", got, slices.DeleteFunc(fields(reflect.TypeOf(object), ""), elsewhere))
	for path, value := range defaults(t, object) {
		for _, o := range others {
			if elsewhere(path) && strings.HasPrefix(path, o) {
				path = o
			}
		}
		if value == "" || value == "0" || value == "<nil>" || strings.HasPrefix(value, "[") {
			continue
		}
		if c := column[path]; !strings.Contains(c, value) {
			t.Errorf("docs/configuration.md: the default of %s is %s, not %q", path, value, c)
		}
	}
}

var restartCheck = regexp.MustCompile(`check\("([a-zA-Z.]+)"`)

// TestRestart compares the fields that are marked R with those that a reload
// refuses to change.
func TestRestart(t *testing.T) {
	src, err := os.ReadFile(filepath.Join(root, "internal", "config", "restart.go"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range restartCheck.FindAllStringSubmatch(string(src), -1) {
		want = append(want, m[1])
	}
	for _, row := range readPage(t, "docs/configuration.md").rows(v1alpha1.KindNodeConfiguration) {
		if row[len(row)-1] == "R" {
			got = append(got, codes(row[0])...)
		}
	}
	same(t, "docs/configuration.md, marked R", got, want)
}
