package lab_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// What is promised of an owner that cannot speak to its group: memberlist gives up the others
// after some 10 s, and then the owner the VIP.
const (
	mutedQuorum = 10 * time.Second
	mutedSeen   = time.Second // `lbd status` says so
	mutedBack   = 10 * time.Second
	mutedDual   = 150 * time.Millisecond
)

// TestMutedOwnerWithQuorum: the firewall of the owner drops what its daemon sends, and
// nothing that it gets. Each of its sends fails, so it misses the majority after a while and
// gives the VIP up, to a node that has one. Nothing moves when the rule is gone.
func TestMutedOwnerWithQuorum(t *testing.T) { // P5
	t.Parallel()
	l := &lab.LBD{Quorum: true, NoIPv6: true}
	c, vip := cluster(t, l, 3), lab.VIP4()
	ctx, owner := t.Context(), ownerOf(t, c, vip)
	stood, from := measure.Standstill(), measure.Now()
	if err := c.Mute(ctx, &owner.Host, l.Election()...); err != nil {
		t.Fatal(err)
	}
	said := saysWhy(t, c, l, owner, "nothing can be sent to")
	left := givesUp(t, owner)
	var now *lab.Node
	err := lab.Wait(ctx, 30*time.Second, 20*time.Millisecond, "another owner", func() (err error) {
		if now, err = c.Owner(vip); now == owner {
			err = errors.New("it is still the same")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // nor does it come back to both
	taken, _ := measure.Takeover(c.Eyes.Frames(), vip.String(), owner.MAC, from)
	last, _ := measure.LastClaim(c.Eyes.Frames(), vip.String(), owner.MAC, from, measure.Now())
	dual, r, still := c.Eyes.Dual(vip, from, measure.Now()), c.Eyes.Reach(vip, from, measure.Now()), stood()
	t.Logf("status said why after %v, NoQuorum after %v, last claim after %v, successor after %v, two claimants for %v, outage %v, %d of %d failed, the machine stood still for %v",
		said.Sub(from), left.Sub(from), last.Sub(from), taken.Sub(from), dual, r.Outage, r.Failed, r.Attempts, still)
	if said.Sub(from) > slack*mutedSeen+still || left.Sub(from) > slack*mutedQuorum || dual > slack*mutedDual || now == owner {
		t.Errorf("status said why after %v, NoQuorum after %v, two claimants for %v", said.Sub(from), left.Sub(from), dual)
	}
	unmuted(t, c, owner, now)
}

// TestMutedOwnerOnAHealedWire: the same owner was alone on its side of the LAN before, too, so
// that another node has taken the VIP on the other side. When the LAN is whole it hears that
// by gossip and lets go at once, long before it misses the majority.
func TestMutedOwnerOnAHealedWire(t *testing.T) { // P5, P6
	t.Parallel()
	l := &lab.LBD{Quorum: true, NoIPv6: true}
	c, vip := cluster(t, l, 3), lab.VIP4()
	ctx, owner := t.Context(), ownerOf(t, c, vip)
	if err := errors.Join(c.Mute(ctx, &owner.Host, l.Election()...), c.Split(ctx, &owner.Host)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	now := ownerOf(t, c, vip)
	if held, err := owner.Holds(vip); err != nil || !held || now == owner {
		t.Fatalf("on the other side %s has it, %s has it still: %v, %v", now.Name, owner.Name, held, err)
	}
	stood, from := measure.Standstill(), measure.Now()
	if err := c.Join(ctx, &owner.Host); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	dual, r, still := c.Eyes.Dual(vip, from, measure.Now()), c.Eyes.Reach(vip, from, measure.Now()), stood()
	t.Logf("the wire is whole: two claimants for %v, %d of %d failed, claimed by %v, the machine stood still for %v", dual, r.Failed, r.Attempts, c.Eyes.Claimants(vip, time.Second), still)
	if dual > slack*mutedDual+still {
		t.Errorf("the wire is whole: two claimants for %v", dual)
	}
	unmuted(t, c, owner, ownerOf(t, c, vip))
}

// saysWhy waits until `lbd status` of a node has the words among what is wrong, and tells when.
func saysWhy(t *testing.T, c *lab.Cluster, l *lab.LBD, n *lab.Node, words string) measure.Time {
	t.Helper()
	err := lab.Wait(t.Context(), 30*time.Second, 20*time.Millisecond, "lbd status of "+n.Name, func() error {
		out, _ := c.Exec(t.Context(), &n.Host, c.LBD(n), "status", "--socket", l.Socket(n)) // fails while something is wrong
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "! gossip: "+words) {
				return nil
			}
		}
		return fmt.Errorf("it says\n%s", out)
	})
	if err != nil {
		t.Error(err)
	}
	return measure.Now()
}

// givesUp waits until a node that had the VIP has no majority, and tells when. Its log says so, since
// it may see one again before it can be asked: it hears the others all the time.
func givesUp(t *testing.T, n *lab.Node) measure.Time {
	t.Helper()
	err := lab.Wait(t.Context(), slack*mutedQuorum+10*time.Second, 20*time.Millisecond, n.Name+" without a majority", func() error {
		log := n.Daemon.Tail(1000)
		if strings.LastIndex(log, "reason=NoQuorum") < strings.LastIndex(log, "reason=Owner") {
			return errors.New("it has the VIP")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return measure.Now()
}

// unmuted takes the rule away: the node that has the VIP keeps it, and is the only one.
func unmuted(t *testing.T, c *lab.Cluster, muted, owner *lab.Node) {
	t.Helper()
	vip, from := lab.VIP4(), measure.Now()
	if err := errors.Join(c.Unblock(t.Context(), &muted.Host), c.Stable(t.Context())); err != nil {
		t.Fatal(err)
	}
	back := measure.Now().Sub(from)
	time.Sleep(2 * time.Second)
	dual, r := c.Eyes.Dual(vip, from, measure.Now()), c.Eyes.Reach(vip, from, measure.Now())
	t.Logf("the rule is gone: one group after %v, two claimants for %v, %d of %d failed, claimed by %v", back, dual, r.Failed, r.Attempts, c.Eyes.Claimants(vip, time.Second))
	if back > slack*mutedBack || dual > slack*mutedDual {
		t.Errorf("the rule is gone: one group after %v, two claimants for %v", back, dual)
	}
	if again := ownerOf(t, c, vip); again != owner {
		t.Errorf("the rule is gone: it went from %s to %s", owner.Name, again.Name)
	}
}
