package daemon

import (
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestLogOfBlips: on a starved host the owner is missed and asked for many times a
// minute, and answers. None of that is for a person to read; what lasts is, and what
// ends otherwise than it began is logged at once.
func TestLogOfBlips(t *testing.T) {
	w := newOnlooker(t)
	w.view.Now = time.Unix(1000, 0)
	after := func(d time.Duration) { w.view.Now = w.view.Now.Add(d) }
	is := func(owner model.NodeName, why model.Reason) model.Desired {
		return statuses(vipStatus(addrA, owner, why))
	}
	w.see(is("m2", model.ReasonStandby), "msg=vip reason=Standby owner=m2")
	for range 30 {
		after(time.Second)
		w.see(is("", model.ReasonProbing))
		after(100 * time.Millisecond)
		w.see(is("", model.ReasonWaitingForRelease))
		after(lasting - 101*time.Millisecond)
		w.see(is("m2", model.ReasonStandby))
	}
	// This one lasts, whatever it is called meanwhile.
	after(time.Second)
	w.see(is("", model.ReasonProbing))
	after(lasting - time.Millisecond)
	w.see(is("", model.ReasonWaitingForRelease))
	after(time.Millisecond)
	w.see(is("", model.ReasonWaitingForRelease), "level=WARN msg=vip reason=WaitingForRelease passed=30")
	after(time.Minute)
	w.see(is("", model.ReasonWaitingForRelease))
	w.see(is("m2", model.ReasonStandby), "level=INFO msg=vip reason=Standby owner=m2")

	// A takeover, by another or by this node, is no blip.
	w.see(is("", model.ReasonProbing))
	w.see(is("m3", model.ReasonStandby), "msg=vip reason=Standby owner=m3")
	w.see(is("", model.ReasonProbing))
	w.see(is("m1", model.ReasonTakingOver), "msg=vip reason=TakingOver owner=m1")
	w.see(is("m1", model.ReasonOwner), "msg=vip reason=Owner")

	// A VIP that is gone is forgotten, also while it waits.
	w.see(is("", model.ReasonProbing))
	w.see(statuses())
	after(time.Minute)
	w.see(statuses())
	w.see(is("", model.ReasonProbing), "msg=vip reason=Probing")
}
