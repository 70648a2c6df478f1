package cluster_test

import (
	"context"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

// shared is the cluster of three control-plane nodes, with lbd as a unit, that tests use
// one after the other. It is nil before the first and after one that left it broken.
var shared *cluster.Cluster

// unitCluster returns a cluster of three control-plane nodes with lbd as a unit, which
// is whole: the VIP serves, all is on. A test may do with it what it likes but remove
// nodes; after a failed test there is a new one.
func unitCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	need(t)
	if shared == nil {
		c, err := cluster.New(context.Background(), parts, 3)
		if err != nil {
			t.Fatal(err)
		}
		shared = c
		t.Cleanup(func() { afterShared(t) })
		bootstrap(t, c)
	} else {
		t.Cleanup(func() { afterShared(t) })
	}
	if err := heal(t, shared); err != nil {
		t.Fatal(err)
	}
	return shared
}

// bootstrap follows the README and docs/control-plane.md on new machines.
func bootstrap(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	from := time.Now()
	must(t, c.Start(t.Context()))
	t.Logf("%d machines are on after %v", len(c.Machines), since(from))
	must(t, c.InstallUnit(t.Context(), c.Machines...))
	t.Logf("lbd is installed after %v", since(from))
	must(t, c.Init(t.Context(), c.Machines[0]))
	t.Logf("kubeadm init has ended after %v", since(from))
	must(t, c.Join(t.Context(), c.Machines[1:]...))
	t.Logf("both kubeadm joins have ended after %v", since(from))
}

// heal has every machine on and the cluster whole.
func heal(t *testing.T, c *cluster.Cluster) error {
	t.Helper()
	for _, m := range c.Machines {
		if !m.On() {
			if err := m.Start(t.Context()); err != nil {
				return err
			}
		}
	}
	if err := c.WaitWhole(t.Context()); err != nil {
		return err
	}
	_, err := c.WaitOwner(t.Context(), time.Minute, c.Machines...)
	return err
}

// afterShared gives the cluster up if the test failed.
func afterShared(t *testing.T) {
	if !t.Failed() {
		return
	}
	keepLogs(t, shared)
	if err := closeShared(); err != nil {
		t.Error(err)
	}
}

func closeShared() error {
	if shared == nil {
		return nil
	}
	c := shared
	shared = nil
	return c.Close()
}
