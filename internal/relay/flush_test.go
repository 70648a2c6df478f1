package relay

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

// flushes are what others do to the tables of nftables, each as its program does it: the
// last one has a foreign table and does not touch ours.
var flushes = []struct {
	name string
	do   []string // scripts of nft, one transaction each
	ours bool     // they take our tables
}{
	{"nft flush ruleset", []string{"flush ruleset"}, true},
	{"systemctl restart nftables", []string{"flush ruleset", "flush ruleset; table inet filter { chain input { type filter hook input priority filter; }; chain output { type filter hook output priority filter; }; }"}, true},
	{"firewalld reload", []string{"table inet firewalld { }; delete table inet firewalld; table inet firewalld { chain filter_INPUT { type filter hook input priority filter + 10; ct state { established, related } accept; }; }"}, false},
}

// attend applies on a host whenever the driver asks for it, as the daemon does.
func (h *harness) attend(want ...model.Relay) (applied func() int) {
	var mu sync.Mutex
	n := 0
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		h.In(h.host, func() {
			for {
				select {
				case <-stop:
					return
				case <-h.d.Changed():
				}
				_, _ = h.d.Apply(h.Context(), &model.Desired{Relay: want, Synced: true, Memory: model.Memory{Membership: model.Membership{Settled: true}}})
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}()
	h.Cleanup(func() { close(stop); <-ended })
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// TestRingsAreBackAfterAFlush: on each node in turn, in both families, and without a
// transaction of the driver for what concerns others only.
func TestRingsAreBackAfterAFlush(t *testing.T) {
	const late = time.Second // the promise is 100 ms, measured below; without a watch it is 3 s
	l := quietLabOf(t, nodes[:3])
	hosts := nodes[:3]
	conns := make(map[string]net.Conn)
	for _, h := range hosts {
		l.steer(vip4, h)
		conns[h] = l.mustDial(vip4)
		l.servedBy(conns[h], h)
	}
	var all []*harness
	var counts []func() int
	for i, h := range hosts {
		d, want := l.driver(h, discard()), []model.Relay{ringAt(hosts, i, vip4), ringAt(hosts, i, vip6)}
		d.relay(want...)
		all, counts = append(all, d), append(counts, d.attend(want...))
	}
	for _, flush := range flushes {
		var took []time.Duration
		for range 5 {
			for i, h := range hosts {
				time.Sleep(100 * time.Millisecond) // the last ACKs: in between they would be reset
				before := counts[i]()
				took = append(took, l.flush(h, flush.do))
				if !flush.ours {
					time.Sleep(20 * time.Millisecond)
					if n := counts[i]() - before; n != 0 {
						t.Errorf("%s: %d looks at the rings", flush.name, n)
					}
				}
				l.steer(vip4, h)
				for _, o := range hosts {
					l.servedBy(conns[o], o)
				}
			}
		}
		slices.Sort(took)
		t.Logf("%s: rings of both families back after %s, %s at most", flush.name, took[len(took)/2], took[len(took)-1])
		if worst := took[len(took)-1]; worst > late {
			t.Errorf("%s: rings are back after %s", flush.name, worst)
		}
	}
	for i := range all { // and it ends
		before := counts[i]()
		time.Sleep(100 * time.Millisecond)
		if n := counts[i]() - before; n != 0 {
			t.Errorf("%s: %d looks at the rings without a cause", hosts[i], n)
		}
	}
}

// flush runs the scripts on a host and returns how long after the last of them the rules
// of both families are in force.
func (l *lab) flush(host string, scripts []string) (took time.Duration) {
	l.Helper()
	for _, s := range scripts {
		l.script(host, strings.ReplaceAll(s, "; ", "\n"))
	}
	begin := time.Now()
	l.In(host, func() {
		s := nft.New(10 * time.Second)
		defer func() { _ = s.Close() }()
		for end := begin.Add(30 * time.Second); ; time.Sleep(500 * time.Microsecond) {
			missing := ""
			for f := range families {
				err := s.Do(func(c *nftables.Conn) error {
					is, err := c.GetSetElements(vips(f, 0, 0))
					if err == nil && len(is) != 1 {
						err = fmt.Errorf("%d VIPs", len(is))
					}
					return err
				})
				if err != nil {
					missing = fmt.Sprintf("%s: %v", f, err)
				}
			}
			if took = time.Since(begin); missing == "" {
				return
			}
			if time.Now().After(end) {
				l.Errorf("not within 30 s: %s", missing)
				return
			}
		}
	})
	return took
}
