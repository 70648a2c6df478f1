package link

import (
	"net"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"lbd.dev/lbd/internal/testnet"
)

// What says how packets to clients leave, and which are taken.
func TestWayBack(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	veth(t, "eth0", "eth1")
	addAddr(t, "eth0", "10.0.0.11/24")
	set := func(conf, value string) {
		t.Helper()
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+conf+"/rp_filter", []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what, name string, strict, gateway bool) {
		t.Helper()
		links, err := Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if l := links[name]; l.Strict != strict || l.Gateway != gateway {
			t.Errorf("%s: %s: strict %v, gateway %v", what, name, l.Strict, l.Gateway)
		}
	}
	set("all", "0")
	set("eth0", "0")
	check("plain", "eth0", false, false)
	set("eth0", "1")
	check("strict", "eth0", true, false)
	set("all", "2")
	check("loose for all", "eth0", false, false)
	set("all", "1")
	set("eth0", "0")
	check("strict for all", "eth0", true, false)
	set("eth0", "2")
	check("loose", "eth0", false, false)
	route := &netlink.Route{Gw: net.IPv4(10, 0, 0, 1), Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}}
	if err := netlink.RouteAdd(route); err != nil {
		t.Fatal(err)
	}
	check("a default route", "eth0", false, true)
	check("of another interface", "eth1", true, false)
}
