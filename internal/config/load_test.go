package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

const (
	headNode = "apiVersion: lbd.dev/v1alpha1\nkind: NodeConfiguration\n"
	headVIP  = "apiVersion: lbd.dev/v1alpha1\nkind: VirtualIP\n"
	goodNode = headNode + "nodeName: m1\ngossip: {insecure: true}\n"
	goodVIP  = headVIP + "metadata: {name: a}\nspec: {addresses: [10.0.0.200], healthCheck: {tcp: {port: 80}}}\n"
)

// write makes a directory with files and returns it.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		put(t, filepath.Join(dir, name), content)
	}
	return dir
}

func put(t testing.TB, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// message renders an error with paths relative to dir.
func message(err error, dir string) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), dir+"/", "")
}

func TestLoadRefuses(t *testing.T) {
	vip := func(spec string) string {
		return goodNode + "---\n" + headVIP + "metadata: {name: a}\nspec:\n" + spec
	}
	node := func(fields string) string { return headNode + "nodeName: m1\n" + fields }
	for name, tt := range map[string]struct{ yaml, want string }{
		"design example": {vip("  addresses: [10.0.0.300]\n"), `a.yaml:10: VirtualIP "a": spec.addresses[0]: "10.0.0.300" is not an IP address`},
		"all at once": {node("weight: 0\ngossip:\n  port: 0\n  detection: fats\n"),
			`a.yaml:4: NodeConfiguration "m1": weight: 0 must be from 1 to 1000
a.yaml:5: NodeConfiguration "m1": gossip.keyFile: is required: write one with ` + "`lbd keygen`" + `, or set gossip.insecure: true to run without encryption
a.yaml:6: NodeConfiguration "m1": gossip.port: 0 must be from 1 to 65535
a.yaml:7: NodeConfiguration "m1": gossip.detection: "fats" must be lan, fast or wan`},
		"item lines": {vip("  addresses:\n    - 10.0.0.1\n    - ::1\n    - 10.0.0.1\n"),
			`a.yaml:12: VirtualIP "a": spec.addresses[1]: "::1" is a loopback address
a.yaml:13: VirtualIP "a": spec.addresses[2]: "10.0.0.1" is listed twice`},

		"notify": {node("gossip: {insecure: true}\nnotify:\n  - command: [a]\n    virtualIPs: [a, web, v1, Bad]\n") + "---\n" + headVIP + "metadata: {name: a}\nspec: {addresses: [10.0.0.1]}\n" +
			"---\n" + headVIP + "metadata: {name: v10}\nspec: {addresses: [10.0.0.2]}\n" +
			"---\napiVersion: lbd.dev/v1alpha1\nkind: LoadBalancer\nmetadata: {name: web}\nspec: {addresses: [10.0.0.3], ports: [{port: 80}], backends: [{address: 10.0.0.9}]}\n",
			`a.yaml:7: NodeConfiguration "m1": notify[0].virtualIPs[3]: "Bad" must be lower case letters, digits, - and ., as in a DNS name (DNS-1123)
a.yaml:7: NodeConfiguration "m1": notify[0].virtualIPs[2]: "v1" is not the name of a VirtualIP or LoadBalancer; did you mean "v10"?`},

		"misspelled":        {vip("  adresses: [10.0.0.1]\n"), `a.yaml:10: VirtualIP "a": spec.adresses: is not a known field; did you mean "addresses"?`},
		"case":              {node("gossip: {insecure: true, KeyFile: /k}\n"), `a.yaml:4: NodeConfiguration "m1": gossip.KeyFile: is not a known field; did you mean "keyFile"?`},
		"unknown":           {node("gossip: {insecure: true}\nfoo: 1\n"), `a.yaml:5: NodeConfiguration "m1": foo: is not a known field`},
		"unknown, evil key": {node("gossip: {insecure: true}\n\"foo\\nbar\\e\": 1\n"), `a.yaml:5: NodeConfiguration "m1": foo?bar?: is not a known field`},
		"twice":             {vip("  addresses: [10.0.0.1]\n  addresses: [10.0.0.2]\n"), `a.yaml:11: VirtualIP "a": spec.addresses: is given twice, first in line 10`},
		"twice in labels":   {node("gossip: {insecure: true}\nnodeLabels: {a: b, a: c}\n"), `a.yaml:5: NodeConfiguration "m1": nodeLabels.a: is given twice, first in line 5`},
		"merge":             {node("gossip: {insecure: true}\nnodeLabels: {<<: {a: b}}\n"), `a.yaml:5: NodeConfiguration "m1": nodeLabels.<<: merge keys are not supported; write the fields out`},
		"number as key":     {node("gossip: {insecure: true}\nnodeLabels: {1: b}\n"), `a.yaml:5: NodeConfiguration "m1": nodeLabels.1: is a key that is not a string; write it in quotes`},
		"number as label":   {node("gossip: {insecure: true}\nnodeLabels:\n  a: 1\n"), `a.yaml:6: NodeConfiguration "m1": nodeLabels[a]: 1 must be a string; write it in quotes`},
		"bad label":         {node("gossip: {insecure: true}\nnodeLabels:\n  a.b/c: x\n  d: -x\n"), `a.yaml:7: NodeConfiguration "m1": nodeLabels[d]: "-x" must be letters, digits, -, _ and ., at most 63, beginning and ending with a letter or digit`},
		"bad label key":     {node("gossip: {insecure: true}\nnodeLabels:\n  a: x\n  a.b//c: x\n"), `a.yaml:7: NodeConfiguration "m1": nodeLabels[a.b//c]: has a key that is not [prefix/]name, with a name of at most 63 letters, digits, -, _ and .`},
		"no value":          {vip("  addresses: [10.0.0.1]\n  healthCheck:\n"), `a.yaml:11: VirtualIP "a": spec.healthCheck: has no value; give one or remove it`},
		"list for string":   {node("gossip: {insecure: true}\nsocket: [/s]\n"), `a.yaml:5: NodeConfiguration "m1": socket: must be a string, not a list`},
		"mapping for list":  {vip("  addresses: {a: b}\n"), `a.yaml:10: VirtualIP "a": spec.addresses: must be a list, not a mapping`},
		"scalar for list":   {vip("  addresses: 10.0.0.1\n"), `a.yaml:10: VirtualIP "a": spec.addresses: "10.0.0.1" must be a list`},
		"list for mapping":  {node("gossip: []\n"), `a.yaml:4: NodeConfiguration "m1": gossip: must be a mapping, not a list`},
		"bool":              {vip("  addresses: [10.0.0.1]\n  preempt: yes\n"), `a.yaml:11: VirtualIP "a": spec.preempt: "yes" must be true or false`},
		"quoted bool":       {vip("  addresses: [10.0.0.1]\n  preempt: \"true\"\n"), `a.yaml:11: VirtualIP "a": spec.preempt: "true" must be true or false`},
		"quoted number":     {node("gossip: {insecure: true, port: \"7947\"}\n"), `a.yaml:4: NodeConfiguration "m1": gossip.port: "7947" must be a whole number`},
		"float":             {node("gossip: {insecure: true, port: 7947.5}\n"), `a.yaml:4: NodeConfiguration "m1": gossip.port: 7947.5 must be a whole number`},
		"octal":             {node("gossip: {insecure: true, port: 0123}\n"), `a.yaml:4: NodeConfiguration "m1": gossip.port: 0123 must be a whole number`},
		"huge":              {node("gossip: {insecure: true, port: 99999999999}\n"), `a.yaml:4: NodeConfiguration "m1": gossip.port: 99999999999 is too large`},
		"no unit":           {vip("  addresses: [10.0.0.1]\n  healthCheck: {tcp: {port: 80}, interval: 5}\n"), `a.yaml:11: VirtualIP "a": spec.healthCheck.interval: 5 must be a duration with a unit, such as 500ms or 30s`},
		"bad unit":          {vip("  addresses: [10.0.0.1]\n  healthCheck: {tcp: {port: 80}, interval: 5 sec}\n"), `a.yaml:11: VirtualIP "a": spec.healthCheck.interval: "5 sec" must be a duration with a unit, such as 500ms or 30s`},
		"zero interval":     {vip("  addresses: [10.0.0.1]\n  healthCheck:\n    tcp: {port: 80}\n    interval: 0s\n"), `a.yaml:13: VirtualIP "a": spec.healthCheck.interval: 0s must be from 50ms to 1h`},
		"zero fall":         {vip("  addresses: [10.0.0.1]\n  healthCheck:\n    tcp: {port: 80}\n    fall: 0\n"), `a.yaml:13: VirtualIP "a": spec.healthCheck.fall: 0 must be from 1 to 100`},
		"zero port":         {vip("  addresses: [10.0.0.1]\n  healthCheck:\n    tcp:\n      port: 0\n"), `a.yaml:13: VirtualIP "a": spec.healthCheck.tcp.port: is required: from 1 to 65535`},
		"missing port":      {vip("  addresses: [10.0.0.1]\n  healthCheck:\n    tcp: {}\n"), `a.yaml:12: VirtualIP "a": spec.healthCheck.tcp.port: is required: from 1 to 65535`},
		"empty check":       {vip("  addresses: [10.0.0.1]\n  healthCheck: {}\n"), `a.yaml:11: VirtualIP "a": spec.healthCheck: must have one of https, http, tcp and exec`},

		"bgp":         {vip("  addresses: [10.0.0.1]\n  advertise:\n    bgp: {peers: [tor1]}\n"), `a.yaml:12: VirtualIP "a": spec.advertise.bgp.peers[0]: "tor1" is not the name of a BGPPeer`},
		"expressions": {vip("  addresses: [10.0.0.1]\n  nodeSelector: {matchExpressions: []}\n"), `a.yaml:11: VirtualIP "a": spec.nodeSelector.matchExpressions: is not supported by this version; use matchLabels`},
		"kubeconfig":  {node("gossip: {insecure: true}\nkubernetes: {kubeconfig: x}\n"), `a.yaml:5: NodeConfiguration "m1": kubernetes.kubeconfig: "x" must be an absolute path`},
		"class":       {node("gossip: {insecure: true}\nkubernetes: {loadBalancerClass: a/b/c}\n"), `a.yaml:5: NodeConfiguration "m1": kubernetes.loadBalancerClass: "a/b/c" must be [prefix/]name, with a name of at most 63 letters, digits, -, _ and .`},
		"selector":    {node("gossip: {insecure: true}\nkubernetes:\n  peerSelector: {matchExpressions: [{key: a, operator: Is}]}\n"), `a.yaml:6: NodeConfiguration "m1": kubernetes.peerSelector.matchExpressions[0].operator: "Is" must be In, NotIn, Exists or DoesNotExist`},
		"later kind":  {goodNode + "---\napiVersion: lbd.dev/v1alpha1\nkind: MachineLoadBalancer\nspec: {x: 1}\n", `a.yaml:7: document 2: kind: "MachineLoadBalancer" is not for files: it lives in the management cluster, whose API server checks it; use kubectl apply`},
		"near kind":   {goodNode + "---\napiVersion: lbd.dev/v1alpha1\nkind: VirtualIp\n", `a.yaml:7: document 2: kind: "VirtualIp" is not a known kind; did you mean "VirtualIP"?`},
		"other kind":  {goodNode + "---\nkind: Pod\n", `a.yaml:6: document 2: kind: "Pod" is not a known kind; known are NodeConfiguration, VirtualIP, LoadBalancer, BGPPeer, BGPListener, BFDProfile, Community, IPAddressPool, L2Advertisement and BGPAdvertisement`},
		"other group": {goodNode + "---\napiVersion: metallb.io/v1beta1\nkind: IPAddressPool\n", `a.yaml:6: document 2: apiVersion: "metallb.io/v1beta1" is not of lbd, which reads lbd.dev/v1alpha1; ` + "`lbd convert metallb`" + ` turns objects of MetalLB into such`},
		"core group":  {goodNode + "---\napiVersion: v1\nkind: VirtualIP\nspec: {x: 1}\n", `a.yaml:6: document 2: apiVersion: "v1" is not of lbd, which reads lbd.dev/v1alpha1`},
		"no kind":     {goodNode + "---\nfoo: bar\n", `a.yaml:6: document 2: kind: is required: NodeConfiguration, VirtualIP, LoadBalancer, BGPPeer, BGPListener, BFDProfile, Community, IPAddressPool, L2Advertisement or BGPAdvertisement`},
		"no version":  {goodNode + "---\nkind: VirtualIP\nmetadata: {name: a}\nspec: {addresses: [10.0.0.1]}\n", `a.yaml:6: VirtualIP "a": apiVersion: is required: lbd.dev/v1alpha1`},
		"version":     {goodNode + "---\napiVersion: lbd.dev/v1\nkind: VirtualIP\nmetadata: {name: a}\nspec: {addresses: [10.0.0.1]}\n", `a.yaml:6: VirtualIP "a": apiVersion: "lbd.dev/v1" must be lbd.dev/v1alpha1`},
		"no name":     {goodNode + "---\n" + headVIP + "spec: {addresses: [10.0.0.1]}\n", `a.yaml:6: VirtualIP (document 2): metadata.name: is required`},
		"a list":      {goodNode + "---\n- a\n", `a.yaml:6: document 2: must be a mapping with apiVersion and kind`},
		"a word":      {"hello\n", `a.yaml:1: document 1: must be a mapping with apiVersion and kind`},

		"two nodes":              {goodNode + "---\n" + goodNode, `a.yaml:7: NodeConfiguration "m1": kind: "NodeConfiguration" is allowed once for each node; the first is in a.yaml:1`},
		"same name":              {goodNode + "---\n" + goodVIP + "---\n" + headVIP + "metadata:\n  name: a\nspec: {addresses: [10.0.0.201]}\n", `a.yaml:14: VirtualIP "a": metadata.name: "a" is the name of another VirtualIP (a.yaml:6)`},
		"same address":           {goodNode + "---\n" + goodVIP + "---\n" + headVIP + "metadata: {name: b}\nspec: {addresses: [10.0.0.201, 10.0.0.200]}\n", `a.yaml:14: VirtualIP "b": spec.addresses[1]: "10.0.0.200" is also an address of VirtualIP "a" (a.yaml:6)`},
		"VIP is a peer":          {node("gossip:\n  insecure: true\n  peers: [10.0.0.300, '10.0.0.200:1']\n---\n" + goodVIP), `a.yaml:6: NodeConfiguration "m1": gossip.peers[0]: "10.0.0.300" is neither an IP address nor a host name, with an optional port` + "\n" + `a.yaml:11: VirtualIP "a": spec.addresses[0]: "10.0.0.200" is the address of a node: gossip.peers[1] of NodeConfiguration "m1" (a.yaml:6)`},
		"VIP is self":            {node("gossip:\n  insecure: true\n  bindAddress: 10.0.0.200\n---\n" + goodVIP), `a.yaml:11: VirtualIP "a": spec.addresses[0]: "10.0.0.200" is the address of a node: gossip.bindAddress of NodeConfiguration "m1" (a.yaml:6)`},
		"balanced without rings": {strings.Replace(vip("  addresses: [10.0.0.1]\n  advertise: {l2: {mode: balanced}}\n"), "kind: NodeConfiguration\n", "kind: NodeConfiguration\nconnections: reset\n", 1), `a.yaml:12: VirtualIP "a": spec.advertise.l2.mode: "balanced" needs connections: keep in NodeConfiguration "m1" (a.yaml:1)`},
		"quorum of none":         {vip("  addresses: [10.0.0.1]\n  partition: quorum\n"), `a.yaml:11: VirtualIP "a": spec.partition: "quorum" needs gossip.peers in NodeConfiguration "m1" (a.yaml:1)`},

		"syntax":          {goodNode + "---\na: b: c\n", `a.yaml:6: is not valid YAML: mapping values are not allowed in this context`},
		"syntax and more": {headNode + "nodeName: M1\ngossip: {insecure: true}\n---\n{\n", "a.yaml:3: NodeConfiguration \"M1\": nodeName: \"M1\" must be lower case letters, digits, - and ., as in a DNS name (DNS-1123)\na.yaml:6: is not valid YAML: did not find expected node content"},
		"tab":             {goodNode + "---\na:\n\tb: c\n", `a.yaml:7: is not valid YAML: found character that cannot start any token (a tab cannot indent; use blanks)`},
		"control":         {"a: \x01\n", `a.yaml: is not valid YAML: control characters are not allowed`},
		"unknown anchor":  {"a: *x\n", `a.yaml: is not valid YAML: unknown anchor 'x' referenced`},
		"no node":         {goodVIP, "DIR: has no NodeConfiguration; add a document that begins with `apiVersion: lbd.dev/v1alpha1` and `kind: NodeConfiguration`; `lbd manifest config` prints one"},
		"empty":           {"# nothing\n---\n---\n", "DIR: has no NodeConfiguration; add a document that begins with `apiVersion: lbd.dev/v1alpha1` and `kind: NodeConfiguration`; `lbd manifest config` prints one"},
		"key file":        {node("gossip:\n  keyFile: /nonexistent/key\n"), `/nonexistent/key: no such file or directory (gossip.keyFile of NodeConfiguration "m1", a.yaml:5)`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"a.yaml": tt.yaml})
			cfg, err := Load(dir)
			want := strings.ReplaceAll(tt.want, "DIR", dir)
			if got := message(err, dir); got != want || cfg != nil {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestLoadManyFiles(t *testing.T) {
	dir := write(t, map[string]string{
		"b.yaml": goodNode, "a.yml": goodVIP, "c.yaml": headVIP + "metadata: {name: b}\nspec: {addresses: [10.0.0.200]}\n",
		"d.txt": "{", ".e.yaml": "{", "f.yaml~": "{",
	})
	_, err := Load(dir)
	if got, want := message(err, dir), `c.yaml:4: VirtualIP "b": spec.addresses[0]: "10.0.0.200" is also an address of VirtualIP "a" (a.yml:1)`; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	put(t, filepath.Join(dir, "c.yaml"), "")
	if _, err := Load(dir); err != nil {
		t.Fatal(err)
	}
	// Each error is a value that programs can look into.
	put(t, filepath.Join(dir, "c.yaml"), headVIP+"metadata: {name: b}\nspec: {addresses: [10.0.0.300]}\n")
	_, err = Load(dir)
	e, ok := errors.AsType[*Error](err)
	if want := (Error{File: filepath.Join(dir, "c.yaml"), Line: 4, Column: 20, Object: `VirtualIP "b"`, Field: v1alpha1.FieldError{
		Path: "spec.addresses[0]", Value: "10.0.0.300", Rule: "is not an IP address"}}); !ok || *e != want {
		t.Errorf("got %#v, want %#v", e, want)
	}
}

func TestLoadOddFiles(t *testing.T) {
	dir := t.TempDir()
	check := func(path, want string) {
		t.Helper()
		start := time.Now()
		if _, err := Load(path); message(err, dir) != want {
			t.Errorf("got  %s\nwant %s", message(err, dir), want)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%s: took %v", path, d)
		}
	}
	check(filepath.Join(dir, "none"), "none: no such file or directory")
	check(dir, dir+": is a directory without a *.yaml file; `lbd manifest config` prints one")
	if err := os.Mkdir(filepath.Join(dir, "a.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "b.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "c.yaml")); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "d.yaml"), strings.Repeat("#", maxFile+1))
	check(dir, "a.yaml: is not a regular file\nb.yaml: is not a regular file\nc.yaml: no such file or directory\nd.yaml: is larger than 1024 KiB")
	put(t, filepath.Join(dir, "e"), goodNode)
	check(filepath.Join(dir, "e"), "")
	if os.Geteuid() != 0 {
		if err := os.Chmod(filepath.Join(dir, "e"), 0); err != nil {
			t.Fatal(err)
		}
		check(filepath.Join(dir, "e"), "e: permission denied")
	}
}

