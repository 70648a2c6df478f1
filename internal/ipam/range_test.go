package ipam

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.0/24":                "192.0.2.0-192.0.2.255",
		"192.0.2.7/32":                "192.0.2.7-192.0.2.7",
		"10.0.0.0/8":                  "10.0.0.0-10.255.255.255",
		"192.0.2.10-192.0.2.20":       "192.0.2.10-192.0.2.20",
		" 192.0.2.10 - 192.0.2.10 ":   "192.0.2.10-192.0.2.10",
		"2001:db8::/64":               "2001:db8::-2001:db8::ffff:ffff:ffff:ffff",
		"2001:db8::1-2001:db8::1:0":   "2001:db8::1-2001:db8::1:0",
		"":                            "is neither a CIDR nor a range first-last",
		"-":                           "has an end that is not an IP address",
		"192.0.2.0/33":                "is neither a CIDR nor a range first-last",
		"192.0.2.300-192.0.2.301":     "has an end that is not an IP address",
		"192.0.2.1":                   "is one address; write 192.0.2.1/32",
		"192.0.2.5/24":                "has bits set beyond its prefix length; write 192.0.2.0/24 for all of them or 192.0.2.5/32 for one",
		"192.0.2.9-192.0.2.8":         "ends before it begins",
		"192.0.2.9-2001:db8::":        "has ends of different address families",
		"192.0.2.9-192.0.2.10-":       "has an end that is not an IP address",
		"192.0.2.0/24-192.0.2.1":      "has an end that is not an IP address",
		"::ffff:192.0.2.1-192.0.2.2":  "has an IPv4 end in IPv6 form",
		"::ffff:192.0.2.0/120":        "is an IPv4 prefix in IPv6 form",
		"2001:db8::1%eth0-2001:db8::": "has an end with a zone",
		"0.0.0.0/0":                   "contains addresses of 0.0.0.0/8 (this network, RFC 1122 section 3.2.1.3), which no Service can have",
		"126.0.0.0-127.0.0.0":         "contains addresses of 127.0.0.0/8 (loopback, RFC 1122 section 3.2.1.3), which no Service can have",
		"224.0.0.0/24":                "contains addresses of 224.0.0.0/4 (multicast, RFC 5771), which no Service can have",
		"255.255.255.254/31":          "contains addresses of 255.255.255.255/32 (limited broadcast, RFC 919), which no Service can have",
		"::/0":                        "contains addresses of ::/127 (unspecified and loopback, RFC 4291 section 2.5), which no Service can have",
		"fe80::/64":                   "contains addresses of fe80::/10 (link-local, RFC 4291 section 2.5.6), which no Service can have",
		"f000::/4":                    "contains addresses of fe80::/10 (link-local, RFC 4291 section 2.5.6), which no Service can have",
		"127.255.255.255-128.0.0.5":   "contains addresses of 127.0.0.0/8 (loopback, RFC 1122 section 3.2.1.3), which no Service can have",
		"::fffe:0-::1:0:0:0":          "contains addresses of ::ffff:0.0.0.0/96 (IPv4 in IPv6 form, RFC 4291 section 2.5.5.2), which no Service can have",
		"2001:db8::1%eth0":            "is neither a CIDR nor a range first-last",
		"ff02::/64":                   "contains addresses of ff00::/8 (multicast, RFC 4291 section 2.7), which no Service can have",
	} {
		r, err := v1alpha1.ParseAddressRange(text)
		got := written(r)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s\nwant %s", text, got, want)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"192.0.2.0/24", "192.0.2.10-192.0.2.20", "2001:db8::/64", " a - b ", "::/0", "1.2.3.4-::1", "10.0.0.0/8"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := v1alpha1.ParseAddressRange(s)
		if err != nil {
			if r != (v1alpha1.AddressRange{}) || err.Error() == "" {
				t.Fatalf("%q: %v with %v", s, r, err)
			}
			return
		}
		if r.First.Is4() != r.Last.Is4() || r.Last.Less(r.First) || r.First.Is4In6() || r.First.IsMulticast() || r.Last.IsMulticast() ||
			r.First.IsUnspecified() || r.First.Zone() != "" || r.Last.Zone() != "" {
			t.Fatalf("%q: %v", s, r)
		}
		again, err := v1alpha1.ParseAddressRange(written(r))
		if err != nil || again != r {
			t.Fatalf("%q: %v again is %v, %v", s, r, again, err)
		}
		if p, err := netip.ParsePrefix(strings.TrimSpace(s)); err == nil && (!p.Contains(r.First) || !p.Contains(r.Last) || p.Contains(r.Last.Next())) {
			t.Fatalf("%q is not %v", s, r)
		}
		a, errs := New(Config{Pools: []Pool{{Name: "p", Addresses: []string{s}, AutoAssign: true}}})
		got, err := a.Allocate(Request{Owner: model.Key{Name: "o"}, Families: []Family{FamilyOf(r.First)}}, t0)
		if len(errs) > 0 || err != nil || got.Addresses[0].Addr != r.First {
			t.Fatalf("%q: first address %v, %v, %v", s, got, err, errs)
		}
	})
}

// TestNumbering: the addresses of a pool are numbered without a gap, in order, and
// those that are avoided have no number.
func TestNumbering(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		avoid := rapid.Bool().Draw(t, "avoid")
		var texts []string
		var addrs []netip.Addr
		blocks := rapid.Permutation([]int{0, 1, 2, 3}).Draw(t, "order")
		for _, b := range blocks {
			lo := rapid.IntRange(0, 700).Draw(t, "lo")
			hi := min(lo+rapid.SampledFrom([]int{0, 1, 2, 255, 256, 300}).Draw(t, "length"), 1023)
			base := number{lo: 10<<24 | uint64(b)<<10}
			r := v1alpha1.AddressRange{First: base.plus(small(uint64(lo))).addr(IPv4), Last: base.plus(small(uint64(hi))).addr(IPv4)}
			texts = append(texts, written(r))
			for x := r.First; !r.Last.Less(x); x = x.Next() {
				if last := x.As4()[3]; !avoid || last != 0 && last != 255 {
					addrs = append(addrs, x)
				}
			}
		}
		a, errs := New(Config{Pools: []Pool{{Name: "p", Addresses: texts, AvoidBuggyIPs: avoid}}})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		s := &a.pools["p"].spaces[0]
		if s.size != small(uint64(len(addrs))) {
			t.Fatalf("%v: %v addresses, want %d", texts, s.size, len(addrs))
		}
		for i, addr := range addrs {
			if got := s.at(small(uint64(i)), IPv4); got != addr {
				t.Fatalf("%v: %d is %v, want %v", texts, i, got, addr)
			}
			if at := a.place(addr); !at.ok || at.index != small(uint64(i)) {
				t.Fatalf("%v: %v is %v, want %d", texts, addr, at, i)
			}
		}
	})
}
