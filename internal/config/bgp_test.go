package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// bgpNode has five lines.
const bgpNode = headNode + "nodeName: m1\ngossip: {insecure: true, bindAddress: 10.0.0.11}\nbgp: {listenAddresses: [10.0.0.12]}\n"

// doc returns a document of a kind with a name and a spec in flow style.
func doc(kind, name, spec string) string {
	return "---\napiVersion: lbd.dev/v1alpha1\nkind: " + kind + "\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n"
}

// aCheck is a part of the spec of a VirtualIP, which is warned of without.
const aCheck = "healthCheck: {tcp: {port: 80}}, "

// peerDoc is a BGPPeer of an external session.
func peerDoc(name, spec string) string {
	return doc("BGPPeer", name, "myASN: 64512, peerASN: 64513, "+spec)
}

func TestLoadBGP(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "md5"), " from a file \n") // blanks count, one newline does not
	put(t, filepath.Join(dir, "sha1"), "twenty bytes of text")
	put(t, filepath.Join(dir, "a.yaml"), headNode+`nodeName: m1
nodeLabels: {rack: a}
gossip: {insecure: true}
bgp: {listenAddresses: ["::", 10.0.0.11], listenPort: 1790, routerID: 10.0.0.11}
`+doc("VirtualIP", "shop", `addresses: [192.0.2.1], advertise: {bgp: {peers: [z, a], communities: [customers, no-export, "64512:100", wide, "large:1:2:3", again], `+
		`largeCommunities: ["0:9:9", "1:2:3"], localPref: 4294967295, med: 0, asPathPrepend: 3}}`)+
		doc("VirtualIP", "both", `addresses: ["2001:db8::1"], advertise: {l2: {}, bgp: {}}`)+
		peerDoc("z", `peerAddress: 10.0.0.1, routerID: 10.0.0.11, sourceAddress: 10.0.0.12, peerPort: 1179, holdTime: 30s, keepaliveTime: 7s, connectTime: 5s, `+
			`nodeSelectors: [{matchLabels: {rack: a}}, {}], passwordFile: `+dir+`/md5, bfdProfile: fast, ebgpMultiHop: true, gracefulShutdownDelay: 0s, families: [ipv4], maxPrefixes: 7`)+
		doc("BGPPeer", "a", `myASN: 4200000000, peerASN: 4200000000, peerAddress: "fe80::1", sourceAddress: "fe80::2", interface: eth0, `+
			`enableGracefulRestart: true, passive: true, ttlSecurity: true, holdTime: 0s`)+
		peerDoc("m", `peerAddress: "fd00::9", password: open sesame, minimumTTL: 250, families: [ipv6]`)+
		doc("BFDProfile", "fast", `receiveInterval: 100, transmitInterval: 50, detectMultiplier: 5, passiveMode: true, minimumTtl: 200, strict: true, `+
			`authType: keyed-sha1, authKeyID: 9, authKeyFile: `+dir+`/sha1`)+
		doc("Community", "x", `communities: [{name: customers, value: "64512:200"}, {name: wide, value: "large:4:5:6"}, {name: again, value: "64512:100"}]`))
	cfg, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr
	if want := (model.BGPConfig{RouterID: addr("10.0.0.11"), Listen: []netip.Addr{addr("::"), addr("10.0.0.11")}, ListenPort: 1790}); !reflect.DeepEqual(cfg.BGP, want) {
		t.Errorf("bgp: %+v, want %+v", cfg.BGP, want)
	}
	want := []model.BGPPeer{
		{
			Name: "a", LocalASN: 4200000000, PeerASN: 4200000000, Address: addr("fe80::1%eth0"), Source: addr("fe80::2%eth0"), Port: 179,
			MinTTL: 255, Passive: true, GracefulRestart: true, ShutdownDelay: 500 * time.Millisecond,
			IPv4: true, IPv6: true, MaxPrefixes: 10000,
		},
		{
			Name: "m", LocalASN: 64512, PeerASN: 64513, Address: addr("fd00::9"), Port: 179, HoldTime: 9 * time.Second, KeepaliveTime: 3 * time.Second,
			ConnectTime: time.Second, Password: "open sesame", MinTTL: 250, ShutdownDelay: 500 * time.Millisecond, IPv6: true, MaxPrefixes: 10000,
		},
		{
			Name: "z", LocalASN: 64512, PeerASN: 64513, Address: addr("10.0.0.1"), Source: addr("10.0.0.12"), RouterID: addr("10.0.0.11"), Port: 1179,
			NodeSelectors: []map[string]string{{"rack": "a"}, nil}, HoldTime: 30 * time.Second, KeepaliveTime: 7 * time.Second, ConnectTime: 5 * time.Second,
			Password: " from a file ", Multihop: true, IPv4: true, MaxPrefixes: 7,
			BFD: &model.BFDProfile{
				Name: "fast", Receive: 100 * time.Millisecond, Transmit: 50 * time.Millisecond, Multiplier: 5, Passive: true, MinTTL: 200, Strict: true,
				AuthType: "keyed-sha1", AuthKeyID: 9, AuthKey: "twenty bytes of text",
			},
		},
	}
	if !reflect.DeepEqual(cfg.Peers, want) {
		t.Errorf("peers:\ngot  %+v\nwant %+v", cfg.Peers, want)
	}
	shop := []model.BGPAdvert{{Peers: []string{"a", "z"}, PathAttributes: model.PathAttributes{
		Communities:      []uint32{64512<<16 | 100, 64512<<16 | 200, 0xffffff01},
		LargeCommunities: [][3]uint32{{0, 9, 9}, {1, 2, 3}, {4, 5, 6}},
		LocalPref:        4294967295, MEDSet: true, Prepend: 3,
	}}}
	if v := cfg.VIPs[0]; v.L2 || !reflect.DeepEqual(v.BGP, shop) {
		t.Errorf("shop: %+v, BGP %+v", v, v.BGP)
	}
	if v := cfg.VIPs[1]; !v.L2 || !reflect.DeepEqual(v.BGP, []model.BGPAdvert{{}}) {
		t.Errorf("both: %+v, BGP %+v", v, v.BGP)
	}
}

