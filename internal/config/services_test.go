package config

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

func poolDoc(name, addresses string) string {
	return doc("IPAddressPool", name, "addresses: ["+addresses+"]")
}

// labelled is a pool with a label, in one document.
func labelled(name, addresses, label string) string {
	return strings.Replace(poolDoc(name, addresses), "{name: "+name+"}", "{name: "+name+", labels: {"+label+"}}", 1)
}

func services(t *testing.T) string {
	t.Helper()
	data, err := elsewhere.ReadFile("testdata/services.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// validate returns what Validate says of one file: errors, and warnings.
func validate(t *testing.T, yaml string) (errs, warnings string) {
	t.Helper()
	dir := write(t, map[string]string{"a.yaml": yaml})
	sum, err := Validate(dir)
	return message(err, dir), strings.ReplaceAll(strings.Join(texts(sum.Warnings), "\n"), dir+"/", "")
}

// TestServiceConnections: they are kept where that can work unless a file says otherwise, and
// without rings nobody needs to say so.
func TestServiceConnections(t *testing.T) {
	for _, c := range []struct {
		line string
		want model.ServiceConnections
		errs string
	}{
		{"", model.ServicesAuto, ""},
		{"serviceConnections: auto\n", model.ServicesAuto, ""},
		{"serviceConnections: keep\n", model.ServicesKeep, ""},
		{"serviceConnections: reset\n", model.ServicesReset, ""},
		{"connections: reset\n", model.ServicesAuto, ""},
		{"connections: reset\nserviceConnections: keep\n", 0, "needs connections: keep"},
		{"serviceConnections: never\n", 0, "serviceConnections"},
	} {
		dir := write(t, map[string]string{"a.yaml": headNode + "gossip: {insecure: true}\n" + c.line})
		got, err := Load(dir)
		if c.errs != "" {
			if err == nil || !strings.Contains(err.Error(), c.errs) {
				t.Errorf("%q: %v, want %q", c.line, err, c.errs)
			}
			continue
		}
		if err != nil || got.Node.ServiceConnections != c.want {
			t.Errorf("%q: %v, %v, want %v", c.line, got, err, c.want)
		}
	}
}

// JSON is YAML, so what an object marshals to must read back as the same.
func TestServicesRoundTrip(t *testing.T) {
	objects, _ := parseFile("a", []byte(services(t)+doc("L2Advertisement", "all", "")), "host")
	for _, o := range objects {
		data, err := json.Marshal(o.body)
		if err != nil {
			t.Fatal(err)
		}
		again, end := parseFile("b", data, "host")
		if end != nil || len(again) != 1 || len(again[0].errs) > 0 || !reflect.DeepEqual(o.body, again[0].body) {
			t.Errorf("%s: %v %v", data, end, again[0].errs)
		}
	}
}

func TestServicesRefused(t *testing.T) {
	for name, tt := range map[string]struct{ yaml, want string }{
		"unknown field": {doc("IPAddressPool", "a", "addresses: [10.0.0.0/24], autoasign: true"),
			`a.yaml:5: IPAddressPool "a": spec.autoasign: is not a known field; did you mean "autoAssign"?`},
		"own rules": {poolDoc("a", "10.0.0.9-10.0.0.1, 10.0.0.0/24, 10.0.0.1/32"),
			`a.yaml:5: IPAddressPool "a": spec.addresses[0]: "10.0.0.9-10.0.0.1" ends before it begins
a.yaml:5: IPAddressPool "a": spec.addresses[2]: "10.0.0.1/32" overlaps spec.addresses[1]`},
		"zero is no default": {doc("BGPAdvertisement", "a", "aggregationLength: 0"),
			`a.yaml:5: BGPAdvertisement "a": spec.aggregationLength: 0 must be from 1 to 32`},
		"name twice": {poolDoc("a", "10.0.0.0/24") + poolDoc("a", "10.0.1.0/24"),
			`a.yaml:9: IPAddressPool "a": metadata.name: "a" is the name of another IPAddressPool (a.yaml:2)`},
		"overlap": {poolDoc("a", "10.0.0.0/24") + poolDoc("b", "10.0.1.0/24, 10.0.0.200-10.0.0.210"),
			`a.yaml:10: IPAddressPool "b": spec.addresses[1]: "10.0.0.200-10.0.0.210" overlaps spec.addresses[0] of IPAddressPool "a" (a.yaml:5)`},
		"overlap, the later one is larger": {poolDoc("a", "10.0.0.9/32, 10.0.0.10/32") + poolDoc("b", "10.0.0.0/24"),
			`a.yaml:10: IPAddressPool "b": spec.addresses[0]: "10.0.0.0/24" overlaps spec.addresses[0] of IPAddressPool "a" (a.yaml:5)`},
		"VIP": {poolDoc("a", "10.0.0.0/24, 10.0.2.0/24") + doc("VirtualIP", "v", "addresses: [10.0.1.255, 10.0.2.0]"),
			`a.yaml:10: VirtualIP "v": spec.addresses[1]: "10.0.2.0" is in spec.addresses[1] of IPAddressPool "a" (a.yaml:5); a Service could be given it`},
		"router": {poolDoc("a", "10.0.0.0/24") + peerDoc("tor", "peerAddress: 10.0.0.255"),
			`a.yaml:10: BGPPeer "tor": spec.peerAddress: "10.0.0.255" is in spec.addresses[0] of IPAddressPool "a" (a.yaml:5); a Service could be given it`},
		"names": {poolDoc("front", "10.0.0.0/24") + peerDoc("tor1", "peerAddress: 10.9.0.1") +
			doc("L2Advertisement", "l", "ipAddressPools: [frnt]") + doc("BGPAdvertisement", "b", "ipAddressPools: [front, back], peers: [tor1, tor2], communities: [vpn, no-export]"),
			`a.yaml:15: L2Advertisement "l": spec.ipAddressPools[0]: "frnt" is not the name of an IPAddressPool; did you mean "front"?
a.yaml:20: BGPAdvertisement "b": spec.ipAddressPools[1]: "back" is not the name of an IPAddressPool
a.yaml:20: BGPAdvertisement "b": spec.peers[1]: "tor2" is not the name of a BGPPeer; did you mean "tor1"?
a.yaml:20: BGPAdvertisement "b": spec.communities[0]: "vpn" is not the name of a community`},
		"aggregation": {poolDoc("a", "10.0.0.0/25, 'fd00::/64'") + peerDoc("tor", "peerAddress: 10.9.0.1") + doc("BGPAdvertisement", "b", "aggregationLength: 24, aggregationLengthV6: 48"),
			`a.yaml:15: BGPAdvertisement "b": spec.aggregationLength: 24 makes prefixes larger than spec.addresses[0] of IPAddressPool "a" (a.yaml:5), "10.0.0.0/25"
a.yaml:15: BGPAdvertisement "b": spec.aggregationLengthV6: 48 makes prefixes larger than spec.addresses[1] of IPAddressPool "a" (a.yaml:5), "fd00::/64"`},
		"aggregation of another pool": {labelled("a", "10.0.0.0/25", "x: y") + poolDoc("b", "10.0.1.0/24") + peerDoc("tor", "peerAddress: 10.9.0.1") +
			doc("BGPAdvertisement", "b", "aggregationLength: 24, ipAddressPools: [b]") + doc("BGPAdvertisement", "c", "aggregationLength: 24, ipAddressPoolSelectors: [{matchLabels: {x: y}}]"),
			`a.yaml:25: BGPAdvertisement "c": spec.aggregationLength: 24 makes prefixes larger than spec.addresses[0] of IPAddressPool "a" (a.yaml:5), "10.0.0.0/25"`},
		"in the files of a node": {goodNode + poolDoc("a", "10.0.0.0/24") + doc("L2Advertisement", "l", "") + doc("BGPAdvertisement", "b", ""),
			"a.yaml:7: IPAddressPool \"a\": kind: \"IPAddressPool\" is for Services, which `lbd run` does not serve from files; keep it apart from NodeConfiguration \"m1\" (a.yaml:1)\n" +
				"a.yaml:12: L2Advertisement \"l\": kind: \"L2Advertisement\" is for Services, which `lbd run` does not serve from files; keep it apart from NodeConfiguration \"m1\" (a.yaml:1)\n" +
				"a.yaml:17: BGPAdvertisement \"b\": kind: \"BGPAdvertisement\" is for Services, which `lbd run` does not serve from files; keep it apart from NodeConfiguration \"m1\" (a.yaml:1)"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := validate(t, tt.yaml); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// What `lbd run` reads is refused too, and never used in part.
func TestServicesAreNotRun(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": goodNode, "b.yaml": goodVIP, "c.yaml": poolDoc("a", "10.1.0.0/24")})
	cfg, err := Load(dir)
	if cfg != nil || !strings.Contains(message(err, dir), "does not serve from files") {
		t.Errorf("%+v %v", cfg, err)
	}
	if cfg, err = Load(filepath.Join(dir, "c.yaml")); cfg != nil || !strings.Contains(message(err, dir), "has no NodeConfiguration") {
		t.Errorf("%+v %v", cfg, err)
	}
}

func TestServicesWarned(t *testing.T) {
	pool, peer := poolDoc("a", "10.0.0.0/24"), peerDoc("tor", "peerAddress: 10.9.0.1, holdTime: 9s")
	for name, tt := range map[string]struct{ yaml, want string }{
		"nobody announces": {pool + poolDoc("b", "10.0.1.0/24") + doc("L2Advertisement", "l", "ipAddressPools: [b]"),
			`a.yaml:4: IPAddressPool "a": metadata.name: no L2Advertisement or BGPAdvertisement is for this pool: its addresses are given out, and nobody announces them`},
		"no pool": {labelled("a", "10.0.0.0/24", "x: y") + doc("L2Advertisement", "l", "ipAddressPoolSelectors: [{matchLabels: {x: y}}, {matchLabels: {x: z}}]"),
			`a.yaml:10: L2Advertisement "l": spec.ipAddressPoolSelectors[1]: matches the labels of no IPAddressPool`},
		"no peer": {pool + doc("BGPAdvertisement", "b", ""), `a.yaml:10: BGPAdvertisement "b": spec: there is no BGPPeer to advertise to`},
		"attributes": {pool + peer + doc("BGPAdvertisement", "b", "localPref: 7, communities: [no-advertise]"),
			"a.yaml:15: BGPAdvertisement \"b\": spec.localPref: is told to iBGP peers only, and all peers are eBGP\n" +
				`a.yaml:15: BGPAdvertisement "b": spec.communities: NO_ADVERTISE: the peer tells no other router about the address`},
		"all is well": {pool + peer + doc("BGPAdvertisement", "b", "localPref: 0, ipAddressPools: [a]"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if errs, got := validate(t, tt.yaml); got != tt.want || errs != "" {
				t.Errorf("got\n%s\n%s\nwant\n%s", got, errs, tt.want)
			}
		})
	}
}

// Many pools, each with an advertisement of its own, must not take long.
func TestManyPools(t *testing.T) {
	var b strings.Builder
	for i := range 2000 {
		n := []string{string(rune('a' + i%26)), string(rune('a' + i/26%26)), string(rune('a' + i/676))}
		name := strings.Join(n, "")
		b.WriteString(labelled(name, "10.0.0.0/24, 10."+strings.Repeat("1", 1+i%3)+".0.0/16", "n: "+name))
		b.WriteString(doc("BGPAdvertisement", name, "aggregationLength: 20, ipAddressPoolSelectors: [{matchLabels: {n: "+name+"}}]"))
	}
	start := spent(t)
	objects, end := parseFile("a.yaml", []byte(b.String()), "host")
	crossCheck(objects, true)
	if end != nil || len(objects) != 4000 || !slices.ContainsFunc(objects, func(o *object) bool { return len(o.errs) > 0 }) {
		t.Fatal(end, len(objects))
	}
	if took := spent(t) - start; took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}
