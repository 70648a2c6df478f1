package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

// priority comes before connection tracking (-200), so that what is relayed
// leaves no entry there.
const priority = -310

// Where a header has what the rules look at.
const (
	tcpSource   = 0
	tcpFlags    = 13
	etherSource = 6

	syn = 0x02
	ack = 0x10
)

// layout is where the header of a family has what the rules look at.
type layout struct {
	source, destination, ttl uint32
	// The 16 bits with the DSCP: where it begins in them, counted from the lowest
	// bit, and the offset of the checksum that depends on it.
	shift    uint8
	checksum expr.PayloadCsumType
}

var layouts = [families]layout{
	v4: {source: 12, destination: 16, ttl: 8, shift: 2, checksum: expr.CsumTypeInet},
	v6: {source: 8, destination: 24, ttl: 7, shift: 6, checksum: expr.CsumTypeNone},
}

const (
	// firstHop is the DSCP of what has been relayed once; the next 13 are the hops
	// after it.
	firstHop = 0x31
	lastHop  = firstHop + model.MaxRing - 1
	dscpBits = 0x3f
	// ip4Checksum is the offset of the checksum of an IPv4 header.
	ip4Checksum = 10
)

// More packets than this in a second are dropped. A flood of strays reaches the other
// nodes no faster, and takes a sixth of a core of each, or some more; what belongs to a
// connection there is sent again: the own stack would reset it. It is enough for 1 Gbit/s
// of full frames, and for 50 of what receive offload puts together.
const (
	relayRate  = 100_000
	relayBurst = 20_000
)

// What the rules of all drivers are made of.
var (
	accept, drop, jump   = nft.Accept, nft.Drop, nft.Goto
	equals, load, member = nft.Equals, nft.Load, nft.Member
)

// Registers: one for all matches, the second operand of dup, and the first of those
// of four bytes, in which the parts of a longer key stand side by side.
const (
	reg    = nft.Reg
	regDev = 2
	reg32  = 8
)

// The sets of a flow, by their number among its sets.
const (
	setVIPs uint32 = iota
	setPeers
	setOrigins
	setEnds
	setSlots
	setRepliers
	setReplyPorts
	sets
)

// addressType is the type of a set of addresses.
func (f family) addressType() nftables.SetDatatype {
	if f == v4 {
		return nftables.TypeIPAddr
	}
	return nftables.TypeIP6Addr
}

// vips describes the set of the VIPs of the flow with number n. Its ID only has
// to be unique within one transaction.
func vips(f family, n int, lifetime time.Duration) *nftables.Set {
	return &nftables.Set{
		Table: f.table(), ID: uint32(n)*sets + setVIPs + 1, Name: fmt.Sprintf("vips%d", n),
		KeyType: f.addressType(), HasTimeout: true, Timeout: lifetime,
	}
}

func elements(addrs []netip.Addr, lifetime time.Duration) []nftables.SetElement {
	out := make([]nftables.SetElement, len(addrs))
	for i, a := range addrs {
		out[i] = nftables.SetElement{Key: a.AsSlice(), Timeout: lifetime}
	}
	return out
}

// refresh fills a transaction that gives the sets of those flows that are due, in a
// table that is there, their VIPs with a whole lifetime. Only newer kernels can
// prolong an element.
func refresh(c *nftables.Conn, f family, flows []flow, due []int, usual time.Duration) error {
	for _, n := range due {
		lifetime := flows[n].lifetime(usual)
		s := vips(f, n, lifetime)
		c.FlushSet(s)
		if err := nft.AddElements(c, s, elements(flows[n].addrs, lifetime)); err != nil {
			return err
		}
		if r := flows[n].repliers; r != nil {
			s := repliers(f, n, lifetime)
			c.FlushSet(s)
			if err := nft.AddElements(c, s, elements(r.Addrs, lifetime)); err != nil {
				return err
			}
		}
	}
	return nil
}

