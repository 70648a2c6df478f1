package control

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; after a look at it, run go test -update\n--- got\n%s--- want\n%s", path, got, want)
	}
	for line := range strings.Lines(string(got)) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > maxWidth {
			t.Errorf("%s: a line has %d columns, want at most %d: %q", path, n, maxWidth, line)
		}
	}
}

var now = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// calm is a group in which all is well.
func calm() v1alpha1.NodeStatus {
	return v1alpha1.NodeStatus{
		Node: "m1", Version: "v0.1.0", Time: now, Settled: true,
		Members: []v1alpha1.MemberStatus{
			{Name: "m2", Address: "10.0.0.12", State: "alive", Settled: true, Weight: 100, Version: "v0.1.0"},
			{Name: "m3", Address: "10.0.0.13", State: "alive", Settled: true, Weight: 100, Version: "v0.1.0"},
		},
		VIPs: []v1alpha1.VIPStatus{
			{
				Name: "control-plane", Kind: "VirtualIP", Address: "10.0.0.200", Mode: "l2", Interface: "eth0", Owner: "m1",
				Reason: "Owner", Standing: "Owner", Healthy: true, Bound: true, Announced: true, Epoch: 3, Since: ago(3 * time.Hour),
				Successors: []string{"m3", "m2"},
			},
			{
				Name: "control-plane", Kind: "VirtualIP", Address: "fd00::200", Mode: "l2", Interface: "eth0", Owner: "m2",
				Reason: "Standby", Standing: "Standby", Healthy: true, Epoch: 2, Since: ago(90 * time.Second),
			},
		},
		Config: v1alpha1.ConfigStatus{Path: "/etc/lbd", Generation: 1, LoadedAt: ago(5 * 24 * time.Hour)},
		Health: []v1alpha1.HealthStatus{
			{Name: "control-plane", State: "up", Since: ago(5 * 24 * time.Hour), LastDuration: "2ms", Successes: 9000},
		},
		Drivers: []v1alpha1.DriverStatus{{Name: "address"}, {Name: "layer2"}},
	}
}

