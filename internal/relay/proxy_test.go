package relay

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// TestWhichProxy: the mode of kube-proxy is known by what it has in the kernel, in each family and
// by each of the two iptables. To look for it leaves no table behind.
func TestWhichProxy(t *testing.T) {
	l := newLab(t)
	// What kube-proxy 1.35 makes. In IPVS mode it has the chains, too, but for its canary.
	ipvs := "-t nat -N KUBE-SERVICES\n-t nat -A PREROUTING -j KUBE-SERVICES\n-t nat -N KUBE-PROXY-FIREWALL"
	iptables := ipvs + "\n-t mangle -N KUBE-PROXY-CANARY\n-t nat -N KUBE-PROXY-CANARY\n-t filter -N KUBE-PROXY-CANARY"
	for _, c := range []struct {
		what, by, rules string
		want            model.Proxy
	}{
		{"nothing", "", "", model.ProxyNone},
		{"of somebody else", "nft", "add table ip proxy\nadd table ip kube-proxy2\nadd table inet kube-proxy", model.ProxyNone},
		{"nftables", "nft", "add table ip kube-proxy", model.ProxyNFTables},
		{"nftables, IPv6", "nft", "add table ip6 kube-proxy", model.ProxyNFTables},
		{"iptables-nft", "iptables-nft", iptables, model.ProxyIPTables},
		{"ip6tables-nft", "ip6tables-nft", iptables, model.ProxyIPTables},
		{"IPVS by nft", "iptables-nft", ipvs, model.ProxyNone},
		{"kubelet alone", "iptables-nft", "-t mangle -N KUBE-KUBELET-CANARY\n-t mangle -N KUBE-IPTABLES-HINT", model.ProxyNone},
		{"iptables-legacy", "iptables-legacy", iptables, model.ProxyIPTables},
		{"ip6tables-legacy", "ip6tables-legacy", iptables, model.ProxyIPTables},
		{"IPVS by legacy", "iptables-legacy", ipvs + "\n-t mangle -N KUBE-KUBELET-CANARY", model.ProxyNone},
		{"legacy of many rules", "iptables-legacy", strings.Repeat("-t mangle -A FORWARD -j ACCEPT\n", 40) + iptables, model.ProxyIPTables},
	} {
		host := nodes[1]
		l.nft(host, "flush ruleset")
		for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
			for _, table := range []string{"mangle", "nat", "filter"} {
				l.ExecOn(host, program, "-t", table, "-F")
				l.ExecOn(host, program, "-t", table, "-X")
			}
		}
		for line := range strings.Lines(c.rules) {
			if line = strings.TrimSpace(line); line != "" {
				l.ExecOn(host, append([]string{c.by}, strings.Fields(line)...)...)
			}
		}
		if got := l.looked(host).Proxy; got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	if l.looked(hostA); l.ExecOn(hostA, "cat", "/proc/net/ip_tables_names") != "" {
		t.Error("a table of iptables-legacy was made")
	}
}

