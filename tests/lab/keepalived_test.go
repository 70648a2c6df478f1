package lab_test

import (
	"os/exec"
	"testing"
	"time"

	"lbd.dev/lbd/internal/testnet"
	"lbd.dev/lbd/tests/lab"
)

// TestKeepalived proves the lab on a system whose behaviour is known: advert_int
// 0.1 is found dead after about 0.3 s, and a killed or deafened owner leaves two
// claimants.
func TestKeepalived(t *testing.T) {
	t.Parallel()
	need(t)
	_, missing := exec.LookPath("keepalived")
	testnet.Require(t, missing)
	c := cluster(t, &lab.Keepalived{Advert: "0.1"}, 3)
	run := func(s lab.Scenario) *lab.Outcome {
		o, err := c.Run(t.Context(), s, lab.VIP4())
		if err != nil {
			t.Fatal(err)
		}
		t.Log(describe(o))
		return o
	}
	down := lab.LinkDown()
	down.Conns = 20
	o := run(down)
	if out := o.First.Reach.Outage; out < 200*time.Millisecond || out > 1500*time.Millisecond || o.First.Reach.Never {
		t.Errorf("linkdown: outage %v", out)
	}
	if o.First.Dual > 0 || !o.First.Moved || o.First.Takeover < 200*time.Millisecond {
		t.Errorf("linkdown: %+v", o.First)
	}
	if o.Conns.Open != 20 || o.Conns.Survived() == 20 {
		t.Errorf("linkdown: long-lived connections: %+v", o.Conns)
	}
	if o := run(lab.Kill()); o.First.Dual < 2*time.Second || o.Gone >= 0 {
		t.Errorf("sigkill: no dual claim seen: %+v", o)
	}
	o = run(lab.Partition())
	if o.First.Dual < 2*time.Second {
		t.Errorf("partition: no dual claim seen: %+v", o)
	}
	if len(lab.PromiseFor("partition", false).Broken([]*lab.Outcome{o}, slack)) == 0 {
		t.Error("a dual claim does not break the promise")
	}
}
