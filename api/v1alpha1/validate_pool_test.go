package v1alpha1

import (
	"net/netip"
	"strings"
	"testing"
)

// validPool returns a defaulted object that breaks no rule.
func validPool() *IPAddressPool {
	p := &IPAddressPool{
		TypeMeta: TypeMeta{APIVersion, KindIPAddressPool},
		Metadata: ObjectMeta{Name: "lan"},
		Spec:     IPAddressPoolSpec{Addresses: []string{"10.0.0.0/24", "10.0.1.10 - 10.0.1.20", "2001:db8::/64"}},
	}
	p.Default()
	return p
}

// validAdvertisement returns a defaulted object that breaks no rule.
func validAdvertisement() *BGPAdvertisement {
	a := &BGPAdvertisement{TypeMeta: TypeMeta{APIVersion, KindBGPAdvertisement}, Metadata: ObjectMeta{Name: "lan"}}
	a.Default()
	return a
}

func TestPoolDefaults(t *testing.T) {
	p, a := validPool(), validAdvertisement()
	same(t, p.Validate(), "")
	same(t, a.Validate(), "")
	if !*p.Spec.AutoAssign || p.Spec.AvoidBuggyIPs || p.Spec.ServiceAllocation != nil {
		t.Errorf("pool: %+v", p.Spec)
	}
	if *a.Spec.AggregationLength != 32 || *a.Spec.AggregationLengthV6 != 128 || a.Spec.LocalPref != 0 {
		t.Errorf("advertisement: %+v", a.Spec)
	}
	off := &IPAddressPool{Spec: IPAddressPoolSpec{AutoAssign: new(false)}}
	off.Default()
	if *off.Spec.AutoAssign {
		t.Error("the default hides autoAssign: false")
	}
}

func TestIPAddressPoolRules(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*IPAddressPool)
		want   string
	}{
		"all at once": {func(p *IPAddressPool) {
			p.APIVersion, p.Metadata.Name = "v1", "A"
			p.Spec = IPAddressPoolSpec{AutoAssign: new(true), Addresses: []string{"10.0.0.300/24"}, ServiceAllocation: &ServiceAllocation{Priority: -1}}
		}, `apiVersion: "v1" must be lbd.dev/v1alpha1
metadata.name: "A" must be lower case letters, digits, - and ., as in a DNS name (DNS-1123)
spec.addresses[0]: "10.0.0.300/24" is neither a CIDR nor a range first-last
spec.serviceAllocation.priority: -1 must not be negative`},
		"none":  {func(p *IPAddressPool) { p.Spec.Addresses = nil }, `spec.addresses: must have at least one CIDR or range`},
		"twice": {func(p *IPAddressPool) { p.Spec.Addresses = []string{"10.0.0.0/24", "10.0.0.0/24"} }, `spec.addresses[1]: "10.0.0.0/24" overlaps spec.addresses[0]`},
		"inside": {func(p *IPAddressPool) { p.Spec.Addresses = []string{"10.0.0.7/32", "10.0.1.0/24", "10.0.0.0/24"} },
			`spec.addresses[2]: "10.0.0.0/24" overlaps spec.addresses[0]`},
		// The second does not reach as far as the first.
		"far": {func(p *IPAddressPool) {
			p.Spec.Addresses = []string{"10.0.0.1-10.0.0.99", "10.0.0.2-10.0.0.3", "10.0.0.50-10.0.0.60"}
		},
			"spec.addresses[1]: \"10.0.0.2-10.0.0.3\" overlaps spec.addresses[0]\nspec.addresses[2]: \"10.0.0.50-10.0.0.60\" overlaps spec.addresses[0]"},
		"families": {func(p *IPAddressPool) { p.Spec.Addresses = []string{"10.0.0.0/24", "a00::/24"} }, ""},
		"neighbours": {func(p *IPAddressPool) {
			p.Spec.Addresses = []string{"10.0.0.0/25", "10.0.0.128/25", "10.0.1.0-10.0.1.0"}
		}, ""},
		"namespaces": {func(p *IPAddressPool) {
			p.Spec.ServiceAllocation = &ServiceAllocation{Namespaces: []string{"a", "B", "a"}}
		},
			"spec.serviceAllocation.namespaces[1]: \"B\" must be lower case letters, digits and -, at most 63 (DNS-1123)\n" +
				`spec.serviceAllocation.namespaces[2]: "a" is listed twice`},
		"selectors": {func(p *IPAddressPool) {
			p.Spec.ServiceAllocation = &ServiceAllocation{
				NamespaceSelectors: []Selector{{}, {MatchLabels: map[string]string{"a": "-"}}},
				ServiceSelectors: []Selector{{MatchExpressions: []SelectorRequirement{
					{"", "In", []string{"x", "", "-y"}}, {"a//b", "in", nil}, {"a", "NotIn", nil}, {"a", "Exists", []string{"x"}}, {"a", "", nil},
				}}},
			}
		}, `spec.serviceAllocation.namespaceSelectors[1].matchLabels[a]: "-" must be letters, digits, -, _ and ., at most 63, beginning and ending with a letter or digit
spec.serviceAllocation.serviceSelectors[0].matchExpressions[0].key: is required
spec.serviceAllocation.serviceSelectors[0].matchExpressions[0].values[2]: "-y" must be letters, digits, -, _ and ., at most 63, beginning and ending with a letter or digit
spec.serviceAllocation.serviceSelectors[0].matchExpressions[1].key: "a//b" must be [prefix/]name, with a name of at most 63 letters, digits, -, _ and .
spec.serviceAllocation.serviceSelectors[0].matchExpressions[1].operator: "in" must be In, NotIn, Exists or DoesNotExist
spec.serviceAllocation.serviceSelectors[0].matchExpressions[2].values: must have at least one value for NotIn
spec.serviceAllocation.serviceSelectors[0].matchExpressions[3].values: must be left out for Exists
spec.serviceAllocation.serviceSelectors[0].matchExpressions[4].operator: "" must be In, NotIn, Exists or DoesNotExist`},
	} {
		t.Run(name, func(t *testing.T) {
			p := validPool()
			tt.change(p)
			record(t, "", p)
			same(t, p.Validate(), tt.want)
		})
	}
}

