package convert

import (
	"fmt"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

// convertOne converts one object that is given by kind and spec in flow style.
func convertOne(kind, spec string) Result {
	return MetalLB([]File{{"a", []byte("apiVersion: metallb.io/v1beta1\nkind: " + kind + "\nmetadata: {name: a}\nspec: {" + spec + "}\n")}})
}

// TestNodeSelectors: a selector becomes lists of labels that match the same nodes,
// or the peer is left out.
func TestNodeSelectors(t *testing.T) {
	in := func(key string, values ...string) string {
		return fmt.Sprintf("{key: %s, operator: In, values: [%s]}", key, strings.Join(values, ", "))
	}
	many := strings.Split("abcdefghi", "")
	for name, tt := range map[string]struct{ selectors, want, note string }{
		"none":       {"", "[]", ""},
		"all nodes":  {"{}", "[map[]]", ""},
		"labels":     {"{matchLabels: {z: a}}", "[map[z:a]]", ""},
		"values":     {"{matchExpressions: [" + in("z", "a", "b", "a") + "]}", "[map[z:a] map[z:b]]", ""},
		"both":       {"{matchLabels: {z: a, y: c}, matchExpressions: [" + in("z", "a", "b") + "]}", "[map[y:c z:a]]", ""},
		"product":    {"{matchExpressions: [" + in("z", "a", "b") + ", " + in("y", "c", "d") + "]}", "[map[y:c z:a] map[y:c z:b] map[y:d z:a] map[y:d z:b]]", ""},
		"never":      {"{matchLabels: {z: a}, matchExpressions: [" + in("z", "b") + "]}", "", "matches no node; the BGPPeer is left out"},
		"one never":  {"{matchLabels: {z: a}, matchExpressions: [" + in("z", "b") + "]}, {matchLabels: {y: c}}", "[map[y:c]]", ""},
		"no value":   {"{matchExpressions: [" + in("z") + "]}", "", "matches no node; the BGPPeer is left out"},
		"not in":     {"{matchLabels: {z: a}}, {matchExpressions: [{key: z, operator: NotIn, values: [a]}]}", "", `"NotIn" has no equal`},
		"exists":     {"{matchExpressions: [{key: z, operator: Exists}]}", "", `"Exists" has no equal`},
		"too many":   {"{matchExpressions: [" + in("z", many...) + ", " + in("y", many...) + "]}", "", "would be more than 64 lists"},
		"just right": {"{matchExpressions: [" + in("z", many[:8]...) + ", " + in("y", many[:8]...) + "]}", "64", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := convertOne("BGPPeer", "myASN: 1, peerASN: 1, peerAddress: 10.0.0.1, nodeSelectors: ["+tt.selectors+"]")
			if len(r.Errors) > 0 || (len(r.Objects) == 0) != (tt.want == "") {
				t.Fatal(r.Errors, r.Objects)
			}
			if got := lines(r.Notes); !strings.Contains(got, tt.note) || (got == "") != (tt.note == "") {
				t.Errorf("notes %s", got)
			}
			if tt.want == "" {
				return
			}
			var sets []map[string]string
			for _, s := range r.Objects[0].(*v1alpha1.BGPPeer).Spec.NodeSelectors {
				sets = append(sets, s.MatchLabels)
			}
			if got := fmt.Sprint(sets); got != tt.want && fmt.Sprint(len(sets)) != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestAliases: a name that is defined twice keeps its first value, and a Community
// of which nothing stays is left out.
func TestAliases(t *testing.T) {
	r := convertOne("Community", "communities: [{name: a, value: '1:1'}, {name: a, value: '1:2'}]")
	c := r.Objects[0].(*v1alpha1.Community).Spec.Communities
	if len(c) != 1 || c[0].Value != "1:1" || !strings.Contains(lines(r.Notes), `spec.communities[1].name: "a" is defined twice`) {
		t.Error(c, lines(r.Notes))
	}
	r = convertOne("Community", "communities: [{name: no-export, value: '65535:65281'}]")
	if len(r.Objects) != 0 || !strings.Contains(lines(r.Notes), "has no entry that lbd needs") {
		t.Error(r.Objects, lines(r.Notes))
	}
}

// TestUnreadable: what has the wrong form is an error and not a guess.
func TestUnreadable(t *testing.T) {
	for spec, want := range map[string]string{
		`autoAssign: "yes"`:                         "spec.autoAssign: must be true or false",
		`autoAssign: yes`:                           "", // true, as the API server reads it
		`avoidBuggyIPs: [true]`:                     "spec.avoidBuggyIPs: must be true or false",
		`addresses: [1]`:                            "spec.addresses[0]: must be a string; write it in quotes",
		`addresses: {a: b}`:                         "spec.addresses: must be a list",
		`serviceAllocation: [a]`:                    "spec.serviceAllocation: must be a mapping",
		`serviceAllocation: {priority: 1.5}`:        "spec.serviceAllocation.priority: must be a whole number of 32 bits",
		`serviceAllocation: {priority: 9999999999}`: "spec.serviceAllocation.priority: must be a whole number of 32 bits",
		`serviceAllocation: {serviceSelectors: [{matchLabels: {` + strings.Repeat("a", 513) + `: b}}]}`: "has a key of 513 bytes",
		`1: 2`:            "spec.1: has a key that is not a string",
		`<<: {}`:          "spec.<<: has a key that is not a string",
		`addresses: null`: "",
	} {
		r := convertOne("IPAddressPool", spec)
		if got := lines(r.Errors); !strings.Contains(got, want) || (got == "") != (want == "") || want != "" && r.Objects != nil {
			t.Errorf("%.60s: %s", spec, got)
		}
	}
}

// TestNameless: an object without a name is told of by its place.
func TestNameless(t *testing.T) {
	r := MetalLB([]File{{"a.yaml", []byte("apiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: {namespace: metallb-system}\nspec: {myASN: 1, peerASN: 2, peerAddress: 10.0.0.1, sourceAddress: x}\n")}})
	if said := lines(r.Notes) + lines(r.Errors); !strings.Contains(said, "a.yaml:") {
		t.Errorf("nothing is said of it: %q", said)
	}
}

// TestFamilyOfASessionWithoutMultiprotocol is that of the router's address.
func TestFamilyOfASessionWithoutMultiprotocol(t *testing.T) {
	for router, want := range map[string]string{"10.0.0.1": "[ipv4]", "2001:db8::1": "[ipv6]"} {
		r := MetalLB([]File{{"a.yaml", []byte("apiVersion: metallb.io/v1beta2\nkind: BGPPeer\nmetadata: {name: r, namespace: metallb-system}\n" +
			"spec: {myASN: 1, peerASN: 2, peerAddress: \"" + router + "\", disableMP: true}\n")}})
		if said := lines(r.Notes); !strings.Contains(said, "is written as families: "+want) {
			t.Errorf("%s: %q", router, said)
		}
	}
}
