package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// marked returns what Validate found, a line each: line, column and field, and the excerpt with
// a ^ before the place.
func marked(sum Summary) string {
	var b strings.Builder
	for _, e := range append(sum.Errors, sum.Warnings...) {
		text := []rune(e.Excerpt)
		if len(text) > 0 && e.Column > 0 {
			text = []rune(string(text[:e.Column-1]) + "^" + string(text[e.Column-1:]))
		}
		fmt.Fprintf(&b, "%d:%d %s|%s\n", e.Line, e.Column, e.Field.Path, string(text))
	}
	return b.String()
}

// TestExcerptsPointAtTheFault: at the value if the value is wrong, at the key if nobody knows
// it, and at what lacks something.
func TestExcerptsPointAtTheFault(t *testing.T) {
	const vip = headVIP + "metadata: {name: a}\n"
	for name, c := range map[string]struct{ text, want string }{
		"value":               {vip + "spec: {addresses: [10.0.0.300]}\n", "4:20 spec.addresses[0]|spec: {addresses: [^10.0.0.300]}\n"},
		"value of a key":      {vip + "spec:\n  addresses: [10.0.0.1]\n  partition: half\n", "6:14 spec.partition|  partition: ^half\n"},
		"value below its key": {vip + "spec:\n  addresses: [10.0.0.1]\n  partition:\n    half\n", "6:3 spec.partition|  ^partition:\n"},
		"unknown key":         {vip + "spec:\n  addresses: [10.0.0.1]\n  adresses: hunter2\n", "6:3 spec.adresses|  ^adresses: …\n"},
		"missing":             {vip + "spec: {}\n", "4:1 spec.addresses|^spec: {}\n"},
		"missing parent":      {vip, "1:1 spec.addresses|^apiVersion: lbd.dev/v1alpha1\n"},
		"after wide letters":  {vip + "spec: {addresses: [控制, 10.0.0.300]}\n", "4:20 spec.addresses[0]|spec: {addresses: [^控制, 10.0.0.300]}\n4:24 spec.addresses[1]|spec: {addresses: [控制, ^10.0.0.300]}\n"},
		"carriage returns":    {strings.ReplaceAll(vip+"spec: {addresses: [10.0.0.300]}\n", "\n", "\r\n"), "4:20 spec.addresses[0]|spec: {addresses: [^10.0.0.300]}\n"},
		"a warning":           {vip + "spec: {addresses: [10.0.0.1]}\n", "4:1 spec.healthCheck|^spec: {addresses: [10.0.0.1]}\n"},
		"not YAML":            {vip + "spec: [\n", "4:0 |spec: [\n"},
		"not YAML, a tab":     {vip + "spec:\n\taddresses: []\n", "5:0 |\taddresses: []\n"},
		"lines of YAML alone": {vip + "# a\u2028# b\nspec: {addresses: [10.0.0.300]}\n# c\n# d\n", "6:20 spec.addresses[0]|\n"},
		"kind":                {"apiVersion: lbd.dev/v1alpha1\nkind: VirtualIp\nspec: {}\n", "2:7 kind|kind: ^VirtualIp\n"},
	} {
		sum, _ := Validate(filepath.Join(write(t, map[string]string{"a.yaml": c.text}), "a.yaml"))
		if got := marked(sum); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestExcerptsShowNoSecret, wherever it stands: as a password, under a misspelt name, as
// something that lbd does not read, in a file that is none of lbd's, or on the line of another
// mistake.
func TestExcerptsShowNoSecret(t *testing.T) {
	const peer = "apiVersion: lbd.dev/v1alpha1\nkind: BGPPeer\nmetadata: {name: a}\n"
	for name, text := range map[string]string{
		"of another type":           peer + "spec:\n  password: 5ecret0\n  password: 5ecret0\n",
		"not a string":              peer + "spec:\n  password: [5ecret0]\n",
		"misspelt":                  peer + "spec:\n  passwrd: 5ecret0\n",
		"misspelt, in brackets":     peer + "spec: {passwrd: 5ecret0, peerASN: x}\n",
		"misspelt, over two lines":  peer + "spec: {passwrd: \"a\n 5ecret0\", peerASN: x}\n",
		"misspelt, in a collection": peer + "spec: {passwrd: [a,\n [b, 5ecret0]], peerASN: x}\n",
		"on the line of another":    peer + "spec: {password: 5ecret0, peerASN: x}\n",
		"behind another":            peer + "spec: {peerASN: x, password: 5ecret0}\n",
		"for another kind":          "apiVersion: lbd.dev/v1alpha1\nkind: BFDProfile\nmetadata: {name: a}\nspec: {authKey: 5ecret0, detectMultiplier: x}\n",
		"of a kind that is none":    "apiVersion: lbd.dev/v1alpha1\nkind: BGPPer\nspec: {password: 5ecret0}\n",
		"of Kubernetes":             `{apiVersion: v1, data: {a: 5ecret0}, kind: Secret}`,
		"of a list":                 `{apiVersion: v1, kind: List, items: [{apiVersion: v1, data: {a: 5ecret0}, kind: Secret}, {apiVersion: lbd.dev/v1alpha1, kind: VirtualIP, spec: {addresses: [x]}}]}`,
		"applied before":            peer + "metadata: {annotations: {last: 5ecret0}}\nspec: {peerASN: x}\n",
		"in the status":             `{apiVersion: lbd.dev/v1alpha1, kind: VirtualIP, status: {a: 5ecret0}, spec: {addresses: [x]}}`,
		"a mapping is wanted":       "apiVersion: lbd.dev/v1alpha1\nkind: VirtualIP\nspec: [password: 5ecret0]\n",
		"in a command":              "apiVersion: lbd.dev/v1alpha1\nkind: NodeConfiguration\nnotify:\n  - command: hook --token 5ecret0\n",
		"for the name of a Secret":  peer + "spec:\n  passwordSecret: 5ecret0\n",
		"a keyring":                 "5ecret0\n5ecret0\n",
		"not YAML, of lbd":          peer + "spec: {password: \"5ecret0\n",
		"not YAML, misspelt":        peer + "spec:\n  pass: \"5ecret0\" x\n",
		"not YAML, of others":       "apiVersion: v1\nkind: ConfigMap\ndata:\n  a: \"5ecret0\" x\n",
		"merged":                    peer + "spec: {<<: {password: 5ecret0}, peerASN: x}\n",
	} {
		for _, more := range []string{"", "---\n" + headVIP + "metadata: {name: a}\nspec: {addresses: [10.0.0.300]}\n"} {
			sum, err := Validate(filepath.Join(write(t, map[string]string{"a.yaml": text + "\n" + more}), "a.yaml"))
			if err == nil {
				t.Errorf("%s: is valid", name)
			}
			if got := marked(sum); strings.Contains(got, "5ecret0") {
				t.Errorf("%s:\n%s", name, got)
			}
			if err != nil && strings.Contains(err.Error(), "5ecret0") {
				t.Errorf("%s: the error is %v", name, err)
			}
		}
	}
}

// TestSkipForeign: objects of others are passed over on request, and a misspelt group never is.
func TestSkipForeign(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n"
	const vip = headVIP + "metadata: {name: a}\nspec: {addresses: [10.0.0.1]}\n"
	for name, c := range map[string]struct {
		text             string
		objects, skipped int
		want             string // of the error
	}{
		"others":          {pod + "apiVersion: apps/v1\nkind: DaemonSet\n---\n" + vip, 1, 2, ""},
		"of a list":       {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod}, {apiVersion: lbd.dev/v1alpha1, kind: VirtualIP, metadata: {name: a}, spec: {addresses: [10.0.0.1]}}]\n", 1, 1, ""},
		"for clusters":    {"apiVersion: lbd.dev/v1alpha1\nkind: MachineLoadBalancer\n---\napiVersion: lbd.dev/v1alpha1\nkind: NodeStatus\n", 0, 2, ""},
		"misspelt group":  {"apiVersion: lbd.de/v1alpha1\nkind: VirtualIP\n", 1, 0, "a.yaml:1: document 1: apiVersion: \"lbd.de/v1alpha1\" is not of lbd"},
		"misspelt kind":   {"apiVersion: lbd.dev/v1alpha1\nkind: VirtualIp\n", 1, 0, "did you mean \"VirtualIP\"?"},
		"no kind at all":  {"a: 1\n", 1, 0, "kind: is required"},
		"another version": {"apiVersion: lbd.dev/v2\nkind: VirtualIP\nmetadata: {name: a}\nspec: {addresses: [10.0.0.1]}\n", 1, 0, "apiVersion: \"lbd.dev/v2\""},
	} {
		path := filepath.Join(write(t, map[string]string{"a.yaml": c.text}), "a.yaml")
		sum, err := Validate(path, SkipForeign)
		if sum.Objects != c.objects || sum.Skipped != c.skipped || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v", name, sum, err)
		}
		if sum, err := Validate(path); err == nil || sum.Skipped != 0 {
			t.Errorf("%s: without the option: %+v, %v", name, sum, err)
		}
	}
}

// texts are the sentences of warnings.
func texts(list []*Error) []string {
	var all []string
	for _, e := range list {
		all = append(all, e.Error())
	}
	return all
}
