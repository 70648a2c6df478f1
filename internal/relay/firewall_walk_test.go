package relay

import (
	"fmt"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// deep is a rule set that drops at the end of as many jumps.
func deep(jumps int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table ip t {\n chain c%d { ct state untracked drop; }\n", jumps)
	for i := jumps - 1; i > 0; i-- {
		fmt.Fprintf(&b, " chain c%d { jump c%d; }\n", i, i+1)
	}
	b.WriteString(" chain output { type filter hook output priority 0; jump c1; }\n}")
	return b.String()
}

// output is the base chain of a rule set in which both families are, or one.
func output(family, policy, rules string) string {
	return fmt.Sprintf("table %s t { chain output { type filter hook output priority 0; policy %s\n%s\n}; }", family, policy, rules)
}

// TestFirewallStepByStep: what a relayed packet goes through, rule by rule, in both families.
func TestFirewallStepByStep(t *testing.T) {
	const (
		ip, ip6, inet = "chain output of table ip t", "chain output of table ip6 t", "chain output of table inet t"
		untracked     = "ct state untracked drop"
	)
	l := newLab(t)
	for _, c := range []struct {
		name, rules string
		v4, v6      string
	}{
		{"as many jumps as the kernel takes", deep(15), ip, ""},
		{"of IPv6", output("ip6", "accept", untracked), "", ip6},
		{"of both", output("inet", "accept", untracked), inet, inet},
		{"only IPv4 in a table of both", output("inet", "accept", "meta nfproto ipv4 "+untracked), inet, ""},
		{"only IPv6 in a table of both", output("inet", "accept", "meta nfproto ipv6 "+untracked), "", inet},
		{"TCP by the header of IPv4", output("ip", "accept", "ip protocol tcp "+untracked), ip, ""},
		{"TCP by the header of IPv6", output("ip6", "accept", "ip6 nexthdr tcp "+untracked), "", ip6},
		{"UDP by the header of IPv6", output("ip6", "accept", "ip6 nexthdr udp "+untracked), "", ""},
		{"another byte of the header", output("ip", "accept", "ip ttl 6 "+untracked), "", ""},
		{"all but TCP", output("inet", "drop", "meta l4proto != tcp accept"), inet, inet},
		{"TCP is accepted", output("inet", "drop", "meta l4proto tcp accept"), "", ""},
		{"by the order of protocols", output("inet", "accept", "meta l4proto > 1 drop"), "", ""},
		{"in an interval of protocols", output("inet", "accept", "meta l4proto { 1-50 } drop"), "", ""},
		{"none of these protocols", output("inet", "accept", "meta l4proto != { tcp, udp } drop"), "", ""},
		{"none of other protocols", output("inet", "accept", "meta l4proto != { icmp, udp } drop"), inet, inet},
		{"a mark of the connection", output("inet", "drop", "ct mark 0 accept"), inet, inet},
		{"on lo only", output("inet", "accept", "oifname lo drop"), "", ""},
		{"not on lo", output("inet", "drop", "oifname != lo accept"), "", ""},
		{"on a card", output("inet", "drop", "oifname eth0 accept"), "", ""},
		{"on some cards", output("inet", "drop", `oifname { "lo", "eth0" } accept`), "", ""},
		{"returns to the policy", output("ip", "drop", "return"), ip, ""},
		{"returns, perhaps, to another policy", output("ip", "accept", "ip daddr 10.0.0.0/8 return\ndrop"), "", ""},
		{"drops some, and then all", output("ip", "drop", "ip daddr 10.0.0.0/8 drop"), ip, ""},
		{"goes on after rules without a verdict", output("ip", "accept", "counter\nlog prefix \"x\"\nmeta mark set 1\ncontinue\n"+untracked), ip, ""},
		{"a map by addresses accepts", output("ip", "drop", "ip daddr vmap { 10.0.0.100 : accept }"), "", ""},
		{"a map by addresses drops", output("ip", "drop", "ip daddr vmap { 10.0.0.100 : drop }"), ip, ""},
		{"a map by addresses drops, perhaps", output("ip", "accept", "ip daddr vmap { 10.0.0.100 : drop }"), "", ""},
		{"a map to a chain", "table ip t { chain some { drop; }\n chain output { type filter hook output priority 0; ct state vmap { untracked : jump some }; }; }", ip, ""},
		{"a map to a chain of others", "table ip t { chain some { drop; }\n chain output { type filter hook output priority 0; ct state vmap { new : jump some }; }; }", "", ""},
		{"a map to a chain that returns", "table ip t { chain some { return; }\n chain output { type filter hook output priority 0; ct state vmap { untracked : goto some }; drop; }; }", "", ""},
		{"perhaps to a chain that accepts", "table ip t { chain some { accept; }\n chain output { type filter hook output priority 0; policy drop; ip daddr vmap { 10.0.0.100 : jump some }; }; }", "", ""},
		{"a chain that accepts", "table ip t { chain some { accept; }\n chain output { type filter hook output priority 0; jump some; drop; }; }", "", ""},
		{"a chain of that name elsewhere", "table ip6 t { chain some { accept; }; }\n table ip u { chain some { accept; }; }\n table ip t { chain some { drop; }\n chain output { type filter hook output priority 0; jump some; }; }", ip, ""},
		{"goes for good, and drops", "table ip t { chain some { drop; }\n chain output { type filter hook output priority 0; goto some; }; }", ip, ""},
		{"goes for good, and returns", "table ip t { chain some { counter; }\n chain output { type filter hook output priority 0; goto some; drop; }; }", "", ""},
		{"goes for good, perhaps, and drops", "table ip t { chain some { drop; }\n chain output { type filter hook output priority 0; policy drop; ip daddr 10.0.0.0/8 goto some; }; }", ip, ""},
		{"goes for good, perhaps, past the rest", "table ip t { chain some { counter; }\n chain output { type filter hook output priority 0; ip daddr 10.0.0.0/8 goto some; drop; }; }", "", ""},
		{"jumps, perhaps, and comes back", "table ip t { chain some { counter; }\n chain output { type filter hook output priority 0; ip daddr 10.0.0.0/8 jump some; drop; }; }", ip, ""},
		{"of translation", "table ip t { chain output { type nat hook output priority 0; policy drop; }; }", "", ""},
		{"the first of two is told", "table ip t { chain output { type filter hook output priority 0; policy drop; }\n chain out { type filter hook postrouting priority 0; policy drop; }; }", ip, ""},
	} {
		l.nft(hostB, "flush ruleset")
		l.script(hostB, c.rules)
		if got, want := l.looked(hostB).Drops, (model.PerFamily{v4: c.v4, v6: c.v6}); got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
}
