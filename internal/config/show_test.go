package config

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestShowHidesSecrets wherever they stand in a file, and shows what surrounds them.
func TestShowHidesSecrets(t *testing.T) {
	const peer = "apiVersion: lbd.dev/v1alpha1\nkind: BGPPeer\nmetadata: {name: tor1}\n"
	for name, text := range map[string]string{
		"a password":                peer + "spec: {password: 5ecret0, peerASN: 64513}\n",
		"of several lines":          peer + "spec:\n  peerASN: 64513\n  password: |\n    a\n    5ecret0\n    b\n",
		"misspelt":                  peer + "spec:\n  passwrd: 5ecret0\n  peerASN: 64513\n",
		"in a collection":           peer + "spec: {passwrd: [a,\n [b, 5ecret0]], peerASN: 64513}\n",
		"another type":              peer + "spec: {password: {a: 5ecret0}, peerASN: 64513}\n",
		"in a comment":              peer + "spec:\n  # it was 5ecret0\n  peerASN: 64513 # 5ecret0\n# 5ecret0\n",
		"as a comment":              peer + "spec:\n  peerASN: 64513\n  password: #5ecret0\n",
		"as an anchor":              peer + "spec:\n  peerASN: 64513\n  password: &5ecret0\n",
		"as a tag":                  peer + "spec:\n  peerASN: 64513\n  password: !5ecret0\n",
		"by an alias":               peer + "spec:\n  peerASN: 64513\n  interface: &x 5ecret0\n  password: *x\n",
		"as the anchor of an alias": peer + "spec:\n  peerASN: 64513\n  interface: &5ecret0 a\n  password: *5ecret0\n",
		"with an alias elsewhere":   peer + "spec:\n  peerASN: 64513\n  password: &x 5ecret0\n  interface: *x\n",
		"a key that is no word":     peer + "spec:\n  peerASN: 64513\n  ? {a: 5ecret0}\n  : b\n",
		"given twice":               peer + "spec:\n  peerASN: 64513\n  password: 5ecret0\n  password: 5ecret0\n",
		"merged":                    peer + "spec: {<<: {password: 5ecret0}, peerASN: 64513}\n",
		"an annotation":             peer[:len(peer)-2] + ", annotations: {last: 5ecret0}}\nspec: {peerASN: 64513}\n",
		"an argument":               headVIP + "metadata: {name: tor1}\nspec: {addresses: [10.0.0.1], healthCheck: {exec: {command: [/bin/64513, -H, 5ecret0]}}}\n",
		"a command of one word":     headVIP + "metadata: {name: tor1}\nspec: {addresses: [10.0.0.1, 64513], healthCheck: {exec: {command: curl 5ecret0}}}\n",
		"an argument by an alias":   headVIP + "metadata: {name: tor1, labels: {a: '64513'}}\nspec: {nodeSelector: &x [curl, 5ecret0], healthCheck: {exec: {command: *x}}}\n",
		"of another kind":           "apiVersion: lbd.dev/v1alpha1\nkind: BGPPer # tor1 64513\nspec: {password: 5ecret0}\n---\n" + peer + "spec: {peerASN: 64513}\n",
		"of Kubernetes":             "apiVersion: v1\nkind: Secret\ndata: {a: 5ecret0}\n---\n" + peer + "spec: {peerASN: 64513}\n",
		"beside the items of a List": "apiVersion: v1\nkind: List\nmetadata: {a: 5ecret0}\nitems:\n- {apiVersion: lbd.dev/v1alpha1, kind: BGPPeer, metadata: {name: tor1}, spec: {peerASN: 64513}}\n" +
			"- {apiVersion: v1, kind: Secret, data: {a: 5ecret0}}\n",
		"a list of words": "[5ecret0]\n---\n" + peer + "spec: {peerASN: 64513}\n",
	} {
		dir := write(t, map[string]string{"a.yaml": text})
		s := Show(dir)
		if len(s.Files) != 1 || s.Files[0].Err != nil || s.Files[0].Path != filepath.Join(dir, "a.yaml") {
			t.Errorf("%s: %+v", name, s)
			continue
		}
		got := s.Files[0].Text
		if strings.Contains(got, "5ecret0") || !strings.Contains(got, "tor1") || !strings.Contains(got, "64513") {
			t.Errorf("%s:\n%s", name, got)
		}
		if blanks := strings.Contains(got, Blank); blanks != (len(s.Files[0].Blanked) > 0) || !blanks && !strings.Contains(name, "in a comment") {
			t.Errorf("%s: lines %d of\n%s", name, s.Files[0].Blanked, got)
		}
	}
}