// install fills a transaction that makes the whole table, in place of an old one.
func install(c *nftables.Conn, f family, old bool, flows []flow, usual time.Duration) error {
	t := f.table()
	if old {
		c.AddTable(t) // so that deleting it succeeds
		c.DelTable(t)
	}
	c.AddTable(t)
	var in hooks
	for n := range flows {
		if err := addFlow(c, f, in.base(c, f, &flows[n]), n, &flows[n], usual); err != nil {
			return err
		}
	}
	return nil
}

// addFlow adds the sets, chains and rules of one flow.
func addFlow(c *nftables.Conn, f family, in *nftables.Chain, n int, g *flow, usual time.Duration) error {
	b := builder{c: c, f: f, n: n, ring: g.ring}
	lifetime := g.lifetime(usual)
	addrs := vips(f, n, lifetime)
	if err := nft.AddSet(c, addrs, elements(g.addrs, lifetime)); err != nil {
		return err
	}
	if err := b.addSets(); err != nil {
		return err
	}
	place, big, stray, relay, keep := b.chain("place"), b.chain("big"), b.chain("stray"), b.chain("relay"), b.chain("keep")
	// A fragment but the first has no flags to look at and is left alone.
	for _, iface := range append([]string{g.iface}, g.ring.Beside...) {
		b.rule(in, inOn(iface), member(layouts[f].destination, addrs), nft.IsTCP(), hasFlags(), jump(place))
		b.rule(in, inOn(iface), f.tooBig(), member(layouts[f].destination, addrs), jump(big))
	}
	b.placeTooBig(big, keep, stray, g.tracked)
	if g.tracked && g.repliers != nil {
		if err := b.fromServers(in, place, g.repliers, lifetime); err != nil {
			return err
		}
	}
	beyond := stray
	if spreads(g.ring) {
		var err error
		if beyond, err = b.spread(g, stray, keep); err != nil {
			return err
		}
		b.offer(place, keep, beyond)
	}
	if g.tracked {
		b.placeTracked(place, keep, stray)
	} else {
		b.place(place, keep, beyond)
	}
	b.stray(stray, keep, relay)
	b.rule(relay, []expr.Any{&expr.Limit{
		Type: expr.LimitTypePkts, Rate: relayRate, Unit: expr.LimitTimeSecond, Burst: relayBurst, Over: true,
	}}, drop())
	b.rule(relay, dupTo(g.ring.Next, g.index), drop())
	// What came by the ring has its mark taken off.
	b.rule(keep, ethernet(), from(b.peers, false), f.marked(b.lowest()), f.setDSCP(0), accept())
	return nil
}

// builder adds what belongs to one flow.
type builder struct {
	c    *nftables.Conn
	f    family
	n    int
	ring *model.Ring

	peers, origins, ends *nftables.Set // the last two nil if empty
}

func (b *builder) chain(name string) *nftables.Chain {
	return b.c.AddChain(&nftables.Chain{Name: fmt.Sprintf("%s%d", name, b.n), Table: b.f.table()})
}

func (b *builder) rule(chain *nftables.Chain, parts ...[]expr.Any) {
	b.c.AddRule(&nftables.Rule{Table: b.f.table(), Chain: chain, Exprs: slices.Concat(parts...)})
}

// ringSet is a set of what a ring knows of its nodes.
type ringSet struct {
	number uint32
	name   string
	key    nftables.SetDatatype
	keys   [][]byte
}

// sets are those of the ring, without that of the VIPs.
func (b *builder) sets() (peers, origins, ends ringSet) {
	peers = ringSet{number: setPeers, name: "peers", key: nftables.TypeEtherAddr}
	origins = ringSet{number: setOrigins, name: "origins", key: nftables.MustConcatSetType(nftables.TypeEtherAddr, b.f.addressType())}
	ends = ringSet{number: setEnds, name: "ends", key: b.f.addressType()}
	for i := range b.ring.Peers {
		peers.keys = append(peers.keys, b.ring.Peers[i][:])
	}
	for i := range b.ring.Origins {
		if o := &b.ring.Origins[i]; familyOf(o.Addr) == b.f {
			// Each part begins at a multiple of four bytes.
			origins.keys = append(origins.keys, slices.Concat(o.MAC[:], []byte{0, 0}, o.Addr.AsSlice()))
		}
	}
	for _, a := range b.ring.Ends {
		if familyOf(a) == b.f {
			ends.keys = append(ends.keys, a.AsSlice())
		}
	}
	return peers, origins, ends
}

