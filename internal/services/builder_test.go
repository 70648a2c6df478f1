package services

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// TestStepByStep: whatever has happened in whatever order, the result is that of a
// Builder that was told only how things are in the end; and each Build says rightly
// whether it has changed.
func TestStepByStep(t *testing.T) {
	objects := []Objects{
		{}, everywhere(), everywhere().with(virtualIP("api", "192.0.2.3"), peer("r", "198.51.100.1")),
		everywhere().with(bgp("b", v1alpha1.BGPAdvertisementSpec{ServiceSelectors: labelled("app", "1")})),
		{Pools: everywhere().Pools, L2Advertisements: []*v1alpha1.L2Advertisement{l2("p", v1alpha1.L2AdvertisementSpec{
			NodeSelectors:          labelled("zone", "1"),
			PreferredNodeSelectors: []v1alpha1.PreferredNode{{Weight: 5, Preference: labelled("app", "1")[0]}}})}},
	}
	rapid.Check(t, func(t *rapid.T) {
		b := New(self())
		now := world{services: map[string]*Service{}, nodes: map[string]*Node{}}
		ends := map[model.Key]*Slice{}
		label := func(name string) map[string]string {
			return map[string]string{name: fmt.Sprint(rapid.IntRange(0, 1).Draw(t, name))}
		}
		before := ""
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1: // a Service
				name := fmt.Sprintf("s%d", rapid.IntRange(0, 3).Draw(t, "service"))
				s := &Service{Class: rapid.SampledFrom([]string{"lbd.dev/lbd", "", "x"}).Draw(t, "class"), Labels: label("app"), Local: rapid.Bool().Draw(t, "local")}
				for range rapid.IntRange(0, 2).Draw(t, "addresses") {
					a := rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1", "10.0.0.1"}).Draw(t, "address")
					s.Addresses = append(s.Addresses, netip.MustParseAddr(a))
				}
				b.SetService(model.Key{Namespace: "default", Name: name}, s)
				now.services[name] = s
			case 2: // it is deleted
				name := fmt.Sprintf("s%d", rapid.IntRange(0, 3).Draw(t, "service"))
				b.SetService(model.Key{Namespace: "default", Name: name}, nil)
				delete(now.services, name)
			case 3: // a slice
				k := model.Key{Namespace: "default", Name: fmt.Sprintf("e%d", rapid.IntRange(0, 4).Draw(t, "slice"))}
				var s *Slice
				if rapid.Bool().Draw(t, "there") {
					s = &Slice{Service: model.Key{Namespace: "default", Name: fmt.Sprintf("s%d", rapid.IntRange(0, 3).Draw(t, "of"))}, IPv6: rapid.Bool().Draw(t, "v6"),
						Endpoints: Endpoints(rapid.IntRange(0, 15).Draw(t, "endpoints"))}
				}
				b.SetSlice(k, s)
				delete(ends, k)
				if s != nil {
					ends[k] = s
				}
			case 4: // a Node
				name := rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")
				if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
					b.SetNode(name, nil)
					delete(now.nodes, name)
					break
				}
				n := &Node{Labels: label(rapid.SampledFrom([]string{"app", "zone"}).Draw(t, "label")),
					Ready: rapid.SampledFrom([]ConditionStatus{ConditionTrue, ConditionFalse}).Draw(t, "ready")}
				b.SetNode(name, n)
				now.nodes[name] = n
			default:
				now.objects = rapid.SampledFrom(objects).Draw(t, "objects")
				b.SetObjects(now.objects)
			}
			if rapid.Bool().Draw(t, "wait") {
				continue
			}
			got, changed := b.Build()
			fresh := New(self())
			now.fill(fresh)
			for k, s := range ends {
				fresh.SetSlice(k, s)
			}
			want, _ := fresh.Build()
			if g, w := whole(got), whole(want); g != w {
				t.Fatalf("got\n%s\nwant\n%s", g, w)
			} else if changed != (g != before) {
				t.Fatalf("changed %v, from\n%s\nto\n%s", changed, before, g)
			} else {
				before = g
			}
		}
	})
}

func whole(r Result) string {
	prefs := ""
	for _, v := range r.VIPs {
		if v.Preference != nil {
			prefs += fmt.Sprint(v.Addr, v.Preference.Scores)
		}
	}
	peers := ""
	for _, p := range r.Peers {
		peers += p.Name
	}
	if len(r.VIPs)+len(r.Problems)+len(r.Labels)+len(peers) == 0 {
		return ""
	}
	return text(r.VIPs) + "\n" + prefs + "\n" + peers + "\n" + fmt.Sprint(r.Labels) + said(r.Problems)
}