func TestLoadBoundsAliases(t *testing.T) {
	// A billion laughs: without the bound 10 * 9 * 2000 values.
	spec := "  addresses: &a [" + strings.Repeat("10.0.0.1,", 2000) + "]\n"
	for i := range 30 {
		spec += fmt.Sprintf("---\n%smetadata: {name: v%d}\nspec: {addresses: [10.0.1.%d]}\n", headVIP, i, i)
	}
	dir := write(t, map[string]string{"a.yaml": headVIP + "metadata: {name: a}\nspec:\n" + spec + "---\n" +
		headNode + "nodeName: m1\ngossip: {insecure: true, peers: &p [" + strings.Repeat("h,", 10001) + "]}\nnodeLabels: *p\n"})
	_, err := Load(dir)
	if err == nil {
		t.Fatal("accepted")
	}
	dir = write(t, map[string]string{"a.yaml": headNode + "nodeName: &n m1\ngossip: &g\n  insecure: true\n  label: *n\n"})
	cfg, err := Load(dir)
	if err != nil || cfg.Node.Gossip.Label != "m1" {
		t.Errorf("a harmless alias: %v", err)
	}
	dir = write(t, map[string]string{"a.yaml": headVIP + "metadata: {name: a}\nspec:\n  addresses: &a [*a]\n"})
	if _, err = Load(dir); err == nil {
		t.Error("an alias to itself is accepted")
	}
	var b strings.Builder
	b.WriteString(headVIP + "metadata: {name: a, annotations: {a: &a x}}\nspec:\n  addresses: [")
	b.WriteString(strings.Repeat("*a,", maxAliased+5) + "]\n")
	dir = write(t, map[string]string{"a.yaml": b.String()})
	if _, err = Load(dir); err == nil || !strings.Contains(err.Error(), "is reached through too many aliases") {
		t.Error("too many aliases are accepted")
	}
}

