package relay

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
	"lbd.dev/lbd/internal/sockdiag"
)

// priorityTracked comes after connection tracking (-200) has looked for the connection,
// and before kube-proxy chooses an endpoint (-100). What is dropped there leaves no
// entry, and copies are not tracked.
const priorityTracked = -150

const (
	// trackedEvery is how often tracked connections are looked for, and trackedShare
	// how much longer than a look the pause after it is at least: the list of a busy
	// node is long, and the kernel goes through its whole table, 262144 buckets, for an empty one
	// too. Two looks are done before ring.ServiceHolds is over.
	trackedEvery = 20 * time.Second
	trackedShare = 100
)

// base returns the chain of the hook in which the rules of the flow begin, and makes it
// for the first.
func (h *hooks) base(c *nftables.Conn, f family, g *flow) *nftables.Chain {
	at, name, order := &h.sockets, "prerouting", priority
	if g.tracked {
		at, name, order = &h.tracked, "prerouting-tracked", priorityTracked
	}
	if *at == nil {
		policy := nftables.ChainPolicyAccept
		*at = c.AddChain(&nftables.Chain{Name: name, Table: f.table(), Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRef(nftables.ChainPriority(order)), Policy: &policy})
		if g.tracked {
			c.AddRule(&nftables.Rule{Table: f.table(), Chain: *at, Exprs: f.settled()})
		}
	}
	return *at
}

// settled accepts what belongs to a connection that this host tracks and has no mark to take off,
// whatever it is for: nearly all packets of a host, so it comes before the rules of any ring.
func (f family) settled() []expr.Any {
	return slices.Concat(known(), f.loadDSCP(), []expr.Any{&expr.Cmp{Op: expr.CmpOpLt, Register: reg, Data: f.dscp(chosenHop)}}, accept())
}

// known matches what belongs to a connection that this host tracks.
func known() []expr.Any {
	return nft.InState(nft.StateEstablished | nft.StateRelated | nft.StateUntracked)
}

// hooks are the chains in which packets come in; nil if no flow needs them.
type hooks struct{ sockets, tracked *nftables.Chain }

// placeTracked finds out whether this host knows the connection of the packet. It may
// begin one anywhere. Without an entry another packet is "new", or "invalid" where
// nf_conntrack_tcp_loose is 0; so it is with one if its sequence number is out of the
// window, for which a tour does no harm.
func (b *builder) placeTracked(place, keep, stray *nftables.Chain) {
	b.knows(place, keep)
	b.rule(place, onlySYN(), jump(keep))
	b.rule(place, jump(stray))
}

// repliers describes the set of the servers whose answers to clients come by this node, in the
// flow with number n. Its elements live as long as those of the VIPs.
func repliers(f family, n int, lifetime time.Duration) *nftables.Set {
	return &nftables.Set{
		Table: f.table(), ID: uint32(n)*sets + setRepliers + 1, Name: fmt.Sprintf("repliers%d", n),
		KeyType: f.addressType(), HasTimeout: true, Timeout: lifetime,
	}
}

// fromServers has what servers say to clients whose addresses they see placed, too. It comes in
// where the servers are, and may go on by another interface, to the next node.
func (b *builder) fromServers(in, place *nftables.Chain, of *model.Repliers, lifetime time.Duration) error {
	addrs := repliers(b.f, b.n, lifetime)
	if err := nft.AddSet(b.c, addrs, elements(of.Addrs, lifetime)); err != nil {
		return err
	}
	ports := ringSet{number: setReplyPorts, name: "reply-ports", key: nftables.TypeInetService}
	for _, p := range of.Ports {
		ports.keys = append(ports.keys, []byte{byte(p >> 8), byte(p)})
	}
	from, err := b.add(&ports)
	if err != nil {
		return err
	}
	b.rule(in, member(layouts[b.f].source, addrs), nft.IsTCP(), hasFlags(), []expr.Any{
		load(expr.PayloadBaseTransportHeader, tcpSource, 2),
		&expr.Lookup{SourceRegister: reg, SetName: from.Name, SetID: from.ID},
	}, jump(place))
	return nil
}

// knows has what belongs to a connection that this host tracks kept.
func (b *builder) knows(place, keep *nftables.Chain) {
	b.rule(place, known(), jump(keep))
}

// lookTracked finds out, at times, to which addresses this host has connections that it
// translates.
func (d *Driver) lookTracked(want *model.Desired, next *model.RingHost, now time.Time) {
	h := &d.host
	if !want.Track {
		next.Tracked, next.Untold, h.found, h.tracked = nil, "", nil, time.Time{}
		return
	}
	if now.Before(h.tracked) {
		return
	}
	found, err := tracked()
	// The table changes while it is read: what is missing once may still be there.
	next.Tracked, next.Untold = slices.Concat(found, h.found), ""
	slices.SortFunc(next.Tracked, netip.Addr.Compare)
	next.Tracked, h.found = slices.Compact(next.Tracked), found
	if err != nil {
		next.Untold = err.Error()
	}
	h.tracked = now.Add(max(trackedEvery, trackedShare*time.Since(now)))
}

// tracked are the addresses to which this host has connections that it translates, sorted.
func tracked() ([]netip.Addr, error) {
	seen := make(map[netip.Addr]bool)
	err := sockdiag.Translated(func(to netip.Addr) { seen[to] = true })
	return slices.SortedFunc(maps.Keys(seen), netip.Addr.Compare), err
}

// trackable are the wanted relays, on a kernel that cannot look for tracked connections without
// those of Services: all others keep their rings.
func (d *Driver) trackable(want []model.Relay, now time.Time) []model.Relay {
	changed := false
	for i := range want {
		if want[i].Tracked && !d.tracks(familyOf(want[i].Addr), now) {
			changed = true
		}
	}
	if !changed {
		return want
	}
	return slices.DeleteFunc(slices.Clone(want), func(r model.Relay) bool {
		return r.Tracked && d.tables[familyOf(r.Addr)].untracked.why != ""
	})
}

// tracks tells whether the kernel can look for tracked connections.
func (d *Driver) tracks(f family, now time.Time) bool {
	return d.able(&d.tables[f].untracked, f, false, now, "the kernel cannot look for tracked connections; those of Services are reset when VIPs move")
}

// reportUntracked tells of the VIPs that have no ring for that.
func (d *Driver) reportUntracked(want []model.Relay, vips map[netip.Addr]model.AppliedVIP) {
	for i := range want {
		if why := d.tables[familyOf(want[i].Addr)].untracked.why; why != "" && want[i].Tracked {
			vips[want[i].Addr] = model.AppliedVIP{Err: "relay: " + why}
		}
	}
}

// Untrackable is why the kernel cannot look for tracked connections in the rules of a
// ring, for addresses of this family, in words; empty if it can, or did not answer.
// Nothing is changed.
func Untrackable(a netip.Addr) string {
	g := sample(familyOf(a), false)
	g.tracked = true
	return refused(familyOf(a), g)
}

// Untold is RingHost.Untold now.
func Untold() string {
	if _, err := tracked(); err != nil {
		return err.Error()
	}
	return ""
}
