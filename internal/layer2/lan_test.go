package layer2

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// These tests run on a real LAN between namespaces.

func etherType(a netip.Addr) int {
	if a.Is4() {
		return arp.EtherType
	}
	return nd.EtherType
}

func TestLANAnnouncements(t *testing.T) {
	l := newLab(t)
	for name, vip := range map[string]netip.Addr{"ARP": vip4, "ND": vip6} {
		t.Run(name, func(t *testing.T) {
			c := l.sniff(hostC, etherType(vip))
			h := l.driver(Options{})
			start := time.Now()
			h.apply(announceVIP(vip))
			t.Logf("Apply took %v", time.Since(start))
			want := gratuitous(macA, vip)
			l.eventually("four announcements", func() bool {
				h.apply(announceVIP(vip)) // which goes on with a burst that was late
				return len(c.that(is(want))) >= 4
			})
			for i, x := range c.that(is(want))[:4] {
				off := x.at.Sub(start) - burstAt[i] // a busy machine leaves some out
				t.Logf("announcement %d %v late", i, off)
				if off < 0 {
					t.Errorf("announcement %d %v early", i, -off)
				}
			}
			h.close()
		})
	}
}

func TestLANRouterFlagIsThatOfTheKernel(t *testing.T) {
	l := newLab(t)
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/forwarding", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	c := l.sniff(hostC, nd.EtherType)
	l.driver(Options{}).apply(announceVIP(vip6))
	l.eventually("advertisement of a router", func() bool {
		return len(c.that(is(nd.Announce(macA, vip6, true)))) > 0
	})
}

// The neighbour entry of a Linux client follows each announcement, also right
// after the last change of it.
func TestLANClientFollows(t *testing.T) {
	l := newLab(t)
	h := l.driver(Options{})
	for _, vip := range []netip.Addr{vip4, vip6} {
		l.bind(hostB, vip)
		l.touch(hostC, vip, netip.Addr{})
		l.eventually("client knows B", func() bool { return l.neigh(hostC, vip) == macB.String() })
		h.apply(announceVIP(vip))
		l.eventually("client follows to A", func() bool { return l.neigh(hostC, vip) == macA.String() })
		send := l.injector(hostB)
		for i := range 5 { // back and forth, as fast as it goes
			send(gratuitous(macB, vip))
			w := announceVIP(vip)
			w.Burst = uint64(i + 1)
			h.apply(w)
		}
		time.Sleep(5 * ms)
		if got := l.neigh(hostC, vip); got != macA.String() {
			t.Errorf("%s: the client went to %s", vip, got)
		}
	}
}

func TestLANProbe(t *testing.T) {
	l := newLab(t)
	log := discard()
	for _, vip := range []netip.Addr{vip4, vip6} {
		start := time.Now()
		r, err := Probe(t.Context(), log, "eth0", vip)
		took := time.Since(start)
		if err != nil || !r.Done || r.Answered || took < 45*ms {
			t.Errorf("%s: nobody holds it: %+v %v after %v", vip, r, err, took)
		}
		l.bind(hostB, vip)
		start = time.Now()
		r, err = Probe(t.Context(), log, "eth0", vip)
		took = time.Since(start)
		if err != nil || !r.Answered || r.By != macB {
			t.Errorf("%s: B holds it: %+v %v after %v", vip, r, err, took)
		}
		t.Logf("%s: answered after %v", vip, took)
	}
	// What this host holds itself is not foreign.
	own := netip.MustParseAddr("10.0.0.1")
	if r, err := Probe(t.Context(), log, "eth0", own); err != nil || r.Answered {
		t.Errorf("own address: %+v %v", r, err)
	}
	if _, err := Probe(t.Context(), log, "eth7", vip4); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("no such interface: %v", err)
	}
	if _, err := Probe(t.Context(), log, "lo", vip4); err == nil {
		t.Error("loopback: no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Probe(ctx, log, "eth0", netip.MustParseAddr("10.0.0.77")); err == nil {
		t.Error("cancelled: no error")
	}
}

