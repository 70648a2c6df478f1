package relay

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// firewalls are rule sets and whether they drop, for certain, all that is relayed.
var firewalls = []struct {
	name, rules string
	drops       string
}{
	{"none", ``, ""},
	{"drops untracked", `table inet t { chain output { type filter hook output priority 0; ct state untracked drop; }; }`, "chain output of table inet t"},
	{"drops invalid", `table inet t { chain output { type filter hook output priority 0; ct state invalid drop; }; }`, ""},
	{"drops both", `table inet t { chain output { type filter hook output priority 0; ct state invalid,untracked counter drop; }; }`, "chain output of table inet t"},
	{"rejects", `table ip t { chain output { type filter hook output priority 0; ct state untracked reject; }; }`, "chain output of table ip t"},
	{"of the other family", `table ip6 t { chain output { type filter hook output priority 0; ct state untracked drop; }; }`, ""},
	{"on the way out", `table ip t { chain out { type filter hook postrouting priority 0; ct state untracked drop; }; }`, "chain out of table ip t"},
	{"of what comes in", `table ip t { chain in { type filter hook input priority 0; ct state untracked drop; }; }`, ""},
	{"accepts it before", `table ip t { chain output { type filter hook output priority 0; ct state untracked ip daddr 10.0.0.100 accept; ct state untracked drop; }; }`, ""},
	{"by a condition", `table ip t { chain output { type filter hook output priority 0; ct state untracked tcp dport 9 drop; }; }`, ""},
	{"default deny", `table ip t { chain output { type filter hook output priority 0; policy drop
		ct state established,related accept
		oifname "lo" accept
		meta l4proto icmp accept
		ip protocol udp accept
		ct state new accept
	}; }`, "chain output of table ip t"},
	{"default deny by maps", `table inet t { chain output { type filter hook output priority 0; policy drop
		ct state vmap { established : accept, related : accept, new : accept, invalid : drop }
		meta l4proto { icmp, udp } accept
	}; }`, "chain output of table inet t"},
	{"a map that accepts it", `table inet t { chain output { type filter hook output priority 0; policy drop
		ct state vmap { established : accept, untracked : accept }
	}; }`, ""},
	{"not what is tracked", `table ip t { chain output { type filter hook output priority 0; ct state != { established, related, new } drop; }; }`, "chain output of table ip t"},
	{"default deny that may accept", `table ip t { chain output { type filter hook output priority 0; policy drop; tcp dport 6443 accept; }; }`, ""},
	{"in a chain of its own", `table ip t {
		chain states { ct state established,related accept; ct state invalid return; ct state untracked drop; }
		chain output { type filter hook output priority 0; jump states; accept; }
	}`, "chain output of table ip t"},
	{"in a chain for other packets", `table ip t {
		chain states { ct state untracked drop; }
		chain output { type filter hook output priority 0; ip daddr 192.0.2.1 jump states; }
	}`, ""},
	{"returns before", `table ip t {
		chain states { ct state untracked return; drop; }
		chain output { type filter hook output priority 0; jump states; accept; }
	}`, ""},
	{"a chain that may accept", `table ip t {
		chain some { accept; }
		chain output { type filter hook output priority 0; policy drop; ip daddr 10.0.0.0/8 jump some; }
	}`, ""},
	{"goes to the policy", `table ip t {
		chain some { counter; }
		chain output { type filter hook output priority 0; policy drop; goto some; accept; }
	}`, "chain output of table ip t"},
}

func TestFirewall(t *testing.T) {
	l := newLab(t)
	for _, c := range firewalls {
		l.nft(hostB, "flush ruleset")
		l.script(hostB, c.rules)
		if got := l.looked(hostB); got.Drops[v4] != c.drops {
			t.Errorf("%s: %q, want %q", c.name, got.Drops[v4], c.drops)
		}
	}
}

// The same in the words of iptables.
func TestFirewallByIptables(t *testing.T) {
	l := newLab(t)
	for name, c := range map[string]struct{ rules, drops string }{
		"default deny": {"-P OUTPUT DROP\n-A OUTPUT -o lo -j ACCEPT\n-A OUTPUT -p udp -j ACCEPT\n-A OUTPUT -m conntrack --ctstate NEW,RELATED,ESTABLISHED -j ACCEPT", "chain OUTPUT of table ip filter"},
		"may accept":   {"-P OUTPUT DROP\n-A OUTPUT -d 10.0.0.0/8 -j ACCEPT", ""},
		"untracked":    {"-P OUTPUT DROP\n-A OUTPUT -m conntrack --ctstate UNTRACKED -j ACCEPT", ""},
		"rejects":      {"-A OUTPUT -m conntrack --ctstate INVALID,UNTRACKED -j REJECT", "chain OUTPUT of table ip filter"},
		"all but":      {"-A OUTPUT -m conntrack ! --ctstate NEW,ESTABLISHED -j DROP", "chain OUTPUT of table ip filter"},
	} {
		l.nft(hostB, "flush ruleset")
		for line := range strings.Lines(c.rules) {
			l.ExecOn(hostB, append([]string{"iptables-nft"}, strings.Fields(line)...)...)
		}
		if got := l.looked(hostB); got.Drops[v4] != c.drops {
			t.Errorf("%s: %q, want %q\n%s", name, got.Drops[v4], c.drops, l.nft(hostB, "list ruleset"))
		}
	}
}

