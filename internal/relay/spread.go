package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

const (
	// slots are the parts into which the hash divides new connections. Each is the
	// node's that ranks first for it, so that the shares of equal nodes differ by some
	// per cent, and a node that comes or goes changes no slot of two others.
	slots = 1024
	// hashSeed is the same on every node: one that takes the VIP over sends packets
	// where the one before did.
	hashSeed = 0x1bd
	// chosenHop is the DSCP of what the owner has sent to the node of its slot. It is
	// not counted: the node that answered a SYN by a cookie gets the ACK first, and
	// again at the end of the tour, since only it can check it.
	chosenHop = firstHop - 1
)

// spreads tells whether new connections are spread over the nodes of the ring.
func spreads(r *model.Ring) bool { return len(r.Spread) > 0 }

// lowest is the first DSCP that another node may have set.
func (b *builder) lowest() byte {
	if b.ring.Shared {
		return chosenHop
	}
	return firstHop
}

// spreadTable is the backend of each slot, as its number among them.
func spreadTable(backends []model.Backend) (of [slots]int) {
	for slot := range of {
		name := strconv.Itoa(slot)
		best := 0
		for i := 1; i < len(backends); i++ {
			if election.Better(name, candidate(&backends[i]), candidate(&backends[best])) {
				best = i
			}
		}
		of[slot] = best
	}
	return of
}

func candidate(b *model.Backend) election.Candidate {
	return election.Candidate{Node: b.Node, Weight: b.Weight}
}

// spread adds the chain that sends what a client opens to the node of its slot, and
// there first what it opened before and no socket here can place. What has come from
// a node of the group has been sent on once, and goes on as in any ring: two nodes
// that both believe to own the VIP do not send one packet back and forth.
func (b *builder) spread(g *flow, stray, keep *nftables.Chain) (*nftables.Chain, error) {
	own, self, spread := b.chain("own"), b.chain("self"), b.chain("spread")
	b.place(own, keep, stray)
	b.rule(self, notOnlySYN(), jump(stray)) // its socket has been looked for
	b.rule(self, jump(own))
	to, err := b.slots(g, self)
	if err != nil {
		return nil, err
	}
	choose := b.chain("choose")
	b.rule(choose, b.choose(to))
	b.rule(spread, b.f.lastTTL(), jump(self))
	if b.ends != nil {
		b.rule(spread, member(layouts[b.f].source, b.ends), jump(self))
	}
	if b.origins != nil {
		b.rule(spread, ethernet(), b.fromOrigin(), jump(choose))
	}
	b.rule(spread, ethernet(), from(b.peers, true), jump(choose))
	b.rule(spread, jump(self))
	return spread, nil
}

// offer has connections that clients open spread. Those to a listener that is bound to
// the VIP are not: it would match their later packets here, whoever has them.
func (b *builder) offer(place, keep, spread *nftables.Chain) {
	b.rule(place, onlySYN(), []expr.Any{&expr.Socket{Key: expr.SocketKeyWildcard, Register: reg}, equals([]byte{0})}, jump(keep))
	b.rule(place, onlySYN(), jump(spread))
}

// slots adds the map from the hash to the chain of a node. It has no name, so that nft
// lists it in its rule, in words that it can load again: a named map has to tell the type
// of its key, and integers of four bytes have none that nft could write.
func (b *builder) slots(g *flow, self *nftables.Chain) (*nftables.Set, error) {
	chains := make([]string, len(g.ring.Spread))
	for i := range g.ring.Spread {
		chains[i] = self.Name
		if next := g.ring.Spread[i].Addr; next.IsValid() {
			chain := b.chain(fmt.Sprintf("to-%d-", i))
			b.rule(chain, b.f.setDSCP(chosenHop), dupTo(next, g.index), drop())
			chains[i] = chain.Name
		}
	}
	m := &nftables.Set{
		Table: b.f.table(), ID: uint32(b.n)*sets + setSlots + 1, Name: "__map%d", Anonymous: true, Constant: true, IsMap: true,
		KeyType: nftables.TypeInteger, KeyByteOrder: binaryutil.NativeEndian, DataType: nftables.TypeVerdict,
	}
	var elements []nftables.SetElement
	for slot, backend := range spreadTable(g.ring.Spread) {
		elements = append(elements, nftables.SetElement{
			Key:         binaryutil.NativeEndian.PutUint32(uint32(slot)),
			VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: chains[backend]},
		})
	}
	return m, nft.AddSet(b.c, m, elements)
}

// choose goes to the chain of the node whose slot the source has.
func (b *builder) choose(to *nftables.Set) []expr.Any {
	address := b.f.addressType().Bytes
	return []expr.Any{
		&expr.Payload{DestRegister: reg32, Base: expr.PayloadBaseNetworkHeader, Offset: layouts[b.f].source, Len: address},
		&expr.Payload{DestRegister: reg32 + address/4, Base: expr.PayloadBaseTransportHeader, Offset: tcpSource, Len: 2},
		&expr.Hash{SourceRegister: reg32, DestRegister: reg, Length: address + 4, Modulus: slots, Seed: hashSeed, Type: expr.HashTypeJenkins},
		&expr.Lookup{SourceRegister: reg, IsDestRegSet: true, SetName: to.Name, SetID: to.ID},
	}
}

// saneSpread refuses backends that packets could not be sent to.
func saneSpread(r *model.Ring, f family) error {
	if len(r.Spread) > r.Nodes {
		return fmt.Errorf("%d nodes take new connections of a ring of %d", len(r.Spread), r.Nodes)
	}
	for i := range r.Spread {
		if b := &r.Spread[i]; b.Addr.IsValid() && familyOf(b.Addr) != f {
			return fmt.Errorf("%s for %s: not of the family of the VIP", b.Addr, b.Node)
		}
	}
	return nil
}

// evened are the wanted relays, on a kernel that has no hash without what they spread:
// the owner takes all connections, and finds by the ring those that others have.
func (d *Driver) evened(want []model.Relay, now time.Time) []model.Relay {
	changed := false
	for i := range want {
		r := &want[i]
		if r.Ring == nil || !spreads(r.Ring) || d.spreadable(familyOf(r.Addr), now) {
			continue
		}
		if !changed {
			want, changed = slices.Clone(want), true
		}
		ring := *r.Ring
		ring.Spread = nil
		want[i].Ring = &ring
	}
	return want
}

// spreadable tells whether the kernel can spread.
func (d *Driver) spreadable(f family, now time.Time) bool {
	return d.able(&d.tables[f].even, f, true, now, "the kernel cannot spread connections; the owner takes all of them")
}

// able tells whether the kernel can have the rules of a flow that not every kernel can have: one that
// spreads connections, or one for those that are tracked.
func (d *Driver) able(a *ability, f family, spread bool, now time.Time, without string) bool {
	if a.due(now) {
		g, was := sample(f, spread), a.why
		g.tracked = !spread
		a.asked, a.why = now, ""
		if err := probe(d.session, f, g); unsupported(err) {
			a.why = err.Error()
		}
		if a.why != "" && was == "" {
			d.log.Warn(without, "family", f, "err", a.why)
		}
	}
	return a.why == ""
}

// reportEven tells of the VIPs whose connections are to be spread and are not.
func (d *Driver) reportEven(want []model.Relay, vips map[netip.Addr]model.AppliedVIP) {
	for i := range want {
		a := want[i].Addr
		even := d.tables[familyOf(a)].even.why
		if v := vips[a]; even != "" && v.Err == "" && spreads(want[i].Ring) {
			v.Err = "spread: " + even
			vips[a] = v
		}
	}
}
