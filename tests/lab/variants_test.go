package lab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// TestRemovedFromTheOwner: the configuration of the owner alone has a VIP no more. It goes to
// another node as in a drain, and no connection is lost.
func TestRemovedFromTheOwner(t *testing.T) { // P2, P13
	t.Parallel()
	for name, of := range map[string]struct {
		l   *lab.LBD
		vip netip.Addr
	}{"IPv4": {&lab.LBD{}, lab.VIP4()}, "IPv6": {&lab.LBD{}, lab.VIP6()}, "balanced": {&lab.LBD{Balanced: true}, lab.VIP4()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const conns = 20
			c := cluster(t, of.l, 3)
			s := lab.Drain()
			s.Name, s.Conns = "removed", conns
			s.Inject = func(_ context.Context, _ *lab.Cluster, n *lab.Node) error { return of.l.Without(n, of.vip) }
			s.Repair = func(_ context.Context, c *lab.Cluster, n *lab.Node) error {
				return errors.Join(of.l.WriteConfig(c.Lab, n), n.Reload())
			}
			o := once(t, c, s, of.vip, lab.PromiseFor("drain", false))
			if !o.First.Moved || o.First.Reach.Failed > 0 || o.Conns.Open != conns || o.Conns.Survived() != conns {
				t.Errorf("moved %v, %d of new connections failed, long-lived ones: %+v", o.First.Moved, o.First.Reach.Failed, o.Conns)
			}
		})
	}
}

// TestFullFrames: the LAN takes larger frames than usual, or smaller ones. Connections that fill
// them go on when the VIP moves, with all of it going round the ring.
func TestFullFrames(t *testing.T) { // P2, P13
	t.Parallel()
	for _, of := range []struct {
		mtu int
		l   *lab.LBD
	}{{9000, &lab.LBD{}}, {1400, &lab.LBD{IPv6: true}}, {1400, &lab.LBD{Balanced: true}}} {
		t.Run(fmt.Sprintf("%d %v", of.mtu, of.l.VIPs()), func(t *testing.T) {
			t.Parallel()
			change := []func(*lab.Cluster) error{func(c *lab.Cluster) error { return c.MTU(t.Context(), of.mtu) }}
			if of.l.IPv6 {
				change = append(change, func(c *lab.Cluster) error { return c.OnlyIPv6(t.Context()) })
			}
			c := wired(t, of.l, change...)
			for _, vip := range of.l.VIPs() {
				fullFrames(t, c, of.l, vip, of.mtu)
			}
		})
	}
}

func fullFrames(t *testing.T, c *lab.Cluster, l *lab.LBD, vip netip.Addr, mtu int) {
	t.Helper()
	ctx := t.Context()
	var talks []*talk
	for range 10 {
		k, err := newTalk(ctx, c, vip)
		if err != nil {
			t.Fatal(err)
		}
		talks = append(talks, k)
	}
	exchange := func(when string) {
		for i, k := range talks {
			if err := k.exchange(256 << 10); err != nil {
				t.Errorf("%s %s, connection %d to %s: %v", vip, when, i, k.node, err)
			}
		}
	}
	exchange("before")
	owner := ownerOf(t, c, vip)
	relayed := countRelayed(t, c, vip, mtu)
	now, err := l.MoveOff(ctx, c, vip, owner)
	if err != nil {
		t.Fatal(err)
	}
	exchange("after it moved to " + now.Name)
	if n := relayed(); n == 0 {
		t.Errorf("%s: no frame of %d bytes was relayed", vip, mtu)
	} else {
		t.Logf("%s: %d frames of %d bytes were relayed", vip, n, mtu)
	}
	for _, k := range talks {
		_ = k.Close() // the node that has it may let the VIP go
	}
	if err := errors.Join(l.Undrain(ctx, c.Lab, owner), c.Stable(ctx)); err != nil {
		t.Fatal(err)
	}
}

// countRelayed counts the full frames that come in at nodes after a relay.
func countRelayed(t *testing.T, c *lab.Cluster, vip netip.Addr, mtu int) func() int {
	t.Helper()
	family := "ip"
	if vip.Is6() {
		family = "ip6"
	}
	each := func(f func(nft func(...string) string)) {
		for _, n := range c.Nodes {
			f(func(args ...string) string {
				out, err := c.Exec(t.Context(), &n.Host, append([]string{"nft"}, args...)...)
				if err != nil {
					t.Fatal(err)
				}
				return out
			})
		}
	}
	each(func(nft func(...string) string) {
		nft("add", "table", family, "full")
		nft("add", "chain", family, "full", "in", "{ type filter hook prerouting priority -500; }")
		nft("add", "rule", family, "full", "in", fmt.Sprintf("%[1]s daddr %[2]s %[1]s dscp 0x30-0x3e meta length %[3]d counter", family, vip, mtu))
	})
	counter := regexp.MustCompile(`counter packets (\d+)`)
	return func() (sum int) {
		each(func(nft func(...string) string) {
			if found := counter.FindStringSubmatch(nft("list", "table", family, "full")); found != nil {
				n, _ := strconv.Atoi(found[1]) // digits
				sum += n
			}
		})
		return sum
	}
}

// talk is a connection that has much to say in both directions.
type talk struct {
	net.Conn
	r    *bufio.Reader
	node string // at the other end
}

func newTalk(ctx context.Context, c *lab.Cluster, vip netip.Addr) (*talk, error) {
	conn, err := c.Dial(ctx, c.Client, "tcp", netip.AddrPortFrom(vip, 7000).String())
	if err != nil {
		return nil, err
	}
	k := &talk{Conn: conn, r: bufio.NewReader(conn)}
	k.node, err = k.r.ReadString('\n')
	k.node = strings.TrimSpace(k.node)
	return k, err
}

// exchange sends so many bytes and reads them again.
func (k *talk) exchange(n int) error {
	if err := k.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	line := []byte(strings.Repeat("x", 1023) + "\n")
	sent := make(chan error, 1)
	go func() { // ends with the deadline
		_, err := k.Write([]byte(strings.Repeat(string(line), n/len(line))))
		sent <- err
	}()
	got, err := io.CopyN(io.Discard, k.r, int64(n/len(line)*len(line)))
	if err != nil {
		err = fmt.Errorf("%d of %d bytes came back: %w", got, n, err)
	}
	return errors.Join(err, <-sent)
}