func TestLoadRefusesBGP(t *testing.T) {
	dir := write(t, map[string]string{
		"long": strings.Repeat("s", 81) + "\n", "empty": "\n", "lines": "secret\nsecret\n", "long20": strings.Repeat("s", 21), "ok": "secret\n",
		"huge": strings.Repeat("s", maxSecretFile+1),
	})
	const at = `peerAddress: 10.0.0.1`
	file := func(name string) string { return at + ", passwordFile: " + filepath.Join(dir, name) }
	auth := func(name string) string {
		return doc("BFDProfile", "p", "authType: keyed-sha1, authKeyFile: "+filepath.Join(dir, name)) + peerDoc("a", at+", bfdProfile: p")
	}
	vip := func(name, rest string) string { return doc("VirtualIP", name, rest) }
	// Documents begin in line 6, 11 and so on, and specs are in line 10, 15 and so on.
	for name, tt := range map[string]struct{ yaml, want string }{
		"decimals":     {doc("BGPPeer", "a", "myASN: 1.10, peerASN: -1, "+at), `a.yaml:10: BGPPeer "a": spec.myASN: 1.10 must be a whole number` + "\n" + `a.yaml:10: BGPPeer "a": spec.peerASN: -1 must not be negative`},
		"large number": {doc("BGPPeer", "a", "myASN: 4294967296, peerASN: 0, "+at), `a.yaml:10: BGPPeer "a": spec.myASN: 4294967296 is too large` + "\n" + `a.yaml:10: BGPPeer "a": spec.peerASN: is required: from 1 to 4294967294, or dynamicASN in its place`},
		"32 bits":      {peerDoc("a", at+", maxPrefixes: 2147483648"), `a.yaml:10: BGPPeer "a": spec.maxPrefixes: 2147483648 is too large`},
		"zeros": {peerDoc("a", at+", holdTime: 1s, maxPrefixes: 0, connectTime: 0s, minimumTTL: 0"),
			"a.yaml:10: BGPPeer \"a\": spec.holdTime: 1s must be 0s, which means for ever, or whole seconds from 3s to 65535s (RFC 4271 section 4.2)\n" +
				"a.yaml:10: BGPPeer \"a\": spec.connectTime: 0s must be whole seconds from 1s to 65535s\n" +
				"a.yaml:10: BGPPeer \"a\": spec.minimumTTL: 0 must be from 1 to 255\n" +
				"a.yaml:10: BGPPeer \"a\": spec.maxPrefixes: 0 must be from 1 to 10000000"},

		"vrf":          {peerDoc("a", at+", vrf: red"), `a.yaml:10: BGPPeer "a": spec.vrf: is not supported by this version: sessions are opened by the main routing table; remove it, and have that table reach peerAddress`},
		"secret":       {peerDoc("a", at+", passwordSecret: {name: x}"), `a.yaml:10: BGPPeer "a": spec.passwordSecret: is not for files; use passwordFile`},
		"MP":           {peerDoc("a", at+", disableMP: true"), `a.yaml:10: BGPPeer "a": spec.disableMP: is not supported: sessions always carry both families, unless spec.families names one`},
		"dual":         {peerDoc("a", at+", dualStackAddressFamily: true"), `a.yaml:10: BGPPeer "a": spec.dualStackAddressFamily: is not needed: sessions always carry both families, unless spec.families names one`},
		"dynamic":      {peerDoc("a", at+", dynamicASN: external"), `a.yaml:10: BGPPeer "a": spec.dynamicASN: "external" and peerASN exclude each other`},
		"no AS":        {doc("BGPPeer", "a", "myASN: 1, "+at), `a.yaml:10: BGPPeer "a": spec.peerASN: is required: from 1 to 4294967294, or dynamicASN in its place`},
		"any AS":       {doc("BGPPeer", "a", "myASN: 1, dynamicASN: any, "+at), `a.yaml:10: BGPPeer "a": spec.dynamicASN: "any" must be internal or external`},
		"far inside":   {doc("BGPPeer", "a", "myASN: 1, dynamicASN: internal, ebgpMultiHop: true, "+at), `a.yaml:10: BGPPeer "a": spec.ebgpMultiHop: true is for eBGP; an iBGP peer (dynamicASN is internal) may always be several hops away`},
		"no secret":    {peerDoc("a", at+", passwordSecret: {}"), `a.yaml:10: BGPPeer "a": spec.passwordSecret.name: is required`},
		"local":        {peerDoc("a", at+", localASN: 1"), `a.yaml:10: BGPPeer "a": spec.localASN: is not supported by this version; myASN is that of this session, and another BGPPeer may have another`},
		"expressions":  {peerDoc("a", at+", nodeSelectors: [{}, {matchExpressions: []}]"), `a.yaml:10: BGPPeer "a": spec.nodeSelectors[1].matchExpressions: is not supported by this version; use matchLabels`},
		"echo":         {doc("BFDProfile", "a", "echoMode: true"), `a.yaml:10: BFDProfile "a": spec.echoMode: is not supported by this version: BFD works without the echo function; remove it`},
		"misspelt":     {peerDoc("a", at+", bfdprofile: fast"), `a.yaml:10: BGPPeer "a": spec.bfdprofile: is not a known field; did you mean "bfdProfile"?`},
		"aggregation":  {vip("v", "addresses: [192.0.2.1], advertise: {bgp: {aggregationLength: 24}}"), `a.yaml:10: VirtualIP "v": spec.advertise.bgp.aggregationLength: is not for a VirtualIP, which is advertised as /32; remove it`},
		"no announcer": {vip("v", "addresses: [192.0.2.1], advertise: {}"), `a.yaml:10: VirtualIP "v": spec.advertise: must have l2, bgp or both; leave advertise out for the default`},

		"bind":          {peerDoc("a", "peerAddress: 10.0.0.11"), `a.yaml:10: BGPPeer "a": spec.peerAddress: "10.0.0.11" is the address of this node: gossip.bindAddress of NodeConfiguration "m1" (a.yaml:4)`},
		"listen":        {peerDoc("a", "peerAddress: 10.0.0.12"), `a.yaml:10: BGPPeer "a": spec.peerAddress: "10.0.0.12" is the address of this node: bgp.listenAddresses[0] of NodeConfiguration "m1" (a.yaml:5)`},
		"peer is VIP":   {peerDoc("a", at) + vip("v", "addresses: [10.0.0.1]"), `a.yaml:10: BGPPeer "a": spec.peerAddress: "10.0.0.1" is an address of VirtualIP "v" (a.yaml:12); give the router's own address`},
		"source is VIP": {peerDoc("a", at+", sourceAddress: 10.0.0.200") + vip("v", "addresses: [10.0.0.200]"), `a.yaml:10: BGPPeer "a": spec.sourceAddress: "10.0.0.200" is an address of VirtualIP "v" (a.yaml:12), which is not always on this node`},
		"source of another": {peerDoc("a", "peerAddress: 10.0.0.20") + peerDoc("b", at+", sourceAddress: 10.0.0.20"),
			`a.yaml:10: BGPPeer "a": spec.peerAddress: "10.0.0.20" is spec.sourceAddress of BGPPeer "b" (a.yaml:12), and a node could match both; a node has no session with itself`},
		"source on the link": {peerDoc("a", `peerAddress: "fe80::1", interface: eth0, sourceAddress: "fe80::9"`) + peerDoc("b", `peerAddress: "fe80::9", interface: eth0`),
			`a.yaml:15: BGPPeer "b": spec.peerAddress: "fe80::9" is spec.sourceAddress of BGPPeer "a" (a.yaml:7), and a node could match both; a node has no session with itself`},
		"source is own peer": {peerDoc("a", at+", sourceAddress: 10.0.0.1"), `a.yaml:10: BGPPeer "a": spec.sourceAddress: "10.0.0.1" is also peerAddress; a node has no session with itself`},
		"listen is VIP":      {vip("v", "addresses: [10.0.0.12]"), `a.yaml:10: VirtualIP "v": spec.addresses[0]: "10.0.0.12" is the address of a node: bgp.listenAddresses[0] of NodeConfiguration "m1" (a.yaml:5)`},
		"same name":          {peerDoc("a", at) + peerDoc("a", "peerAddress: 10.0.0.2"), `a.yaml:14: BGPPeer "a": metadata.name: "a" is the name of another BGPPeer (a.yaml:7)`},
		"same address":       {peerDoc("a", at) + peerDoc("b", "nodeSelectors: [{matchLabels: {rack: x}}], "+at), `a.yaml:15: BGPPeer "b": spec.peerAddress: "10.0.0.1" is also the address of BGPPeer "a" (a.yaml:7), and a node could match both; give them nodeSelectors of which no node can match two`},
		"may meet": {peerDoc("a", "nodeSelectors: [{matchLabels: {rack: a}}, {matchLabels: {rack: b}}], "+at) + peerDoc("b", "nodeSelectors: [{matchLabels: {rack: b, zone: z}}], "+at),
			`a.yaml:15: BGPPeer "b": spec.peerAddress: "10.0.0.1" is also the address of BGPPeer "a" (a.yaml:7), and a node could match both; give them nodeSelectors of which no node can match two`},
		"router IDs":      {peerDoc("a", at+", routerID: 1.1.1.1") + peerDoc("b", "peerAddress: 10.0.0.2, routerID: 2.2.2.2"), `a.yaml:15: BGPPeer "b": spec.routerID: "2.2.2.2" is not that of BGPPeer "a" (a.yaml:7), 1.1.1.1, and a node could match both; a node has one`},
		"unknown profile": {peerDoc("a", at+", bfdProfile: fats") + doc("BFDProfile", "fast", ""), `a.yaml:10: BGPPeer "a": spec.bfdProfile: "fats" is not the name of a BFDProfile; did you mean "fast"?`},
		"unknown peer": {peerDoc("tor1", at) + vip("v", "addresses: [192.0.2.1], advertise: {bgp: {peers: [tor1, torr1, Tor3, x]}}"),
			`a.yaml:15: VirtualIP "v": spec.advertise.bgp.peers[2]: "Tor3" must be lower case letters, digits, - and ., as in a DNS name (DNS-1123)` + "\n" + `a.yaml:15: VirtualIP "v": spec.advertise.bgp.peers[1]: "torr1" is not the name of a BGPPeer; did you mean "tor1"?` + "\n" + `a.yaml:15: VirtualIP "v": spec.advertise.bgp.peers[3]: "x" is not the name of a BGPPeer`},
		"unknown community": {vip("v", "addresses: [192.0.2.1], advertise: {bgp: {communities: [NO_EXPORT, customer, foo, '1:1']}}") + doc("Community", "c", "communities: [{name: customers, value: '1:1'}]"),
			`a.yaml:10: VirtualIP "v": spec.advertise.bgp.communities[0]: "NO_EXPORT" is not the name of a community; did you mean "no-export"?` + "\n" +
				`a.yaml:10: VirtualIP "v": spec.advertise.bgp.communities[1]: "customer" is not the name of a community; did you mean "customers"?` + "\n" +
				`a.yaml:10: VirtualIP "v": spec.advertise.bgp.communities[2]: "foo" is not the name of a community`},
		"community twice": {doc("Community", "c", "communities: [{name: x, value: '1:1'}]") + doc("Community", "d", "communities: [{name: x, value: '1:1'}]"), `a.yaml:15: Community "d": spec.communities[0].name: "x" is also defined by Community "c" (a.yaml:7)`},
		"family":          {peerDoc("a", at+", families: [ipv4]") + vip("v", "addresses: [192.0.2.1, '2001:db8::1'], advertise: {bgp: {}}"), `a.yaml:15: VirtualIP "v": spec.addresses[1]: "2001:db8::1" cannot be advertised: none of its BGP peers has the family ipv6 in spec.families`},
		"family of named": {peerDoc("a", at+", families: [ipv6]") + peerDoc("b", "peerAddress: 10.0.0.2") + vip("v", "addresses: [192.0.2.1], advertise: {bgp: {peers: [a]}}"), `a.yaml:20: VirtualIP "v": spec.addresses[0]: "192.0.2.1" cannot be advertised: none of its BGP peers has the family ipv4 in spec.families`},

		"no file":        {peerDoc("a", file("none")), `none: no such file or directory (spec.passwordFile of BGPPeer "a", a.yaml:10)`},
		"long password":  {peerDoc("a", file("long")), `long: has 81 bytes; TCP MD5 takes at most 80 (spec.passwordFile of BGPPeer "a", a.yaml:10)`},
		"empty file":     {peerDoc("a", file("empty")), `empty: is empty (spec.passwordFile of BGPPeer "a", a.yaml:10)`},
		"two lines":      {peerDoc("a", file("lines")), `lines: must be one line of text (spec.passwordFile of BGPPeer "a", a.yaml:10)`},
		"huge file":      {peerDoc("a", file("huge")), `huge: is larger than 4 KiB (spec.passwordFile of BGPPeer "a", a.yaml:10)`},
		"long key":       {auth("long20"), `long20: has 21 bytes; SHA1 authentication takes at most 20 (RFC 5880 section 4.4) (spec.authKeyFile of BFDProfile "p", a.yaml:10)`},
		"no key":         {auth("none"), `none: no such file or directory (spec.authKeyFile of BFDProfile "p", a.yaml:10)`},
		"empty password": {peerDoc("a", at+`, password: ""`), `a.yaml:10: BGPPeer "a": spec.password: is empty; give it a value, or remove it to run without authentication`},
		"empty path":     {peerDoc("a", at+`, passwordFile: ""`), `a.yaml:10: BGPPeer "a": spec.passwordFile: is empty; give it a value, or remove it to run without authentication`},
		"empty auth":     {doc("BFDProfile", "a", `authType: ""`), `a.yaml:10: BFDProfile "a": spec.authType: is empty; give it a value, or remove it to run without authentication`},
		"number":         {peerDoc("a", at+", password: 7777"), `a.yaml:10: BGPPeer "a": spec.password: must be a string; write it in quotes`},
		"alias":          {peerDoc("a", at+", password: *secret"), `a.yaml: is not valid YAML: a password that begins with * needs quotes`},
		"null":           {peerDoc("a", at+", password: ~"), `a.yaml:10: BGPPeer "a": spec.password: has no value; give one or remove it`},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, filepath.Join(dir, "a.yaml"), bgpNode+tt.yaml)
			cfg, err := Load(dir)
			if got := message(err, dir); got != tt.want || cfg != nil {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if err != nil && (strings.Contains(err.Error(), "secret\n") || strings.Contains(err.Error(), "sss") || strings.Contains(err.Error(), "7777")) {
				t.Error("the error shows the password")
			}
		})
	}
}

