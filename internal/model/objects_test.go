package model

import (
	"net/netip"
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
	v.SetObjects(SourceKube, kube, []BGPPeer{peer("tor", "10.1.0.1")})
	check("one source", "10.0.0.1=a 10.0.0.3=b ", "tor=10.1.0.1 ")
	v.SetObjects(SourceConfig, []VIP{vip("10.0.0.2", "c"), vip("10.0.0.3", "d")}, []BGPPeer{peer("leaf", "10.1.0.2"), peer("tor", "10.1.0.3")})
	check("files win", "10.0.0.1=a 10.0.0.2=c 10.0.0.3=d ", "leaf=10.1.0.2 tor=10.1.0.3 ")
	if kube[1].Name != "b" {
		t.Error("the list of the source was changed")
	}
	v.SetObjects(SourceConfig, nil, nil)
	check("files left", "10.0.0.1=a 10.0.0.3=b ", "tor=10.1.0.1 ")
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
		v.SetObjects(SourceConfig, of[0], nil)
		v.SetObjects(SourceKube, of[1], nil)
		got := ""
		for _, x := range v.VIPs {
			got += x.Addr.String() + " "
		}
		if got != "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.9 " {
			t.Error(got)
		}
	}
}
