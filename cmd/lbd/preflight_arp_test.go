package main

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
		l, where := place.Find(links, vip, "")
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
