package daemon

import (
	"net/netip"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestSpreadStory: what becomes of new connections to a balanced VIP, and why not.
func TestSpreadStory(t *testing.T) {
	v := viewOf(member("m2", model.MemberAlive, nil))
	v.Links = map[string]model.Link{"eth0": {Name: "eth0", Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.11/24")}}}
	own, silent := vipStatus(addrA, "m1", model.ReasonOwner), vipStatus(addrA, "m2", model.ReasonStandby)
	d := &model.Desired{}
	phase := func(p model.BGPPhase) *model.Desired {
		return &model.Desired{Memory: model.Memory{BGP: map[netip.Addr]model.BGPMemory{addrA: {Phase: p, Balanced: true}}}}
	}
	tells(t, "active-backup", spreadStory(v, d, own))
	own.VIP.Balanced, silent.VIP.Balanced = true, true
	ring := &model.Ring{}
	d.Relay = []model.Relay{{Addr: addrB, Ring: &model.Ring{Spread: []model.Backend{{Node: "m9"}}}}, {Addr: addrA, Ring: ring}}
	tells(t, "alone", spreadStory(v, d, own), "takes all new connections itself: no other node")
	ring.Spread = []model.Backend{{Node: "m1"}, {Node: "m2"}}
	tells(t, "spreads", spreadStory(v, d, own), "New connections are spread over m1, m2.")
	if got := status(v, &model.Desired{Relay: d.Relay, Status: []model.VIPStatus{own}}).VIPs[0].Detail; got != "new connections are spread over m1, m2" {
		t.Errorf("status: %q", got)
	}
	for name, s := range map[string]model.VIPStatus{"silent": silent, "bgp": {VIP: own.VIP, BGP: true, Owner: "m1", Reason: model.ReasonOwner}, "active-backup": vipStatus(addrA, "m1", model.ReasonOwner)} {
		if got := spreadDetail(v, d, s); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, err := range []string{"spread: no hash", ""} {
		v.Applied = map[model.SinkName]model.Applied{model.SinkRelay: {VIPs: map[netip.Addr]model.AppliedVIP{addrA: {Relaying: true, Err: err}}}}
		want := "It takes all new connections itself: spread: no hash."
		if err == "" {
			want = "New connections are spread over m1, m2."
		}
		tells(t, "error "+err, spreadStory(v, d, own), want)
	}
	tells(t, "silent", spreadStory(v, phase(model.BGPAdvertised), silent), "m1 has it bound, silently, and serves its share")
	silent.Owner = ""
	tells(t, "silent without owner", spreadStory(v, phase(model.BGPAdvertised), silent), "m1 has it bound, silently, but knows of nobody")
	silent.Owner, silent.VIP.Balanced = "m2", false
	tells(t, "was balanced", spreadStory(v, phase(model.BGPLingering), silent), "for the connections of when it was balanced")
	tells(t, "was balanced long ago", spreadStory(v, phase(model.BGPIdle), silent))
	silent.VIP.Balanced = true
	tells(t, "leaving", spreadStory(v, phase(model.BGPLingering), silent), "it gets no new ones")
	tells(t, "absent", spreadStory(v, phase(model.BGPIdle), silent), "m1 does not have it bound")

	l := v.Links["eth0"]
	l.Strict = true
	v.Links["eth0"], v.Links["eth1"] = l, model.Link{Name: "eth1", Up: true, Gateway: true}
	tells(t, "unfit owner", spreadStory(v, d, own), "It takes all new connections itself: rp_filter is 1 on eth0")
	tells(t, "unfit", spreadStory(v, phase(model.BGPAdvertised), silent), "m1 takes no part in spreading connections: rp_filter is 1 on eth0")
	v.NoRelay = true
	tells(t, "reset", spreadStory(v, d, own), "m1 takes no part in spreading connections: it has connections: reset.")
}
