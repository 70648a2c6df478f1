package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/resolve"
)

// goodListener begins in line 6 of a file after goodNode.
const goodListener = `apiVersion: lbd.dev/v1alpha1
kind: BGPListener
metadata: {name: masters}
spec:
  asn: 64512
  peerPrefixes: [10.9.0.0/24, "fd09::/64"]
  acceptPrefixes: [10.0.0.200/32, "fd00::200/128"]
  passwordFile: /nowhere/masters.password
`

// TestListenerRules: each rule names the line, the value and what to do.
func TestListenerRules(t *testing.T) {
	const title = `BGPListener "masters": spec.`
	const accept, peers = `acceptPrefixes: [10.0.0.200/32, "fd00::200/128"]`, `peerPrefixes: [10.9.0.0/24, "fd09::/64"]`
	more := func(field string) string { return accept + "\n  " + field }
	for name, tt := range map[string]struct{ old, new, want string }{
		"no asn":             {"  asn: 64512\n", "", `a.yaml:9: ` + title + `asn: is required: from 1 to 4294967294`},
		"asn 0":              {"asn: 64512", "asn: 0", `a.yaml:10: ` + title + `asn: is required: from 1 to 4294967294`},
		"reserved asn":       {"asn: 64512", "asn: 65535", `a.yaml:10: ` + title + `asn: 65535 is reserved (RFC 7300)`},
		"peer asn":           {accept, more("peerASN: 23456"), `a.yaml:13: ` + title + `peerASN: 23456 is AS_TRANS, which is reserved (RFC 6793)`},
		"no peers":           {peers, "peerPrefixes: []", `a.yaml:11: ` + title + `peerPrefixes: must have at least one prefix`},
		"all peers":          {peers, `peerPrefixes: [0.0.0.0/0, "::/0"]`, `a.yaml:11: ` + title + `peerPrefixes[0]: "0.0.0.0/0" is the default route` + "\n" + `a.yaml:11: ` + title + `peerPrefixes[1]: "::/0" is the default route`},
		"peers twice":        {peers, `peerPrefixes: [10.9.0.0/24, 10.9.0.128/25]`, `a.yaml:11: ` + title + `peerPrefixes[1]: "10.9.0.128/25" overlaps 10.9.0.0/24, spec.peerPrefixes[0]`},
		"link-local peers":   {peers, `peerPrefixes: ["fe80::/64"]`, `a.yaml:11: ` + title + `peerPrefixes[0]: "fe80::/64" has addresses of fe80::/10, which no host has, or which count on one link only`},
		"no prefixes":        {accept, "acceptPrefixes: []", `a.yaml:12: ` + title + `acceptPrefixes: must have at least one prefix`},
		"default route":      {accept, `acceptPrefixes: [0.0.0.0/0]`, `a.yaml:12: ` + title + `acceptPrefixes[0]: "0.0.0.0/0" is the default route`},
		"default route 6":    {accept, `acceptPrefixes: ["::/0"]`, `a.yaml:12: ` + title + `acceptPrefixes[0]: "::/0" is the default route`},
		"no length":          {accept, `acceptPrefixes: [10.0.0.200, "fd00::200"]`, `a.yaml:12: ` + title + `acceptPrefixes[0]: "10.0.0.200" has no prefix length; write 10.0.0.200/32` + "\n" + `a.yaml:12: ` + title + `acceptPrefixes[1]: "fd00::200" has no prefix length; write fd00::200/128`},
		"range":              {accept, `acceptPrefixes: [10.0.0.200/24-32]`, `a.yaml:12: ` + title + `acceptPrefixes[0]: "10.0.0.200/24-32" is not a prefix, such as 10.0.0.0/24`},
		"host bits":          {accept, `acceptPrefixes: [10.0.0.200/24]`, `a.yaml:12: ` + title + `acceptPrefixes[0]: "10.0.0.200/24" has bits behind its length; write 10.0.0.0/24`},
		"mapped":             {accept, `acceptPrefixes: ["::ffff:10.0.0.1"]`, `a.yaml:12: ` + title + `acceptPrefixes[0]: "::ffff:10.0.0.1" is an IPv4 address in IPv6 form; write 10.0.0.1/32`},
		"twice":              {accept, `acceptPrefixes: [10.0.0.200/32, 10.0.0.200/32]`, `a.yaml:12: ` + title + `acceptPrefixes[1]: "10.0.0.200/32" is listed twice`},
		"overlap":            {accept, `acceptPrefixes: [10.0.0.200/32, 10.0.0.0/24]`, `a.yaml:12: ` + title + `acceptPrefixes[1]: "10.0.0.0/24" overlaps 10.0.0.200/32, spec.acceptPrefixes[0]`},
		"loopback":           {accept, `acceptPrefixes: [127.0.0.1/32]`, `a.yaml:12: ` + title + `acceptPrefixes[0]: "127.0.0.1/32" has addresses of 127.0.0.0/8, which no host has, or which count on one link only`},
		"multicast":          {accept, `acceptPrefixes: ["ff02::1/128"]`, `a.yaml:12: ` + title + `acceptPrefixes[0]: "ff02::1/128" has addresses of ff00::/8, which no host has, or which count on one link only`},
		"several by ARP":     {accept, `acceptPrefixes: [10.1.0.0/24]`, `a.yaml:12: ` + title + `acceptPrefixes[0]: "10.1.0.0/24" holds several addresses; with upstream l2 list each as a prefix of its own with the length 32, or use upstream: bgp`},
		"holds masters":      {accept, "acceptPrefixes: [10.0.0.0/8]\n  upstream: bgp", `a.yaml:12: ` + title + `acceptPrefixes[0]: "10.0.0.0/8" holds 10.9.0.0/24, spec.peerPrefixes[0], where the masters themselves are` + "\n" + `a.yaml:13: ` + title + `upstream: "bgp" needs a BGPPeer, the router that is told of the prefixes; none is for this node`},
		"few prefixes":       {accept, `acceptPrefixes: [10.0.0.200/32, 10.0.0.201/32]` + "\n  maxPrefixes: 1", `a.yaml:13: ` + title + `maxPrefixes: 1 is less than the 2 acceptPrefixes of one family: the session of a master that advertises them all would end`},
		"no max":             {accept, more("maxPrefixes: 0"), `a.yaml:13: ` + title + `maxPrefixes: 0 must be from 1 to 10000`},
		"many":               {accept, more("maxPrefixes: 10001"), `a.yaml:13: ` + title + `maxPrefixes: 10001 must be from 1 to 10000`},
		"short hold time":    {accept, more("holdTime: 2s"), `a.yaml:13: ` + title + `holdTime: 2s must be whole seconds from 3s to 65535s (RFC 4271 section 4.2)`},
		"hold for ever":      {accept, more("holdTime: 0s"), `a.yaml:13: ` + title + `holdTime: 0s must be whole seconds from 3s to 65535s (RFC 4271 section 4.2)`},
		"profile":            {accept, more("bfdProfile: fast"), `a.yaml:13: ` + title + `bfdProfile: "fast" is not the name of a BFDProfile`},
		"profile name":       {accept, more("bfdProfile: a..b"), `a.yaml:13: ` + title + `bfdProfile: "a..b" must be lower case letters, digits, - and ., as in a DNS name (DNS-1123)`},
		"relative file":      {"/nowhere/", "", `a.yaml:13: ` + title + `passwordFile: "masters.password" must be an absolute path`},
		"empty file":         {"/nowhere/masters.password", `""`, `a.yaml:13: ` + title + `passwordFile: is empty; give it a value, or remove it to run without authentication`},
		"password":           {accept, more("password: secret"), `a.yaml:13: ` + title + `password: is not a field; put the key in a file and name it in passwordFile`},
		"Secret":             {accept, more("passwordSecret: {name: secret}"), `a.yaml:13: ` + title + `passwordSecret: is not a field: a BGPListener is for a machine outside every cluster; use passwordFile`},
		"nodes":              {accept, more("nodeSelectors: []"), `a.yaml:13: ` + title + `nodeSelectors: is not a field: a machine listens if its files have the object`},
		"seed 0":             {accept, more("hashSeed: 0"), `a.yaml:13: ` + title + `hashSeed: 0 has each machine draw a seed of its own, so that no two place a connection alike; give any other number, the same on all machines`},
		"seed":               {accept, more("hashSeed: 4294967296"), `a.yaml:13: ` + title + `hashSeed: 4294967296 is too large`},
		"upstream":           {accept, more("upstream: ospf"), `a.yaml:13: ` + title + `upstream: "ospf" must be l2 or bgp`},
		"nobody upstream":    {accept, more("upstream: bgp"), `a.yaml:13: ` + title + `upstream: "bgp" needs a BGPPeer, the router that is told of the prefixes; none is for this node`},
		"mode":               {accept, more("nextHops: {mode: random}"), `a.yaml:13: ` + title + `nextHops.mode: "random" must be resilient or multipath`},
		"no buckets":         {accept, more("nextHops: {buckets: 0}"), `a.yaml:13: ` + title + `nextHops.buckets: 0 must be from 16 to 65535`},
		"few buckets":        {accept, more("nextHops: {buckets: 15}"), `a.yaml:13: ` + title + `nextHops.buckets: 15 must be from 16 to 65535`},
		"many buckets":       {accept, more("nextHops: {buckets: 65536}"), `a.yaml:13: ` + title + `nextHops.buckets: 65536 must be from 16 to 65535`},
		"idle":               {accept, more("nextHops: {idleTimer: 0s}"), `a.yaml:13: ` + title + `nextHops.idleTimer: 0s must be from 1s to 24h`},
		"unbalanced":         {accept, more("nextHops: {unbalancedTimer: 25h}"), `a.yaml:13: ` + title + `nextHops.unbalancedTimer: 25h must be from 1s to 24h, or 0s: buckets in use never move`},
		"multipath, buckets": {accept, more("nextHops: {mode: multipath, buckets: 64}"), `a.yaml:13: ` + title + `nextHops.buckets: 64 is for the mode resilient; multipath has no table of buckets`},
		"multipath, timers": {accept, more("nextHops: {mode: multipath, idleTimer: 2m, unbalancedTimer: 0s}"),
			`a.yaml:13: ` + title + `nextHops.idleTimer: 2m is for the mode resilient; multipath has no table of buckets` + "\n" +
				`a.yaml:13: ` + title + `nextHops.unbalancedTimer: 0s is for the mode resilient; multipath has no table of buckets`},
	} {
		t.Run(name, func(t *testing.T) {
			wantRules(t, strings.Replace(goodListener, tt.old, tt.new, 1), tt.want)
		})
	}
}