// The kernel of another host answers for an address of its own, which is no VIP, without
// any process, and not from behind a cut cable. Beside it VIPs are announced.
func TestLANProbeOfAHost(t *testing.T) {
	l := newLab(t)
	l.In(hostB, func() { // stricter than strictARP of kube-proxy sets it
		for name, value := range map[string]string{"arp_ignore": "2", "arp_announce": "2"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/"+name, []byte(value), 0); err != nil {
				t.Error(err)
			}
		}
	})
	h := l.driver(Options{})
	number := uint64(0)
	ask := func(host netip.Addr) (r model.ProbeResult) {
		number++
		w := probeVIP(host, number)
		w.Lasts = 150 * ms
		l.eventually("the end of the series", func() bool {
			got := h.apply(announceVIP(vip4), announceVIP(vip6), w)
			if !got[vip4].Announcing || !got[vip6].Announcing {
				t.Fatalf("not announcing beside it: %+v", got)
			}
			r = got[host].Probe
			return r.Done && r.Series == number
		})
		return r
	}
	for _, host := range []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")} {
		if r := ask(host); !r.Answered || r.By != macB {
			t.Errorf("%s: %+v", host, r)
		}
		l.IP(hostS, "link set p"+hostB+" down")
		if r := ask(host); r.Answered {
			t.Errorf("%s, cut off: %+v", host, r)
		}
		l.IP(hostS, "link set p"+hostB+" up")
		l.eventually("back", func() bool { return ask(host).Answered })
	}
}

// Two nodes that probe for the same VIP hear each other.
func TestLANProbesOfRivals(t *testing.T) {
	l := newLab(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		a, b := l.driver(Options{}), l.driver(Options{})
		number := uint64(0)
		l.eventually("both hear each other", func() bool {
			number++ // on a busy machine one series may be over before the other begins
			var ra, rb model.ProbeResult
			l.eventually("both series end", func() bool {
				ra = a.apply(probeVIP(vip, number))[vip].Probe
				l.In(hostB, func() { rb = b.apply(probeVIP(vip, number))[vip].Probe })
				return ra.Done && ra.Series == number && rb.Done && rb.Series == number
			})
			if ra.Answered || rb.Answered {
				t.Fatalf("%s: A: %+v, B: %+v", vip, ra, rb)
			}
			return ra.Rivals[0] == macB && rb.Rivals[0] == macA
		})
		t.Logf("%s: in series %d", vip, number)
	}
}

// A client that resolves the VIP, as any does when it fails, is no rival.
func TestLANClientIsNoRival(t *testing.T) {
	l := newLab(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		h := l.driver(Options{})
		h.apply(probeVIP(vip, 1))
		l.touch(hostC, vip, netip.Addr{})
		var r model.ProbeResult
		l.eventually("the end of the series", func() bool {
			r = h.apply(probeVIP(vip, 1))[vip].Probe
			return r.Done
		})
		if r.Answered || r.Rivals[0] != (model.MAC{}) {
			t.Errorf("%s: %+v", vip, r)
		}
	}
}

func TestLANProbeWithoutLink(t *testing.T) {
	l := newLab(t)
	h := l.driver(Options{})
	series := uint64(0)
	l.eventually("carrier is lost within a series", func() bool { // on a busy machine it may be over before
		l.IP(hostS, "link set p up")
		series++
		h.apply(probeVIP(vip4, series))
		l.IP(hostS, "link set p down")
		time.Sleep(100 * ms)
		a, _ := h.try(probeVIP(vip4, series))
		return !a.VIPs[vip4].Probe.Done
	})
	// Nothing is proved, whatever the reason. The kernel may refuse to send before it
	// says why: changes of the carrier are told once a second.
	l.eventually("told that there is no carrier", func() bool {
		a, err := h.try(probeVIP(vip4, series))
		got := a.VIPs[vip4]
		if err == nil || got.Probe.Done {
			t.Fatalf("%v, report %+v", err, got)
		}
		return strings.Contains(got.Err, "no carrier")
	})
	l.IP(hostS, "link set p up")
	l.eventually("silent after the link is back", func() bool {
		a, _ := h.try(probeVIP(vip4, series))
		return a.VIPs[vip4].Probe.Done && !a.VIPs[vip4].Probe.Answered
	})
	l.IP(hostA, "link set eth0 down")
	if a, err := h.try(probeVIP(vip4, series+1)); err == nil || !strings.Contains(a.VIPs[vip4].Err, "is down") {
		t.Errorf("%v, report %+v", err, a.VIPs[vip4])
	}
}

