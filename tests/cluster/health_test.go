package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
	"lbd.dev/lbd/tests/lab/measure"
)

// whole is the promise for a control plane with a stacked etcd: so long after the API
// server or the etcd of the owner died the VIP is with a node that is whole, and no
// write fails for longer.
const whole = 1500 * time.Millisecond

// outsideSilence is for how long a watch from outside hears nothing when the API server of
// the owner is not whole any more: the VIP moves after 1.5 s at most, and 2 s later the node
// resets what is still open there. A client that only listens finds out by itself after 15 s.
const outsideSilence = 4 * time.Second

// TestKubeadmUpgrade: `kubeadm upgrade` of the owner starts its API server again. The other
// pods, on which no write depends, would take a minute more.
func TestKubeadmUpgrade(t *testing.T) {
	c := unitCluster(t)
	unlessBusy(t, c, func() []string {
		return writing(t, c, "kubeadm upgrade apply on the owner", func(owner *cluster.Machine) {
			must(t, c.Upgrade(t.Context(), owner, "kube-apiserver"))
		}).within(slack * whole)
	})
}

// TestEtcdOfOwnerStops: kubeadm's API servers ask the etcd of their own node only, so one
// whose etcd is gone answers nothing but its health check.
func TestEtcdOfOwnerStops(t *testing.T) {
	c := unitCluster(t)
	unlessBusy(t, c, func() []string {
		must(t, c.WaitWhole(t.Context()))
		config, err := c.Config()
		must(t, err)
		watch, err := c.Watch(t.Context(), config)
		must(t, err)
		defer watch.Stop()
		var was *cluster.Machine
		var silent time.Duration
		stopped := writing(t, c, "etcd of the owner stopped", func(owner *cluster.Machine) {
			was = owner
			must(t, owner.StopPod(t.Context(), "etcd"))
			t.Cleanup(func() { _ = owner.StartPod(context.WithoutCancel(t.Context()), "etcd") }) // fails if it is done
			at := time.Now()
			next, err := c.WaitOwner(t.Context(), 20*time.Second, c.Others(owner)...)
			if err != nil {
				t.Error(err)
			} else {
				t.Logf("%s has the VIP of %s %v after its etcd has ended", next.Name, owner.Name, since(at))
			}
			from := measure.Now()
			pause(t, slack*outsideSilence+time.Second)
			silent = watch.LongestSilence(from, measure.Now())
			t.Logf("a watch from outside heard nothing for %v: %v", silent.Round(time.Millisecond), watch.Ends())
		})
		must(t, was.StartPod(t.Context(), "etcd"))
		must(t, c.WaitWhole(t.Context()))
		broken := stopped.within(slack * whole)
		if silent > slack*outsideSilence {
			broken = append(broken, fmt.Sprintf("a watch from outside heard nothing for %v, want %v", silent, outsideSilence))
		}
		return broken
	})
}

// TestQuorumLost: while the etcd of two nodes stands still no API server is whole, and the
// VIP stays where it is.
func TestQuorumLost(t *testing.T) {
	c := unitCluster(t)
	owner, err := c.WaitOwner(t.Context(), time.Minute, c.Machines...)
	must(t, err)
	for _, m := range c.Others(owner) { // shorter than kubelet's patience
		must(t, m.Signal(t.Context(), "STOP", "etcd"))
		defer func() { _ = m.Signal(context.WithoutCancel(t.Context()), "CONT", "etcd") }()
	}
	moved := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); pause(t, 200*time.Millisecond) {
		if now := c.Neighbor(t.Context(), cluster.VIP()); now != "" && now != owner.Name {
			moved = now
		}
	}
	for _, m := range c.Others(owner) {
		must(t, m.Signal(t.Context(), "CONT", "etcd"))
	}
	must(t, c.WaitWhole(t.Context()))
	now, err := c.WaitOwner(t.Context(), time.Minute, c.Machines...)
	must(t, err) // perhaps the first whose API server was whole again
	t.Logf("the VIP was with %s, and is with %s", owner.Name, now.Name)
	if moved != "" {
		t.Errorf("the VIP of %s went to %q", owner.Name, moved)
	}
}
