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
	if o := in.step(time.Hour); !o.Advertise || !o.Shutdown || !o.Wake.IsZero() || o.Status.Detail != "routers do not hear m2, which has it now" {
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
