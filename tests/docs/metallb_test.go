package docs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/convert"
	"lbd.dev/lbd/internal/decide"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
)

// moved is a cluster whose objects were converted, with Services that have got
// addresses by them.
type moved struct {
	objects services.Objects
	pools   []allocator.Pool
	given   map[model.Key][]netip.Addr
	all     []allocator.Service
}

// read takes what `lbd convert metallb` prints as controller and daemon do.
func (m *moved) read(t *testing.T, metallb string) {
	t.Helper()
	r := convert.MetalLB([]convert.File{{Name: "in", Data: []byte(metallb)}})
	out, err := r.YAML()
	if err != nil || len(r.Errors) > 0 {
		t.Fatal(err, r.Errors)
	}
	for d := yaml.NewDecoder(bytes.NewReader(out)); ; {
		u := &unstructured.Unstructured{}
		if err := d.Decode(&u.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		var faults []v1alpha1.FieldError
		switch kind := u.GetKind(); kind {
		case v1alpha1.KindIPAddressPool:
			o := objects.Read[v1alpha1.IPAddressPool](u, kind)
			m.objects.Pools, faults = append(m.objects.Pools, o.Value), o.Errors
			m.pools = append(m.pools, allocator.Pool{Name: o.Value.Metadata.Name, UID: o.Value.Metadata.Name, Spec: o.Value.Spec})
		case v1alpha1.KindL2Advertisement:
			o := objects.Read[v1alpha1.L2Advertisement](u, kind)
			m.objects.L2Advertisements, faults = append(m.objects.L2Advertisements, o.Value), o.Errors
		case v1alpha1.KindBGPAdvertisement:
			o := objects.Read[v1alpha1.BGPAdvertisement](u, kind)
			m.objects.BGPAdvertisements, faults = append(m.objects.BGPAdvertisements, o.Value), o.Errors
		case v1alpha1.KindBGPPeer:
			o := objects.Read[v1alpha1.BGPPeer](u, kind)
			m.objects.Peers, faults = append(m.objects.Peers, o.Value), o.Errors
		case v1alpha1.KindCommunity:
			o := objects.Read[v1alpha1.Community](u, kind)
			m.objects.Communities, faults = append(m.objects.Communities, o.Value), o.Errors
		default:
			t.Fatalf("%s is not read", kind)
		}
		if len(faults) > 0 {
			t.Errorf("%s %q: %v", u.GetKind(), u.GetName(), faults)
		}
	}
}

// allocate gives the Services addresses.
func (m *moved) allocate(t *testing.T, namespaces map[string]map[string]string, all []allocator.Service) {
	t.Helper()
	a := allocator.New(allocator.Options{Class: "lbd.dev/lbd", Classless: true})
	for name, labels := range namespaces {
		a.SetNamespace(name, labels)
	}
	a.SetPools(m.pools)
	now := time.Unix(10_000, 0)
	for i := range all {
		s := &all[i]
		s.UID, s.Type, s.Created = s.Key.String(), "LoadBalancer", now.Add(time.Duration(i)*time.Second)
		if s.Families == nil {
			s.Families, s.Policy = []string{"IPv4"}, "SingleStack"
		}
		a.SetService(*s)
	}
	m.given = map[model.Key][]netip.Addr{}
	for _, w := range a.Step(now).Writes {
		for _, in := range w.Ingress {
			m.given[w.Service] = append(m.given[w.Service], netip.MustParseAddr(in.IP))
		}
	}
	m.all = all
}

// view is what the daemon of a node with these labels knows: endpoints of all Services
// are on it, and it is alone.
func (m *moved) view(labels map[string]string) *model.View {
	const self = "n1"
	b := services.New(services.Options{Self: self, Class: "lbd.dev/lbd", Classless: true})
	b.SetObjects(m.objects)
	b.SetNode(self, &services.Node{Labels: labels, Ready: services.ConditionTrue})
	for i := range m.all {
		k := m.all[i].Key
		b.SetService(k, &services.Service{Labels: m.all[i].Labels, Addresses: m.given[k]})
		for _, v6 := range []bool{false, true} {
			b.SetSlice(model.Key{Namespace: k.Namespace, Name: fmt.Sprint(k.Name, v6)}, &services.Slice{Service: k, IPv6: v6, Endpoints: services.ReadyHere})
		}
	}
	r, _ := b.Build()
	now := time.Unix(20_000, 0)
	v := &model.View{
		Now: now, Started: now.Add(-time.Hour), Self: self,
		Synced: map[model.SourceName]bool{model.SourceConfig: true, model.SourceGossip: true, model.SourceHealth: true, model.SourceLink: true, model.SourceKube: true},
		Links: map[string]model.Link{
			"eth0": {Name: "eth0", Index: 2, Up: true, IPv6: true, MAC: model.MAC{2, 1}, Since: now.Add(-time.Hour),
				Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.0.5/16"), netip.MustParsePrefix("fc00:f853:ccd:e799::5/64"), netip.MustParsePrefix("10.0.0.2/24")}},
			"lo": {Name: "lo", Index: 1, Up: true, IPv6: true},
		},
		Applied: map[model.SinkName]model.Applied{model.SinkAddress: {}, model.SinkLayer2: {}, model.SinkBGP: {}},
	}
	v.SetObjects(model.SourceKube, r.Objects)
	return v
}

// announces lets the daemon of a node decide until it has what it may have, and lists
// the addresses that it announces on the LAN, and its paths with their attributes.
func (m *moved) announces(labels map[string]string) []string {
	v := m.view(labels)
	var d model.Desired
	for range 60 { // 3 s: longer than any turn of a node that is alone
		d = decide.Decide(v)
		on := map[netip.Addr]model.AppliedVIP{}
		for _, w := range d.L2 {
			on[w.Addr] = model.AppliedVIP{
				Interface: w.Interface, Announcing: w.Mode == model.L2Announce,
				Probe: model.ProbeResult{Series: w.Series, Done: w.Mode == model.L2Probe, At: v.Now},
			}
		}
		v.Applied[model.SinkLayer2] = model.Applied{Gen: d.Gen, VIPs: on}
		v.Applied[model.SinkAddress] = model.Applied{Gen: d.Gen}
		v.Applied[model.SinkBGP] = model.Applied{Gen: d.Gen}
		v.Memory, v.Now = d.Memory, v.Now.Add(50*time.Millisecond)
	}
	out := []string{}
	for _, w := range d.L2 {
		if w.Mode == model.L2Announce {
			out = append(out, fmt.Sprintf("%s on %s", w.Addr, w.Interface))
		}
	}
	for _, p := range d.BGP.Paths {
		for _, to := range p.To {
			line := fmt.Sprintf("%s to %s", p.Prefix, strings.Join(to.Peers, " "))
			for _, c := range to.Communities {
				line += fmt.Sprintf(" %d:%d", c>>16, c&0xffff)
			}
			for _, c := range to.LargeCommunities {
				line += fmt.Sprintf(" large:%d:%d:%d", c[0], c[1], c[2])
			}
			if to.LocalPref != 0 {
				line += fmt.Sprintf(" localPref %d", to.LocalPref)
			}
			out = append(out, line)
		}
	}
	return out
}

// sample is one of the configurations of MetalLB's documentation, and what it is for.
type sample struct {
	metallb    string
	namespaces map[string]map[string]string
	services   []allocator.Service
	given      map[string]string   // by namespace/name: addresses
	announced  map[string][]string // by the name of the node
}

func named(namespace, name string) allocator.Service {
	return allocator.Service{Key: model.Key{Namespace: namespace, Name: name}}
}

const head = "apiVersion: metallb.io/v1beta1\nkind: "

// lanPool is the pool of the first pages.
const lanPool = head + `IPAddressPool
metadata: {name: first-pool, namespace: metallb-system}
spec:
  addresses:
  - 192.168.10.0/24
  - 192.168.9.1-192.168.9.5
  - fc00:f853:0ccd:e799::/124
---
`

// router is the peer of the page on BGP.
const router = `apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: sample, namespace: metallb-system}
spec: {myASN: 64500, peerASN: 64501, peerAddress: 10.0.0.1}
---
`

var samples = map[string]sample{
	"layer 2": {
		metallb: lanPool + head + `L2Advertisement
metadata: {name: example, namespace: metallb-system}
spec: {ipAddressPools: [first-pool]}
`,
		services: []allocator.Service{named("default", "nginx")},
		given:    map[string]string{"default/nginx": "192.168.10.0"},
		announced: map[string][]string{
			"NodeA": {"192.168.10.0 on eth0"},
		},
	},
	"layer 2 from some nodes": {
		metallb: lanPool + head + `L2Advertisement
metadata: {name: example, namespace: metallb-system}
spec:
  ipAddressPools: [first-pool]
  nodeSelectors:
  - matchLabels: {kubernetes.io/hostname: NodeA}
  - matchLabels: {kubernetes.io/hostname: NodeB}
`,
		services: []allocator.Service{named("default", "nginx")},
		given:    map[string]string{"default/nginx": "192.168.10.0"},
		announced: map[string][]string{
			"NodeA": {"192.168.10.0 on eth0"}, "NodeB": {"192.168.10.0 on eth0"}, "NodeC": {},
		},
	},
	"BGP": {
		metallb: lanPool + router + head + `BGPAdvertisement
metadata: {name: example, namespace: metallb-system}
`,
		services:  []allocator.Service{named("default", "nginx")},
		given:     map[string]string{"default/nginx": "192.168.10.0"},
		announced: map[string][]string{"NodeA": {"192.168.10.0/32 to sample"}},
	},
	// Each address to the site with communities, which keep it there, one prefix to the world.
	"BGP with communities": {
		metallb: router + head + `IPAddressPool
metadata: {name: bgp-pool, namespace: metallb-system}
spec: {addresses: [198.51.100.10/24]}
---
` + head + `BGPAdvertisement
metadata: {name: local, namespace: metallb-system}
spec:
  ipAddressPools: [bgp-pool]
  aggregationLength: 32
  localPref: 100
  communities: [65535:65282, vpn-only, "large:64500:1:2"]
---
` + head + `BGPAdvertisement
metadata: {name: external, namespace: metallb-system}
spec: {ipAddressPools: [bgp-pool], aggregationLength: 24}
---
` + head + `Community
metadata: {name: communities, namespace: metallb-system}
spec: {communities: [{name: vpn-only, value: "1234:1"}]}
`,
		services: []allocator.Service{named("default", "one"), named("default", "two")},
		given:    map[string]string{"default/one": "198.51.100.0", "default/two": "198.51.100.1"},
		announced: map[string][]string{"NodeA": {
			"198.51.100.0/32 to sample 1234:1 65535:65282 large:64500:1:2 localPref 100",
			"198.51.100.1/32 to sample 1234:1 65535:65282 large:64500:1:2 localPref 100",
			"198.51.100.0/24 to sample",
		}},
	},
	// Who is meant gets the pool of its own; who is not never does, even when the other is
	// full; and one pool is for who asks for it.
	"pools for namespaces and Services": {
		metallb: head + `IPAddressPool
metadata: {name: pool-for-some, namespace: metallb-system}
spec:
  addresses: [192.168.20.0/24]
  avoidBuggyIPs: true
  serviceAllocation:
    priority: 50
    namespaces: [namespace-a, namespace-b]
    namespaceSelectors:
    - matchLabels: {foo: bar}
    serviceSelectors:
    - matchExpressions:
      - {key: app, operator: In, values: [bar]}
---
` + head + `IPAddressPool
metadata: {name: expensive, namespace: metallb-system}
spec: {addresses: [42.176.25.64/30], autoAssign: false}
---
` + head + `IPAddressPool
metadata: {name: cheap, namespace: metallb-system}
spec: {addresses: [192.168.144.0/31]}
---
` + head + `L2Advertisement
metadata: {name: all, namespace: metallb-system}
`,
		namespaces: map[string]map[string]string{"namespace-a": nil, "namespace-b": nil, "labelled": {"foo": "bar"}, "other": nil},
		services: []allocator.Service{
			{Key: model.Key{Namespace: "namespace-a", Name: "meant"}, Labels: map[string]string{"app": "bar"}},
			{Key: model.Key{Namespace: "labelled", Name: "meant"}, Labels: map[string]string{"app": "bar"}},
			{Key: model.Key{Namespace: "namespace-b", Name: "no-label"}},
			{Key: model.Key{Namespace: "other", Name: "no-namespace"}, Labels: map[string]string{"app": "bar"}},
			{Key: model.Key{Namespace: "other", Name: "too-late"}},
			{Key: model.Key{Namespace: "other", Name: "rich"}, Annotations: map[string]string{"metallb.io/address-pool": "expensive"}},
		},
		given: map[string]string{
			"namespace-a/meant": "192.168.20.1", "labelled/meant": "192.168.20.2", "namespace-b/no-label": "192.168.144.0",
			"other/no-namespace": "192.168.144.1", "other/too-late": "", "other/rich": "42.176.25.64",
		},
		announced: map[string][]string{"NodeA": { // that of "rich" is in no subnet of the node
			"192.168.20.1 on eth0", "192.168.20.2 on eth0", "192.168.144.0 on eth0", "192.168.144.1 on eth0",
		}},
	},
	"dual stack": {
		metallb: lanPool + router + head + `L2Advertisement
metadata: {name: example, namespace: metallb-system}
---
` + head + `BGPAdvertisement
metadata: {name: example, namespace: metallb-system}
spec: {ipAddressPools: [first-pool], aggregationLengthV6: 124}
`,
		services: []allocator.Service{
			{Key: model.Key{Namespace: "default", Name: "both"}, Families: []string{"IPv4", "IPv6"}, Policy: "RequireDualStack"},
			{Key: model.Key{Namespace: "default", Name: "six"}, Families: []string{"IPv6"}, Policy: "SingleStack"},
		},
		given: map[string]string{"default/both": "192.168.10.0 fc00:f853:ccd:e799::", "default/six": "fc00:f853:ccd:e799::1"},
		announced: map[string][]string{"NodeA": {
			"192.168.10.0 on eth0", "fc00:f853:ccd:e799:: on eth0", "fc00:f853:ccd:e799::1 on eth0",
			"192.168.10.0/32 to sample", "fc00:f853:ccd:e799::/124 to sample",
		}},
	},
}

// TestConvertedWorks: with the samples of MetalLB's documentation, converted, Services
// get the addresses that they are to have, and nodes announce those as is asked for.
func TestConvertedWorks(t *testing.T) {
	for name, s := range samples {
		t.Run(name, func(t *testing.T) {
			m := &moved{}
			m.read(t, s.metallb)
			m.allocate(t, s.namespaces, s.services)
			for service, want := range s.given {
				var got []string
				for _, a := range m.given[model.ParseKey(service)] {
					got = append(got, a.String())
				}
				if strings.Join(got, " ") != want {
					t.Errorf("%s has %v, want %q", service, got, want)
				}
			}
			for node, want := range s.announced {
				if got := m.announces(map[string]string{"kubernetes.io/hostname": node}); !slices.Equal(got, want) {
					t.Errorf("%s announces\n  %s\nwant\n  %s", node, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
				}
			}
		})
	}
}