func (l *lab) looked(host string) (got *model.RingHost) {
	l.Helper()
	l.In(host, func() {
		var err error
		if got, err = Look(); err != nil {
			l.Error(err)
		}
	})
	return got
}

// Look changes nothing, and tells a kernel that may not relay from one that can.
func TestLook(t *testing.T) {
	l := newLab(t)
	if got := l.looked(hostB); got.Kernel != (model.PerFamily{}) {
		t.Errorf("%+v", got)
	}
	if got := l.tables(hostB); got != "" {
		t.Errorf("tables: %q", got)
	}
	l.driver(hostB, discard()).relay(toward(vip4, hostA))
	before := l.nft(hostB, "list ruleset")
	if got := l.looked(hostB); got.Kernel != (model.PerFamily{}) {
		t.Errorf("beside a daemon: %+v", got)
	}
	if after := l.nft(hostB, "list ruleset"); len(before) != len(after) || !strings.Contains(after, "dup to") {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// A server on one address is told from one on the wildcard, which serves in the lab.
func TestListeners(t *testing.T) {
	l := newLab(t)
	l.IP(hostB, "link set lo up")
	var want []netip.AddrPort
	for _, a := range []netip.Addr{vip4, nodeAddr(hostB, vip4), vip6} {
		at := netip.AddrPortFrom(a, 7001)
		want = append(want, at)
		l.listen(hostB, at.String())
	}
	l.listen(hostB, "127.0.0.1:7001")
	l.listen(hostB, "[::ffff:10.0.0.100]:7002") // IPv4 by a socket of IPv6
	want = append(want, netip.AddrPortFrom(vip4, 7002))
	slices.SortFunc(want, netip.AddrPort.Compare)
	if got := l.looked(hostB); !slices.Equal(got.Listeners, want) {
		t.Errorf("%v, want %v", got.Listeners, want)
	}
}

// What the driver reports of its host: at once when something is bound, and when the
// kernel refuses; nothing while nothing is bound.
func TestDriverLooks(t *testing.T) {
	l := newLab(t)
	l.script(hostB, `table inet t { chain output { type filter hook output priority 0; ct state untracked drop; }; }`)
	b := l.driver(hostB, discard())
	if got := b.apply(); got.Ring != nil {
		t.Errorf("looks although nothing is bound: %+v", got.Ring)
	}
	b.rings = true
	if got := b.apply(); got.Ring == nil || got.Ring.Drops[v4] == "" {
		t.Errorf("does not look although something is to be bound: %+v", got.Ring)
	}
	b.rings = false
	got := b.apply(toward(vip4, hostA))
	if got.Ring == nil || got.Ring.Drops[v4] == "" || got.Ring.Drops[v6] == "" || got.Ring.Kernel != (model.PerFamily{}) {
		t.Errorf("%+v", got.Ring)
	}
	if again := b.apply(toward(vip4, hostA)); again.Ring != got.Ring {
		t.Error("another report although nothing has changed")
	}
	refused := l.driver(hostB, discard())
	refused.powerless = true
	if got := refused.apply(toward(vip4, hostA)); got.Ring == nil || got.Ring.Kernel[v4] == "" || got.Ring.Kernel[v6] != "" {
		t.Errorf("without the right to relay: %+v", got.Ring)
	}
	refused.powerless = false
	refused.d.tables[v4].retry = refused.d.tables[v4].retry.Add(-retryAfter)
	if got := refused.apply(toward(vip4, hostA)); got.Ring == nil || got.Ring.Kernel[v4] != "" {
		t.Errorf("with it again: %+v", got.Ring)
	}
}

// TestFirewallChangedBeforeADrain: what was seen up to a minute ago does not count when a
// drain begins.
func TestFirewallChangedBeforeADrain(t *testing.T) {
	l := newLab(t)
	h := l.driver(hostB, discard())
	drops := func(draining bool) (found string) {
		l.In(hostB, func() {
			got, err := h.d.Apply(l.Context(), &model.Desired{Rings: true, Group: model.GroupState{Draining: draining}, Synced: true, Memory: model.Memory{Membership: model.Membership{Settled: true}}})
			if err != nil {
				l.Error(err)
			}
			found = got.Ring.Drops[v4]
		})
		return found
	}
	if got := drops(false); got != "" {
		t.Fatalf("drops %q", got)
	}
	h.d.host.rest = time.Hour // the last look took long
	l.script(hostB, "table inet t {\n chain output {\n type filter hook output priority 0\n ct state untracked drop\n }\n}")
	l.eventually("the drop is seen when the drain begins", func() bool { return drops(true) != "" })
	l.nft(hostB, "flush ruleset")
	h.d.host.rest = time.Millisecond
	l.eventually("and that it is gone, some time later", func() bool { return drops(true) == "" })
}
