package layer2

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// steadfast: a slow machine is not what a test looks at.
var steadfast = Options{Standstill: time.Minute}

// asked makes the client resolve an address anew and returns what it finds.
func (l *lab) asked(addr netip.Addr, want string) {
	l.Helper()
	l.IP(hostC, "neigh flush dev eth0")
	l.touch(hostC, addr, netip.Addr{})
	if want == "" {
		time.Sleep(100 * ms)
		if got := l.neigh(hostC, addr); got != "" {
			l.Errorf("%s is at %s, want nobody", addr, got)
		}
		return
	}
	l.eventually(addr.String()+" is at "+want, func() bool { return l.neigh(hostC, addr) == want })
}

// from tells whether a frame says that a VIP is at a hardware address.
func from(mac model.MAC, vip netip.Addr) func([]byte) bool {
	return func(b []byte) bool {
		if p, ok := arp.Parse(b); ok {
			return p.SHA == mac && p.SPA == vip
		}
		m, ok := nd.Parse(b)
		return ok && m.Type == nd.Advertisement && m.MAC == mac && m.Target == vip
	}
}

// A client finds a VIP that is bound nowhere, and is served by what nftables makes of
// its packets, as kube-proxy does.
func TestLANResponds(t *testing.T) {
	l := newLab(t)
	vips := []netip.Addr{vip4, vip6}
	h := l.driver(steadfast)
	for _, vip := range vips {
		l.asked(vip, "")
	}
	l.Exec("nft", `table inet service { chain in { type nat hook prerouting priority dstnat;
		ip daddr 10.0.0.200 dnat ip to 10.0.0.1; ip6 daddr fd00::200 dnat ip6 to fd00::1; }; }`)
	for _, own := range []string{"10.0.0.1:7", "[fd00::1]:7"} {
		ln, err := net.Listen("tcp", own)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "hello")
				_ = c.Close()
			}
		}()
	}
	h.apply(respondVIP(vip4), respondVIP(vip6))
	for _, vip := range vips {
		l.asked(vip, macA.String())
		l.In(hostC, func() {
			c, err := net.DialTimeout("tcp", netip.AddrPortFrom(vip, 7).String(), 30*time.Second)
			if err != nil {
				l.Errorf("%s: %v", vip, err)
				return
			}
			if b, err := io.ReadAll(c); string(b) != "hello" {
				l.Errorf("%s: %q %v", vip, b, err)
			}
			_ = c.Close()
		})
		if out := l.IP(hostA, "addr show"); strings.Contains(out, vip.String()+"/") {
			t.Errorf("bound:\n%s", out)
		}
	}
	// The client's kernel asks the host that it knows whether it still has it.
	for _, vip := range vips {
		l.asked(vip, macA.String())
		l.IP(hostC, fmt.Sprintf("neigh change %s dev eth0 nud probe", vip))
		l.eventually("still reachable", func() bool {
			return strings.Contains(l.IP(hostC, "neigh show "+vip.String()+" dev eth0"), "REACHABLE")
		})
	}
}

// Handover: the successor answers, and the former owner nobody, at once.
func TestLANRespondsAfterHandover(t *testing.T) {
	l := newLab(t)
	a, b := l.driver(steadfast), l.driver(steadfast)
	a.apply(respondVIP(vip4), respondVIP(vip6))
	l.asked(vip4, macA.String())
	l.In(hostB, func() { b.apply(respondVIP(vip4), respondVIP(vip6)) })
	a.apply()
	for _, vip := range []netip.Addr{vip4, vip6} {
		c := l.sniff(hostC, etherType(vip))
		for range 5 {
			l.asked(vip, macB.String())
		}
		l.eventually("five answers", func() bool { return len(c.that(from(macB, vip))) >= 5 })
		if got := c.that(from(macA, vip)); len(got) != 0 {
			t.Errorf("%s: the former owner answered %d times", vip, len(got))
		}
	}
}

