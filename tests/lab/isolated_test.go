package lab_test

import (
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// TestStandbyComesBack cuts the wire of a node that owns nothing, for longer than
// it takes to believe the others dead, and heals it: what the others own stays
// where it is, whatever the node made of its loneliness.
func TestStandbyComesBack(t *testing.T) { // P6
	t.Parallel()
	c := cluster(t, &lab.LBD{}, 3)
	for _, cut := range []time.Duration{2 * time.Second, 8 * time.Second} {
		owner := ownerOf(t, c, lab.VIP4())
		standby := c.Others(owner)[0]
		if err := c.WireCut(t.Context(), &standby.Host); err != nil {
			t.Fatal(err)
		}
		time.Sleep(cut)
		from := measure.Now()
		if err := c.WireHeal(t.Context(), &standby.Host); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if d := c.Eyes.Dual(lab.VIP4(), from, measure.Now()); d > slack*150*time.Millisecond {
			t.Errorf("cut %v: two claimants for %v", cut, d)
		}
		if r := c.Eyes.Reach(lab.VIP4(), from, measure.Now()); r.Failed > 0 {
			t.Errorf("cut %v: %d of %d attempts failed %v, outage %v", cut, r.Failed, r.Attempts, r.Errors, r.Outage)
		}
		if now := ownerOf(t, c, lab.VIP4()); now != owner {
			t.Errorf("cut %v: %s came back and the owner changed from %s to %s: %v", cut, standby.Name, owner.Name, now.Name, c.Eyes.Claimants(lab.VIP4(), time.Second))
		}
		if err := c.Stable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
