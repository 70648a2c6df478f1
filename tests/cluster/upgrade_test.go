package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
	"lbd.dev/lbd/tests/lab/measure"
	"lbd.dev/lbd/tests/previous"
)

// TestUpgradeOfLBD replaces the previous version of lbd by this one on all control-plane
// nodes, the owner of the VIP first, and goes back, as docs/operations.md says, with the
// configuration of the previous version. Clients
// write and watch through the VIP: no write fails, and the watch goes on.
func TestUpgradeOfLBD(t *testing.T) {
	need(t)
	v := previous.For(t)
	old, err := v.LBD(t.Context())
	must(t, err)
	c := unitCluster(t)
	// The older version refuses fields that are new: all versions here have what it knows.
	page, err := v.File(t.Context(), cluster.ControlPlanePage)
	must(t, err)
	must(t, c.Configure(t.Context(), string(page), c.Machines...))
	all := func(program string, drain bool) {
		t.Helper()
		owner, err := c.WaitOwner(t.Context(), time.Minute, c.Machines...)
		must(t, err)
		for _, m := range append([]*cluster.Machine{owner}, c.Others(owner)...) {
			if drain {
				// Some connections last; a restart that follows soon keeps them.
				_, err := m.Run(t.Context(), "lbd", "drain", "--timeout", "5s")
				must(t, err)
			}
			must(t, m.Upgrade(t.Context(), program))
		}
	}
	all(old, false)
	for _, step := range []struct {
		name     string
		from, to string
		drain    bool
	}{{"upgrade", old, parts.LBD, false}, {"downgrade with a drain", parts.LBD, old, true}} {
		for again := 2; ; again-- {
			broken, busy := observed(t, c, step.name, func() { all(step.to, step.drain) })
			if broken == "" {
				break
			}
			if again == 0 || !busy {
				t.Error(broken)
				break
			}
			t.Log("the run does not count, since the machine was too busy")
			all(step.from, false)
		}
		for _, m := range c.Machines {
			says, err := m.Run(t.Context(), "lbd", "version")
			must(t, err)
			if is := strings.TrimSpace(says) == v.Name; is != (step.to == old) {
				t.Errorf("after the %s %s has lbd %s", step.name, m.Name, says)
			}
		}
	}
	// for the tests that follow
	all(parts.LBD, false)
	now, err := cluster.Page(t.Context(), cluster.ControlPlanePage)
	must(t, err)
	must(t, c.Configure(t.Context(), now, c.Machines...))
}

// observed has clients write and watch through the VIP while the daemons are replaced. It
// returns what they lost, and whether the machine had no time for them.
func observed(t *testing.T, c *cluster.Cluster, name string, replace func()) (broken string, busy bool) {
	t.Helper()
	const every, silence = 100 * time.Millisecond, 3 * time.Second
	config, err := c.Config()
	must(t, err)
	writes, err := c.Write(t.Context(), every)
	must(t, err)
	defer writes.Stop()
	watch, err := c.Watch(t.Context(), config)
	must(t, err)
	defer watch.Stop()
	pause(t, 2*time.Second)
	before, err := measure.ReadCPU()
	must(t, err)
	stood, from := measure.Standstill(), measure.Now()
	replace()
	pause(t, 3*time.Second)
	to, still := measure.Now(), stood()
	after, err := measure.ReadCPU()
	must(t, err)
	load, r, silent := measure.Load(before, after), writes.Reach(from, to), watch.LongestSilence(from, to)
	took := fmt.Sprintf("%s in %v: %d of %d writes failed %v, longest time without a successful write %v, without an event %v, ends of the watch %v; load %.0f %%, stood still for %v", name,
		to.Sub(from).Round(100*time.Millisecond), r.Failed, r.Attempts, r.Errors, writes.LongestGap(from, to).Round(time.Millisecond), silent.Round(time.Millisecond), watch.Ends(), 100*load, still)
	t.Log(took)
	if r.Failed == 0 && r.Attempts >= 100 && len(watch.Ends()) == 0 && silent <= silence {
		return "", false
	}
	return took, load > 0.9 || still > 250*time.Millisecond
}