func TestLANSilentWithoutADecision(t *testing.T) {
	l := newLab(t)
	h := l.driver(steadfast)
	h.valid = 2 * time.Second
	h.apply(respondVIP(vip4), respondVIP(vip6))
	l.asked(vip4, macA.String())
	time.Sleep(h.valid)
	l.asked(vip4, "")
	l.asked(vip6, "")
	h.valid = time.Minute
	h.apply(respondVIP(vip4), respondVIP(vip6))
	l.asked(vip6, macA.String())
}

// Duplicate address detection of another host finds that the address is in use.
func TestLANRespondsToDuplicateAddressDetection(t *testing.T) {
	l := newLab(t)
	h := l.driver(steadfast)
	h.apply(respondVIP(vip6))
	l.In(hostB, func() {
		for _, name := range []string{"accept_dad", "dad_transmits"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/"+name, []byte("1"), 0); err != nil {
				l.Error(err)
			}
		}
	})
	l.IP(hostB, "addr add fd00::200/64 dev eth0")
	l.eventually("duplicate", func() bool {
		return strings.Contains(l.IP(hostB, "addr show dev eth0"), "dadfailed")
	})
}

// Thousands of VIPs are answered for, and the solicited-node group of each is
// joined.
func TestLANRespondsForMany(t *testing.T) {
	l := newLab(t)
	const n = 1000
	var l2 []model.L2Advert
	for i := range n {
		l2 = append(l2, respondVIP(netip.AddrFrom4([4]byte{10, 0, byte(4 + i>>8), byte(i)})))
	}
	for i := range n {
		l2 = append(l2, respondVIP(netip.AddrFrom16([16]byte{0: 0xfd, 13: 9, 14: byte(i >> 8), 15: byte(i)})))
	}
	h := l.driver(steadfast)
	start := time.Now()
	h.apply(l2...)
	t.Logf("%d VIPs: first Apply took %v", len(l2), time.Since(start))
	start = time.Now()
	h.apply(l2...)
	t.Logf("%d VIPs: second Apply took %v", len(l2), time.Since(start))
	if joined := strings.Count(l.IP(hostA, "-6 maddr show dev eth0"), "ff02::1:ff09:"); joined != n {
		t.Errorf("%d groups joined, want %d", joined, n)
	}
	frames := []*capture{l.sniff(hostC, arp.EtherType), l.sniff(hostC, nd.EtherType)}
	send := l.injector(hostC)
	answered := func() map[netip.Addr]bool {
		got := make(map[netip.Addr]bool)
		for i, c := range frames {
			c.that(func(b []byte) bool {
				m, ok := read(Family(i), b)
				if addr, uses, _ := m.says(); ok && uses && m.to == macC && m.sender() == macA {
					got[addr] = true
				}
				return false
			})
		}
		return got
	}
	for round, got := 1, answered(); len(got) < len(l2); round++ {
		if round > 30 { // what a busy machine loses
			t.Fatalf("%d of %d answered, %+v", len(got), len(l2), h.d.Stats())
		}
		for i, w := range l2 {
			if got[w.Addr] {
				continue // who got no answer asks again
			}
			if i%20 == 0 {
				time.Sleep(ms) // for the sockets of the test
			}
			send(asClient(whoHas(w.Addr)))
		}
		time.Sleep(100 * ms)
		got = answered()
		t.Logf("%d of %d answers came in round %d, %d were sent", len(got), len(l2), round, h.d.Stats().Answers)
	}
	h.apply()
	if out := l.IP(hostA, "-6 maddr show dev eth0"); strings.Contains(out, "ff02::1:ff09:") {
		t.Errorf("groups are not left:\n%s", out)
	}
}

// asClient makes the client the one that asks.
func asClient(b []byte) []byte {
	copy(b[6:], macC[:])
	if _, ok := arp.Parse(b); ok {
		copy(b[22:], macC[:])
		return b
	}
	copy(b[80:], macC[:]) // source link-layer address
	return mend(b)
}