// TestShowKeepsTheRest: what holds no secret is shown as it was written, and a file that cannot
// be read to its end not at all.
func TestShowKeepsTheRest(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": Minimal(), "b.yaml": "apiVersion: v1\n5ecret0: [\n", "c.txt": "5ecret0"})
	s := Show(dir)
	if len(s.Files) != 2 {
		t.Fatalf("%+v", s)
	}
	lines := strings.Split(s.Files[0].Text, "\n")
	for line := range strings.Lines(Minimal()) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
		if line == "" || line[0] == '#' || line == "---" {
			continue
		}
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.TrimSpace(l) == strings.TrimSpace(line) }) {
			t.Errorf("%q is not in\n%s", line, s.Files[0].Text)
		}
	}
	if len(s.Files[0].Blanked) > 0 {
		t.Errorf("blanked: %d", s.Files[0].Blanked)
	}
	if b := s.Files[1]; b.Text != "" || b.Err == nil || strings.Contains(b.Err.Error(), "5ecret0") {
		t.Errorf("%+v", b)
	}
	if s := Show(filepath.Join(dir, "missing")); len(s.Files) != 1 || s.Files[0].Err == nil {
		t.Errorf("%+v", s)
	}
}

// TestShowKnowsSecrets: those of the files that the configuration names, so that they can be
// looked for elsewhere.
func TestShowKnowsSecrets(t *testing.T) {
	key := NewKey()
	dir := write(t, map[string]string{
		"gossip.key": "# old keys\n" + key + "\n" + NewKey() + "\n",
		"tor1":       "two words: and more\n",
		"kubeconfig": "users:\n- name: a\n  user:\n    token: \"abcdef.123\"\n    client-key-data: YWJj\n",
		"tls.key":    "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----\n",
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	put := write(t, map[string]string{"lbd.yaml": "apiVersion: lbd.dev/v1alpha1\nkind: NodeConfiguration\nnodeName: m7\ngossip: {keyFile: " + at("gossip.key") + "}\nkubernetes: {kubeconfig: " + at("kubeconfig") +
		"}\n---\napiVersion: lbd.dev/v1alpha1\nkind: BGPPeer\nmetadata: {name: a}\nspec: {password: hunter22}\n---\napiVersion: lbd.dev/v1alpha1\nkind: BGPPeer\nmetadata: {name: b}\nspec: {passwordFile: " + at("tor1") +
		"}\n---\n" + headVIP + "metadata: {name: a}\nspec: {addresses: [10.0.0.1], healthCheck: {https: {port: 1, keyFile: " + at("tls.key") + "}}}\n---\napiVersion: lbd.dev/v1alpha1\nkind: BFDProfile\nmetadata: {name: b}\nspec: {authKeyFile: /missing}\n"})
	s := Show(put)
	if s.Node != "m7" {
		t.Errorf("of node %q", s.Node)
	}
	if want := []string{"/missing", at("gossip.key"), at("kubeconfig"), at("tls.key"), at("tor1")}; !slices.Equal(s.SecretFiles, want) {
		t.Errorf("files %q, want %q", s.SecretFiles, want)
	}
	for _, want := range []string{key, "two words: and more", "abcdef.123", "YWJj", "MIGHAgEAMBMGByqGSM49", "hunter22"} {
		if !slices.Contains(s.Secrets, want) {
			t.Errorf("%q is not in %q", want, s.Secrets)
		}
	}
	if slices.ContainsFunc(s.Secrets, func(w string) bool { return strings.Contains(w, "name") || strings.Contains(w, "old keys") }) {
		t.Errorf("%q", s.Secrets)
	}
}
