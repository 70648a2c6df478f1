package cluster_test

import (
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

// TestRemoveNodeAndJoinAgain takes the owner out of the cluster as the page says, while
// clients write, and has it join again.
func TestRemoveNodeAndJoinAgain(t *testing.T) {
	c := unitCluster(t)
	unlessBusy(t, c, func() []string {
		var gone *cluster.Machine
		removed := writing(t, c, "removal of the owner", func(owner *cluster.Machine) {
			gone = owner
			at := time.Now()
			must(t, c.RemoveNode(t.Context(), owner, c.Others(owner)[0]))
			t.Logf("%s is removed after %v", owner.Name, since(at))
			_, err := c.WaitOwner(t.Context(), 30*time.Second, c.Others(owner)...)
			must(t, err)
		})
		nodes, err := c.Kubectl(t.Context(), "get", "nodes", "--no-headers")
		must(t, err)
		if strings.Contains(nodes, gone.Name+" ") {
			t.Errorf("%s is still a node:\n%s", gone.Name, nodes)
		}
		for _, m := range c.Others(gone) {
			must(t, c.Livez(t.Context(), m))
		}
		addresses, err := gone.Run(t.Context(), "ip", "-brief", "address")
		must(t, err)
		if strings.Contains(addresses, cluster.VIP().String()) {
			t.Errorf("%s still has the VIP:\n%s", gone.Name, addresses)
		}
		back := writing(t, c, "join again", func(owner *cluster.Machine) {
			at := time.Now()
			_, err := gone.Run(t.Context(), "systemctl", "enable", "--now", "lbd")
			must(t, err)
			must(t, c.Join(t.Context(), gone))
			must(t, c.WaitWhole(t.Context()))
			t.Logf("%s has joined again after %v", gone.Name, since(at))
			if now, err := c.Owner(t.Context()); err != nil || now != owner {
				t.Errorf("the VIP moved when %s joined again: %v", gone.Name, err)
			}
		})
		// etcd elects a leader when the one that led it is removed, and stops writes for a
		// moment when it gets a member.
		return append(removed.within(slack*election), back.within(slack*election)...)
	})
}

// TestFiveControlPlanes joins four machines at once, which are on the LAN in any order.
func TestFiveControlPlanes(t *testing.T) {
	c := newCluster(t, 5)
	from := time.Now()
	must(t, c.InstallUnit(t.Context(), c.Machines...))
	first := c.Machines[2]
	must(t, c.Init(t.Context(), first))
	t.Logf("kubeadm init has ended after %v", since(from))
	must(t, c.Join(t.Context(), c.Others(first)...))
	t.Logf("all kubeadm joins have ended after %v", since(from))
	must(t, c.WaitWhole(t.Context()))
	t.Logf("the control plane is whole after %v", since(from))
	owner, err := c.WaitOwner(t.Context(), time.Minute, c.Machines...)
	must(t, err)
	for _, m := range c.Machines {
		status, err := m.Status(t.Context())
		must(t, err)
		if len(status.Members) != 4 || len(status.VIPs) != 1 || !status.VIPs[0].Healthy || status.VIPs[0].Owner != owner.Name {
			t.Errorf("%s: status: %+v", m.Name, status)
		}
	}
	unlessBusy(t, c, func() []string {
		return writing(t, c, "drain", func(owner *cluster.Machine) {
			_, err := owner.Run(t.Context(), "lbd", "drain")
			must(t, err)
			_, err = c.WaitOwner(t.Context(), time.Minute, c.Others(owner)...)
			must(t, err)
			_, err = owner.Run(t.Context(), "lbd", "undrain")
			must(t, err)
		}).unharmed()
	})
}
