package loopback

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// A former owner of what the owner alone advertises goes on while routers do not hear the new one, and
// for a while after that.
func TestUnheardSuccessor(t *testing.T) {
	in := scene(model.BGPShutdown)
	in.VIP.Kind, in.VIP.Unbound, in.VIP.L2, in.Owner = model.KindLoadBalancer, true, true, "m2"
	in.Standing.Reason, in.Memory.Unbound, in.Memory.Until = model.ReasonDraining, true, start.Add(time.Second)
	tell := func(r model.Reason) {
		in.Members["m2"] = model.Member{Name: "m2", State: model.MemberAlive, Standing: map[netip.Addr]model.Reason{vip: r}}
	}
	tell(model.ReasonDegraded)
	in.Memory.DrainEnd = start.Add(3 * time.Hour)
	if o := in.step(time.Hour); !o.Advertise || !o.Shutdown || !o.Wake.Equal(in.Memory.DrainEnd) || o.Status.Detail != "routers do not hear m2, which has it now" {
		t.Fatalf("unheard: %+v", o)
	}
	tell(model.ReasonOwner)
	if o := in.step(0); !o.Advertise || !o.Wake.Equal(in.Now.Add(in.Audience.Delay)) || o.Status.Detail != "" {
		t.Fatalf("heard: %+v", o)
	}
	in.step(in.Audience.Delay - 1)
	in.is(t, "its time is not over", model.BGPShutdown)
	in.step(1)
	in.is(t, "its time is over", model.BGPWithdrawing)
}

// The path does not stay longer than a drain may last, nor where connections end.
func TestUnheardSuccessorIsNotAwaitedForEver(t *testing.T) {
	unheard := func(why model.Reason) *Input {
		in := scene(model.BGPShutdown)
		in.VIP.Kind, in.VIP.Unbound, in.VIP.L2, in.Owner = model.KindLoadBalancer, true, true, "m2"
		in.Standing.Reason, in.Memory.Unbound, in.Memory.Until = why, true, start.Add(FollowDelay)
		in.Memory.DrainEnd = start.Add(time.Minute)
		in.Members["m2"] = model.Member{Name: "m2", State: model.MemberAlive, Standing: map[netip.Addr]model.Reason{vip: model.ReasonDegraded}}
		return in
	}
	for why, want := range map[model.Reason]model.BGPPhase{
		model.ReasonStandby: model.BGPShutdown, model.ReasonDegraded: model.BGPShutdown, model.ReasonDraining: model.BGPShutdown,
		model.ReasonUnhealthy: model.BGPWithdrawing, model.ReasonLinkDown: model.BGPWithdrawing, model.ReasonNoSubnet: model.BGPWithdrawing,
	} {
		in := unheard(why)
		in.step(30 * time.Second)
		in.is(t, why.String(), want)
	}
	in := unheard(model.ReasonDraining)
	in.step(time.Minute - 1)
	in.is(t, "its drain is not over", model.BGPShutdown)
	in.step(1)
	in.step(max(FollowDelay, in.Audience.Delay))
	in.is(t, "its drain is over", model.BGPWithdrawing)
}
