package tenants

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

// TestPoolsByBGP: a Service gets no address that no node would own at layer 2; what it has stays, and is
// said to be announced by nobody. A pool without any advertisement is no concern of tenants.
func TestPoolsByBGP(t *testing.T) {
	both, alone := Announced{L2: true, BGP: true}, Announced{BGP: true}
	fixed := func(in *Input) { in.Services[key("shop", "default.web")].Spec.Addresses = []string{"198.51.100.1"} }
	given := func(in *Input) {
		in.Services[key("shop", "default.web")].Given = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	}
	client := func(in *Input) {
		given(in)
		in.Services[key("shop", "default.web")].Spec.Source = v1alpha1.SourceClient
		in.Tenants[0].Spec.Sources = []v1alpha1.SourceAddress{v1alpha1.SourceClient}
	}
	for name, c := range map[string]struct {
		public, other Announced
		change        func(*Input)
		reason        Reason
		words         string
		pools         string // that it asks for
	}{
		"both":                     {both, both, nil, ReasonNoAddress, "", "public other"},
		"neither":                  {Announced{}, Announced{}, nil, ReasonNoAddress, "", "public other"},
		"layer 2":                  {Announced{L2: true}, both, given, ReasonAccepted, "", "public other"},
		"both, and it has one":     {both, both, given, ReasonAccepted, "", "public other"},
		"one pool is":              {alone, both, nil, ReasonNoAddress, "", "other"},
		"both pools are":           {alone, alone, nil, ReasonPool, "the pool public of the hub has a BGPAdvertisement and no L2Advertisement", ""},
		"one of which it asks for": {both, alone, fixed, ReasonPool, "the pool other of the hub", ""},
		"one of which it has one":  {alone, alone, given, ReasonNotAnnounced, "need beside it: nobody announces 192.0.2.1", "public"},
		"source client":            {both, both, client, ReasonAccepted, "192.0.2.1 is announced at layer 2 only", "public other"},
		"source client, layer 2":   {Announced{L2: true}, both, client, ReasonAccepted, "", "public other"},
	} {
		in := two()
		in.Tenants[0].Spec.Pools = []string{"public", "other"}
		in.Services[key("shop", "default.web")] = service(0, 30080)
		in.Announced = map[string]Announced{"public": c.public, "other": c.other}
		if c.change != nil {
			c.change(in)
		}
		out := Judge(in)
		v := out.Services[key("shop", "default.web")]
		if v.Reason != c.reason || c.reason != ReasonNoAddress && (v.Message == "") != (c.words == "") || !strings.Contains(v.Message, c.words) {
			t.Errorf("%s: %s %q, want %s %q", name, v.Reason, v.Message, c.reason, c.words)
		}
		i := slices.IndexFunc(out.Requests, func(r Request) bool { return r.Key == key("shop", "default.web") })
		if (i >= 0) != (c.pools != "") || i >= 0 && strings.Join(out.Requests[i].Pools, " ") != c.pools {
			t.Errorf("%s: it asks for %+v, want %s", name, out.Requests, c.pools)
		}
		if got := strings.Join(in.Tenants[0].Spec.Pools, " "); got != "public other" {
			t.Errorf("%s: the Tenant has %s", name, got)
		}
	}
}
