package preflight

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/model"
)

// TestListenerSysctls: what keeps a box from sending on to masters, and from choosing as the other
// box does, is said with what to set.
func TestListenerSysctls(t *testing.T) {
	good := map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
		"net/ipv4/fib_multipath_hash_policy": "3", "net/ipv6/fib_multipath_hash_policy": "3",
		"net/ipv4/fib_multipath_hash_fields": "0x0037", "net/ipv6/fib_multipath_hash_fields": "55",
		"net/ipv4/fib_multipath_hash_seed": "445", "net/ipv4/conf/all/send_redirects": "0", "net/ipv4/conf/eth0.7/send_redirects": "0",
	}
	l := &model.BGPListener{Name: "masters", HashSeed: 445, Accept: []netip.Prefix{netip.MustParsePrefix("10.0.0.200/32"), netip.MustParsePrefix("fd00::200/128")}}
	run := func(name, value string, clients ...string) string {
		root := t.TempDir()
		for n, v := range good {
			if n == name {
				v = value
			}
			if v != "" {
				putBelow(t, root, "proc/sys/"+n, v+"\n")
			}
		}
		var out bytes.Buffer
		p := &preflight{out: &out, cfg: &config.Config{}}
		p.spreads(l, root, []string{"eth0.7"}, clients)
		return out.String()
	}
	if got := run("", ""); !strings.Contains(got, "ok") || strings.Count(got, "\n") != 1 {
		t.Errorf("all is well: %s", got)
	}
	for _, c := range []struct{ name, value, want string }{
		{"net/ipv4/ip_forward", "0", "FAILED"},
		{"net/ipv6/conf/all/forwarding", "0", "set net.ipv6.conf.all.forwarding=1"},
		{"net/ipv4/fib_multipath_hash_policy", "1", "set net.ipv4.fib_multipath_hash_policy=3"},
		{"net/ipv6/fib_multipath_hash_policy", "0", "set net.ipv6.fib_multipath_hash_policy=3"},
		{"net/ipv4/fib_multipath_hash_fields", "7", "set net.ipv4.fib_multipath_hash_fields=55"},
		{"net/ipv4/fib_multipath_hash_seed", "0", "set net.ipv4.fib_multipath_hash_seed=445"},
		{"net/ipv4/fib_multipath_hash_seed", "", "net.ipv4.fib_multipath_hash_seed is not there"},
		{"net/ipv4/conf/all/send_redirects", "1", "set net.ipv4.conf.all.send_redirects=0"},
		{"net/ipv4/conf/eth0.7/send_redirects", "1", "set net.ipv4.conf.eth0/7.send_redirects=0"},
	} {
		if got := run(c.name, c.value, "eth0.7"); !strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s=%s: %s", c.name, c.value, got)
		}
	}
	if got := run("net/ipv4/conf/all/send_redirects", "1", "eth1"); !strings.Contains(got, "ok") {
		t.Errorf("with clients on another interface redirects do not matter: %s", got)
	}
}
