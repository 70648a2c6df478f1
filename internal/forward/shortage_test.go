package forward

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/sockdiag"
)

// TestShortage: what new connections lack is said as long as it is so, and once, not more often than
// something changes.
func TestShortage(t *testing.T) {
	from := func(port uint16) Source {
		return Source{vip4, Counted{netip.AddrPortFrom(addr(s1, vip4), port), model.TCP}}
	}
	var many shortage
	ports := make(map[Source]Ports)
	for port := range uint16(2 * maxSaid) {
		ports[from(port)] = Ports{Taken: allPorts}
	}
	if lacks := many.step(time.Unix(0, 0), &tracked{ports: ports}); len(lacks) != maxSaid {
		t.Errorf("%d of many sources are said", len(lacks))
	}
	var s shortage
	for i, c := range []struct {
		at             time.Duration
		entries, limit uint64
		all, clashed   uint64
		ports          Ports
		want           string // words of what is lacked
	}{
		{at: 0, entries: 10, limit: 100, all: 7, clashed: 3}, // of before this process
		{at: 10, entries: 90, limit: 100, all: 7, clashed: 3},
		{at: 20, entries: 91, limit: 100, all: 7, clashed: 3, want: "over 90 % full"},
		{at: 30, entries: 86, limit: 100, all: 7, clashed: 3, want: "over 90 % full"},
		{at: 40, entries: 84, limit: 100, all: 7, clashed: 3},
		{at: 50, entries: 86, limit: 100, all: 9, clashed: 5}, // for want of a port, of which enough are left by now
		{at: 60, entries: 100, limit: 100, all: 10, clashed: 5, want: "is full"},
		{at: 110, entries: 50, limit: 100, all: 10, clashed: 6, want: "is full"},
		{at: 120, entries: 50, limit: 100, all: 10, clashed: 5},
		{at: 130, entries: 50, limit: 100, all: 10, clashed: 5, ports: Ports{Taken: 60000, HalfOpen: 30000}, want: "more sourceAddresses"},
		{at: 140, entries: 95, limit: 100, all: 10, clashed: 5, ports: Ports{Taken: 60000, HalfOpen: 30001}, want: "over 90 % full, flood of SYN"},
		{at: 150, entries: 50, limit: 100, all: 10, clashed: 5, ports: Ports{Taken: 58000}},
		{at: 160, entries: 0, limit: 0, all: 10, clashed: 5},
	} {
		is := tracked{entries: c.entries, limit: c.limit, drops: sockdiag.Drops{All: c.all, Clashed: c.clashed}, ports: map[Source]Ports{from(target): c.ports}}
		lacks := s.step(time.Unix(0, 0).Add(c.at*time.Second), &is)
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, ", ")
		}
		if !slices.EqualFunc(lacks, want, strings.Contains) {
			t.Errorf("%d: %q, want %q", i, lacks, want)
		}
		next := sockdiag.Drops{All: c.all + 1, Clashed: c.clashed + 1}
		if s.asks(is.drops) != (c.ports.Taken > 58000) || !s.asks(next) {
			t.Errorf("%d: the ports are counted: %v, and %v after a packet was dropped", i, s.asks(is.drops), s.asks(next))
		}
	}
	if one := fmt.Sprint(many.step(time.Unix(1, 0), &tracked{ports: map[Source]Ports{from(target): {Taken: allPorts}}})); !strings.Contains(one, "the ports of 10.0.0.100 are taken by connections to 10.0.0.11:6443 (TCP)") {
		t.Error(one)
	}
}