func (b *builder) describe(r *ringSet) *nftables.Set {
	return &nftables.Set{Table: b.f.table(), ID: uint32(b.n)*sets + r.number + 1, Name: fmt.Sprintf("%s%d", r.name, b.n), KeyType: r.key}
}

// add adds a set with its elements.
func (b *builder) add(r *ringSet) (*nftables.Set, error) {
	elements := make([]nftables.SetElement, len(r.keys))
	for i, k := range r.keys {
		elements[i] = nftables.SetElement{Key: k}
	}
	s := b.describe(r)
	return s, nft.AddSet(b.c, s, elements)
}

// addSets adds the sets but that of the VIPs.
func (b *builder) addSets() (err error) {
	peers, origins, ends := b.sets()
	if b.peers, err = b.add(&peers); err != nil {
		return err
	}
	if len(origins.keys) > 0 {
		if b.origins, err = b.add(&origins); err != nil {
			return err
		}
	}
	if len(ends.keys) > 0 {
		b.ends, err = b.add(&ends)
	}
	return err
}

// place finds out whether a socket of this host takes the packet.
func (b *builder) place(place, keep, stray *nftables.Chain) {
	// A listener matches whatever the packet belongs to, so all but a SYN is a stray. So
	// is a SYN if the listener is of no use. One of a handshake that is under way
	// matches its own half open socket, which is no listener.
	not := notOnlySYN()
	if b.ring.Unwell {
		not = nil
	}
	b.sockets(place, keep, stray, not)
}

// sockets finds out the same. A listener does not count for what the match is true of.
func (b *builder) sockets(place, keep, stray *nftables.Chain, not []expr.Any) {
	b.rule(place, not, []expr.Any{&expr.Socket{Key: expr.SocketKeyWildcard, Register: reg}, equals([]byte{1})}, jump(stray))
	// Another socket, transparent or not: established, half open, TIME-WAIT; or the
	// listener of a SYN.
	for _, transparent := range []byte{0, 1} {
		b.rule(place, []expr.Any{&expr.Socket{Key: expr.SocketKeyTransparent, Register: reg}, equals([]byte{transparent})}, jump(keep))
	}
	b.rule(place, jump(stray))
}

// stray finds out whether a packet without a socket goes on, and how often it has.
// Each match is positive: if the source cannot be read the packet is not relayed.
func (b *builder) stray(stray, keep, relay *nftables.Chain) {
	// Every relay takes one off, whoever believes whom.
	b.rule(stray, b.f.lastTTL(), jump(keep))
	if b.ends != nil {
		b.rule(stray, member(layouts[b.f].source, b.ends), jump(keep))
	}
	if b.origins != nil {
		b.rule(stray, ethernet(), b.fromOrigin(), b.f.setDSCP(firstHop), jump(relay))
	}
	b.rule(stray, ethernet(), from(b.peers, true), b.f.setDSCP(firstHop), jump(relay))
	for hop := b.lowest(); hop < firstHop+byte(b.ring.Nodes)-1; hop++ {
		b.rule(stray, ethernet(), from(b.peers, false), b.f.isDSCP(hop), b.f.setDSCP(hop+1), jump(relay))
	}
	b.rule(stray, jump(keep))
}

// inOn matches the interface by name.
func inOn(name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg}, equals(padded)}
}

// hasFlags matches what has the flags of a TCP segment at all.
func hasFlags() []expr.Any {
	return []expr.Any{load(expr.PayloadBaseTransportHeader, tcpFlags, 1)}
}

