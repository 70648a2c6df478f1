package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

const (
	// slack is how much longer than promised something may take where tests run.
	slack = 3
	// lapse is how long a daemon's address stays in its kernel when the daemon does not
	// run, and what a successor takes.
	lapse = 4150 * time.Millisecond
	// election is what etcd takes beyond when its leader is gone with the owner: kubeadm
	// leaves it an election timeout of 1 s, twice that at worst.
	election = 2 * time.Second
)

// TestPowerCutOfOwner: the owner loses its power, and comes back.
func TestPowerCutOfOwner(t *testing.T) {
	c := unitCluster(t)
	unlessBusy(t, c, func() (broken []string) {
		var was *cluster.Machine
		cut := writing(t, c, "power cut", func(owner *cluster.Machine) {
			was = owner
			must(t, owner.PowerCut(t.Context()))
			at := time.Now()
			next, err := c.WaitOwner(t.Context(), 30*time.Second, c.Others(owner)...)
			must(t, err)
			t.Logf("%s has the VIP of %s after %v", next.Name, owner.Name, since(at))
			pause(t, slack*election)
		})
		broken = append(broken, cut.within(slack*(600*time.Millisecond+election))...)
		back := writing(t, c, "power on", func(owner *cluster.Machine) {
			at := time.Now()
			must(t, was.Start(t.Context()))
			must(t, c.WaitWhole(t.Context()))
			t.Logf("%s: the control plane is whole after %v", was.Name, since(at))
			if now, err := c.Owner(t.Context()); err != nil || now != owner {
				broken = append(broken, fmt.Sprintf("the VIP moved when %s came back: %v", was.Name, err))
			}
		})
		return append(broken, back.unharmed()...)
	})
}

// TestLinkOfOwner: somebody pulls the cable of the owner, and plugs it in again.
func TestLinkOfOwner(t *testing.T) {
	c := unitCluster(t)
	unlessBusy(t, c, func() []string {
		var was *cluster.Machine
		cut := writing(t, c, "cable out", func(owner *cluster.Machine) {
			was = owner
			must(t, owner.CutLink(t.Context()))
			at := time.Now()
			next, err := c.WaitOwner(t.Context(), 30*time.Second, c.Others(owner)...)
			must(t, err)
			t.Logf("%s has the VIP of %s after %v", next.Name, owner.Name, since(at))
			pause(t, slack*election)
		})
		back := writing(t, c, "cable in", func(*cluster.Machine) {
			must(t, was.RestoreLink(t.Context()))
			must(t, c.WaitWhole(t.Context()))
		})
		return append(cut.within(slack*(600*time.Millisecond+election)), back.unharmed()...)
	})
}

// TestFrozenOwner: all of the owner stands still, as a virtual machine that is suspended,
// but for its kernel, which drops the VIP. Its API server accepts connections until then.
func TestFrozenOwner(t *testing.T) {
	c := unitCluster(t)
	unlessBusy(t, c, func() []string {
		var was *cluster.Machine
		frozen := writing(t, c, "freeze", func(owner *cluster.Machine) {
			was = owner
			must(t, owner.Freeze())
			t.Cleanup(func() { _ = owner.Thaw() })
			pause(t, slack*(lapse+election))
		})
		must(t, was.Thaw())
		must(t, c.WaitWhole(t.Context()))
		_, err := c.WaitOwner(t.Context(), time.Minute, c.Others(was)...)
		must(t, err)
		return frozen.within(slack * (lapse + election))
	})
}

// TestRebootOfOwner: systemd stops everything in order, so the daemon hands over.
func TestRebootOfOwner(t *testing.T) {
	c := unitCluster(t)
	unlessBusy(t, c, func() []string {
		return writing(t, c, "reboot", func(owner *cluster.Machine) {
			at := time.Now()
			must(t, owner.Reboot(t.Context()))
			t.Logf("%s is up again after %v", owner.Name, since(at))
			must(t, c.WaitWhole(t.Context()))
			t.Logf("the control plane is whole after %v", since(at))
		}).within(slack * election)
	})
}
