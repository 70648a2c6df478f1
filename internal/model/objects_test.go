package model

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestSetObjects(t *testing.T) {
	vip := func(a, name string) VIP { return VIP{Addr: netip.MustParseAddr(a), Name: name} }
	peer := func(name, a string) BGPPeer { return BGPPeer{Name: name, Address: netip.MustParseAddr(a)} }
	var v View
	check := func(what, vips, peers string) {
		t.Helper()
		var gotV, gotP string
		for _, x := range v.VIPs {
			gotV += x.Addr.String() + "=" + x.Name + " "
		}
		for _, x := range v.Peers {
			gotP += x.Name + "=" + x.Address.String() + " "
		}
		if gotV != vips || gotP != peers {
			t.Errorf("%s: %q %q, want %q %q", what, gotV, gotP, vips, peers)
		}
	}
	kube := []VIP{vip("10.0.0.1", "a"), vip("10.0.0.3", "b")}
	v.SetObjects(SourceKube, Objects{VIPs: kube, Peers: []BGPPeer{peer("tor", "10.1.0.1")}})
	check("one source", "10.0.0.1=a 10.0.0.3=b ", "tor=10.1.0.1 ")
	v.SetObjects(SourceConfig, Objects{VIPs: []VIP{vip("10.0.0.2", "c"), vip("10.0.0.3", "d")}, Peers: []BGPPeer{peer("leaf", "10.1.0.2"), peer("tor", "10.1.0.3")}})
	check("files win", "10.0.0.1=a 10.0.0.2=c 10.0.0.3=d ", "leaf=10.1.0.2 tor=10.1.0.3 ")
	if kube[1].Name != "b" {
		t.Error("the list of the source was changed")
	}
	v.SetObjects(SourceConfig, Objects{})
	check("files left", "10.0.0.1=a 10.0.0.3=b ", "tor=10.1.0.1 ")
}

// TestLoadBalancersOfTwoSources: of two with one name that of the files counts, with its
// addresses only; and one whose address another object has goes on with the others.
func TestLoadBalancersOfTwoSources(t *testing.T) {
	of := func(kind, name string, addrs ...string) (o Objects) {
		lb := LoadBalancer{Name: name}
		for _, a := range addrs {
			o.VIPs = append(o.VIPs, VIP{Addr: netip.MustParseAddr(a), Name: name, Kind: kind})
			lb.VIPs = append(lb.VIPs, netip.MustParseAddr(a))
		}
		if kind == KindLoadBalancer {
			o.LoadBalancers = []LoadBalancer{lb}
		}
		return o
	}
	for name, x := range map[string]struct{ files, cluster, of string }{
		"one source":       {"", "web 10.0.0.1 10.0.0.2", "web 10.0.0.1 10.0.0.2: 2 VIPs"},
		"two names":        {"api 10.0.0.3", "web 10.0.0.1", "api 10.0.0.3; web 10.0.0.1: 2 VIPs"},
		"one name":         {"web 10.0.0.3", "web 10.0.0.1", "web 10.0.0.3: 1 VIPs"},
		"one address":      {"VIP 10.0.0.1", "web 10.0.0.1 10.0.0.2", "web 10.0.0.2: 2 VIPs"},
		"the only address": {"VIP 10.0.0.1", "web 10.0.0.1", ": 1 VIPs"},
		"two of one":       {"api 10.0.0.1", "web 10.0.0.1 10.0.0.2", "api 10.0.0.1; web 10.0.0.2: 2 VIPs"},
	} {
		var v View
		var sources []Objects
		for _, text := range []string{x.files, x.cluster} {
			kind, words := KindLoadBalancer, strings.Fields(text)
			if len(words) == 0 {
				sources = append(sources, Objects{})
				continue
			}
			if words[0] == "VIP" {
				kind = "VirtualIP"
			}
			sources = append(sources, of(kind, words[0], words[1:]...))
		}
		v.SetObjects(SourceKube, sources[1])
		v.SetObjects(SourceConfig, sources[0])
		var got []string
		for _, lb := range v.LoadBalancers {
			got = append(got, strings.TrimSpace(lb.Name+" "+strings.Trim(fmt.Sprint(lb.VIPs), "[]")))
		}
		if all := fmt.Sprintf("%s: %d VIPs", strings.Join(got, "; "), len(v.VIPs)); all != x.of {
			t.Errorf("%s: %s, want %s", name, all, x.of)
		}
		if words := strings.Fields(x.cluster); !reflect.DeepEqual(sources[1], of(KindLoadBalancer, words[0], words[1:]...)) {
			t.Errorf("%s: the list of the source was changed: %+v", name, sources[1])
		}
	}
}

func TestSetLabels(t *testing.T) {
	var v View
	check := func(what, zone, rack string) {
		t.Helper()
		if v.Labels["zone"] != zone || v.Labels["rack"] != rack {
			t.Errorf("%s: %v", what, v.Labels)
		}
	}
	v.SetLabels(SourceConfig, map[string]string{"zone": "file", "rack": "file"})
	check("files alone", "file", "file")
	v.SetLabels(SourceKube, map[string]string{"zone": "node"})
	check("the Node wins", "node", "file")
	v.SetLabels(SourceConfig, map[string]string{"zone": "new"})
	check("a reload", "node", "")
	v.SetLabels(SourceKube, nil)
	check("no Node", "new", "")
}

// TestObjectsOfSourcesThatDoNotMeet: each source may have the last of all, or several in a row.
func TestObjectsOfSourcesThatDoNotMeet(t *testing.T) {
	one := []VIP{{Addr: netip.MustParseAddr("10.0.0.1")}, {Addr: netip.MustParseAddr("10.0.0.2")}, {Addr: netip.MustParseAddr("10.0.0.9")}}
	two := []VIP{{Addr: netip.MustParseAddr("10.0.0.3")}, {Addr: netip.MustParseAddr("10.0.0.4")}}
	for _, of := range [][2][]VIP{{one, two}, {two, one}} {
		var v View
		v.SetObjects(SourceConfig, Objects{VIPs: of[0]})
		v.SetObjects(SourceKube, Objects{VIPs: of[1]})
		got := ""
		for _, x := range v.VIPs {
			got += x.Addr.String() + " "
		}
		if got != "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.9 " {
			t.Error(got)
		}
	}
}