// An address that duplicate address detection has not cleared may not ask.
func TestLANProbeWaitsForTheLinkLocalAddress(t *testing.T) {
	l := newLab(t)
	for _, name := range []string{"accept_dad", "dad_transmits"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/"+name, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	l.IP(hostA, "link set eth0 down")
	l.IP(hostA, "link set eth0 up")
	h := l.driver(Options{})
	l.eventually("told that the address is not usable", func() bool {
		a, _ := h.try(probeVIP(vip6, 1))
		if a.VIPs[vip6].Probe.Done {
			t.Fatal("probed from a tentative address")
		}
		return strings.Contains(a.VIPs[vip6].Err, "link-local") // after the carrier
	})
	l.eventually("silent once the address is usable", func() bool {
		a, _ := h.try(probeVIP(vip6, 1))
		return a.VIPs[vip6].Probe.Done && !a.VIPs[vip6].Probe.Answered
	})
}

func TestLANConflict(t *testing.T) {
	l := newLab(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		c := l.sniff(hostC, etherType(vip))
		h := l.driver(Options{})
		h.apply(announceVIP(vip))
		send := l.injector(hostB)
		start := time.Now()
		for range 20 {
			send(gratuitous(macB, vip))
			time.Sleep(10 * ms)
		}
		l.eventually("all are counted", func() bool {
			got := h.apply(announceVIP(vip))[vip]
			return got.Conflicts == 20 && got.Foreign == macB
		})
		l.eventually("a defence", func() bool { return h.d.Stats().Defences > 0 })
		n := h.d.Stats().Defences
		if took := time.Since(start); n > 1+uint64(took/defendInterval) {
			t.Errorf("%s: defended %d times in %v", vip, n, took)
		}
		want := h.d.Stats().Announcements
		l.eventually("all are on the wire", func() bool { return uint64(len(c.that(is(gratuitous(macA, vip))))) >= want })
		h.close()
	}
}

func TestLANInterfaceIsMadeAgain(t *testing.T) {
	l := newLab(t)
	c := l.sniff(hostC, arp.EtherType)
	h := l.driver(Options{})
	h.apply(announceVIP(vip4))
	time.Sleep(20 * ms) // for the reader to wait
	l.IP(hostA, "link del eth0")
	l.eventually("Changed after the interface went", h.changed)
	if a, err := h.try(announceVIP(vip4)); err == nil || a.VIPs[vip4].Announcing {
		t.Errorf("%v, report %+v", err, a.VIPs[vip4])
	}
	l.plug(hostA, otherMAC)
	l.eventually("announced by the new interface", func() bool {
		_, _ = h.try(announceVIP(vip4))
		return len(c.that(is(arp.Announcement(otherMAC, vip4)))) > 0
	})
}

func TestLANManyVIPs(t *testing.T) {
	l := newLab(t)
	c := l.sniff(hostC, arp.EtherType)
	var l2 []model.L2Advert
	for i := range 1000 {
		l2 = append(l2, announceVIP(netip.AddrFrom4([4]byte{10, 0, byte(4 + i>>8), byte(i)})))
	}
	h := l.driver(Options{})
	start := time.Now()
	h.apply(l2...)
	t.Logf("1000 VIPs: Apply took %v", time.Since(start))
	l.eventually("1000 announcements", func() bool {
		h.apply(l2...) // which goes on with bursts that were late
		vips := make(map[netip.Addr]bool)
		for _, x := range c.that(func(b []byte) bool { p, ok := arp.Parse(b); return ok && p.SHA == macA && p.SPA == p.TPA }) {
			p, _ := arp.Parse(x.frame)
			vips[p.SPA] = true
		}
		return len(vips) == 1000
	})
}

// Frames about other addresses do not wake the process, as long as the VIPs fit
// the filter.
func TestLANFilter(t *testing.T) {
	l := newLab(t)
	k := &linux{}
	defer k.Close()
	links, err := k.Links()
	if err != nil {
		t.Fatal(err)
	}
	send := l.injector(hostB)
	many := make([]netip.Addr, maxFiltered+1)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
	}
	full4 := append(many[1:maxFiltered:maxFiltered], vip4)
	full6 := make([]netip.Addr, maxFiltered)
	for i := range full6 {
		full6[i] = netip.AddrFrom16([16]byte{0: 0xfd, 13: 7, 15: byte(i)})
	}
	full6[maxFiltered-1] = vip6
	other6 := netip.MustParseAddr("fd00::777")
	for _, tc := range []struct {
		name  string
		f     Family
		addrs []netip.Addr
		frame []byte
		want  int64
	}{
		{"SPA", silence.ARP, full4, gratuitous(macB, vip4), 1},
		{"TPA", silence.ARP, full4, rivalProbe(macB, vip4), 1},
		{"other ARP", silence.ARP, full4, gratuitous(macB, vip4b), 0},
		{"ARP, no VIP", silence.ARP, nil, gratuitous(macB, vip4b), 0},
		{"other ARP, many VIPs", silence.ARP, many, gratuitous(macB, vip4b), 0},
		{"SPA, many VIPs", silence.ARP, many, gratuitous(macB, many[40]), 1},
		{"TPA, many VIPs", silence.ARP, many, rivalProbe(macB, many[len(many)-1]), 1},
		{"NA", silence.ND, full6, gratuitous(macB, vip6), 1},
		{"NS", silence.ND, full6, rivalProbe(macB, vip6), 1},
		{"other NA", silence.ND, full6, gratuitous(macB, other6), 0},
		{"NS, many VIPs", silence.ND, many6(), rivalProbe(macB, many6()[0]), 1},
		{"other NA, many VIPs", silence.ND, many6(), gratuitous(macB, other6), 0},
	} {
		var n atomic.Int64
		mine := is(tc.frame)
		p, err := k.Open(links["eth0"], tc.f, nil, Events{
			Frame: func(b []byte) {
				if mine(b) {
					n.Add(1)
				}
			},
			Broken: func(error) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Filter(tc.addrs); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		send(tc.frame)
		time.Sleep(10 * ms)
		p.Drain()
		if tc.want > 0 { // a busy machine may deliver it later
			l.eventually(tc.name, func() bool { p.Drain(); return n.Load() > 0 })
		}
		if n.Load() != tc.want {
			t.Errorf("%s: %d frames, want %d", tc.name, n.Load(), tc.want)
		}
		p.Close()
	}
}

func many6() []netip.Addr {
	all := make([]netip.Addr, maxFiltered+1)
	for i := range all {
		all[i] = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i)})
	}
	return all
}

