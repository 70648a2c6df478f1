package lab_test

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/testnet"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
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

// TestMoveFromKeepalived is the way of docs/keepalived.md: lbd is started beside keepalived and
// takes no address that answers; once keepalived is stopped on all nodes, lbd has it.
func TestMoveFromKeepalived(t *testing.T) {
	t.Parallel()
	need(t)
	_, missing := exec.LookPath("keepalived")
	testnet.Require(t, missing)
	c := cluster(t, &lab.Keepalived{Advert: "1"}, 3)
	ctx, vip, s := t.Context(), lab.VIP4(), &lab.LBD{}
	var keepalived []*lab.Proc
	for _, n := range c.Nodes {
		keepalived = append(keepalived, n.Daemon)
		if err := s.Start(ctx, c.Lab, n); err != nil {
			t.Fatal(err)
		}
	}
	owners := func() (out []string) {
		for _, n := range c.Nodes {
			status, err := s.Status(ctx, c.Lab, n)
			if err != nil {
				continue
			}
			for _, v := range status.VIPs {
				if v.Address == vip && v.Bound {
					out = append(out, n.Name)
				}
			}
		}
		return out
	}
	from := measure.Now()
	time.Sleep(10 * time.Second)
	if r := c.Eyes.Reach(vip, from, measure.Now()); r.Failed > 0 || len(owners()) > 0 {
		t.Errorf("beside keepalived: %d of %d failed %v, %v have the address", r.Failed, r.Attempts, r.Errors, owners())
	}
	for _, n := range c.Nodes {
		status, err := s.Status(ctx, c.Lab, n)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range status.VIPs {
			if v.Address == vip {
				t.Logf("%s: %s (%s)", n.Name, v.Reason, v.Detail)
			}
		}
	}
	stood, begin := measure.Standstill(), measure.Now()
	for _, p := range slices.Backward(keepalived) { // the owner is the first, and is stopped last
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(10 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(10 * time.Second)
	r, still := c.Eyes.Reach(vip, begin, measure.Now()), stood()
	t.Logf("%d of %d failed, outage %v, the machine stood still for %v; %v have the address", r.Failed, r.Attempts, r.Outage, still, owners())
	if r.Never || r.Outage > slack*time.Second+still || len(owners()) != 1 {
		t.Errorf("outage %v, %v have the address", r.Outage, owners())
	}
}
