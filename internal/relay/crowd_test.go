package relay

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
	"lbd.dev/lbd/internal/testnet"
)

// numbered is one of many addresses of the family of first.
func numbered(first netip.Addr, i int) netip.Addr {
	b := first.AsSlice()
	tail := b[len(b)-4:]
	binary.BigEndian.PutUint32(tail, binary.BigEndian.Uint32(tail)+uint32(i))
	a, _ := netip.AddrFromSlice(b)
	return a
}

// crowd is a ring on a link with so many nodes, of so many hardware addresses each, as
// everything that the ring knows of them.
func crowd(nodes, macs int, next netip.Addr) *model.Ring {
	r := &model.Ring{Nodes: 3, Next: next, Lifetime: 5 * time.Second}
	for n := range nodes {
		for m := range macs {
			mac := model.MAC{2, 0, byte(n >> 8), byte(n), 0, byte(m)}
			r.Peers = append(r.Peers, mac)
			r.Origins = append(r.Origins, model.Origin{MAC: mac, Addr: numbered(next, n)})
		}
	}
	return r
}

// alone makes an interface for rings, and returns false in the process that is not to
// test.
func alone(t *testing.T) bool {
	t.Helper()
	if !testnet.Alone(t) {
		return false
	}
	for _, args := range []string{"link add eth0 address 02:00:00:00:00:01 type veth peer name peer0", "link set eth0 up", "link set peer0 up"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	return true
}

// inKernel is how many elements a set in the kernel has.
func inKernel(t *testing.T, f family, name string) (n int) {
	t.Helper()
	s := nft.New(30 * time.Second)
	defer func() { _ = s.Close() }()
	if err := s.Do(func(c *nftables.Conn) error {
		is, err := c.GetSetElements(&nftables.Set{Table: f.table(), Name: name})
		n = len(is)
		return err
	}); err != nil {
		t.Error(err)
	}
	return n
}

// TestTenThousandVIPsOnALinkOfFiveHundredNodes: all of them are relayed, by what the
// kernel has and not only by what the driver says.
func TestTenThousandVIPsOnALinkOfFiveHundredNodes(t *testing.T) {
	if !alone(t) {
		return
	}
	const many, nodes, macs = 10_000, 500, 16
	for f, first := range [families]string{"10.99.0.1", "fd00:99::1"} {
		next := [families]string{"10.0.0.2", "fd00::2"}[f]
		ring := crowd(nodes, macs, netip.MustParseAddr(next))
		var want []model.Relay
		for i := range many {
			want = append(want, model.Relay{Addr: numbered(netip.MustParseAddr(first), i), Interface: "eth0", Ring: ring})
		}
		d := New(Options{Logger: discard()})
		d.session = nft.New(30 * time.Second) // a machine that does much else does not send it all in one
		begin := time.Now()
		for _, step := range []string{"installed", "refreshed"} {
			got := relayed(t, d, want)
			t.Logf("%s: %s: %d VIPs %s in %s", family(f), step, len(got.VIPs), step, time.Since(begin))
			for set, n := range map[string]int{"vips0": many, "peers0": nodes * macs, "origins0": nodes * macs} {
				if is := inKernel(t, family(f), set); is != n {
					t.Errorf("%s: %s: the kernel has %d elements of %d in set %s", family(f), step, is, n, set)
				}
			}
			begin = time.Now()
			d.tables[f].flows[0].renewed = begin.Add(-2 * time.Second) // due
		}
		if err := d.session.Remove(family(f).table()); err != nil {
			t.Error(err)
		}
		_ = d.Close(t.Context())
	}
}

// relayed applies until all is relayed, as the daemon does on a busy machine.
func relayed(t *testing.T, d *Driver, want []model.Relay) model.Applied {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		got, err := d.Apply(t.Context(), &model.Desired{Relay: want, Synced: true, Memory: model.Memory{Membership: model.Membership{Settled: true}}})
		missing, why := 0, ""
		for i := range want {
			if v := got.VIPs[want[i].Addr]; !v.Relaying || v.Err != "" {
				missing, why = missing+1, v.Err
			}
		}
		switch {
		case err != nil:
			t.Fatal(err)
		case missing == 0:
			return got
		case !strings.Contains(why, "timeout") || time.Now().After(end):
			t.Fatalf("%d of %d VIPs are not relayed: %s; %+v", missing, len(want), why, got.Ring)
		}
		for f := range d.tables {
			d.tables[f].retry = time.Time{}
		}
	}
}

// TestRefusedRulesAreNotAKernelThatCannotRelay: a node whose kernel says of some rules
// that something "does not exist" stays in its rings if the kernel can relay.
func TestRefusedRulesAreNotAKernelThatCannotRelay(t *testing.T) {
	l := newLab(t)
	want := []flow{sample(v4, false)}
	d := l.driver(hostB, discard()).d
	l.In(hostB, func() {
		if got := d.lacks(v4, want, fmt.Errorf("install rules: %w", unix.ENOENT)); got != "" {
			t.Errorf("a kernel that relays: %q", got)
		}
		_ = d.session.Close()
		dropRights(t)
		if got := d.lacks(v4, want, fmt.Errorf("install rules: %w", unix.EPERM)); got == "" {
			t.Error("a process without rights: nothing is said to be in the way")
		}
	})
}