func TestLoadGood(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	put(t, key, "# ring\n"+NewKey()+"\n\n"+NewKey()+"\n")
	put(t, filepath.Join(dir, "a.yaml"), headNode+`nodeName: m1
nodeLabels: {zone: a}
weight: 7
gossip:
  bindAddress: 10.0.0.11
  peers: [10.0.0.11, "10.0.0.12:1", fd00::3, "[fd00::4]:2", n5, n6:3]
  keyFile: `+key+`
  label: prod
  detection: fast
http: {address: "off"}
drain: {timeout: 1m}
log: {level: warn, format: json}
---
`+headVIP+`metadata: {name: cp}
spec:
  addresses: ["fd00::200", 10.0.0.200]
  healthCheck: {https: {port: 6443}}
  advertise: {l2: {interfaces: [eth1, eth0]}}
  nodeSelector: {matchLabels: {zone: a}}
  preempt: true
  partition: quorum
---
`+headVIP+"metadata: {name: plain}\nspec: {addresses: [10.0.0.100]}\n")
	cfg, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := cfg.Node
	if len(n.Gossip.Keys) != 2 || len(n.Gossip.Keys[0]) != 32 {
		t.Errorf("keys: %d", len(n.Gossip.Keys))
	}
	n.Gossip.Keys = nil
	addr := netip.MustParseAddr
	want := Node{
		Name: "m1", Labels: map[string]string{"zone": "a"}, Weight: 7, Socket: "/run/lbd/lbd.sock",
		DrainTimeout: time.Minute, ServiceConnections: model.ServicesAuto, LogLevel: slog.LevelWarn, LogFormat: v1alpha1.LogJSON,
		Gossip: Gossip{
			BindAddress: addr("10.0.0.11"), Port: 7947, KeyFile: key, Label: "prod", Detection: v1alpha1.DetectionFast,
			Peers: []Peer{
				{"10.0.0.11", addr("10.0.0.11"), 7947}, {"10.0.0.12", addr("10.0.0.12"), 1},
				{"fd00::3", addr("fd00::3"), 7947}, {"fd00::4", addr("fd00::4"), 2},
				{"n5", netip.Addr{}, 7947}, {"n6", netip.Addr{}, 3},
			},
		},
	}
	if !reflect.DeepEqual(n, want) {
		t.Errorf("node:\ngot  %+v\nwant %+v", n, want)
	}
	if got := fmt.Sprint(n.Gossip.Peers); got != "[10.0.0.11:7947 10.0.0.12:1 [fd00::3]:7947 [fd00::4]:2 n5:7947 n6:3]" {
		t.Errorf("peers: %s", got)
	}
	cp := model.VIP{
		Addr: addr("10.0.0.200"), Name: "cp", Kind: "VirtualIP", L2: true, Interfaces: []string{"eth1", "eth0"},
		NodeSelector: map[string]string{"zone": "a"}, Preempt: true, Partition: model.PartitionQuorum, Check: "cp",
	}
	cp6 := cp
	cp6.Addr = addr("fd00::200")
	plain := model.VIP{Addr: addr("10.0.0.100"), Name: "plain", Kind: "VirtualIP", L2: true}
	if want := []model.VIP{plain, cp, cp6}; !reflect.DeepEqual(cfg.VIPs, want) {
		t.Errorf("VIPs:\ngot  %+v\nwant %+v", cfg.VIPs, want)
	}
	if len(cfg.Checks) != 1 || cfg.Checks["cp"].HTTPS.ServerName != "kubernetes" || cfg.Checks["cp"].Timeout.Duration != 400*time.Millisecond {
		t.Errorf("checks: %+v", cfg.Checks)
	}
	if want := `a.yaml:30: VirtualIP "plain": spec.healthCheck: there is none: every node counts as healthy, and has the address even while nothing listens on it`; len(cfg.Warnings) != 1 || !strings.HasSuffix(cfg.Warnings[0], want) {
		t.Errorf("warnings: %q", cfg.Warnings)
	}
}

