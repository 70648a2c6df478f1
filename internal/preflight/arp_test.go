package preflight

import (
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/link"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
	"lbd.dev/lbd/internal/testnet"
)

// TestPreflightARPIgnore: what serves clients is fine, what serves nobody fails, and a
// second interface that answers is named, with the remedy.
func TestPreflightARPIgnore(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	for _, args := range []string{
		"link add eth0 type veth peer name peer0", "link set eth0 up", "link set peer0 up", "addr add 10.0.0.1/24 dev eth0",
		"link add link eth0 name mv0 type macvlan mode bridge",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	vip := model.VIP{Addr: netip.MustParseAddr("10.0.0.200"), L2: true}
	look := func(conf string, ignore int) string {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+conf+"/arp_ignore", []byte(strconv.Itoa(ignore)), 0); err != nil {
			t.Fatal(err)
		}
		links, err := link.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		all := place.LinksOf(links)
		l, where := all.Find(&vip, "")
		if !where.Reason.Eligible() {
			return where.Reason.String() + ": " + where.Detail
		}
		var out strings.Builder
		p := &preflight{out: &out, cfg: &config.Config{}}
		p.sysctls(l.Name, place.Beside(links, l.Name))
		first, _, _ := strings.Cut(out.String(), "\n")
		return first
	}
	for ignore, want := range map[int]string{0: "ok  ", 1: "ok  ", 2: "ok  ", 3: "ok  ", 8: "ARPDisabled: arp_ignore is 8 on eth0"} {
		if got := look("eth0", ignore); !strings.HasPrefix(got, want) {
			t.Errorf("arp_ignore %d: %q, want %q", ignore, got, want)
		}
	}
	look("eth0", 0)
	if out, err := exec.Command("ip", "link", "set", "mv0", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for ignore, want := range map[int]string{0: "warning ", 1: "ok  "} {
		got := look("all", ignore)
		if !strings.HasPrefix(got, want) || want == "warning " && (!strings.Contains(got, "mv0") || !strings.Contains(got, "arp_ignore=1")) {
			t.Errorf("arp_ignore %d with a macvlan: %q, want %q", ignore, got, want)
		}
	}
}

// TestPreflightForwarding: what keeps the VIP of a LoadBalancer from being forwarded fails, what
// costs connections is a warning, each with the remedy.
func TestPreflightForwarding(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	for _, args := range []string{"link add eth0.1 type veth peer name peer0", "link set eth0.1 up"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	set := func(path, value string) {
		t.Helper()
		if err := os.WriteFile("/proc/sys/net/"+path, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	look := func(vip string) string {
		var out strings.Builder
		p := &preflight{out: &out, cfg: &config.Config{}}
		p.forwards(&model.VIP{Addr: netip.MustParseAddr(vip)}, "eth0.1")
		return out.String()
	}
	for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		set(path, "0")
	}
	for _, conf := range []string{"all", "eth0.1"} {
		set("ipv4/conf/"+conf+"/send_redirects", "1")
	}
	got := look("10.0.0.200")
	for _, want := range []string{"set net.ipv4.ip_forward=1", "set net.ipv4.conf.all.send_redirects=0", "set net.ipv4.conf.eth0/1.send_redirects=0"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not said: %s", want, got)
		}
	}
	if got := look("fd00::200"); !strings.HasPrefix(got, "FAIL") || !strings.Contains(got, "set net.ipv6.conf.all.forwarding=1") || strings.Contains(got, "redirects") {
		t.Errorf("%s", got)
	}
	for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "netfilter/nf_conntrack_tcp_be_liberal", "netfilter/nf_conntrack_tcp_loose"} {
		set(path, "1")
	}
	for _, conf := range []string{"all", "eth0.1"} {
		set("ipv4/conf/"+conf+"/send_redirects", "0")
	}
	for _, vip := range []string{"10.0.0.200", "fd00::200"} {
		if got := look(vip); !strings.HasPrefix(got, "ok") {
			t.Errorf("%s: %s", vip, got)
		}
	}
}

// TestPreflightFirewall: a firewall that drops what is forwarded to a backend fails, and is named
// with the remedy; a backend that cannot be reached at all leaves it open.
func TestPreflightFirewall(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", args, err, out)
		}
	}
	for _, args := range []string{"link add eth0 type veth peer name peer0", "link set eth0 up", "link set peer0 up", "addr add 10.0.0.1/24 dev eth0"} {
		run(append([]string{"ip"}, strings.Fields(args)...)...)
	}
	vip := model.VIP{Addr: netip.MustParseAddr("10.0.0.200")}
	look := func(server string) string {
		var out strings.Builder
		p := &preflight{out: &out, cfg: &config.Config{LoadBalancers: []model.LoadBalancer{{
			VIPs: []netip.Addr{vip.Addr}, Ports: []model.ForwardPort{{Protocol: model.TCP, Port: 443}},
			Servers: []model.Server{{Addr: netip.MustParseAddr(server)}, {Addr: netip.MustParseAddr("fd00::11")}},
		}}}}
		p.firewall(&vip, "eth0")
		return out.String()
	}
	if got := look("10.0.0.11"); got != "" {
		t.Errorf("without a firewall: %s", got)
	}
	run("nft", `table inet t { chain f { type filter hook forward priority 0; policy drop; iifname "docker0" accept; }; }`)
	if got := look("10.0.0.11"); !strings.HasPrefix(got, "FAIL") || !strings.Contains(got, "chain f of table inet t drops what is forwarded to 10.0.0.11; let it accept what comes in by eth0") {
		t.Errorf("%s", got)
	}
	many := []model.Server{{Addr: netip.MustParseAddr("10.0.0.11")}}
	for range 2 * mostServersTried {
		many = append([]model.Server{{Addr: netip.MustParseAddr("fd00::11")}}, many...)
	}
	var out strings.Builder
	p := &preflight{out: &out, cfg: &config.Config{LoadBalancers: []model.LoadBalancer{{VIPs: []netip.Addr{vip.Addr}, Ports: []model.ForwardPort{{Protocol: model.TCP}}, Servers: many}}}}
	if p.firewall(&vip, "eth0"); !strings.HasPrefix(out.String(), "FAIL") {
		t.Errorf("behind many servers of the other family: %q", out.String())
	}
	if got := look("192.0.2.1"); !strings.HasPrefix(got, "warning") || !strings.Contains(got, "no route to 192.0.2.1") {
		t.Errorf("%s", got)
	}
	run("nft", "insert", "rule", "inet", "t", "f", "iifname", "eth0", "accept")
	if got := look("10.0.0.11"); got != "" {
		t.Errorf("once it is accepted: %s", got)
	}
}

// TestPreflightClientSource: what servers say is relayed by the interface of the clients, which
// takes it only if the kernel does not look for the way back.
func TestPreflightClientSource(t *testing.T) {
	look := func(vip, out string, filter int) string {
		var text strings.Builder
		p := &preflight{out: &text, cfg: &config.Config{}}
		lb := &model.LoadBalancer{Name: "api", ClientSource: true, Servers: []model.Server{{Addr: netip.MustParseAddr("10.1.0.11")}}}
		p.clientSource(&model.VIP{Addr: netip.MustParseAddr(vip)}, "eth0.1", lb,
			func(netip.Addr) (string, error) { return out, nil }, func(string, string) int { return filter })
		return text.String()
	}
	if got := look("10.0.0.200", "eth1", 1); !strings.Contains(got, "set net.ipv4.conf.eth0/1.rp_filter=2") || !strings.Contains(got, "gateway") {
		t.Errorf("%s", got)
	}
	for _, got := range []string{look("10.0.0.200", "eth0.1", 1), look("10.0.0.200", "eth1", 2), look("fd00::200", "eth1", 1)} {
		if strings.Contains(got, "rp_filter") || !strings.Contains(got, "gateway") {
			t.Errorf("%s", got)
		}
	}
}
