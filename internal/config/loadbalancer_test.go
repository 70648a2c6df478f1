package config

import (
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// goodBalancer begins in line 6 of a file after goodNode.
const goodBalancer = `apiVersion: lbd.dev/v1alpha1
kind: LoadBalancer
metadata: {name: api}
spec:
  addresses: [10.0.0.200, "fd00::200"]
  ports:
    - {port: 443, targetPort: 6443}
    - {port: 53, protocol: UDP}
  backends:
    - {address: 10.0.0.11}
    - {address: "fd00::11", weight: 0}
  healthCheck:
    tcp: {port: 6443}
`

// TestLoadBalancerRules: each rule names the line, the value and what to do.
func TestLoadBalancerRules(t *testing.T) {
	const title = `LoadBalancer "api": spec.`
	for name, tt := range map[string]struct{ old, new, want string }{
		"no ports":       {"    - {port: 443, targetPort: 6443}\n    - {port: 53, protocol: UDP}\n", "    []\n", `a.yaml:11: ` + title + `ports: must have at least one port`},
		"no port":        {"{port: 443, targetPort: 6443}", "{targetPort: 6443}", `a.yaml:12: ` + title + `ports[0].port: is required: from 1 to 65535`},
		"high port":      {"port: 443", "port: 65536", `a.yaml:12: ` + title + `ports[0].port: 65536 must be from 1 to 65535`},
		"target port":    {"targetPort: 6443", "targetPort: 0", `a.yaml:12: ` + title + `ports[0].targetPort: 0 must be from 1 to 65535`},
		"port twice":     {"{port: 53, protocol: UDP}", "{port: 443}", `a.yaml:13: ` + title + `ports[1].port: 443 is listed twice with the protocol TCP`},
		"protocol":       {"protocol: UDP", "protocol: SCTP", `a.yaml:13: ` + title + `ports[1].protocol: "SCTP" must be TCP or UDP`},
		"no backends":    {"    - {address: 10.0.0.11}\n    - {address: \"fd00::11\", weight: 0}\n", "    []\n", `a.yaml:14: ` + title + `backends: must have at least one backend`},
		"nodes":          {"  backends:", "  backendNodes: {}\n  backends:", `a.yaml:14: ` + title + "backendNodes: selects Nodes of a cluster, which `lbd run` does not know from files; list spec.backends, or create the object in the cluster"},
		"backend twice":  {`{address: "fd00::11", weight: 0}`, `{address: 10.0.0.11}` + "\n    - {address: \"fd00::11\"}", `a.yaml:16: ` + title + `backends[1].address: "10.0.0.11" is listed twice`},
		"backend is VIP": {"address: 10.0.0.11", "address: 10.0.0.200", `a.yaml:10: ` + title + `addresses[0]: "10.0.0.200" has no backend of its family` + "\n" + `a.yaml:15: ` + title + `backends[0].address: "10.0.0.200" is an address of this object; give the server's own address`},
		"host name":      {"address: 10.0.0.11", "address: web1", `a.yaml:10: ` + title + `addresses[0]: "10.0.0.200" has no backend of its family` + "\n" + `a.yaml:15: ` + title + `backends[0].address: "web1" is not an IP address`},
		"loopback":       {"address: 10.0.0.11", "address: 127.0.0.1", `a.yaml:10: ` + title + `addresses[0]: "10.0.0.200" has no backend of its family` + "\n" + `a.yaml:15: ` + title + `backends[0].address: "127.0.0.1" is a loopback address`},
		"family":         {`[10.0.0.200, "fd00::200"]`, `[10.0.0.200]`, `a.yaml:16: ` + title + `backends[1].address: "fd00::11" is of another family than the addresses of this object`},
		"only one":       {`    - {address: "fd00::11", weight: 0}` + "\n", "", `a.yaml:10: ` + title + `addresses[1]: "fd00::200" has no backend of its family`},
		"weight":         {"weight: 0", "weight: 101", `a.yaml:16: ` + title + `backends[1].weight: 101 must be from 0 to 100`},
		"backend port":   {"address: 10.0.0.11", "address: 10.0.0.11, port: 70000", `a.yaml:15: ` + title + `backends[0].port: 70000 must be from 1 to 65535`},
		"program":        {"tcp: {port: 6443}", "exec: {command: [/bin/true]}", `a.yaml:18: ` + title + `healthCheck.exec: is not for a LoadBalancer, which asks each backend by the network`},
		"host":           {"tcp: {port: 6443}", "tcp: {port: 6443, host: 10.0.0.1}", `a.yaml:18: ` + title + `healthCheck.tcp.host: "10.0.0.1" is not for a LoadBalancer, which asks each backend at its own address`},
		"check port":     {"tcp: {port: 6443}", "tcp: {}", `a.yaml:18: ` + title + `healthCheck.tcp.port: is required: from 1 to 65535`},
		"check pace":     {"tcp: {port: 6443}", "tcp: {port: 6443}\n    interval: 0s", `a.yaml:19: ` + title + `healthCheck.interval: 0s must be from 50ms to 1h`},
		"no check":       {"tcp: {port: 6443}", "fall: 3", `a.yaml:17: ` + title + `healthCheck: must have one of https, http, tcp and exec`},
		"affinity":       {"  backends:", "  affinity: cookie\n  backends:", `a.yaml:14: ` + title + `affinity: "cookie" must be connection or client`},
		"on failure":     {"  backends:", "  onFailure: wait\n  backends:", `a.yaml:14: ` + title + `onFailure: "wait" must be reset or keep`},
		"drain timeout":  {"  backends:", "  drainTimeout: 2h\n  backends:", `a.yaml:14: ` + title + `drainTimeout: 2h must be from 0s to 1h`},
		"source address": {"  backends:", "  allowedSources: [10.0.0.1]\n  backends:", `a.yaml:14: ` + title + `allowedSources[0]: "10.0.0.1" is not a prefix; write 10.0.0.1/32`},
		"source bits":    {"  backends:", "  allowedSources: [10.0.0.1/8]\n  backends:", `a.yaml:14: ` + title + `allowedSources[0]: "10.0.0.1/8" has bits behind its length; write 10.0.0.0/8`},
		"source twice":   {"  backends:", "  allowedSources: [10.0.0.0/8, 10.0.0.0/8]\n  backends:", `a.yaml:14: ` + title + `allowedSources[1]: "10.0.0.0/8" is listed twice`},
		"BGP":            {"  backends:", "  advertise: {bgp: {}}\n  backends:", `a.yaml:14: ` + title + `advertise.bgp: needs l2 beside it: the balancer that owns the addresses there is the one that advertises them`},
		"unknown peer":   {"  backends:", "  advertise: {l2: {}, bgp: {peers: [tor]}}\n  backends:", `a.yaml:14: ` + title + `advertise.bgp.peers[0]: "tor" is not the name of a BGPPeer`},
		"balanced":       {"  backends:", "  advertise: {l2: {mode: balanced}}\n  backends:", `a.yaml:14: ` + title + `advertise.l2.mode: "balanced" is not for connections that are forwarded: write active-backup`},
		"quorum":         {"  backends:", "  partition: quorum\n  backends:", `a.yaml:14: ` + title + `partition: "quorum" needs gossip.peers in NodeConfiguration "m1" (a.yaml:1)`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(goodBalancer, tt.old, tt.new, 1)
			if text == goodBalancer {
				t.Fatal("nothing is replaced")
			}
			dir := write(t, map[string]string{"a.yaml": goodNode + "---\n" + text})
			_, err := Load(dir)
			if got := message(err, dir); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// TestLoadBalancerBesideOthers: an address belongs to one object, and a backend has one of its
// own.
func TestLoadBalancerBesideOthers(t *testing.T) {
	second := strings.NewReplacer("name: api", "name: web", "10.0.0.200", "10.0.0.11", "fd00::200", "fd00::201", "10.0.0.11", "10.0.0.12").Replace(goodBalancer)
	dir := write(t, map[string]string{"a.yaml": goodNode + "---\n" + goodBalancer + "---\n" + goodVIP + "---\n" + second})
	_, err := Load(dir)
	want := `a.yaml:10: LoadBalancer "api": spec.addresses[0]: "10.0.0.200" is also an address of VirtualIP "a" (a.yaml:20)
a.yaml:15: LoadBalancer "api": spec.backends[0].address: "10.0.0.11" is an address of LoadBalancer "web" (a.yaml:25); give the server's own address`
	if got := message(err, dir); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestLoadBalancerInUse: it is in the View, with its VIPs and a check for each backend, and a
// change of a backend is a change.
func TestLoadBalancerInUse(t *testing.T) {
	load := func(text string) *Config {
		t.Helper()
		cfg, err := Load(write(t, map[string]string{"a.yaml": goodNode + "---\n" + text}))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg := load(goodBalancer)
	var v model.View
	cfg.into(&v)
	if len(v.LoadBalancers) != 1 || len(v.VIPs) != 2 || !v.VIPs[0].Forwarded() || len(cfg.Checks) != 2 || cfg.Checks["api/10.0.0.11"].TCP.Host != "10.0.0.11" {
		t.Errorf("%+v\n%+v\n%+v", v.LoadBalancers, v.VIPs, cfg.Checks)
	}
	if again := load(goodBalancer); !again.sameFacts(cfg) || !again.equal(cfg) {
		t.Error("the same configuration differs")
	}
	if other := load(strings.Replace(goodBalancer, "weight: 0", "weight: 1", 1)); other.sameFacts(cfg) || len(other.Warnings) != 1 /* of the key */ {
		t.Errorf("another weight is no change, or warned about: %q", other.Warnings)
	}
	nodes := v1alpha1.LoadBalancerSpec{BackendNodes: &v1alpha1.LabelSelector{}, HealthCheck: &v1alpha1.HealthCheck{TCP: &v1alpha1.TCPCheck{Port: 443}}}
	warnBalancer(&nodes, newNamed(nil, true), func(path, text string) { t.Errorf("Nodes as backends are warned about: %s: %s", path, text) })
	for text, want := range map[string]string{
		strings.Split(goodBalancer, "  healthCheck:")[0]:                                                    "every backend counts as healthy",
		strings.Replace(goodBalancer, "{address: 10.0.0.11}", "{address: 10.0.0.11, weight: 0}", 1):         "all have the weight 0",
		strings.Replace(goodBalancer, "tcp: {port: 6443}", "https: {port: 1, insecureSkipVerify: true}", 1): "any server that listens",
	} {
		if w := strings.Join(load(text).Warnings, "\n"); !strings.Contains(w, want) {
			t.Errorf("%q is not warned about: %q", want, w)
		}
	}
}

// TestLoadBalancerByBGP: routers are told of each address, with what a Community is called.
func TestLoadBalancerByBGP(t *testing.T) {
	const objects = `---
apiVersion: lbd.dev/v1alpha1
kind: Community
metadata: {name: names}
spec: {communities: [{name: customers, value: "64512:7"}]}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: tor1}
spec: {myASN: 64512, peerASN: 64513, peerAddress: 10.0.0.1}
`
	text := goodNode + "---\n" + goodBalancer + "  advertise: {l2: {}, bgp: {communities: [customers]}}\n"
	cfg, err := Load(write(t, map[string]string{"a.yaml": text + objects}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range cfg.VIPs {
		if v := &cfg.VIPs[i]; !v.FollowsOwner() || len(v.BGP[0].Communities) != 1 {
			t.Errorf("%+v", v)
		}
	}
	cfg, err = Load(write(t, map[string]string{"a.yaml": text[:strings.Index(text, ", bgp")] + ", bgp: {}}\n"}))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(cfg.Warnings, func(s string) bool { return strings.Contains(s, "there is no BGPPeer to advertise to") }) {
		t.Errorf("without a router the warnings are %q", cfg.Warnings)
	}
	dir := write(t, map[string]string{"a.yaml": text + strings.Replace(objects, "peerASN", "families: [ipv4], peerASN", 1)})
	_, err = Load(dir)
	want := `a.yaml:10: LoadBalancer "api": spec.addresses[1]: "fd00::200" cannot be advertised: none of its BGP peers has the family ipv6 in spec.families`
	if got := message(err, dir); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
