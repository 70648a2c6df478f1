package relay

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

// TableName is the name of the table in the families ip and ip6.
const TableName = "lbd-relay"

// family tells IPv4 from IPv6.
type family uint8

const (
	v4 family = iota
	v6
	families
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return v4
	}
	return v6
}

// String returns the name that nft has for the family.
func (f family) String() string {
	if f == v4 {
		return "ip"
	}
	return "ip6"
}

func (f family) table() *nftables.Table {
	if f == v4 {
		return &nftables.Table{Name: TableName, Family: nftables.TableFamilyIPv4}
	}
	return &nftables.Table{Name: TableName, Family: nftables.TableFamilyIPv6}
}

// flow is what is relayed by the same rules.
type flow struct {
	iface string
	index uint32 // of iface
	ring  *model.Ring
	// tracked: see model.Relay.
	tracked bool
	// repliers: see model.Relay.
	repliers *model.Repliers
	addrs    []netip.Addr // in the order of the Desired

	// Of what is in the kernel: since when without a refresh.
	renewed time.Time
}

// lifetime is how long the kernel acts without a refresh.
func (g *flow) lifetime(usual time.Duration) time.Duration { return cmp.Or(g.ring.Lifetime, usual) }

// refreshEvery is when to refresh what is in the kernel. A refresh notices, too, that
// somebody has removed it, which costs connections where they are spread.
func (g *flow) refreshEvery(usual time.Duration) time.Duration {
	if spreads(g.ring) {
		return min(usual, g.lifetime(usual)) / 3
	}
	return g.lifetime(usual) / 3
}

// sameRules tells whether two flows differ in nothing but their VIPs.
func (g flow) sameRules(o flow) bool {
	return g.iface == o.iface && g.index == o.index && g.tracked == o.tracked && g.ring.Same(o.ring) && g.repliers.Same(o.repliers)
}

// state is what is known of the table in the kernel.
type state uint8

const (
	unknown state = iota // perhaps that of an earlier process
	absent
	there
)

// table is what is known of the table of one family.
type table struct {
	family family
	state  state
	// old are the VIPs for which a table of an earlier process acts, renewed when they
	// were last given a lifetime; see inherit.
	old     map[netip.Addr]bool
	renewed time.Time

	// If state is there: what it relays.
	flows []flow

	// After a failure: the error, and when to try again.
	err   error
	retry time.Time
	// unfit is why the kernel cannot relay at all, in words, by the last try.
	unfit string
	// even is why it cannot spread connections, and untracked why it cannot look for tracked
	// ones.
	even, untracked ability
}

// ability is why a kernel that can relay cannot do something besides, in words, and when it was
// asked; why is empty if it can.
type ability struct {
	why   string
	asked time.Time
}

// due tells whether to ask: once, and again now and then if it cannot. Where the rules of one ring
// are refused there would be none at all.
func (a *ability) due(now time.Time) bool {
	return a.asked.IsZero() || a.why != "" && now.Sub(a.asked) >= retryAfter
}

func (t *table) forget(s state) { t.state, t.flows = s, nil }

// relaying returns those VIPs of a wanted flow that are relayed now as asked for.
func (t *table) relaying(want *flow, usual time.Duration, now time.Time) map[netip.Addr]bool {
	i := slices.IndexFunc(t.flows, want.sameRules)
	if t.state != there || i < 0 || now.Sub(t.flows[i].renewed) >= want.lifetime(usual) {
		return nil
	}
	is := make(map[netip.Addr]bool, len(t.flows[i].addrs))
	for _, a := range t.flows[i].addrs {
		is[a] = true
	}
	return is
}

// set brings exactly the wanted flows into the kernel, in one atomic step: only
// the elements if the rules are there, or the whole table.
func (t *table) set(s *nft.Session, want []flow, usual time.Duration, now time.Time) error {
	if len(want) == 0 {
		return t.remove(s)
	}
	if t.state == there && slices.EqualFunc(t.flows, want, flow.sameRules) && t.renew(s, want, usual, now) == nil {
		return nil
	}
	// Perhaps somebody removed the table (`nft flush ruleset`); build it again.
	t.forget(unknown)
	// A question first: to a transaction a kernel without nf_tables gives fewer
	// answers than the library waits for.
	old, err := s.Exists(t.family.table())
	if err == nil {
		err = s.Transact(func(c *nftables.Conn) error { return install(c, t.family, old, want, usual) })
	}
	for i := range want {
		if err == nil {
			err = verify(s, t.family, i, &want[i], true)
		}
		want[i].renewed = now
	}
	if err != nil {
		return fmt.Errorf("install rules: %w", err)
	}
	t.state, t.flows = there, want
	return nil
}

// renew gives the sets of flows whose VIPs have changed, or that are due, their VIPs
// with a whole lifetime.
func (t *table) renew(s *nft.Session, want []flow, usual time.Duration, now time.Time) error {
	var due []int
	for i := range want {
		is := &t.flows[i]
		want[i].renewed = is.renewed
		if now.Sub(is.renewed) >= is.refreshEvery(usual) || !slices.Equal(is.addrs, want[i].addrs) {
			due = append(due, i)
		}
	}
	if len(due) > 0 {
		err := s.Transact(func(c *nftables.Conn) error { return refresh(c, t.family, want, due, usual) })
		if err != nil {
			return err
		}
	}
	for _, i := range due {
		want[i].renewed = now
		if slices.Equal(t.flows[i].addrs, want[i].addrs) {
			continue // the same was verified before
		}
		if err := verify(s, t.family, i, &want[i], false); err != nil {
			return err
		}
	}
	t.flows = want
	return nil
}

// verify asks the kernel whether the large sets of a flow have what was sent: its VIPs,
// and all else if the rules are new.
func verify(s *nft.Session, f family, n int, g *flow, rules bool) error {
	err := s.Verify(vips(f, n, 0), len(g.addrs))
	if err != nil || !rules {
		return err
	}
	if g.tracked && g.repliers != nil {
		if err := s.Verify(repliers(f, n, 0), len(g.repliers.Addrs)); err != nil {
			return err
		}
	}
	b := builder{f: f, n: n, ring: g.ring}
	peers, origins, _ := b.sets() // the ends are a handful
	return errors.Join(s.Verify(b.describe(&peers), len(peers.keys)), s.Verify(b.describe(&origins), len(origins.keys)))
}

func (t *table) remove(s *nft.Session) error {
	if t.state == absent {
		return nil
	}
	t.forget(unknown)
	if err := s.Remove(t.family.table()); err != nil {
		return err
	}
	t.forget(absent)
	return nil
}