// What is good although it looks like what is refused.
func TestLoadTakesBGP(t *testing.T) {
	const at = `peerAddress: 10.0.0.1`
	for name, text := range map[string]string{
		"apart":                  peerDoc("a", "nodeSelectors: [{matchLabels: {rack: a}}], "+at) + peerDoc("b", "nodeSelectors: [{matchLabels: {rack: b}}], "+at),
		"links":                  peerDoc("a", `peerAddress: "fe80::1", interface: eth0`) + peerDoc("b", `peerAddress: "fe80::1", interface: eth1`),
		"source of another node": peerDoc("a", "peerAddress: 10.0.0.20, nodeSelectors: [{matchLabels: {rack: a}}]") + peerDoc("b", at+", sourceAddress: 10.0.0.20, nodeSelectors: [{matchLabels: {rack: b}}]"),
		"source on another link": peerDoc("a", `peerAddress: "fe80::1", interface: eth0, sourceAddress: "fe80::9"`) + peerDoc("b", `peerAddress: "fe80::9", interface: eth1`),
		"one source":             peerDoc("a", at+", sourceAddress: 10.0.0.20") + peerDoc("b", "peerAddress: 10.0.0.2, sourceAddress: 10.0.0.20"),
		"IDs apart":              peerDoc("a", "routerID: 1.1.1.1, nodeSelectors: [{matchLabels: {rack: a}}], "+at) + peerDoc("b", "routerID: 2.2.2.2, nodeSelectors: [{matchLabels: {rack: b}}], peerAddress: 10.0.0.2"),
		"one ID":                 peerDoc("a", "routerID: 1.1.1.1, "+at) + peerDoc("b", "routerID: 1.1.1.1, peerAddress: 10.0.0.2"),
		"l2 helps":               peerDoc("a", at+", families: [ipv4]") + doc("VirtualIP", "v", "addresses: ['2001:db8::1'], advertise: {l2: {}, bgp: {}}"),
		"other file":             peerDoc("a", "passwordFile: /nonexistent/password, nodeSelectors: [{matchLabels: {rack: b}}], "+at),
		"names":                  doc("BGPPeer", "x", "myASN: 1, peerASN: 1, "+at) + doc("BFDProfile", "x", "") + doc("VirtualIP", "x", "addresses: [192.0.2.1]"),
	} {
		if _, err := Load(write(t, map[string]string{"a.yaml": bgpNode + text})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What dynamicASN is resolved to, and what is warned of: a router that is external hears
// of no LOCAL_PREF, one that is internal of no prepends.
func TestDynamicASN(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": bgpNode +
		doc("BGPPeer", "in", "myASN: 64512, dynamicASN: internal, peerAddress: 10.0.0.1") +
		doc("BGPPeer", "out", "myASN: 64512, dynamicASN: external, peerAddress: 10.0.0.2") +
		doc("VirtualIP", "v", aCheck+"addresses: [192.0.2.1], advertise: {bgp: {peers: [in], localPref: 9, asPathPrepend: 1}}") +
		doc("VirtualIP", "w", aCheck+"addresses: [192.0.2.2], advertise: {bgp: {peers: [out], localPref: 9, asPathPrepend: 1}}")})
	cfg, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if p := cfg.Peers; p[0].PeerASN != 64512 || p[0].External() || p[1].PeerASN != 0 || !p[1].External() {
		t.Errorf("%+v", p)
	}
	got := strings.ReplaceAll(strings.Join(cfg.Warnings[1:], "\n"), dir+"/", "")
	if want := `a.yaml:20: VirtualIP "v": spec.advertise.bgp.asPathPrepend: is told to eBGP peers only, and all peers are iBGP
a.yaml:25: VirtualIP "w": spec.advertise.bgp.localPref: is told to iBGP peers only, and all peers are eBGP`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A Secret is for a cluster. Files for kubectl, which no daemon reads, are only warned of.
func TestPasswordSecret(t *testing.T) {
	peer := peerDoc("a", "peerAddress: 10.0.0.1, passwordSecret: {name: x}")
	dir := write(t, map[string]string{"a.yaml": peer})
	sum, err := Validate(dir)
	if err != nil || len(sum.Warnings) != 1 {
		t.Fatal(err, sum)
	}
	const want = `a.yaml:5: BGPPeer "a": spec.passwordSecret: is for a cluster: a daemon refuses it in its files, use passwordFile there`
	if got := strings.ReplaceAll(sum.Warnings[0].Error(), dir+"/", ""); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	put(t, filepath.Join(dir, "b.yaml"), bgpNode)
	for name, read := range map[string]func() error{
		"Load":     func() error { _, err := Load(dir); return err },
		"Validate": func() error { _, err := Validate(dir); return err },
	} {
		if got := message(read(), dir); got != `a.yaml:5: BGPPeer "a": spec.passwordSecret: is not for files; use passwordFile` {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A node has one BGP identifier, and its peers may not ask for another.
func TestRouterIDOfTheNode(t *testing.T) {
	node := headNode + "nodeName: m1\nnodeLabels: {rack: a}\ngossip: {insecure: true}\nbgp: {routerID: 9.9.9.9}\n"
	dir := write(t, map[string]string{"a.yaml": node + peerDoc("a", "peerAddress: 10.0.0.1, routerID: 1.1.1.1, nodeSelectors: [{matchLabels: {rack: b}}]")})
	if _, err := Load(dir); err != nil {
		t.Error(err)
	}
	put(t, filepath.Join(dir, "a.yaml"), node+peerDoc("a", "peerAddress: 10.0.0.1, routerID: 1.1.1.1"))
	_, err := Load(dir)
	if got, want := message(err, dir), `a.yaml:11: BGPPeer "a": spec.routerID: "1.1.1.1" is not that of the node: bgp.routerID of NodeConfiguration "m1" (a.yaml:6) is 9.9.9.9`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A document that cannot be read may have held what another one names.
func TestNamesOfUnreadObjects(t *testing.T) {
	vip := doc("VirtualIP", "v", "addresses: [192.0.2.1], advertise: {bgp: {peers: [a], communities: [c]}}")
	for text, want := range map[string]string{
		vip + "---\napiVersion: lbd.dev/v1alpha1\nkind: BGPPear\n": `a.yaml:13: document 3: kind: "BGPPear" is not a known kind; did you mean "BGPPeer"?`,
		vip + "---\n{\n": `a.yaml:12: is not valid YAML: did not find expected node content`,
	} {
		dir := write(t, map[string]string{"a.yaml": bgpNode + text})
		_, err := Load(dir)
		if got := message(err, dir); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestLoadWarnsBGP(t *testing.T) {
	dir := t.TempDir()
	pw := filepath.Join(dir, "pw")
	put(t, pw, "secret\n")
	if err := os.Chmod(pw, 0o604); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a.yaml")
	put(t, file, bgpNode+
		peerDoc("a", "peerAddress: 10.0.0.1, bfdProfile: p, enableGracefulRestart: true, password: secret")+
		peerDoc("b", "peerAddress: 10.0.0.2, holdTime: 31s, families: [ipv4]")+
		doc("BGPPeer", "c", "myASN: 1, peerASN: 1, peerAddress: 10.0.0.3, holdTime: 0s, passwordFile: "+pw)+
		doc("BFDProfile", "p", "")+
		doc("VirtualIP", "v", aCheck+`addresses: [192.0.2.1], preempt: true, advertise: {bgp: {peers: [a], localPref: 50, communities: [no-advertise, "65535:666"]}}`)+
		doc("VirtualIP", "w", aCheck+`addresses: [192.0.2.2, "fd00::2"], preempt: true, advertise: {l2: {}, bgp: {peers: [b], localPref: 50, asPathPrepend: 1}}`)+
		doc("VirtualIP", "x", aCheck+`addresses: [192.0.2.3], advertise: {bgp: {peers: [c, a], localPref: 50, asPathPrepend: 1}}`)+
		doc("VirtualIP", "y", aCheck+`addresses: [192.0.2.4], advertise: {bgp: {peers: [c], asPathPrepend: 1}}`))
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(strings.Join(cfg.Warnings, "\n"), dir+"/", "")
	if want := `a.yaml:4: NodeConfiguration "m1": gossip.insecure: anybody on the network can take over every VIP; ` + "`lbd keygen` prints a key" + `
a.yaml:10: BGPPeer "a": spec.password: every user of this host can read it (mode 0644); chmod 600, or use passwordFile
a.yaml:10: BGPPeer "a": spec.enableGracefulRestart: most routers drop routes on BFD loss whatever graceful restart says; see docs/configuration.md
a.yaml:15: BGPPeer "b": spec.holdTime: a node that dies is noticed only after 31s; set bfdProfile
a.yaml:20: BGPPeer "c": spec.holdTime: a node that dies is never noticed by the session; set bfdProfile
a.yaml:30: VirtualIP "v": spec.preempt: is only for l2; by BGP every node that may own the address advertises it
a.yaml:30: VirtualIP "v": spec.advertise.bgp.localPref: is told to iBGP peers only, and all peers are eBGP
a.yaml:30: VirtualIP "v": spec.advertise.bgp.communities: NO_ADVERTISE: the peer tells no other router about the address
a.yaml:30: VirtualIP "v": spec.advertise.bgp.communities: BLACKHOLE: routers drop all packets to the address
a.yaml:35: VirtualIP "w": spec.advertise.bgp.localPref: is told to iBGP peers only, and all peers are eBGP
a.yaml:35: VirtualIP "w": spec.addresses[1]: is announced by l2 only: none of its BGP peers has the family ipv6
a.yaml:45: VirtualIP "y": spec.advertise.bgp.asPathPrepend: is told to eBGP peers only, and all peers are iBGP
pw: every user of this host can use the password (mode 0604); chmod 600, owned by the user that lbd runs as`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	dir = write(t, map[string]string{"a.yaml": bgpNode + doc("VirtualIP", "v", aCheck+"addresses: [192.0.2.1], advertise: {bgp: {}}")})
	if cfg, err = Load(dir); err != nil || len(cfg.Warnings) != 2 || !strings.HasSuffix(cfg.Warnings[1], "spec.advertise.bgp: there is no BGPPeer to advertise to") {
		t.Errorf("%v %q", err, cfg.Warnings)
	}
}

// A peer that is named and is not told an address is told of; one that is only
// among all of them is not.
func TestLoadWarnsOfPeersWithoutFamily(t *testing.T) {
	peers := peerDoc("four", "peerAddress: 10.0.0.1, families: [ipv4]") + peerDoc("six", "peerAddress: 10.0.0.2, families: [ipv6]") +
		peerDoc("both", "peerAddress: 10.0.0.3") + peerDoc("quad", "peerAddress: 10.0.0.4, families: [ipv4]")
	const v4, v6 = " is not told the ipv4 addresses: its spec.families lacks ipv4", " is not told the ipv6 addresses: its spec.families lacks ipv6"
	const at = "spec.advertise.bgp.peers"
	const l2Only = `spec.addresses[0]: is announced by l2 only: none of its BGP peers has the family ipv6`
	for name, tt := range map[string]struct {
		spec string
		want []string
	}{
		"one lacks it":    {`addresses: ["fd00::2", "fd00::3"], advertise: {bgp: {peers: [both, four]}}`, []string{at + `[1]: "four"` + v6}},
		"several lack it": {`addresses: ["fd00::2"], advertise: {bgp: {peers: [four, both, quad]}}`, []string{at + `[0]: "four"` + v6, at + `[2]: "quad"` + v6}},
		"dual stack":      {`addresses: [192.0.2.1, "fd00::2"], advertise: {bgp: {peers: [both, four, six]}}`, []string{at + `[2]: "six"` + v4, at + `[1]: "four"` + v6}},
		"and l2":          {`addresses: ["fd00::2"], advertise: {l2: {}, bgp: {peers: [both, four]}}`, []string{at + `[1]: "four"` + v6}},
		"l2 only":         {`addresses: ["fd00::2"], advertise: {l2: {}, bgp: {peers: [four, quad]}}`, []string{l2Only}},
		"all peers":       {`addresses: ["fd00::2"], advertise: {bgp: {}}`, nil},
		"others":          {`addresses: [192.0.2.1], advertise: {bgp: {peers: [four, both]}}`, nil},
	} {
		cfg, err := Load(write(t, map[string]string{"a.yaml": bgpNode + peers + doc("VirtualIP", "v", aCheck+tt.spec)}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, w := range cfg.Warnings[1:] { // the first is about gossip
			got = append(got, w[strings.Index(w, "spec."):])
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}

func TestLoadWarnsOfQuorumByBGP(t *testing.T) {
	node := headNode + "nodeName: m1\ngossip: {insecure: true, peers: [10.0.0.11, 10.0.0.12]}\n"
	const want = `spec.partition: quorum is about layer 2 only; every healthy node advertises by BGP`
	for spec, warned := range map[string]bool{
		"partition: quorum, advertise: {bgp: {}}":         true,
		"partition: quorum, advertise: {l2: {}, bgp: {}}": true,
		"partition: quorum":                               false,
		"advertise: {bgp: {}}":                            false,
	} {
		cfg, err := Load(write(t, map[string]string{"a.yaml": node + peerDoc("a", "peerAddress: 10.0.0.1") + doc("VirtualIP", "v", aCheck+"addresses: [192.0.2.1], "+spec)}))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.HasSuffix(strings.Join(cfg.Warnings, "\n"), want); got != warned || len(cfg.Warnings) > 2 {
			t.Errorf("%s: %q", spec, cfg.Warnings)
		}
	}
}

func TestLoadWarnsOfLongShutdownDelay(t *testing.T) {
	const want = "spec.gracefulShutdownDelay: a daemon that stops waits 2s of it; `lbd drain` first waits for all of it"
	for delay, warned := range map[string]bool{"2s": false, "2001ms": true, "5m": true} {
		// With BFD there is no other warning about the peer.
		cfg, err := Load(write(t, map[string]string{"a.yaml": bgpNode + peerDoc("a", "peerAddress: 10.0.0.1, bfdProfile: p, gracefulShutdownDelay: "+delay) +
			doc("BFDProfile", "p", "") + doc("VirtualIP", "v", aCheck+"addresses: [192.0.2.1], advertise: {bgp: {}}")}))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.HasSuffix(strings.Join(cfg.Warnings, "\n"), want); got != warned || len(cfg.Warnings) > 2 {
			t.Errorf("%s: %q", delay, cfg.Warnings)
		}
	}
}

// Elsewhere the files with passwords need not be there, but what is there counts.
func TestValidateBGP(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": peerDoc("a", "peerAddress: 10.0.0.1, bfdProfile: p, passwordFile: /nonexistent/pw") +
		doc("BFDProfile", "p", "authType: keyed-sha1, authKeyFile: /nonexistent/pw")})
	sum, err := Validate(dir)
	if err != nil || sum.Objects != 2 || fmt.Sprint(sum.Warnings) != "[/nonexistent/pw: does not exist on this machine]" {
		t.Errorf("%v %+v", err, sum)
	}
	pw := filepath.Join(dir, "pw")
	put(t, pw, "")
	put(t, filepath.Join(dir, "a.yaml"), peerDoc("a", "peerAddress: 10.0.0.1, passwordFile: "+pw))
	_, err = Validate(dir)
	if got, want := message(err, dir), `pw: is empty (spec.passwordFile of BGPPeer "a", a.yaml:5)`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// One key file may belong to a BGPPeer and to a BFDProfile, each with rules of its
// own.
func TestSharedSecretFile(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	put(t, key, strings.Repeat("k", 21))
	put(t, filepath.Join(dir, "a.yaml"), bgpNode+peerDoc("a", "peerAddress: 10.0.0.1, bfdProfile: p, passwordFile: "+key)+
		doc("BFDProfile", "p", "authType: keyed-sha1, authKeyFile: "+key))
	_, err := Load(dir)
	if got := message(err, dir); !strings.HasPrefix(got, "key: has 21 bytes; SHA1") || strings.Contains(got, "kkk") {
		t.Error(got)
	}
}

// A file full of names that do not exist is refused in seconds.
func TestManyUnknownNames(t *testing.T) {
	var b strings.Builder
	b.WriteString(bgpNode)
	for i := range 3000 {
		b.WriteString(peerDoc(fmt.Sprintf("p%d", i), fmt.Sprintf("peerAddress: 10.0.%d.%d", 1+i/250, 1+i%250)))
	}
	names := make([]string, 20000)
	for i := range names {
		names[i] = fmt.Sprintf("q%d", i)
	}
	b.WriteString(doc("VirtualIP", "v", "addresses: [192.0.2.1], advertise: {bgp: {peers: ["+strings.Join(names, ",")+"]}}"))
	dir := write(t, map[string]string{"a.yaml": b.String()})
	start := spent(t)
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), `"q19999" is not the name of a BGPPeer`) {
		t.Errorf("%.200v", err)
	}
	if d := spent(t) - start; d > 15*time.Second { // a comparison with each takes twice that
		t.Errorf("took %v", d)
	}
}

// spent is the time of processors that this process has used: that does not depend on
// what else the machine does.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