func TestAddressRanges(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/24":                "10.0.0.0 10.0.0.255",
		" 10.0.0.4/30 ":              "10.0.0.4 10.0.0.7",
		"10.0.0.9/32":                "10.0.0.9 10.0.0.9",
		"10.0.0.9-10.0.1.1":          "10.0.0.9 10.0.1.1",
		"fd00::/8":                   "fd00:: fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		"fd00::5 - fd00::5":          "fd00::5 fd00::5",
		"223.0.0.0/8":                "223.0.0.0 223.255.255.255",
		"10.0.0.1/24":                "has bits set beyond its prefix length; write 10.0.0.0/24 for all of them or 10.0.0.1/32 for one",
		"10.0.0.1":                   "is one address; write 10.0.0.1/32",
		"10.0.0.0/33":                "is neither a CIDR nor a range first-last",
		"":                           "is neither a CIDR nor a range first-last",
		"10.0.0.9-10.0.0.8":          "ends before it begins",
		"10.0.0.9-fd00::1":           "has ends of different address families",
		"10.0.0.9-10.0.0.10-1":       "has an end that is not an IP address",
		"10.0.0.9-20":                "has an end that is not an IP address",
		"fe80::1%eth0-fe80::2":       "has an end with a zone",
		"::ffff:1.2.3.4/120":         "is an IPv4 prefix in IPv6 form",
		"::ffff:1.2.3.4-::fffe:1":    "has an IPv4 end in IPv6 form",
		"0.0.0.0/0":                  "contains addresses of 0.0.0.0/8 (this network, RFC 1122 section 3.2.1.3), which no Service can have",
		"223.255.255.255-224.0.0.0":  "contains addresses of 224.0.0.0/4 (multicast, RFC 5771), which no Service can have",
		"fe80::/64":                  "contains addresses of fe80::/10 (link-local, RFC 4291 section 2.5.6), which no Service can have",
		"126.255.255.255-128.0.0.1 ": "contains addresses of 127.0.0.0/8 (loopback, RFC 1122 section 3.2.1.3), which no Service can have",
	} {
		p := validPool()
		p.Spec.Addresses = []string{text}
		record(t, text, p)
		r, err := ParseAddressRange(text)
		got := r.First.String() + " " + r.Last.String()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestHoldsPrefix(t *testing.T) {
	for text, shortest := range map[string]int{
		"10.0.0.0/24": 24, "10.0.0.1-10.0.0.254": 26, "10.0.0.3-10.0.0.4": 32, "10.0.0.255-10.0.2.0": 24, "10.0.0.9/32": 32,
		"255.0.0.0-255.0.0.1": 31, "fd00::/64": 64, "fd00::1-fd00::4": 127,
	} {
		r, err := parseEnds(text)
		if !strings.Contains(text, "-") {
			r, err = parseCIDR(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		for length := range r.First.BitLen() + 2 {
			if got, want := r.HoldsPrefix(length), length >= shortest && length <= r.First.BitLen(); got != want {
				t.Errorf("%s: /%d: %v", text, length, got)
			}
		}
	}
	top := AddressRange{netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("255.255.255.255")}
	if top.HoldsPrefix(31) || !top.HoldsPrefix(32) || !top.Contains(top.First) {
		t.Error("the last address")
	}
}

func TestL2AdvertisementRules(t *testing.T) {
	a := &L2Advertisement{TypeMeta: TypeMeta{APIVersion, KindL2Advertisement}, Metadata: ObjectMeta{Name: "lan"}}
	a.Default()
	record(t, "empty", a)
	same(t, a.Validate(), "")
	bad := []Selector{{MatchExpressions: []SelectorRequirement{{"a", "In", nil}}}}
	a.Spec = L2AdvertisementSpec{
		IPAddressPools: []string{"a", "a", "B"}, IPAddressPoolSelectors: bad, NodeSelectors: bad, ServiceSelectors: bad,
		PreferredNodeSelectors: []PreferredNode{{Weight: 1}, {Weight: 100}, {Weight: 0, Preference: bad[0]}, {Weight: 101}},
		Interfaces:             []string{"eth0", "eth/0"},
	}
	record(t, "all at once", a)
	same(t, a.Validate(), `spec.ipAddressPools[1]: "a" is listed twice
spec.ipAddressPools[2]: "B" must be lower case letters, digits, - and ., as in a DNS name (DNS-1123)
spec.ipAddressPoolSelectors[0].matchExpressions[0].values: must have at least one value for In
spec.nodeSelectors[0].matchExpressions[0].values: must have at least one value for In
spec.preferredNodeSelectors[2].weight: 0 must be from 1 to 100
spec.preferredNodeSelectors[2].preference.matchExpressions[0].values: must have at least one value for In
spec.preferredNodeSelectors[3].weight: 101 must be from 1 to 100
spec.interfaces[1]: "eth/0" is not the name of an interface: 1 to 15 bytes without /, : and blanks
spec.serviceSelectors[0].matchExpressions[0].values: must have at least one value for In`)
}

func TestBGPAdvertisementRules(t *testing.T) {
	const exclude = "spec.serviceSelectors: and aggregation exclude each other: a prefix for several addresses cannot follow one Service; " +
		"remove aggregationLength and aggregationLengthV6"
	many := make([]string, 64)
	for i := range many {
		many[i] = "64512:" + itoa(uint16(i))
	}
	for name, tt := range map[string]struct {
		change func(*BGPAdvertisementSpec)
		want   string
	}{
		"lengths": {func(s *BGPAdvertisementSpec) {
			s.AggregationLength, s.AggregationLengthV6 = new(int32(0)), new(int32(129))
		},
			"spec.aggregationLength: 0 must be from 1 to 32\nspec.aggregationLengthV6: 129 must be from 1 to 128"},
		"communities": {func(s *BGPAdvertisementSpec) {
			s.Communities = []string{"vpn-only", "1:2", "large:1:2:3", "no-export", "1:70000", "65535:0", "1:2"}
		},
			"spec.communities[4]: \"1:70000\" must be a:b, each from 0 to 65535, or large:a:b:c, each from 0 to 4294967295\n" +
				"spec.communities[5]: \"65535:0\" is GRACEFUL_SHUTDOWN, which lbd sends by itself in a drain\n" +
				`spec.communities[6]: "1:2" is listed twice`},
		"many":  {func(s *BGPAdvertisementSpec) { s.Communities = many }, `spec.communities: has 64 entries; at most 63 are allowed`},
		"names": {func(s *BGPAdvertisementSpec) { s.Peers, s.IPAddressPools = []string{"_"}, []string{""} }, "spec.ipAddressPools[0]: \"\" " + ruleSubdomain + "\nspec.peers[0]: \"_\" " + ruleSubdomain},
		"exclusive": {func(s *BGPAdvertisementSpec) {
			s.ServiceSelectors, s.AggregationLength = []Selector{{}}, new(int32(24))
		}, exclude},
		"v6 too": {func(s *BGPAdvertisementSpec) {
			s.ServiceSelectors, s.AggregationLengthV6 = []Selector{{}}, new(int32(64))
		}, exclude},
		"good": {func(s *BGPAdvertisementSpec) { s.ServiceSelectors, s.LocalPref = []Selector{{}}, 4294967295 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := validAdvertisement()
			tt.change(&a.Spec)
			record(t, "", a)
			same(t, a.Validate(), tt.want)
		})
	}
}

func TestSelectorMatches(t *testing.T) {
	labels := map[string]string{"zone": "a", "empty": ""}
	expr := func(key string, op SelectorOperator, values ...string) Selector {
		return Selector{MatchExpressions: []SelectorRequirement{{key, op, values}}}
	}
	for i, tt := range []struct {
		s    Selector
		want bool
	}{
		{Selector{}, true},
		{Selector{MatchLabels: map[string]string{"zone": "a"}}, true},
		{Selector{MatchLabels: map[string]string{"zone": "b"}}, false},
		{Selector{MatchLabels: map[string]string{"none": ""}}, false},
		{Selector{MatchLabels: map[string]string{"empty": ""}}, true},
		{expr("zone", SelectorIn, "b", "a"), true}, {expr("zone", SelectorIn, "b"), false}, {expr("none", SelectorIn, ""), false},
		{expr("zone", SelectorNotIn, "a"), false}, {expr("zone", SelectorNotIn, "b"), true}, {expr("none", SelectorNotIn, "a"), true},
		{expr("zone", SelectorExists), true}, {expr("none", SelectorExists), false},
		{expr("zone", SelectorDoesNotExist), false}, {expr("none", SelectorDoesNotExist), true},
		{expr("zone", "Gt", "1"), false},
		{Selector{map[string]string{"zone": "a"}, expr("none", SelectorExists).MatchExpressions}, false},
	} {
		if got := tt.s.Matches(labels); got != tt.want {
			t.Errorf("%d: %+v: %v", i, tt.s, got)
		}
	}
}
