package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

// TestHostServices: what administrators and packages do to the host of the owner, when the
// control plane does not depend on it at that moment, fails no write and moves nothing.
func TestHostServices(t *testing.T) {
	c := unitCluster(t)
	for _, x := range []struct{ name, command string }{
		{"containerd restarted", "systemctl restart containerd"},
		{"kubelet stopped", "systemctl stop kubelet; sleep 15; systemctl start kubelet"},
		{"kubelet and containerd killed", "systemctl kill --kill-whom=main --signal=KILL kubelet containerd; sleep 10"},
		{"ruleset flushed", "nft flush ruleset"},
		{"sysctl loaded", "sysctl --quiet --system >/dev/null"},
	} {
		t.Run(x.name, func(t *testing.T) {
			unlessBusy(t, c, func() []string {
				var owner *cluster.Machine
				s := writing(t, c, x.name, func(o *cluster.Machine) {
					owner = o
					_, err := o.Shell(t.Context(), x.command)
					must(t, err)
				})
				must(t, c.WaitWhole(t.Context()))
				broken := s.unharmed()
				if now, err := c.Owner(t.Context()); err != nil || now != owner {
					broken = append(broken, fmt.Sprintf("the VIP of %s has moved: %v", owner.Name, err))
				}
				return broken
			})
		})
	}
}

// managed has eth0 as NetworkManager configures it.
const managed = "[connection]\nid=eth0\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\naddress1=%s/24,10.0.0.1\n[ipv6]\nmethod=ignore\n"

// TestNetworkManager: restarted on the owner it harms nothing. Told to make the addresses of the
// interface those of its file it removes the VIP, and lbd puts it back.
func TestNetworkManager(t *testing.T) {
	c := unitCluster(t)
	must(t, c.WaitWhole(t.Context()))
	shell := func(m *cluster.Machine, lines string) {
		_, err := m.Shell(t.Context(), lines)
		must(t, err)
	}
	for _, m := range c.Machines { // each may be the owner after it
		must(t, m.WriteFile("etc/NetworkManager/system-connections/eth0.nmconnection", fmt.Appendf(nil, managed, m.Address), 0o600))
		defer func() {
			_, err := m.Shell(context.WithoutCancel(t.Context()), "systemctl stop NetworkManager\nsystemctl mask --quiet NetworkManager\nmount -o remount,bind,rw /sys\n"+
				"while read -r route; do ip route replace $route dev eth0; done </run/routes")
			must(t, err)
		}()
		// It waits for udev, which no container has, unless /sys is read-only.
		shell(m, "ip route show dev eth0 >/run/routes\nmount -o remount,bind,ro /sys\nsystemctl unmask --quiet NetworkManager\nsystemctl start NetworkManager")
		shell(m, "for i in $(seq 50); do nmcli connection up eth0 && exit; sleep 0.2; done; nmcli device; exit 1")
		must(t, c.WaitWhole(t.Context()))
	}
	owner, err := c.WaitOwner(t.Context(), time.Minute, c.Machines...)
	must(t, err)
	unlessBusy(t, c, func() []string {
		restarted := writing(t, c, "NetworkManager restarted", func(*cluster.Machine) { shell(owner, "systemctl restart NetworkManager") })
		applied := writing(t, c, "nmcli device reapply", func(*cluster.Machine) { shell(owner, "nmcli device reapply eth0") })
		return append(restarted.unharmed(), applied.within(slack*time.Second)...)
	})
	if now, err := c.Owner(t.Context()); err != nil || now != owner {
		t.Errorf("the VIP of %s has moved: %v", owner.Name, err)
	}
}