// helperEnv makes the test binary a process that probes once and prints the
// result.
const helperEnv = "LBD_LAYER2_HELPER"

func helper(addr string) int {
	r, err := Probe(context.Background(), discard(), "eth0", netip.MustParseAddr(addr))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Printf("%d answered=%v by=%s\n", r.At.UnixNano(), r.Answered, r.By)
	return 0
}

// A process that is frozen while it probes finds the answer that came meanwhile.
func TestLANFrozenProbe(t *testing.T) {
	l := newLab(t)
	for round := 1; !l.frozenProbe(); round++ {
		if round == 50 {
			t.Fatal("every one ended before it was frozen")
		}
	}
}

// frozenProbe is false if the process ended before it could be frozen: that must be
// within the last 15 ms of its series.
func (l *lab) frozenProbe() (frozen bool) {
	l.Helper()
	c := l.sniff(hostC, arp.EtherType)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+vip4.String())
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	send := l.injector(hostB)
	probe := is(arp.Probe(macA, vip4))
	for end := time.Now().Add(30 * time.Second); len(c.that(probe)) < 3 && time.Now().Before(end); {
		time.Sleep(ms / 4)
	}
	at := time.Now()
	_ = cmd.Process.Signal(syscall.SIGSTOP) // within the final wait
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		said <- line
	}()
	select {
	case line := <-said:
		if !endedBefore(line, at) {
			l.Errorf("got %q of a frozen process", line)
		}
		return false
	case <-time.After(100 * ms):
	}
	send(arp.Announcement(macB, vip4))
	time.Sleep(100 * ms)
	_ = cmd.Process.Signal(syscall.SIGCONT)
	line := <-said
	if endedBefore(line, at) {
		return false // and was frozen before it said so
	}
	if want := fmt.Sprintf(" answered=true by=%s\n", macB); !strings.HasSuffix(line, want) {
		l.Errorf("got %q, want %q", line, want)
	}
	return true
}

// endedBefore tells whether a helper says that its series ended, unanswered, before then.
func endedBefore(line string, then time.Time) bool {
	nano, found, _ := strings.Cut(line, " ")
	end, err := strconv.ParseInt(nano, 10, 64)
	return err == nil && !time.Unix(0, end).After(then) && found == fmt.Sprintf("answered=false by=%s\n", model.MAC{})
}