// TestProxyOfLegacyThatCannotBeRead: who is not root cannot tell that iptables-legacy has none, and a
// large table is no answer.
func TestProxyOfLegacyThatCannotBeRead(t *testing.T) {
	l := newLab(t)
	look := func(user int) (is model.Proxy, err error) {
		l.In(hostB, func() {
			if user != 0 { // of a thread that ends with the call
				_, _, _ = unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
				_, _ = unix.Setfsgid(user), unix.Setfsuid(user)
			}
			var seen *model.RingHost
			seen, err = Look()
			is = seen.Proxy
		})
		return is, err
	}
	l.ExecOn(hostB, "iptables-legacy", "-t", "mangle", "-N", proxyCanary)
	for user, want := range map[int]model.Proxy{0: model.ProxyIPTables, 65534: model.ProxyHidden} {
		if got, err := look(user); got != want || err != nil {
			t.Errorf("user %d: %d, %v, want %d", user, got, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(file, []byte("*mangle\n:"+proxyCanary+" -\n"+strings.Repeat("-A FORWARD -j ACCEPT\n", 8000)+"COMMIT\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.ExecOn(hostB, "iptables-legacy-restore", file)
	if got, err := look(0); got != model.ProxyUnknown || err == nil {
		t.Errorf("the table is too large: %d, %v", got, err)
	}
	l.nft(hostB, "add table ip kube-proxy")
	if got, err := look(65534); got != model.ProxyNFTables || err != nil {
		t.Errorf("nftables has it: %d, %v", got, err)
	}
}

// TestLooksForTheProxy: only where there are Services, again and again, and what cannot be found out
// does not change what was.
func TestLooksForTheProxy(t *testing.T) {
	l := newLab(t)
	var log strings.Builder
	b := l.driver(hostB, slog.New(slog.NewTextHandler(&log, nil)))
	look := func(asked bool) model.Proxy {
		b.d.host.proxy = time.Time{}
		got := model.Applied{}
		l.In(hostB, func() {
			got, _ = b.d.Apply(t.Context(), &model.Desired{Rings: true, Services: model.Services{Asked: asked, Kept: asked}})
		})
		return got.Ring.Proxy
	}
	if got := look(false); got != model.ProxyUnknown {
		t.Errorf("not asked: %d", got)
	}
	if got := look(true); got != model.ProxyNone {
		t.Errorf("no kube-proxy: %d", got)
	}
	l.nft(hostB, "add table ip kube-proxy")
	if got := look(true); got != model.ProxyNFTables {
		t.Errorf("it has begun: %d", got)
	}
	l.In(hostB, func() {
		dropRights(t)
		b.d.host.proxy = time.Time{}
		_ = b.d.session.Close() // a socket keeps the rights that it was opened with
		got, _ := b.d.Apply(t.Context(), &model.Desired{Rings: true, Services: model.Services{Asked: true, Kept: true}})
		if got.Ring.Proxy != model.ProxyNFTables {
			t.Errorf("nobody can tell: %d", got.Ring.Proxy)
		}
		b.d.host.seen = nil // a daemon that starts
		for range 3 {
			b.d.host.proxy = time.Time{}
			_, _ = b.d.Apply(t.Context(), &model.Desired{Rings: true, Services: model.Services{Asked: true}})
		}
		_ = b.d.session.Close()
	})
	if n := strings.Count(log.String(), "rules of kube-proxy cannot be looked for"); n != 1 {
		t.Errorf("told %d times:\n%s", n, &log)
	}
	l.nft(hostB, "delete table ip kube-proxy")
	if got := look(true); got != model.ProxyNone {
		t.Errorf("it is gone: %d", got)
	}
}

// TestKernelWithoutTracking: it keeps all rings but those of Services, and gets those when it can.
func TestKernelWithoutTracking(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	service := netip.MustParseAddr("10.0.0.201")
	bound, tracked := toward(vip4, hostA), toward(service, hostA)
	tracked.Tracked = true
	is := &b.d.tables[v4].untracked
	*is = ability{unix.ENOENT.Error(), time.Now()}
	got := b.apply(bound, tracked)
	if !got.VIPs[vip4].Relaying || got.VIPs[vip4].Err != "" {
		t.Errorf("what is bound: %+v", got.VIPs[vip4])
	}
	if is := got.VIPs[service]; is.Relaying || is.Err == "" {
		t.Errorf("the Service: %+v", is)
	}
	if rules := l.nft(hostB, "list table ip lbd-relay"); strings.Contains(rules, "ct state") {
		t.Errorf("the kernel was asked for what it cannot do:\n%s", rules)
	}
	if got.Ring == nil || got.Ring.Kernel != (model.PerFamily{}) || got.Ring.Untracked != (model.PerFamily{is.why, ""}) {
		t.Errorf("the kernel cannot relay, or track: %+v", got.Ring)
	}
	is.asked = time.Now().Add(-retryAfter)
	if got = b.apply(bound, tracked); !got.VIPs[service].Relaying || !got.VIPs[vip4].Relaying {
		t.Errorf("asked again: %+v", got.VIPs)
	}
}

// TestAsksAgainWithoutARing: a node that is in no ring since its kernel could not look for tracked
// connections finds out that it can. For Services it does so once they are translated here.
func TestAsksAgainWithoutARing(t *testing.T) {
	l := newLab(t)
	b := l.driver(hostB, discard())
	apply := func(want *model.Desired) (got model.Applied) {
		l.In(hostB, func() { got, _ = b.d.Apply(t.Context(), want) })
		return got
	}
	services := &model.Desired{Services: model.Services{Asked: true, Kept: true}, Track: true}
	is := &b.d.tables[v4].untracked
	if apply(services); !is.asked.IsZero() {
		t.Error("asked without kube-proxy")
	}
	l.nft(hostB, "add table ip kube-proxy")
	b.d.host.proxy = time.Time{}
	if apply(services); is.asked.IsZero() {
		t.Error("not asked")
	}
	for _, want := range []*model.Desired{services, {Track: true}} {
		*is = ability{unix.ENOENT.Error(), time.Now()}
		if got := apply(want); got.Ring.Untracked != (model.PerFamily{is.why, ""}) {
			t.Errorf("it cannot: %+v", got.Ring)
		}
		is.asked = time.Now().Add(-retryAfter)
		if got := apply(want); got.Ring.Untracked != (model.PerFamily{}) {
			t.Errorf("it can: %+v", got.Ring)
		}
	}
}

// TestKnownAbilitiesCostNothing: thousands of rings are applied twice a second.
func TestKnownAbilitiesCostNothing(t *testing.T) {
	d := New(Options{Logger: discard()})
	now := time.Now()
	for f := range d.tables {
		d.tables[f].untracked.asked, d.tables[f].even.asked = now, now
	}
	r := toward(vip4, hostA)
	r.Tracked, r.Ring.Spread = true, []model.Backend{{Node: "a"}}
	want := slices.Repeat([]model.Relay{r}, 100)
	if n := testing.AllocsPerRun(10, func() { want = d.trackable(d.evened(want, now), now) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