// respondEnv makes the test binary a daemon that answers for these VIPs until it is
// killed, and writes a line for each lapse.
const respondEnv = "LBD_LAYER2_RESPOND"

func respondHelper(vips string) {
	d := New(Options{Logger: discard(), Standstill: time.Second}) // for slow machines
	want := &model.Desired{Synced: true}
	for v := range strings.FieldsSeq(vips) {
		want.L2 = append(want.L2, respondVIP(netip.MustParseAddr(v)))
	}
	var told uint64
	for {
		want.ValidUntil = time.Now().Add(time.Minute) // it is not that which ends
		a, err := d.Apply(context.Background(), want)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if a.Lapses != told {
			fmt.Println("lapse", a.Lapses)
		} else {
			fmt.Println("fine")
		}
		told = a.Lapses // and stays silent: want does not know
		select {
		case <-d.Changed():
		case <-time.After(100 * ms):
		}
	}
}

// A process that was frozen answers none of the requests that its socket kept, nor
// any later one, until a decision knows that it was. One that comes back before anybody
// can have taken the VIP goes on.
func TestLANFrozenResponder(t *testing.T) {
	l := newLab(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), respondEnv+"="+vip4.String()+" "+vip6.String())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	if got := <-lines; got != "fine" {
		t.Fatal(got)
	}
	vips := []netip.Addr{vip4, vip6}
	for _, vip := range vips {
		l.asked(vip, macA.String())
	}
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(10 * ms)
	_ = cmd.Process.Signal(syscall.SIGCONT)
	for _, vip := range vips {
		l.asked(vip, macA.String())
	}

	_ = cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(20 * ms)
	frames := []*capture{l.sniff(hostC, arp.EtherType), l.sniff(hostC, nd.EtherType)}
	for _, vip := range vips { // the kernel keeps these for the socket
		l.touch(hostC, vip, netip.Addr{})
		l.IP(hostC, "neigh flush dev eth0")
		l.touch(hostC, vip, netip.Addr{})
	}
	time.Sleep(1500 * ms)
	_ = cmd.Process.Signal(syscall.SIGCONT)
	for deadline := time.After(30 * time.Second); ; {
		select {
		case got := <-lines:
			if got == "fine" {
				continue
			}
			if got != "lapse 1" {
				t.Errorf("%q", got)
			}
		case <-deadline:
			t.Fatal("no lapse was told")
		}
		break
	}
	for _, vip := range vips {
		l.asked(vip, "")
	}
	for _, c := range frames {
		for _, vip := range vips {
			if got := c.that(from(macA, vip)); len(got) != 0 {
				t.Errorf("%s: %d frames after the thaw", vip, len(got))
			}
		}
	}
}

// Filters of any number of addresses fit the memory of a socket, also when one
// replaces another.
func TestLANLargeFilters(t *testing.T) {
	newLab(t)
	k := &linux{}
	defer k.Close()
	links, err := k.Links()
	if err != nil {
		t.Fatal(err)
	}
	for _, v6 := range []bool{false, true} {
		f := silence.ARP
		if v6 {
			f = silence.ND
		}
		var scattered []netip.Addr
		for i := range 5000 {
			b := [16]byte{0: 0xfd, 12: 200, 13: byte(i >> 6), 14: byte(i << 2), 15: byte(i * 37)}
			if v6 {
				scattered = append(scattered, netip.AddrFrom16(b))
			} else {
				scattered = append(scattered, netip.AddrFrom4([4]byte(b[12:])))
			}
		}
		p, err := k.Open(links["eth0"], f, scattered, Events{Frame: func([]byte) {}, Broken: func(error) {}})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{4000, 65, 64, 1, 0, 5000} {
			if err := p.Filter(scattered[:n]); err != nil {
				t.Errorf("%d addresses: %v", n, err)
			}
		}
		p.Close()
	}
}
