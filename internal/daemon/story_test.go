package daemon

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestStoryOfARelease tells once when the kernel of the old owner lets go, whether
// it is only late or counts as dead.
func TestStoryOfARelease(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		owner model.NodeName
		m2    model.Member
		want  string
	}{
		{"m2", model.Member{Name: "m2", Late: now.Add(-time.Second)}, "its kernel drops the address in 800ms"},
		{"", model.Member{Name: "m2", State: model.MemberDead}, "If its daemon does not come back, its kernel drops the address in 800ms."},
	} {
		tt.m2.LeaseEnd = now.Add(800 * time.Millisecond)
		at := netip.MustParseAddr("10.0.0.200")
		v := &model.View{Now: now, Self: "m1", Gossip: model.Gossip{Members: map[model.NodeName]model.Member{"m2": tt.m2}}}
		d := &model.Desired{Memory: model.Memory{VIPs: map[netip.Addr]model.VIPMemory{at: {Takeover: model.Takeover{From: "m2"}}}}}
		got := strings.Join(story(v, d, model.VIPStatus{VIP: model.VIP{Addr: at}, Owner: tt.owner, Reason: model.ReasonWaitingForRelease}), "\n")
		if strings.Count(got, "its kernel drops the address") != 1 || !strings.Contains(got, tt.want) {
			t.Errorf("owner %q: want once %q\n%s", tt.owner, tt.want, got)
		}
	}
}

// TestWarnsOfTakeovers goes through who had the VIP before.
func TestWarnsOfTakeovers(t *testing.T) {
	for _, tt := range []struct {
		from      model.NodeName
		consented bool
		want      bool
	}{
		{"m2", false, true},
		{"m2", true, false},
		{"", false, false},   // nobody ever
		{"m1", false, false}, // this node before its restart
	} {
		if got := unplanned("m1", &model.VIPMemory{Takeover: model.Takeover{From: tt.from}}, &model.VIPMemory{OwnClaim: model.OwnClaim{Consented: tt.consented}}); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// TestStoryOfUnbound: no kernel has, or drops, what is not bound.
func TestStoryOfUnbound(t *testing.T) {
	now := time.Unix(1000, 0)
	m2 := model.Member{Name: "m2", Late: now.Add(-time.Second), LeaseEnd: now.Add(800 * time.Millisecond)}
	at := netip.MustParseAddr("10.0.0.200")
	v := &model.View{Now: now, Self: "m1", Gossip: model.Gossip{Members: map[model.NodeName]model.Member{"m2": m2}}}
	d := &model.Desired{Memory: model.Memory{VIPs: map[netip.Addr]model.VIPMemory{at: {Takeover: model.Takeover{From: "m2"}}}}}
	tell := func(owner model.NodeName) string {
		return strings.Join(story(v, d, model.VIPStatus{VIP: model.VIP{Addr: at, Unbound: true}, Owner: owner, Reason: model.ReasonWaitingForRelease}), "\n")
	}
	for _, owner := range []model.NodeName{"m2", ""} {
		if got := tell(owner); strings.Contains(got, "its kernel drops") {
			t.Errorf("owner %q:\n%s", owner, got)
		}
	}
	if got := tell("m1"); !strings.Contains(got, "The address is not bound") {
		t.Errorf("%s", got)
	}
	if got := candidate(v, m2, model.VIPStatus{VIP: model.VIP{Addr: at, Unbound: true}}).Note; strings.Contains(got, "kernel") {
		t.Errorf("%s", got)
	}
}
