package preflight

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/model"
)

// What is in the way of Services is told before the daemon runs.
func TestPreflightServices(t *testing.T) {
	only6 := func(a netip.Addr) string {
		if a.Is4() {
			return ""
		}
		return "no such file"
	}
	able := func(netip.Addr) string { return "" }
	ipvs := map[string]model.Link{"kube-ipvs0": {Name: "kube-ipvs0"}}
	for name, c := range map[string]struct {
		seen        model.RingHost
		links       map[string]model.Link
		untrackable func(netip.Addr) string
		want        []string // a part of each line
	}{
		"fine":              {untrackable: able, want: []string{"ok Services nothing here keeps open connections by IPv4", "ok Services nothing here keeps open connections by IPv6"}},
		"IPVS":              {links: ipvs, untrackable: able, want: []string{"warning Services a move resets open connections: kube-proxy is in IPVS mode"}},
		"no kube-proxy":     {seen: model.RingHost{Proxy: model.ProxyNone}, untrackable: able, want: []string{"warning Services a move resets open connections: kube-proxy has no rules"}},
		"no NFT_CT":         {untrackable: only6, want: []string{"ok Services", "warning Services a move resets open connections: the kernel has no such rules for IPv6: no such file (CONFIG_NFT_CT)"}},
		"no rings":          {seen: model.RingHost{Kernel: model.PerFamily{"no dup", "no dup"}}, untrackable: able, want: []string{"for IPv4: no dup", "for IPv6: no dup"}},
		"cannot be listed":  {seen: model.RingHost{Untold: "denied"}, untrackable: able, want: []string{"warning Services a move resets open connections: tracked connections cannot be listed: denied"}},
		"dropped on output": {seen: model.RingHost{Drops: model.PerFamily{"chain output of table ip t", ""}}, untrackable: able, want: []string{"warning Services a move resets open connections: chain output of table ip t drops what is relayed of IPv4", "ok Services"}},
	} {
		var out bytes.Buffer
		p := &preflight{out: &out, cfg: &config.Config{}}
		p.cfg.Node.ServiceConnections = model.ServicesKeep
		p.services(&c.seen, c.links, c.untrackable)
		loud := out.String()
		out.Reset()
		p.cfg.Node.ServiceConnections = model.ServicesAuto
		p.services(&c.seen, c.links, c.untrackable)
		if want := strings.ReplaceAll(loud, "warning ", "ok      "); out.String() != want {
			t.Errorf("%s, as nobody asked for it: %q, want %q", name, out.String(), want)
		}
		out.Reset()
		out.WriteString(loud)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != len(c.want) || p.failed > 0 {
			t.Errorf("%s: %d checks failed; want %d lines, got:\n%s", name, p.failed, len(c.want), out.String())
			continue
		}
		for i, line := range lines {
			if line = strings.Join(strings.Fields(line), " "); !strings.Contains(line, c.want[i]) {
				t.Errorf("%s: %q, want %q", name, line, c.want[i])
			}
		}
	}
}

// TestPreflightOfServices: they are looked at where there may be some, or somebody asked for it.
func TestPreflightOfServices(t *testing.T) {
	cluster := &v1alpha1.KubernetesSpec{}
	for _, c := range []struct {
		mode    model.ServiceConnections
		cluster *v1alpha1.KubernetesSpec
		want    bool
	}{
		{model.ServicesAuto, nil, false}, {model.ServicesAuto, cluster, true}, {model.ServicesKeep, nil, true},
		{model.ServicesReset, nil, false}, {model.ServicesReset, cluster, false},
	} {
		p := &preflight{cfg: &config.Config{}}
		p.cfg.Node.ServiceConnections, p.cfg.Node.Kubernetes = c.mode, c.cluster
		if p.hasServices() != c.want {
			t.Errorf("%d, cluster %v: %v", c.mode, c.cluster != nil, !c.want)
		}
	}
}

// A host that answers for an address is fine only if it may be the owner: beside this node,
// or beside another owner, it is a duplicate.
func TestPreflightDuplicate(t *testing.T) {
	vip := netip.MustParseAddr("10.0.0.200")
	answer := &model.ProbeResult{Done: true, Answered: true, By: model.MAC{2, 0, 0, 0, 0, 0x42}}
	for name, c := range map[string]struct {
		owner, duplicate string
		answer           *model.ProbeResult
		want             string
	}{
		"owner, alone":             {"m1", "", &model.ProbeResult{Done: true}, "ok 10.0.0.200 nobody on eth0 answers"},
		"owner, and another host":  {"m1", "", answer, "FAILED 10.0.0.200 02:00:00:00:00:42 answers for it, although this node owns it"},
		"standby":                  {"m2", "", answer, "ok 10.0.0.200 02:00:00:00:00:42 answers for it; its owner is m2"},
		"standby, and a duplicate": {"m2", "02:00:00:00:00:43", answer, "FAILED 10.0.0.200 02:00:00:00:00:43 answers for it beside its owner, m2"},
		"no owner":                 {"", "", answer, "warning 10.0.0.200 02:00:00:00:00:42 answers for it: an lbd node"},
	} {
		var out bytes.Buffer
		p := &preflight{out: &out, cfg: &config.Config{}, running: true, status: v1alpha1.NodeStatus{
			Node: "m1", VIPs: []v1alpha1.VIPStatus{{Address: vip.String(), Mode: "l2", Owner: c.owner, Duplicate: c.duplicate}},
		}}
		p.answered("eth0", vip, c.answer)
		if got := strings.Join(strings.Fields(out.String()), " "); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestHowManyFailed: a warning is no error.
func TestHowManyFailed(t *testing.T) {
	for failed, want := range []string{"<nil>", "a check failed", "2 checks failed"} {
		if err := (&preflight{failed: failed}).result(); fmt.Sprint(err) != want {
			t.Errorf("%d failed: %v, want %s", failed, err, want)
		}
	}
}
