package forward

import (
	"fmt"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestDroppedByAFirewall: what drops every connection that is forwarded is found, and nothing
// else: rules of nft, and those that iptables makes.
func TestDroppedByAFirewall(t *testing.T) {
	l := newLab(t)
	const (
		ip, inet = "chain FORWARD of table ip filter", "chain f of table inet t"
		states   = "ct state established,related accept\n"
	)
	hook := func(policy, rules string) string {
		return fmt.Sprintf("table inet t { chain f { type filter hook forward priority 0; policy %s\n%s\n}; }", policy, rules)
	}
	for _, c := range []struct {
		name, nft string
		iptables  []string
		want      string
	}{
		{"nothing", "", nil, ""},
		{"a policy", hook("drop", states), nil, inet},
		{"another protocol", hook("accept", "meta l4proto udp drop"), nil, ""},
		{"this protocol", hook("accept", "meta l4proto tcp drop"), nil, inet},
		{"accepts what comes in by the interface", hook("drop", states+`iifname "eth0" accept`), nil, ""},
		{"accepts what comes in by interfaces of such a name", hook("drop", states+`iifname "eth*" accept`), nil, ""},
		{"accepts what comes in by another interface", hook("drop", states+`iifname "docker0" accept`+"\n"+`iifname "cali*" accept`), nil, inet},
		{"accepts what goes out by another interface", hook("drop", `oifname { "docker0", "cni0" } accept`), nil, inet},
		{"accepts what is translated", hook("drop", "ct status dnat accept"), nil, ""},
		{"accepts what has a mark", hook("drop", "ct mark 1 accept"), nil, ""},
		{"accepts some addresses", hook("drop", "ip daddr 10.0.0.0/8 accept"), nil, ""},
		{"drops what is new", hook("accept", "ct state new drop"), nil, inet},
		{"drops what is invalid", hook("accept", "ct state invalid drop"), nil, ""},
		{"drops what is untracked", hook("accept", "ct state untracked drop"), nil, ""},
		{"of another hook", strings.Replace(hook("drop", ""), "hook forward", "hook output", 1), nil, ""},
		{"the rules of Docker", "", []string{
			"-N DOCKER-USER", "-N DOCKER-FORWARD", "-P FORWARD DROP", "-A FORWARD -j DOCKER-USER", "-A FORWARD -j DOCKER-FORWARD",
			"-A DOCKER-FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-A DOCKER-FORWARD -i docker0 -j ACCEPT",
		}, ip},
		{"the rules of Docker, and one for the VIP", "", []string{
			"-N DOCKER-USER", "-P FORWARD DROP", "-A FORWARD -j DOCKER-USER", "-A DOCKER-USER -i eth0 -o eth0 -j ACCEPT",
		}, ""},
		{"iptables accepts what is translated", "", []string{"-P FORWARD DROP", "-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT"}, ""},
		{"iptables accepts what is not new", "", []string{"-P FORWARD DROP", "-A FORWARD -m conntrack ! --ctstate NEW -j ACCEPT"}, ip},
		{"iptables accepts what was sent to some address", "", []string{"-P FORWARD DROP", "-A FORWARD -m conntrack --ctstate NEW --ctorigdst 10.0.0.100 -j ACCEPT"}, ""},
	} {
		l.ExecOn(b1, "nft", "flush", "ruleset")
		if c.nft != "" {
			l.ExecOn(b1, "nft", c.nft)
		}
		for _, rule := range c.iptables {
			l.ExecOn(b1, append([]string{"iptables-nft"}, strings.Fields(rule)...)...)
		}
		var got string
		var err error
		l.In(b1, func() { got, err = Dropped("eth0", "eth0", addr(s1, vip4), model.TCP) })
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	l.ExecOn(b1, "nft", "flush", "ruleset")
}