// TestSamePointers: what a change of another object leaves alone stays the same
// pointer, by which decisions see that it is no news.
func TestSamePointers(t *testing.T) {
	o := everywhere().with(bgp("b", v1alpha1.BGPAdvertisementSpec{Communities: []string{"1:2"}}),
		l2("p", v1alpha1.L2AdvertisementSpec{PreferredNodeSelectors: []v1alpha1.PreferredNode{{Weight: 5}}}))
	w := world{services: one(svc("192.0.2.1")), nodes: map[string]*Node{"n1": ready(nil)}, objects: o, options: self()}
	b := New(self())
	w.fill(b)
	first, _ := b.Build()
	b.SetObjects(o.with(pool("z", "203.0.113.0/24")))
	second, changed := b.Build()
	if changed || &first.VIPs[0].BGP[0] != &second.VIPs[0].BGP[0] || first.VIPs[0].Preference != second.VIPs[0].Preference || &first.VIPs[0] != &second.VIPs[0] {
		t.Error("a pool that nobody uses changed a VIP")
	}
	b.SetObjects(everywhere().with(bgp("b", v1alpha1.BGPAdvertisementSpec{Communities: []string{"1:3"}})))
	if third, changed := b.Build(); !changed || &third.VIPs[0].BGP[0] == &first.VIPs[0].BGP[0] {
		t.Error("another community is no news")
	}
	if len(b.adverts) != 1 || len(b.prefs) != 0 {
		t.Errorf("%d adverts and %d preferences are kept", len(b.adverts), len(b.prefs))
	}
}

// many is a cluster with n Services on three nodes.
func many(n int) *Builder {
	b := New(self())
	for _, name := range []string{"n1", "n2", "n3"} {
		b.SetNode(name, ready(map[string]string{"kubernetes.io/hostname": name}))
	}
	b.SetObjects(Objects{Pools: []*v1alpha1.IPAddressPool{pool("a", "10.0.0.0/8")}}.with(
		l2("l", v1alpha1.L2AdvertisementSpec{ServiceSelectors: labelled("app", "x")}), bgp("b", v1alpha1.BGPAdvertisementSpec{})))
	a := netip.MustParseAddr("10.0.0.1")
	for i := range n {
		k := model.Key{Namespace: "default", Name: fmt.Sprintf("service-%d", i)}
		b.SetService(k, &Service{Class: "lbd.dev/lbd", Addresses: []netip.Addr{a}, Labels: map[string]string{"app": "x"}, Local: i%2 == 0})
		b.SetSlice(k, &Slice{Service: k, Endpoints: ReadyHere})
		a = a.Next()
	}
	return b
}

func BenchmarkBuildAll(b *testing.B) {
	x := many(5000)
	x.Build()
	b.ReportAllocs()
	for b.Loop() {
		x.all = true
		x.Build()
	}
}

func BenchmarkFirst(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		many(5000).Build()
	}
}

// BenchmarkEndpointMoves is what a change of an endpoint that matters costs.
func BenchmarkEndpointMoves(b *testing.B) {
	x := many(5000)
	x.Build()
	k := model.Key{Namespace: "default", Name: "service-2500"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x.SetSlice(k, &Slice{Service: k, Endpoints: []Endpoints{ReadyHere, ReadyElsewhere}[i%2]})
		if _, changed := x.Build(); changed != (i > 0) {
			b.Fatal("no change")
		}
	}
}

// BenchmarkEndpointChurn is what one costs that does not.
func BenchmarkEndpointChurn(b *testing.B) {
	x := many(5000)
	x.Build()
	k := model.Key{Namespace: "default", Name: "service-2501"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x.SetSlice(k, &Slice{Service: k, Endpoints: []Endpoints{ReadyHere, ReadyElsewhere}[i%2]})
		if _, changed := x.Build(); changed {
			b.Fatal("a change")
		}
	}
}

// TestEndpointsCountWhereTheyAre: an EndpointSlice counts for the addresses of its family and of
// the Service that it is of now, from one Build to the next.
func TestEndpointsCountWhereTheyAre(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	a, b := model.Key{Namespace: "default", Name: "a"}, model.Key{Namespace: "default", Name: "b"}
	x := New(self())
	x.SetObjects(everywhere())
	x.SetService(a, &Service{Class: "lbd.dev/lbd", Addresses: []netip.Addr{four}})
	x.SetService(b, &Service{Class: "lbd.dev/lbd", Addresses: []netip.Addr{six}})
	k := model.Key{Namespace: "default", Name: "slice"}
	for _, c := range []struct {
		name string
		s    *Slice
		want string
	}{
		{"none", nil, "192.0.2.1 false, 2001:db8::1 false"},
		{"of a, IPv4", &Slice{Service: a, Endpoints: ReadyHere}, "192.0.2.1 true, 2001:db8::1 false"},
		{"of a, IPv6", &Slice{Service: a, IPv6: true, Endpoints: ReadyHere}, "192.0.2.1 false, 2001:db8::1 false"},
		{"of b, IPv6", &Slice{Service: b, IPv6: true, Endpoints: ReadyHere}, "192.0.2.1 false, 2001:db8::1 true"},
		{"of a, IPv4 again", &Slice{Service: a, Endpoints: ReadyHere}, "192.0.2.1 true, 2001:db8::1 false"},
		{"removed", nil, "192.0.2.1 false, 2001:db8::1 false"},
	} {
		x.SetSlice(k, c.s)
		r, _ := x.Build()
		var got []string
		for i := range r.VIPs {
			got = append(got, fmt.Sprint(r.VIPs[i].Addr, " ", r.VIPs[i].Barred != model.ReasonNoEndpoint))
		}
		if said := strings.Join(got, ", "); said != c.want {
			t.Errorf("%s: %s, want %s", c.name, said, c.want)
		}
	}
}