// notOnlySYN matches every segment but the first of a connection, onlySYN that one.
func notOnlySYN() []expr.Any { return opening(expr.CmpOpNeq) }
func onlySYN() []expr.Any    { return opening(expr.CmpOpEq) }

func opening(op expr.CmpOp) []expr.Any {
	return []expr.Any{
		load(expr.PayloadBaseTransportHeader, tcpFlags, 1),
		&expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: 1, Mask: []byte{syn | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: op, Register: reg, Data: []byte{syn}},
	}
}

// ethernet matches what came in by an interface whose frames have addresses.
func ethernet() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: reg},
		equals(binaryutil.NativeEndian.PutUint16(unix.ARPHRD_ETHER)),
	}
}

// from matches a frame whose source is in the set, or is not.
func from(s *nftables.Set, not bool) []expr.Any {
	return []expr.Any{
		load(expr.PayloadBaseLLHeader, etherSource, s.KeyType.Bytes),
		&expr.Lookup{SourceRegister: reg, SetName: s.Name, SetID: s.ID, Invert: not},
	}
}

// fromOrigin matches a frame of a connection that another node opened.
func (b *builder) fromOrigin() []expr.Any {
	address := b.f.addressType()
	return []expr.Any{
		&expr.Payload{DestRegister: reg32, Base: expr.PayloadBaseLLHeader, Offset: etherSource, Len: nftables.TypeEtherAddr.Bytes},
		&expr.Payload{DestRegister: reg32 + 2, Base: expr.PayloadBaseNetworkHeader, Offset: layouts[b.f].source, Len: address.Bytes},
		&expr.Lookup{SourceRegister: reg32, SetName: b.origins.Name, SetID: b.origins.ID},
	}
}

// lastTTL matches a packet that the next router would drop.
func (f family) lastTTL() []expr.Any {
	return []expr.Any{
		load(expr.PayloadBaseNetworkHeader, layouts[f].ttl, 1),
		&expr.Cmp{Op: expr.CmpOpLte, Register: reg, Data: []byte{1}},
	}
}

// dscp is a value where the header has it, in its first 16 bits.
func (f family) dscp(value byte) []byte {
	return binaryutil.BigEndian.PutUint16(uint16(value) << layouts[f].shift)
}

// loadDSCP loads the first 16 bits of the header, all but the DSCP zero.
func (f family) loadDSCP() []expr.Any {
	return []expr.Any{
		load(expr.PayloadBaseNetworkHeader, 0, 2),
		&expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: 2, Mask: f.dscp(dscpBits), Xor: []byte{0, 0}},
	}
}

func (f family) isDSCP(value byte) []expr.Any { return append(f.loadDSCP(), equals(f.dscp(value))) }

// marked matches a DSCP that counts relays, from the lowest on.
func (f family) marked(lowest byte) []expr.Any {
	return append(f.loadDSCP(),
		&expr.Cmp{Op: expr.CmpOpGte, Register: reg, Data: f.dscp(lowest)},
		&expr.Cmp{Op: expr.CmpOpLte, Register: reg, Data: f.dscp(lastHop)})
}

// setDSCP writes the DSCP. It writes 16 bits, so that the checksum, which counts in
// those, can be brought up to date; ECN stays.
func (f family) setDSCP(value byte) []expr.Any {
	keep := f.dscp(dscpBits)
	for i := range keep {
		keep[i] = ^keep[i]
	}
	return []expr.Any{
		load(expr.PayloadBaseNetworkHeader, 0, 2),
		&expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: 2, Mask: keep, Xor: f.dscp(value)},
		&expr.Payload{
			OperationType: expr.PayloadWrite, SourceRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: 0, Len: 2,
			CsumType: layouts[f].checksum, CsumOffset: ip4Checksum,
		},
	}
}

// dupTo sends a copy to another node.
func dupTo(next netip.Addr, index uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: reg, Data: next.AsSlice()},
		&expr.Immediate{Register: regDev, Data: binaryutil.NativeEndian.PutUint32(index)},
		&expr.Dup{RegAddr: reg, RegDev: regDev, IsRegDevSet: true},
	}
}