// trouble has everything that can be wrong, long names and hostile text.
func trouble() v1alpha1.NodeStatus {
	s := calm()
	s.Settled, s.Draining = false, true
	s.Machines = &v1alpha1.MachinesStatus{Drain: "Machine default/cp-1: Deleting (since\x1b noon), told by m2", Drained: true}
	s.Members[0] = v1alpha1.MemberStatus{Name: "m2", Address: "10.0.0.12", State: "alive", Draining: true, Late: "180ms", Version: "v0.2.0"}
	s.Members[1].State, s.Members[1].Late = "dead", "7s" // it is dead, so nobody waits for its heartbeats
	s.Config.Error = "lbd.yaml:12: VirtualIP \"control-plane\": spec.addresses[0]: \"10.0.0.300\" is not an IP address\nlbd.yaml:14: VirtualIP \"control-plane\": spec.healthCheck.tcp.port: 0 is not between 1 and 65535"
	s.Config.Warnings = []string{"gossip.key is readable by everybody"}
	s.Gossip = v1alpha1.GossipStatus{KeyMismatches: 17, LastMismatchFrom: "10.0.0.99", LastMismatchAt: ago(7 * time.Second), NameConflicts: 1, LastConflictName: "m1", LastConflictFrom: "10.0.0.98:7947", LastConflictAt: ago(3 * time.Second), Absent: []string{"10.0.0.14:7947"}}
	s.Drivers[1].Error = "bind 10.0.0.200 on eth0: operation not permitted"
	s.VIPs = nil
	for _, reason := range model.Reasons() {
		s.VIPs = append(s.VIPs, v1alpha1.VIPStatus{
			Name: "a-very-long-name-of-an-object-that-a-machine-has-made-up", Address: fmt.Sprintf("fd00:1234:5678:9abc:def0:1234:5678:%x", 0x10+int(reason)),
			Owner: "m2", Interface: "enp129s0f0np0", Reason: reason.String(), Since: ago(time.Hour),
		})
	}
	for i := range 7 {
		s.VIPs = append(s.VIPs, v1alpha1.VIPStatus{
			Name: "web", Address: "10.0.1." + string(rune('1'+i)), Reason: "Unhealthy",
			Detail: "https://127.0.0.1:6443/livez: status 500 Internal Server Error: [-]etcd failed: reason withheld",
		})
	}
	s.VIPs = append(s.VIPs, v1alpha1.VIPStatus{Name: "evil\x1b[31m", Address: "10.0.1.9", Reason: "FromTheFuture", Detail: "two\nlines"})
	s.Health[0] = v1alpha1.HealthStatus{Name: "control-plane", State: "down", Since: ago(3 * time.Second), Detail: "https://127.0.0.1:6443/livez: CA file \"/etc/kubernetes/pki/ca.crt\" does not exist yet"}
	s.BGP = []v1alpha1.BGPStatus{
		{Peer: "tor1", Address: "10.0.0.1", State: "Established", BFD: "Up", Advertised: []string{"10.0.0.200/32"}},
		{Peer: "tor2", Address: "10.0.0.2", State: "Active", Error: "dial tcp 10.0.0.2:179: connection refused"},
	}
	open := 3
	s.LoadBalancers = []v1alpha1.BalancerStatus{{
		Name: "api", Addresses: []string{"10.0.0.200", "fd00::200"},
		Ports: []v1alpha1.BalancerPort{{Protocol: "TCP", Port: 443, TargetPort: 6443}, {Protocol: "UDP", Port: 53, TargetPort: 53}},
		Backends: []v1alpha1.BackendStatus{
			{Backend: "10.0.0.11", Weight: 10, State: "in", Since: ago(time.Hour), Share: 1000, Health: "up", Connections: &open},
			{Backend: "10.0.0.12", Weight: 10, State: "out", Reason: "OwnerSays", By: "m2", Since: ago(time.Minute), Health: "up", Connections: new(int)},
			{Backend: "10.0.0.13", State: "draining", Reason: "Removed", Since: ago(7 * time.Second)},
			{Backend: "[fd00:1234:5678:9abc:def0:1234:5678:11]:443", State: "out", Reason: "FromTheFuture", Detail: "two\nlines"},
		},
	}}
	s.Listeners = []v1alpha1.ListenerStatus{{
		Name: "masters",
		Masters: []v1alpha1.MasterStatus{
			{Address: "10.0.0.11", ASN: 64513, State: "Established", BFD: "Up", Accepted: []string{"203.0.113.1/32", "2001:db8::1/128"}},
			{Address: "10.0.0.12", ASN: 64513, State: "Established", BFD: "Down", Received: 7},
			{Address: "10.0.0.13", State: "OpenSent"},
			{Address: "10.0.0.14", State: "Idle", Error: "sent more than it may, 544 prefixes in 10s, and is kept out for 30s"},
		},
		Routes: []v1alpha1.LearnedRouteStatus{
			{Prefix: "203.0.113.1/32", NextHops: []string{"10.0.0.11"}, Resilient: true, Since: ago(time.Minute)},
			{Prefix: "203.0.113.2/32"}, {Prefix: "10.0.0.10/32", Error: "it holds 10.0.0.10, an address of this machine on interface eth0"},
		},
	}}
	for i := range 7 {
		s.Listeners[0].Refused = append(s.Listeners[0].Refused, v1alpha1.RefusedPathStatus{Prefix: fmt.Sprintf("10.%d.0.0/16", i), Master: "10.0.0.12", Why: "it is none of acceptPrefixes\x1b"})
	}
	return s
}