func TestLoadWarns(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	put(t, key, NewKey()+"\n")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "a.yaml"), headNode+"nodeName: m1\ngossip: {keyFile: "+key+"}\nhttp: {address: ':80', pprof: true}\nmachines: {hookTimeout: 90s}\n")
	put(t, filepath.Join(dir, "b.yaml"), headVIP+"metadata: {name: a}\nspec:\n  addresses: [10.0.0.1]\n  healthCheck: {https: {port: 1, insecureSkipVerify: true}}\n")
	cfg, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(strings.Join(cfg.Warnings, "\n"), dir+"/", "")
	if want := `a.yaml:5: NodeConfiguration "m1": http.pprof: other hosts can profile and slow down this daemon
a.yaml:6: NodeConfiguration "m1": machines.hookTimeout: has no effect: spec.drain.timeout of a MachineLoadBalancer and --hook-timeout of its controller bound a hold
b.yaml:6: VirtualIP "a": spec.healthCheck.https.insecureSkipVerify: any server that listens on the port passes the check
key: every user of this host can use the key (mode 0644); chmod 600, owned by the user that lbd runs as`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	dir = write(t, map[string]string{"a.yaml": goodNode})
	if cfg, err = Load(dir); err != nil || len(cfg.Warnings) != 2 ||
		!strings.Contains(cfg.Warnings[0], "gossip.insecure: anybody on the network") || !strings.Contains(cfg.Warnings[1], "has no VirtualIP") {
		t.Errorf("%v %q", err, cfg.Warnings)
	}
	for _, from := range []string{"kubernetes: {}", "machines: {kubeconfig: /nonexistent}"} {
		dir = write(t, map[string]string{"a.yaml": goodNode + from + "\n"})
		if cfg, err = Load(dir); err != nil {
			t.Errorf("%s: %v", from, err)
		} else if strings.Contains(strings.Join(cfg.Warnings, ""), "has no VirtualIP") {
			t.Errorf("%s, which brings addresses: %q", from, cfg.Warnings)
		}
	}
}

