package relay

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

// inherit goes on with the table that an earlier process left, instead of the wanted
// flows, which may lack nodes that it knew of. It tells whether the table acts for all of
// their VIPs, and gives those a whole lifetime. A VIP for which it does not, as one that
// is just taken over, needs rules now, and a check that fails needs other ones.
func (t *table) inherit(s *nft.Session, want []flow, usual time.Duration, now time.Time, frozen bool) bool {
	every := usual / 3
	for i := range want {
		every = min(every, want[i].lifetime(usual)/3)
		if want[i].ring.Unwell {
			return false
		}
	}
	if t.old != nil && (frozen || now.Sub(t.renewed) < every) {
		return t.actsFor(want)
	}
	old := make(map[netip.Addr]bool)
	err := s.Transact(func(c *nftables.Conn) error {
		for n := 0; ; n++ {
			set := vips(t.family, n, usual)
			if _, err := c.GetSetByName(set.Table, set.Name); errors.Is(err, unix.ENOENT) {
				return nil
			} else if err != nil {
				return err
			}
			if err := prolong(c, set, want, usual, frozen, func(g *flow) []netip.Addr { return g.addrs }, old); err != nil {
				return err
			}
			set = repliers(t.family, n, usual)
			if _, err := c.GetSetByName(set.Table, set.Name); errors.Is(err, unix.ENOENT) {
				continue
			} else if err != nil {
				return err
			}
			if err := prolong(c, set, want, usual, frozen, (*flow).servers, make(map[netip.Addr]bool)); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return !unsupported(err) // the kernel may be busy; what is there goes on for a while
	}
	if t.old = old; !frozen {
		t.renewed = now
	}
	return t.actsFor(want)
}

// actsFor tells whether the table of an earlier process has all VIPs of the flows.
func (t *table) actsFor(want []flow) bool {
	for i := range want {
		for _, a := range want[i].addrs {
			if !t.old[a] {
				return false
			}
		}
	}
	return true
}

// servers are the addresses of the servers whose answers come by this node.
func (g *flow) servers() []netip.Addr {
	if g.repliers == nil {
		return nil
	}
	return g.repliers.Addrs
}

// prolong adds those of the addresses of the flows that a set in the kernel has to old, and gives
// them a whole lifetime there, unless the daemon has no say now.
func prolong(c *nftables.Conn, set *nftables.Set, want []flow, usual time.Duration, frozen bool, of func(*flow) []netip.Addr, old map[netip.Addr]bool) error {
	is, err := c.GetSetElements(set)
	if err != nil {
		return err
	}
	var due []nftables.SetElement
	for _, e := range is {
		a, _ := netip.AddrFromSlice(e.Key)
		i := slices.IndexFunc(want, func(g flow) bool {
			_, has := slices.BinarySearchFunc(of(&g), a, netip.Addr.Compare)
			return has
		})
		if i >= 0 {
			old[a] = true
			due = append(due, nftables.SetElement{Key: e.Key, Timeout: want[i].lifetime(usual)})
		}
	}
	if frozen {
		return nil
	}
	// Only newer kernels can prolong an element.
	return errors.Join(nft.DeleteElements(c, set, due), nft.AddElements(c, set, due))
}

// reportOld tells which VIPs are relayed by the table of an earlier process.
func (t *table) reportOld(want []flow, report map[netip.Addr]model.AppliedVIP) {
	for i := range want {
		for _, a := range want[i].addrs {
			report[a] = model.AppliedVIP{Interface: want[i].iface, Relaying: t.old[a]}
		}
	}
}