func TestRenderStatus(t *testing.T) {
	empty := v1alpha1.NodeStatus{Node: "m1", Version: "v0.1.0", Config: v1alpha1.ConfigStatus{Path: "/etc/lbd"}}
	noClock := calm()
	noClock.Time = time.Time{}
	for name, status := range map[string]v1alpha1.NodeStatus{
		"calm": calm(), "trouble": trouble(), "empty": empty, "noclock": noClock,
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := RenderStatus(&out, status, true); err != nil {
				t.Fatal(err)
			}
			golden(t, "status-"+name+".txt", out.Bytes())
		})
	}
}

// many is a group of eight in which 300 VIPs with a check each are well, but for some.
func many(wrong int) v1alpha1.NodeStatus {
	s := calm()
	s.VIPs, s.Health = nil, nil
	for i := range 300 {
		vip := v1alpha1.VIPStatus{
			Name: fmt.Sprint("vip", i), Address: fmt.Sprintf("10.0.%d.%d", i/100, i%100), Interface: "eth0", Since: ago(time.Hour), Healthy: true,
			Owner: fmt.Sprint("m", i%8+1), Reason: "Standby", Standing: "Standby",
		}
		check := v1alpha1.HealthStatus{Name: vip.Name, State: "up", Since: ago(time.Hour)}
		if i%8 == 0 {
			vip.Reason, vip.Successors = "Owner", []string{fmt.Sprint("m", i%7+2), fmt.Sprint("m", i%5+3)}
		}
		if i >= 300-wrong {
			vip.Owner, vip.Reason, vip.Detail = "", "Unhealthy", fmt.Sprint("refused by ", i)
			check.State, check.Detail = "down", vip.Detail
		}
		s.VIPs, s.Health = append(s.VIPs, vip), append(s.Health, check)
	}
	return s
}

// TestStatusOfManyVIPsFitsAScreen: what is wrong is not lost among hundreds of rows that
// say that all is well.
func TestStatusOfManyVIPsFitsAScreen(t *testing.T) {
	text := func(s v1alpha1.NodeStatus, all bool) (string, int) {
		var out bytes.Buffer
		if err := RenderStatus(&out, s, all); err != nil {
			t.Fatal(err)
		}
		return out.String(), strings.Count(out.String(), "\n")
	}
	if got, lines := text(many(0), false); lines > 30 || !strings.Contains(got, "\n  38 owned by m1, 38 owned by m2, 38 owned by m3, 38 owned by m4, 148 others;") || !strings.Contains(got, "\n  300 up;") {
		t.Errorf("%d lines:\n%s", lines, got)
	}
	if got, lines := text(many(3), false); lines > 50 || strings.Count(got, "refused by 298") != 3 {
		t.Errorf("%d lines:\n%s", lines, got)
	}
	if got, lines := text(many(250), false); lines > 150 || !strings.Contains(got, "! and 230 more such lines") || !strings.Contains(got, "230 Unhealthy") || !strings.Contains(got, "230 down") {
		t.Errorf("%d lines:\n%s", lines, got)
	}
	if got, lines := text(many(3), true); lines < 600 || strings.Contains(got, "Not shown") {
		t.Errorf("with --all %d lines:\n%s", lines, got)
	}
}

