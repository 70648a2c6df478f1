package sockdiag_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/sockdiag"
	"lbd.dev/lbd/internal/testnet"
)

// TestForget: of entries of both families and protocols, translated or not, it deletes those
// that are asked for, and no other.
func TestForget(t *testing.T) {
	n := testnet.New(t)
	n.Add("host")
	n.ExecOn("host", "nft", `table inet t { chain o { type nat hook output priority -100;
		ip daddr 127.0.0.2 meta l4proto { tcp, udp } dnat ip to 127.0.0.1:7000; ip6 daddr fd00::2 meta l4proto { tcp, udp } dnat ip6 to [::1]:7000; }; }`)
	n.IP("host", "addr add fd00::1/64 dev lo nodad")
	n.In("host", func() {
		l, err := net.Listen("tcp", ":7000")
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = l.Close() }()
		const each = 40 // more than go into one call to the kernel
		for _, to := range []string{"127.0.0.2:80", "[fd00::2]:80", "127.0.0.3:7000"} {
			for range each {
				for _, network := range []string{"tcp", "udp"} {
					c, err := net.Dial(network, to)
					if err != nil {
						t.Error(err)
						return
					}
					defer func() { _ = c.Close() }()
					_, _ = fmt.Fprintln(c)
				}
			}
		}
		count := func() map[string]int {
			seen := make(map[string]int)
			forget(t, time.Minute, func(e sockdiag.Entry) bool {
				seen[fmt.Sprint(e.Protocol, " ", e.To, " ", e.Server, " ", e.Translated)]++
				if e.From.Addr().BitLen() != e.To.Addr().BitLen() || e.From.Port() < 1024 {
					t.Errorf("from %s", e.From)
				}
				return false
			}, 0)
			return seen
		}
		kinds := []string{
			"6 127.0.0.2:80 127.0.0.1:7000 true", "17 127.0.0.2:80 127.0.0.1:7000 true", "6 [fd00::2]:80 [::1]:7000 true",
			"17 [fd00::2]:80 [::1]:7000 true", "6 127.0.0.3:7000 127.0.0.3:7000 false", "17 127.0.0.3:7000 127.0.0.3:7000 false",
		}
		want := make(map[string]int)
		for _, k := range kinds {
			want[k] = each
		}
		expect(t, count(), want)
		forget(t, 0, func(sockdiag.Entry) bool { return true }, 0) // no time
		expect(t, count(), want)
		for i, asked := range []func(sockdiag.Entry) bool{
			func(e sockdiag.Entry) bool {
				return e.Protocol == unix.IPPROTO_TCP && e.To == netip.MustParseAddrPort("127.0.0.2:80")
			},
			func(e sockdiag.Entry) bool {
				return e.Protocol == unix.IPPROTO_UDP && e.Server == netip.MustParseAddrPort("127.0.0.1:7000")
			},
			func(e sockdiag.Entry) bool { return e.Protocol == unix.IPPROTO_TCP && e.To.Addr().Is6() },
			func(e sockdiag.Entry) bool { return e.Protocol == unix.IPPROTO_UDP && e.Translated },
			func(e sockdiag.Entry) bool { return e.Protocol == unix.IPPROTO_TCP && !e.Translated },
		} {
			forget(t, time.Minute, asked, each)
			delete(want, kinds[i])
			expect(t, count(), want)
		}
	})
}

func forget(t *testing.T, within time.Duration, asked func(sockdiag.Entry) bool, want int) {
	t.Helper()
	if n, err := sockdiag.Forget(asked, time.Now().Add(within)); n != want || err != nil {
		t.Errorf("forgot %d, %v; want %d", n, err, want)
	}
}

// expect compares counts of entries. ICMP has some too.
func expect(t *testing.T, got, want map[string]int) {
	t.Helper()
	for k, n := range got {
		if want[k] != n && k[0] != '5' && k[:2] != "1 " {
			t.Errorf("%s: %d entries, want %d", k, n, want[k])
		}
	}
	for k, n := range want {
		if got[k] != n {
			t.Errorf("%s: %d entries, want %d", k, got[k], n)
		}
	}
}