func TestHostNameStandsIn(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": headNode + "gossip: {insecure: true}\n"})
	l := loader{path: dir, hostName: "node-7.example.net"}
	if cfg, err := l.load(); err != nil || cfg.Node.Name != "node-7.example.net" {
		t.Errorf("%v", err)
	}
	l.hostName = "my_host"
	_, err := l.load()
	if got, want := message(err, dir), `a.yaml:1: NodeConfiguration (document 1): nodeName: "my_host" must be lower case letters, digits, - and ., as in a DNS name (DNS-1123); it is the name of this host, or that of LBD_NODE_NAME, so give nodeName`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestEnvironmentNamesNode: a DaemonSet gives the name of the Node; files that
// have one win.
func TestEnvironmentNamesNode(t *testing.T) {
	t.Setenv(NodeNameVariable, "worker-3")
	for file, want := range map[string]model.NodeName{
		headNode + "gossip: {insecure: true}\n": "worker-3",
		goodNode:                                "m1",
	} {
		cfg, err := Load(write(t, map[string]string{"a.yaml": file}))
		if err != nil || cfg.Node.Name != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	t.Setenv(NodeNameVariable, "Worker_3")
	if _, err := Load(write(t, map[string]string{"a.yaml": headNode + "gossip: {insecure: true}\n"})); err == nil ||
		!strings.Contains(err.Error(), "LBD_NODE_NAME") {
		t.Errorf("a name that no Node has: %v", err)
	}
}

func TestValidate(t *testing.T) {
	// On a workstation neither the key nor the node's own file need exist.
	dir := write(t, map[string]string{"a.yaml": goodVIP, "b.yaml": headNode + "gossip: {keyFile: /nonexistent/key}\n"})
	sum, err := Validate(dir)
	if err != nil || sum.Objects != 2 || len(sum.Warnings) != 1 || sum.Warnings[0].Error() != "/nonexistent/key: does not exist on this machine" {
		t.Errorf("%v %+v", err, sum)
	}
	if sum, err = Validate(filepath.Join(dir, "a.yaml")); err != nil || sum.Objects != 1 || len(sum.Warnings) != 0 {
		t.Errorf("%v %+v", err, sum)
	}
	put(t, filepath.Join(dir, "a.yaml"), "kind: x")
	if _, err = Validate(dir); err == nil {
		t.Error("a bad file is valid")
	}
}
