package relay

import (
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
	to    netip.Addr
	peers []model.MAC
	addrs []netip.Addr // in the order of the Desired
}

// sameRules tells whether two flows differ in nothing but their VIPs.
func (g flow) sameRules(o flow) bool {
	return g.iface == o.iface && g.index == o.index && g.to == o.to && slices.Equal(g.peers, o.peers)
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

	// If state is there: what it relays, and since when without a refresh.
	flows   []flow
	renewed time.Time

	// After a failure: the error, and when to try again.
	err   error
	retry time.Time
}

func (t *table) forget(s state) { t.state, t.flows = s, nil }

// relays tells whether a VIP is relayed now as asked for.
func (t *table) relays(want flow, a netip.Addr, lifetime time.Duration, now time.Time) bool {
	return t.state == there && now.Sub(t.renewed) < lifetime &&
		slices.ContainsFunc(t.flows, func(g flow) bool { return g.sameRules(want) && slices.Contains(g.addrs, a) })
}

// set brings exactly the wanted flows into the kernel, in one atomic step: only
// the elements if the rules are there, or the whole table.
func (t *table) set(s *nft.Session, want []flow, lifetime time.Duration, now time.Time) error {
	if len(want) == 0 {
		return t.remove(s)
	}
	if t.state == there && slices.EqualFunc(t.flows, want, flow.sameRules) {
		same := slices.EqualFunc(t.flows, want, func(g, o flow) bool { return slices.Equal(g.addrs, o.addrs) })
		if same && now.Sub(t.renewed) < lifetime/3 {
			return nil
		}
		err := s.Transact(func(c *nftables.Conn) error { return refresh(c, t.family, want, lifetime) })
		if err == nil {
			t.flows, t.renewed = want, now
			return nil
		}
		// Somebody removed the table (`nft flush ruleset`); build it again.
	}
	t.forget(unknown)
	// A question first: to a transaction a kernel without nf_tables gives fewer
	// answers than the library waits for.
	old, err := s.Exists(t.family.table())
	if err == nil {
		err = s.Transact(func(c *nftables.Conn) error { return install(c, t.family, old, want, lifetime) })
	}
	if err != nil {
		return fmt.Errorf("install rules: %w", err)
	}
	t.state, t.flows, t.renewed = there, want, now
	return nil
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