func TestRenderExplain(t *testing.T) {
	open, at := 12, now
	list := []v1alpha1.Explanation{
		{
			Name: "control-plane", Address: "10.0.0.200", Node: "m1", Owner: "m2", Reason: "Unhealthy", Epoch: 4,
			Detail: "https://127.0.0.1:6443/livez: connection refused",
			Candidates: []v1alpha1.Candidate{
				{Node: "m1", Rank: 1, Reason: "Unhealthy", Alive: true, Weight: 100, ClaimEpoch: 3, Note: "https://127.0.0.1:6443/livez: connection refused"},
				{Node: "m2", Rank: 2, Eligible: true, Reason: "Owner", Alive: true, Weight: 100, ClaimEpoch: 4},
				{Node: "m3", Rank: 3, Eligible: true, Reason: "Standby", Alive: true, Weight: 50},
				{Node: "m4", Rank: 4, Reason: "Standby", Weight: 100, Note: "not heard of for 12s"},
				{Node: "m5", Rank: 5, Reason: "Owner", Weight: 100},
				{Node: "m6", Rank: 6, Reason: "Owner", Alive: true, Weight: 100},
			},
			Story: []string{
				"m1 owned the VIP with epoch 3 until its health check failed at 2026-11-21T09:59:00Z, which is also the time at which the lease of its address began to run out.",
				"m2 was ready and took it over with epoch 4.",
			},
		},
		{Name: "control-plane", Address: "fd00::200", Node: "m1", Reason: "Probing"},
		{
			Name: "control-plane", Address: "10.0.0.201", Node: "m1", Owner: "m2", Epoch: 4, Reason: "Draining", Detail: "the daemon is stopping",
			Candidates: []v1alpha1.Candidate{
				{
					Node: "m2", Rank: 1, Eligible: true, Reason: "Owner", Alive: true, Late: "1.2s", Weight: 100, ClaimEpoch: 4,
					Note: "heartbeats overdue for 1.2s; unless its daemon runs, its kernel drops the address in 800ms",
				},
				{Node: "m3", Rank: 2, Reason: "Draining", Alive: true, Weight: 100},
			},
		},
		{
			Name: "api", Address: "10.0.0.202", Node: "m1", Time: at, Owner: "m1", Epoch: 4, Reason: "Owner",
			Backends: []v1alpha1.BackendStatus{
				{Backend: "10.0.0.11", Weight: 30, State: "in", Since: at.Add(-time.Minute), Share: 667, Health: "up", Connections: &open, Client: true},
				{Backend: "10.0.0.12:99", Weight: 10, State: "in", Reason: "NoneBetter", By: "m1", Share: 333, Health: "down", Detail: "connection refused"},
				{Backend: "10.0.0.13", Weight: 10, State: "out", Reason: "LastCheckFailed", By: "m1", Since: at, Health: "failing", Detail: "no answer in time"},
				{Backend: "10.0.0.14", State: "draining", Reason: "NoWeight", Health: "down", Detail: "connection refused"},
				{Backend: "10.0.0.15", Weight: 10, State: "out", Reason: "OwnerSays", By: "m2", Health: "up"},
			},
			Story: []string{"A new connection from 10.0.9.7:51234 goes to 10.0.0.11."},
		},
	}
	var out bytes.Buffer
	if err := RenderExplain(&out, list); err != nil {
		t.Fatal(err)
	}
	golden(t, "explain.txt", out.Bytes())
}

// TestEveryReasonOfABackend has its own words.
func TestEveryReasonOfABackend(t *testing.T) {
	seen := map[string]model.ServerWhy{}
	for _, why := range model.ServerWhys() {
		text := BackendWhy(v1alpha1.BackendStatus{Reason: why.String(), By: "m2"})
		if other, ok := seen[text]; ok || (text == "") != (why == model.ServerWell) || text == why.String() && text != "" || strings.ContainsAny(text, "{}") {
			t.Errorf("%q has the words %q, %q too", why, text, other)
		}
		seen[text] = why
	}
}

// TestEveryReasonHasItsSentence holds the list of reasons and the sentences
// together.
func TestEveryReasonHasItsSentence(t *testing.T) {
	seen := map[string]model.Reason{}
	for _, reason := range model.Reasons() {
		text := reasonText[reason]
		if text == "" {
			t.Errorf("%v has no sentence", reason)
			continue
		}
		if other, ok := seen[text]; ok {
			t.Errorf("%v and %v have the same sentence", reason, other)
		}
		seen[text] = reason
		if got := sentence(reason.String(), "m1", "m2", ""); strings.ContainsAny(got, "{}") || got == "" {
			t.Errorf("%v: %q has a placeholder left", reason, got)
		}
		if strings.HasSuffix(text, ".") {
			t.Errorf("%v: %q ends with a full stop", reason, text)
		}
	}
}

