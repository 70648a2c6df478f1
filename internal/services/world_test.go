package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// world is what a test says of a cluster; the node is "n1".
type world struct {
	services  map[string]*Service
	endpoints map[string]string // by Service: see endpoints
	nodes     map[string]*Node
	objects   Objects
	options   Options
}

func self() Options { return Options{Self: "n1", Class: "lbd.dev/lbd"} }

// svc is a Service of our class with addresses.
func svc(addrs ...string) *Service {
	s := &Service{Class: "lbd.dev/lbd"}
	for _, a := range addrs {
		s.Addresses = append(s.Addresses, netip.MustParseAddr(a))
	}
	return s
}

func (s *Service) local() *Service                     { s.Local = true; return s }
func (s *Service) class(c string) *Service             { s.Class = c; return s }
func (s *Service) labels(l map[string]string) *Service { s.Labels = l; return s }

func ready(labels map[string]string) *Node { return &Node{Labels: labels, Ready: ConditionTrue} }

// endpoints reads "here:ready elsewhere:serving 6:here:ready".
func endpoints(text string) map[bool]Endpoints {
	out := make(map[bool]Endpoints)
	for _, w := range strings.Fields(text) {
		rest, v6 := strings.CutPrefix(w, "6:")
		where, how, _ := strings.Cut(rest, ":")
		e := out[v6]
		e.Add(where == "here", how == "ready", how == "ready" || how == "serving")
		out[v6] = e
	}
	return out
}

func (w *world) fill(b *Builder) {
	for name, n := range w.nodes {
		b.SetNode(name, n)
	}
	for name, s := range w.services {
		b.SetService(model.Key{Namespace: "default", Name: name}, s)
	}
	for name, text := range w.endpoints {
		for v6, e := range endpoints(text) {
			b.SetSlice(model.Key{Namespace: "default", Name: fmt.Sprintf("%s-%v", name, v6)}, &Slice{Service: model.Key{Namespace: "default", Name: name}, IPv6: v6, Endpoints: e})
		}
	}
	b.SetObjects(w.objects)
}

func (w *world) build(t *testing.T) Result {
	t.Helper()
	if w.nodes == nil {
		w.nodes = map[string]*Node{"n1": ready(nil), "n2": ready(nil)}
	}
	if w.options == (Options{}) {
		w.options = self()
	}
	b := New(w.options)
	w.fill(b)
	r, changed := b.Build()
	if !changed && len(r.VIPs)+len(r.Problems)+len(r.Peers) > 0 {
		t.Error("the first state is no change")
	}
	if again, changed := b.Build(); changed || len(again.VIPs) != len(r.VIPs) {
		t.Error("a second look is a change")
	}
	return r
}

// text writes VIPs a line each.
func text(vips []model.VIP) string {
	var out []string
	for _, v := range vips {
		line := v.Addr.String() + " " + strings.TrimPrefix(v.Name, "default/")
		if v.Kind == v1alpha1.KindVirtualIP {
			line += " virtual"
		}
		if v.Forwarded() {
			line += " forwarded"
		}
		if v.L2 {
			line += " l2" + fmt.Sprint(v.Interfaces)
		}
		for _, a := range v.BGP {
			line += " bgp" + fmt.Sprint(a.Peers)
		}
		if v.Barred != model.ReasonOwner {
			line += " " + v.Barred.String() + ": " + v.BarredDetail
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func said(list []Problem) string {
	var out []string
	for _, p := range list {
		out = append(out, p.Kind+" "+p.Name+": "+p.Text)
	}
	return strings.Join(out, "\n")
}

func pool(name string, addrs ...string) *v1alpha1.IPAddressPool {
	p := &v1alpha1.IPAddressPool{Spec: v1alpha1.IPAddressPoolSpec{Addresses: addrs}}
	p.Metadata.Name = name
	p.Metadata.Labels = map[string]string{"pool": name}
	p.Default()
	return p
}

func l2(name string, spec v1alpha1.L2AdvertisementSpec) *v1alpha1.L2Advertisement {
	a := &v1alpha1.L2Advertisement{Spec: spec}
	a.Metadata.Name = name
	a.Default()
	return a
}

func bgp(name string, spec v1alpha1.BGPAdvertisementSpec) *v1alpha1.BGPAdvertisement {
	a := &v1alpha1.BGPAdvertisement{Spec: spec}
	a.Metadata.Name = name
	a.Default()
	return a
}

func peer(name, addr string) *v1alpha1.BGPPeer {
	p := &v1alpha1.BGPPeer{Spec: v1alpha1.BGPPeerSpec{MyASN: 64512, PeerASN: 64513, PeerAddress: addr}}
	p.Metadata.Name = name
	p.Default()
	return p
}

func labelled(k, v string) []v1alpha1.Selector {
	return []v1alpha1.Selector{{MatchLabels: map[string]string{k: v}}}
}

func notLabelled(k string) []v1alpha1.Selector {
	return []v1alpha1.Selector{{MatchExpressions: []v1alpha1.SelectorRequirement{{Key: k, Operator: v1alpha1.SelectorDoesNotExist}}}}
}

// everywhere is one pool that every node announces by layer 2.
func everywhere() Objects {
	return Objects{
		Pools:            []*v1alpha1.IPAddressPool{pool("a", "192.0.2.0/24", "2001:db8::/112")},
		L2Advertisements: []*v1alpha1.L2Advertisement{l2("all", v1alpha1.L2AdvertisementSpec{})},
	}
}

func (o Objects) with(more ...any) Objects {
	for _, x := range more {
		switch x := x.(type) {
		case *v1alpha1.IPAddressPool:
			o.Pools = append(slices.Clone(o.Pools), x)
		case *v1alpha1.L2Advertisement:
			o.L2Advertisements = append(slices.Clone(o.L2Advertisements), x)
		case *v1alpha1.BGPAdvertisement:
			o.BGPAdvertisements = append(slices.Clone(o.BGPAdvertisements), x)
		case *v1alpha1.BGPPeer:
			o.Peers = append(slices.Clone(o.Peers), x)
		case *v1alpha1.VirtualIP:
			o.VirtualIPs = append(slices.Clone(o.VirtualIPs), x)
		case *v1alpha1.LoadBalancer:
			o.LoadBalancers = append(slices.Clone(o.LoadBalancers), x)
		case *v1alpha1.Community:
			o.Communities = append(slices.Clone(o.Communities), x)
		case *v1alpha1.BFDProfile:
			o.Profiles = append(slices.Clone(o.Profiles), x)
		default:
			panic(fmt.Sprintf("%T", x))
		}
	}
	return o
}

func one(s *Service) map[string]*Service { return map[string]*Service{"web": s} }
