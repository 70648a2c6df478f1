package layer2

import (
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/internal/layer2/silence"
)

// TestSilenceIsBackAfterAFlush: of all tables, and as `systemctl restart nftables` does it,
// which flushes twice. The promise is 50 ms; without a watch it is 3 s.
func TestSilenceIsBackAfterAFlush(t *testing.T) {
	const late = time.Second
	l := newLab(t)
	h := l.driver(Options{})
	l.bind(hostA, vip4)
	l.bind(hostA, vip6)
	h.valid = time.Hour
	h.apply(silentVIP(vip4), silentVIP(vip6))
	looks := []*silence.Table{silence.New(silence.Netfilter(silence.ARP, time.Hour), time.Hour, new(sync.Mutex), nil), silence.New(silence.Netfilter(silence.ND, time.Hour), time.Hour, new(sync.Mutex), nil)}
	defer func() {
		for _, s := range looks {
			_ = s.Close()
		}
	}()
	silent := func() bool {
		for _, s := range looks {
			if is, err := s.Leftover(); err != nil || len(is) != 1 {
				return false
			}
		}
		return true
	}
	for name, scripts := range map[string][]string{
		"nft flush ruleset":          {"flush ruleset"},
		"systemctl restart nftables": {"flush ruleset", "flush ruleset\ntable inet filter {\n chain input { type filter hook input priority filter\n }\n}"},
		"another process's lbd":      {"delete table arp lbd", "table ip6 lbd\ndelete table ip6 lbd"},
		"one element":                {"delete element arp lbd silent { 10.0.0.100 }"},
	} {
		var took []time.Duration
		for range 6 {
			for _, s := range scripts {
				cmd := exec.Command("nft", "-f", "-")
				cmd.Stdin = strings.NewReader(strings.ReplaceAll(s, "10.0.0.100", vip4.String()) + "\n")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", name, err, out)
				}
			}
			begin := time.Now()
			for !silent() && time.Since(begin) < 30*time.Second {
				time.Sleep(500 * time.Microsecond)
			}
			took = append(took, time.Since(begin))
			l.mustBeHeld(vip4, false, name)
			l.mustBeHeld(vip6, false, name)
			time.Sleep(300 * time.Millisecond) // many flushes in a row are answered more slowly
		}
		slices.Sort(took)
		t.Logf("%s: silent again after %s, %s at most", name, took[len(took)/2], took[len(took)-1])
		if took[len(took)-1] > late {
			t.Errorf("%s: silent again after %s", name, took[len(took)-1])
		}
	}
	h.apply() // silences nobody any more
}