func TestRenderBGP(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	s := v1alpha1.NodeStatus{Node: "m1", Time: at, BGP: []v1alpha1.BGPStatus{
		{
			Peer: "tor1", Address: "10.0.0.1", LocalASN: 64512, PeerASN: 64513, State: "Established", Since: at.Add(-90 * time.Second),
			HoldTime: "9s", Families: []string{"ipv4", "ipv6"}, BFD: "Up", BFDTransmit: "100ms", BFDReceive: "100ms", BFDDetect: "300ms",
			Advertised: []string{"10.9.0.200/32"}, Received: 12, Flaps: 1, Error: "BFD: the peer was not heard for 300ms", LastErrorAt: at.Add(-2 * time.Minute),
			Paths: []v1alpha1.BGPPathStatus{{Prefix: "10.9.0.200/32", MED: new(uint32(5)), Prepend: 2, Communities: []string{"65535:0", "large:1:2:3"}, GracefulShutdown: true}},
		},
		{Peer: "rr", Address: "fd00::1", LocalASN: 64512, PeerASN: 64512, State: "Active", HoldTime: "90s", Flaps: 2, Error: "connection refused"},
		{Peer: "tor2", Address: "10.0.0.2", LocalASN: 64512, PeerASN: 64513, State: "Idle", HoldTime: "9s", BFD: "Down", BFDTransmit: "300ms", BFDReceive: "300ms"},
	}}
	var out bytes.Buffer
	if err := RenderBGP(&out, s); err != nil {
		t.Fatal(err)
	}
	golden(t, "status-bgp.txt", out.Bytes())
	out.Reset()
	if err := RenderBGP(&out, v1alpha1.NodeStatus{Node: "m1"}); err != nil || out.String() != "Node m1 has no BGP peer.\n" {
		t.Errorf("without peers: %q, %v", out.String(), err)
	}
}

func TestRenderExplainBGP(t *testing.T) {
	var out bytes.Buffer
	err := RenderExplain(&out, []v1alpha1.Explanation{{
		Name: "cp", Address: "10.9.0.200", Mode: "bgp", Node: "m1", Owner: "m1", Reason: "Advertised",
		Candidates: []v1alpha1.Candidate{
			{Node: "m1", Alive: true, Eligible: true, Reason: "Owner"},
			{Node: "m2", Alive: true, Eligible: true, Reason: "Standby"},
			{Node: "m3", Alive: true, Reason: "Unhealthy", Note: "connection refused"},
			{Node: "m4", Reason: "Owner", Note: "it is dead"},
			{Node: "m5", Alive: true, Eligible: true, Reason: "Owner", Late: "2s", Note: "heartbeats overdue for 2s"},
		},
		Story: []string{"Every node that is healthy advertises 10.9.0.200."},
	}})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "explain-bgp.txt", out.Bytes())
}

// TestServicesLine: why connections to Services are reset is said, and is no problem.
func TestServicesLine(t *testing.T) {
	for _, c := range []struct {
		is   *v1alpha1.ServiceConnectionsStatus
		want string
	}{
		{nil, ""},
		{&v1alpha1.ServiceConnectionsStatus{Kept: true}, ""},
		{&v1alpha1.ServiceConnectionsStatus{Reason: "kube-proxy is in IPVS mode"}, "\nServices: a move of an address resets open connections: kube-proxy is in IPVS mode\n"},
		{&v1alpha1.ServiceConnectionsStatus{Kept: true, Reason: "IPv6: no\nct"}, "\nServices: a move of an address resets open connections, or some of them: IPv6: no; ct\n"},
	} {
		s := calm()
		s.ServiceConnections = c.is
		var out bytes.Buffer
		if err := RenderStatus(&out, s, false); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Contains(got, "Services:") != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v:\n%s", c.is, got)
		}
		if got := Problem(s); got != Problem(calm()) {
			t.Errorf("%+v is a problem: %q", c.is, got)
		}
	}
}
