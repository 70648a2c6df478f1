package lab_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/testnet"
	"lbd.dev/lbd/tests/lab"
)

// TestForwardedFlood: a flood of SYN packets that takes all ports of the VIP to its only backend ends no
// open connection and moves no VIP, and the owner says what is lacked: in its status, its log and its
// metrics.
func TestForwardedFlood(t *testing.T) { // P21
	t.Parallel()
	c := wired(t, &lab.LBD{Forwarded: true}, func(c *lab.Cluster) error {
		err := c.AddBackends(t.Context(), 1)
		for _, n := range c.Nodes {
			err = errors.Join(err, c.IP(t.Context(), &n.Host, "route add "+testnet.Strangers+" via "+c.Client.IP4.String()))
		}
		return err
	})
	s := c.System.(*lab.LBD)
	owner := ownerOf(t, c, lab.VIP4())
	w, err := c.Eyes.OpenStream(t.Context(), lab.VIP4())
	if err != nil {
		t.Fatal(err)
	}
	server := w.Read().Node
	if err := c.Flood(lab.VIP4(), 3, 30000); err != nil {
		t.Fatal(err)
	}
	const lacks = "over 90 % of the ports of 10.77.0.200 are taken by connections to 10.77.0.31:6443 (TCP)"
	err = lab.Wait(t.Context(), 30*time.Second, time.Second, "the status", func() error {
		if text := strings.Join(strings.Fields(asked(t, c, s, owner, "status")), " "); !strings.Contains(text, lacks) {
			return errors.New(text)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if n := strings.Count(c.Logs(10000), "new connections lack room"); n != 1 {
		t.Errorf("it is in the logs %d times, want 1", n)
	}
	if n, err := owner.Metric(t.Context(), "lbd_conntrack_clashes_total"); n == 0 || err != nil {
		t.Errorf("packets that no port was found for: %v, %v", n, err)
	}
	if now, err := w.More(t.Context(), 5); err != nil || now.Node != server {
		t.Errorf("the client hears %s, before that %s; %v", now.Node, server, err)
	}
	if now := ownerOf(t, c, lab.VIP4()); now.Name != owner.Name {
		t.Errorf("%s has the VIP, before that %s", now.Name, owner.Name)
	}
}