// wantRules wants validate to say just this about objects beside goodNode.
func wantRules(t *testing.T, text, want string) {
	t.Helper()
	if text == goodListener {
		t.Fatal("nothing is replaced")
	}
	dir := write(t, map[string]string{"a.yaml": goodNode + "---\n" + text})
	_, err := Validate(dir)
	if got := message(err, dir); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestListenerBesideOthers: what a listener accepts belongs to nobody else, and masters are no
// peers.
func TestListenerBesideOthers(t *testing.T) {
	second := func(peers, accept, more string) string {
		return "---\napiVersion: lbd.dev/v1alpha1\nkind: BGPListener\nmetadata: {name: others}\nspec:\n  asn: 64512\n  peerPrefixes: [" + peers + "]\n  acceptPrefixes: [" + accept + "]\n" + more
	}
	const other = `BGPListener "others": `
	for name, tt := range map[string]struct{ more, want string }{
		"two":             {second("10.8.0.0/24", "10.0.0.201/32", ""), ""},
		"same masters":    {second("10.9.0.0/25", "10.0.0.201/32", ""), `a.yaml:20: ` + other + `spec.peerPrefixes[0]: "10.9.0.0/25" overlaps spec.peerPrefixes[0] of BGPListener "masters" (a.yaml:11); a master belongs to one BGPListener`},
		"same prefix":     {second("10.8.0.0/24", "10.0.0.200/32", ""), `a.yaml:21: ` + other + `spec.acceptPrefixes[0]: "10.0.0.200/32" overlaps spec.acceptPrefixes[0] of BGPListener "masters" (a.yaml:12); a prefix belongs to one BGPListener`},
		"other's masters": {second("10.8.0.0/24", "10.9.0.0/16", "  upstream: bgp\n") + peerDoc("tor", "peerAddress: 192.0.2.1"), `a.yaml:21: ` + other + `spec.acceptPrefixes[0]: "10.9.0.0/16" holds 10.9.0.0/24, which is spec.peerPrefixes[0] of BGPListener "masters" (a.yaml:11): packets for it would go to masters`},
		"seed":            {second("10.8.0.0/24", "10.0.0.201/32", "  hashSeed: 7\n"), `a.yaml:22: ` + other + `spec.hashSeed: 7 is not 445, that of BGPListener "masters" (a.yaml:6): the kernel has one seed`},
		"VirtualIP": {"---\napiVersion: lbd.dev/v1alpha1\nkind: VirtualIP\nmetadata: {name: a}\nspec:\n  addresses: [10.0.0.200]\n",
			`a.yaml:12: BGPListener "masters": spec.acceptPrefixes[0]: "10.0.0.200/32" holds 10.0.0.200, which is spec.addresses[0] of VirtualIP "a" (a.yaml:19): packets for it would go to masters`},
		"peer among masters": {peerDoc("tor", "peerAddress: 10.9.0.1"), `a.yaml:18: BGPPeer "tor": spec.peerAddress: "10.9.0.1" is in spec.peerPrefixes[0] of BGPListener "masters" (a.yaml:11), whose masters have no objects of their own; leave it out there, or remove this object`},
		"accepts the peer":   {second("10.8.0.0/24", "192.0.2.1/32", "") + peerDoc("tor", "peerAddress: 192.0.2.1"), `a.yaml:21: ` + other + `spec.acceptPrefixes[0]: "192.0.2.1/32" holds 192.0.2.1, which is spec.peerAddress of BGPPeer "tor" (a.yaml:26): packets for it would go to masters`},
		"peer of one family": {second("10.8.0.0/24", "\"fd00::201/128\"", "  upstream: bgp\n") + peerDoc("tor", "peerAddress: 192.0.2.1, families: [ipv4]"),
			`a.yaml:21: ` + other + `spec.acceptPrefixes[0]: "fd00::201/128" cannot be advertised: none of its BGP peers has the family ipv6 in spec.families`},
		"peer of others": {second("10.8.0.0/24", "10.0.0.201/32", "  upstream: bgp\n") + peerDoc("tor", "peerAddress: 192.0.2.1, nodeSelectors: [{matchLabels: {no: one}}]"),
			`a.yaml:22: ` + other + `spec.upstream: "bgp" needs a BGPPeer, the router that is told of the prefixes; none is for this node`},
	} {
		t.Run(name, func(t *testing.T) { wantRules(t, goodListener+tt.more, tt.want) })
	}
}

// TestListenerBesideNode: what a listener accepts is no address that the files give the group,
// and the machine is in no cluster.
func TestListenerBesideNode(t *testing.T) {
	const title = `BGPListener "masters": `
	for node, want := range map[string]string{
		"gossip: {insecure: true, bindAddress: 10.0.0.200}\n":              `a.yaml:12: ` + title + `spec.acceptPrefixes[0]: "10.0.0.200/32" holds 10.0.0.200, which is gossip.bindAddress of NodeConfiguration "m1" (a.yaml:4): packets for it would go to masters`,
		"gossip: {insecure: true, peers: [10.0.0.2, 'fd00::200']}\n":       `a.yaml:12: ` + title + `spec.acceptPrefixes[1]: "fd00::200/128" holds fd00::200, which is gossip.peers[1] of NodeConfiguration "m1" (a.yaml:4): packets for it would go to masters`,
		"gossip: {insecure: true}\nbgp: {listenAddresses: [10.0.0.200]}\n": `a.yaml:13: ` + title + `spec.acceptPrefixes[0]: "10.0.0.200/32" holds 10.0.0.200, which is bgp.listenAddresses[0] of NodeConfiguration "m1" (a.yaml:5): packets for it would go to masters`,
		"gossip: {insecure: true}\nkubernetes: {}\n":                       `a.yaml:8: ` + title + `kind: "BGPListener" is for a machine outside every cluster; this one has kubernetes of NodeConfiguration "m1" (a.yaml:5)`,
	} {
		dir := write(t, map[string]string{"a.yaml": headNode + "nodeName: m1\n" + node + goodListenerDoc})
		_, err := Validate(dir)
		if got := message(err, dir); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

const goodListenerDoc = "---\n" + goodListener

// TestListenerInUse: it is in the View with all that it says, and has a VIP for each prefix.
func TestListenerInUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pw")
	put(t, file, "a key\n")
	load := func(text string) *Config {
		t.Helper()
		cfg, err := Load(write(t, map[string]string{"a.yaml": goodNode + "---\n" + strings.Replace(text, "/nowhere/masters.password", file, 1)}))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	prefix := netip.MustParsePrefix
	cfg := load(goodListener)
	var v model.View
	cfg.into(&v)
	want := model.BGPListener{
		Name: "masters", LocalASN: 64512, HoldTime: 9 * time.Second, Password: "a key", MaxPrefixes: 100, HashSeed: 445,
		PeerPrefixes: []netip.Prefix{prefix("10.9.0.0/24"), prefix("fd09::/64")}, Accept: []netip.Prefix{prefix("10.0.0.200/32"), prefix("fd00::200/128")},
		Spread: model.Spread{Resilient: true, Buckets: 1024, Idle: 2 * time.Minute},
	}
	if len(v.Listeners) != 1 || !reflect.DeepEqual(v.Listeners[0], want) {
		t.Errorf("got  %+v\nwant %+v", v.Listeners, want)
	}
	if len(v.VIPs) != 2 {
		t.Fatalf("%+v", v.VIPs)
	}
	for i, p := range want.Accept {
		if x := &v.VIPs[i]; x.Addr != p.Addr() || x.Name != "masters" || !x.Learned() || !x.Unbound || !x.L2 || x.BGP != nil {
			t.Errorf("%+v", x)
		}
	}
	if len(cfg.Warnings) != 1 { // of the gossip key
		t.Errorf("%q", cfg.Warnings)
	}
	all := load(strings.Replace(goodListener, `[10.0.0.200/32, "fd00::200/128"]`, `[10.1.0.0/24, "fd01::1/128"]`, 1) +
		"  peerASN: 64999\n  holdTime: 3s\n  bfdProfile: fast\n  maxPrefixes: 7\n  hashSeed: 4294967295\n  upstream: bgp\n  nextHops: {mode: multipath}\n" +
		doc("BFDProfile", "fast", "transmitInterval: 100") + peerDoc("tor", "peerAddress: 192.0.2.1"))
	l := all.Listeners[0]
	if l.PeerASN != 64999 || l.HoldTime != 3*time.Second || l.BFD == nil || l.BFD.Transmit != 100*time.Millisecond || l.MaxPrefixes != 7 || l.HashSeed != 4294967295 || l.Spread != (model.Spread{}) {
		t.Errorf("%+v", l)
	}
	if x := &all.VIPs[0]; x.L2 || len(x.BGP) != 1 || x.BGP[0].Prefix(x.Addr) != prefix("10.1.0.0/24") {
		t.Errorf("%+v", x)
	}
	if x := &all.VIPs[1]; len(x.BGP) != 1 || x.BGP[0].Prefix(x.Addr) != prefix("fd01::1/128") {
		t.Errorf("%+v", x)
	}
	spread := load(goodListener + "  nextHops: {buckets: 65535, idleTimer: 1s, unbalancedTimer: 24h}\n").Listeners[0].Spread
	if spread != (model.Spread{Resilient: true, Buckets: 65535, Idle: time.Second, Unbalanced: 24 * time.Hour}) {
		t.Errorf("%+v", spread)
	}
	for text, want := range map[string]string{
		strings.Replace(goodListener, "  passwordFile: /nowhere/masters.password\n", "", 1): "every machine in peerPrefixes can draw connections to itself",
		goodListener + "  holdTime: 31s\n":                                                  "a master that dies is noticed only after 31s",
		strings.Replace(goodListener, `, "fd09::/64"`, "", 1):                               "no prefix of peerPrefixes is of its family",
	} {
		if w := strings.Join(load(text).Warnings, "\n"); !strings.Contains(w, want) {
			t.Errorf("%q is not warned about: %q", want, w)
		}
	}
}

// TestListenerPassword: a change of the file is a change of the listener, a bad file changes
// nothing, and no key is in the log or in what Show says.
func TestListenerPassword(t *testing.T) {
	pw, key := filepath.Join(t.TempDir(), "pw"), filepath.Join(t.TempDir(), "key")
	put(t, pw, "secret one\n")
	put(t, key, "secret a")
	text := strings.Replace(goodListener, "/nowhere/masters.password", pw, 1) + "  bfdProfile: p\n" + doc("BFDProfile", "p", "authType: keyed-sha1, authKeyFile: "+key)
	bubble(t, map[string]string{"a.yaml": goodNode, "b.yaml": text}, func(r *running) {
		r.after(time.Minute, 1, 0)
		if l := r.view.Listeners; len(l) != 1 || l[0].Password != "secret one" || l[0].BFD.AuthKey != "secret a" {
			t.Errorf("%+v", l)
		}
		put(t, pw, "secret number two\n")
		r.after(3*time.Second, 2, 1)
		put(t, key, "secret number b")
		r.after(3*time.Second, 3, 2)
		if l := r.view.Listeners; l[0].Password != "secret number two" || l[0].BFD.AuthKey != "secret number b" {
			t.Errorf("%+v", l)
		}
		put(t, pw, "two\nlines\n")
		r.after(3*time.Second, 3, 2)
		if got := r.Status().Err; !strings.HasPrefix(got, pw+": must be one line of text (spec.passwordFile of BGPListener \"masters\"") || r.view.Listeners[0].Password != "secret number two" {
			t.Errorf("%q", got)
		}
		if err := os.Remove(pw); err != nil {
			t.Fatal(err)
		}
		r.after(3*time.Second, 3, 2)
		if got := r.Status().Err; !strings.HasPrefix(got, pw+": no such file") {
			t.Errorf("%q", got)
		}
		put(t, pw, "secret three\n")
		r.after(3*time.Second, 4, 3)
		if shown := Show(r.dir); !slices.Contains(shown.SecretFiles, pw) || !slices.Contains(shown.Secrets, "secret three") {
			t.Errorf("%q %q", shown.SecretFiles, shown.Secrets)
		}
		r.put("b.yaml", strings.Replace(goodListener, "  passwordFile: /nowhere/masters.password\n", "", 1))
		r.after(3*time.Second, 5, 4)
		if l := r.view.Listeners; len(l) != 1 || l[0].Password != "" || l[0].BFD != nil {
			t.Errorf("%+v", l)
		}
		if strings.Contains(r.log, "secret") {
			t.Errorf("the log shows a password:\n%s", r.log)
		}
	})
}

// FuzzListener: no text of a prefix makes validation panic, or a listener that has not just the
// prefixes that are written.
func FuzzListener(f *testing.F) {
	for _, text := range []string{"10.0.0.200/32", "fd00::200/128", "0.0.0.0/0", "::ffff:1.2.3.4/96", "fe80::1%eth0/64", "10.0.0.1/-1", "10.0.0.0/024", "::/1", ""} {
		f.Add(text, "10.9.0.0/24", "1m", uint16(64))
	}
	f.Fuzz(func(t *testing.T, accept, peers, idle string, buckets uint16) {
		l := v1alpha1.BGPListener{TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindBGPListener}, Metadata: v1alpha1.ObjectMeta{Name: "a"}}
		l.Spec = v1alpha1.BGPListenerSpec{ASN: 64512, PeerPrefixes: []string{peers}, AcceptPrefixes: []string{accept}, Upstream: v1alpha1.UpstreamBGP}
		l.Spec.NextHops.Buckets = int32(buckets)
		var d v1alpha1.Duration
		if d.UnmarshalText([]byte(idle)) == nil {
			l.Spec.NextHops.IdleTimer = &d
		}
		l.Default()
		if len(l.Validate()) > 0 {
			return
		}
		out, vips := resolve.Listener(&l, nil, nil)
		if len(out.Accept) != 1 || len(out.PeerPrefixes) != 1 || len(vips) != 1 || out.Accept[0].Overlaps(out.PeerPrefixes[0]) && out.Accept[0].Bits() <= out.PeerPrefixes[0].Bits() {
			t.Fatalf("%q %q: %+v", accept, peers, out)
		}
		for _, p := range []netip.Prefix{out.Accept[0], out.PeerPrefixes[0]} {
			if p != p.Masked() || p.Bits() == 0 || p.Addr().Is4In6() || p.Addr().IsMulticast() || p.Contains(netip.MustParseAddr("127.0.0.1")) || p.Contains(netip.IPv6Loopback()) {
				t.Fatalf("%q %q: %s", accept, peers, p)
			}
		}
	})
}
