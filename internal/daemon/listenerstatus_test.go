package daemon

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/internal/decide"
	"lbd.dev/lbd/internal/model"
)

// boxView is a machine with two masters, of which one advertises too much as well.
func boxView() *model.View {
	vip, other := netip.MustParsePrefix("203.0.113.1/32"), netip.MustParsePrefix("0.0.0.0/0")
	one, two := netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("10.0.0.12")
	v := &model.View{
		Now: time.Unix(5000, 0), Started: time.Unix(1000, 0), Self: "b1", Synced: map[model.SourceName]bool{model.SourceConfig: true, model.SourceLink: true, model.SourceGossip: true, model.SourceHealth: true},
		Links:     map[string]model.Link{"eth0": {Name: "eth0", Index: 2, Up: true, IPv6: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.10/24")}}},
		VIPs:      []model.VIP{{Addr: vip.Addr(), Name: "masters", Kind: model.KindBGPListener, Unbound: true, L2: true, Interfaces: []string{"eth0"}}},
		Listeners: []model.BGPListener{{Name: "masters", LocalASN: 64512, MaxPrefixes: 4, Accept: []netip.Prefix{vip}, Spread: model.Spread{Resilient: true}}},
	}
	path := func(p netip.Prefix, by netip.Addr) model.LearnedPath {
		return model.LearnedPath{Listener: "masters", Peer: by, PeerASN: 64513, Prefix: p, NextHop: by}
	}
	v.Applied = map[model.SinkName]model.Applied{
		model.SinkAddress: {}, model.SinkLayer2: {},
		model.SinkBGP: {
			Learned: []model.LearnedPath{path(vip, one), path(vip, two), path(other, two)},
			Masters: []model.MasterReport{
				{Listener: "masters", Address: one, ASN: 64513, State: "Established", HoldTime: 9 * time.Second, Received: 1, BFD: "Up", BFDDetect: 300 * time.Millisecond},
				{Listener: "masters", Address: two, ASN: 64513, State: "Established", HoldTime: 9 * time.Second, Received: 2},
				{Listener: "masters", Address: netip.MustParseAddr("10.0.0.13"), State: "Active"},
				{Listener: "masters", Address: netip.MustParseAddr("10.0.0.14"), State: "Idle", Error: "is kept out"},
			},
		},
		model.SinkRoute: {Routes: map[netip.Prefix]model.AppliedRoute{vip: {Resilient: true, NextHops: []model.NextHop{{Gateway: one, Interface: "eth0", Weight: 1}, {Gateway: two, Interface: "eth0", Weight: 1}}}}},
	}
	return v
}

// TestListenerStatus: people see who is connected, what is refused and why, and where packets go.
func TestListenerStatus(t *testing.T) {
	v := boxView()
	d := decide.Decide(v)
	got, err := json.MarshalIndent(listenerStatus(v, &d), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(got)), " ")
	for _, want := range []string{
		`"address": "10.0.0.11", "asn": 64513, "state": "Established", "holdTime": "9s", "bfd": "Up", "bfdDetect": "300ms", "accepted": [ "203.0.113.1/32" ], "received": 1`,
		`"address": "10.0.0.13", "state": "Active" }`, `"address": "10.0.0.14", "state": "Idle", "error": "is kept out" }`,
		`"prefix": "203.0.113.1/32", "nextHops": [ "10.0.0.11", "10.0.0.12" ], "resilient": true, "since": `,
		`"refused": [ { "prefix": "0.0.0.0/0", "master": "10.0.0.12", "nextHop": "10.0.0.12", "why": "it is none of acceptPrefixes" } ]`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in %s", want, text)
		}
	}
	story := strings.Join(masters(v, &d, &v.VIPs[0]), "\n")
	for _, want := range []string{
		"packets for 203.0.113.1/32 go to 10.0.0.11, 10.0.0.12; a change moves only connections of a master that has left",
		"master 10.0.0.11 (AS 64513, session Established, BFD Up) advertises it", "master 10.0.0.13 (AS 0, session Active) does not advertise it",
		"master 10.0.0.14 (AS 0, session Idle) is kept out",
	} {
		if !strings.Contains(story, want) {
			t.Errorf("there is no %q in\n%s", want, story)
		}
	}
	v.Applied[model.SinkRoute] = model.Applied{}
	v.Listeners[0].MaxPrefixes = 1
	d = decide.Decide(v)
	story = strings.Join(masters(v, &d, &v.VIPs[0]), "\n")
	for _, want := range []string{"no master of BGPListener masters gets packets", "master 10.0.0.12 (AS 64513, session Established) is refused: the master advertises 2 prefixes"} {
		if !strings.Contains(story, want) {
			t.Errorf("there is no %q in\n%s", want, story)
		}
	}
}

// TestListenerMetrics: the gauges of a machine with a listener, and none on others.
func TestListenerMetrics(t *testing.T) {
	v := boxView()
	d := decide.Decide(v)
	count := func() map[string]float64 {
		reg := prometheus.NewRegistry()
		m := newMetrics(reg, "v1")
		m.publish(v, &d)
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := make(map[string]float64)
		for _, f := range all {
			if n := f.GetName(); strings.HasPrefix(n, "lbd_listener") || strings.HasPrefix(n, "lbd_route") {
				for _, x := range f.GetMetric() {
					out[n] += x.GetGauge().GetValue()
				}
			}
		}
		return out
	}
	if got := count(); len(got) != 3 || got["lbd_listener_masters"] != 2 || got["lbd_listener_refused_paths"] != 1 || got["lbd_route_next_hops"] != 2 {
		t.Errorf("%v", got)
	}
	v.Listeners = nil
	if got := count(); len(got) != 0 {
		t.Errorf("without a listener there is %v", got)
	}
}
