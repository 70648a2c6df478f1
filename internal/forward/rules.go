package forward

import (
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/nft"
)

const (
	// priority comes after connection tracking (-200) and the rings of relays (-150), and
	// before destinations are translated (-100).
	priority = -149
	// translated is the bit of a connection whose destination is translated (IPS_DST_NAT).
	translated = 1 << 5

	sourcePort, destinationPort = 0, 2 // in a header of TCP or UDP
	tcpFlags, fin, rst          = 13, 0x01, 0x04
)

// reg32 is the first of the registers of four bytes, in which the parts of a key stand side
// by side. It is the begin of nft.Reg.
const reg32 = 8

// builder adds to a table.
type builder struct {
	c      *nftables.Conn
	family *family
	next   uint32 // ID of the next set without a name

	// What is made once for all maps: there may be a million slots.
	numbers  [][]byte
	elements []nftables.SetElement
}

func (b *builder) chain(name string) *nftables.Chain {
	return b.c.AddChain(&nftables.Chain{Name: name, Table: b.family.table})
}

func (b *builder) base(name string, kind nftables.ChainType, hook *nftables.ChainHook, order nftables.ChainPriority) *nftables.Chain {
	policy := nftables.ChainPolicyAccept
	return b.c.AddChain(&nftables.Chain{Name: name, Table: b.family.table, Type: kind, Hooknum: hook, Priority: &order, Policy: &policy})
}

func (b *builder) rule(chain *nftables.Chain, parts ...[]expr.Any) {
	b.c.AddRule(&nftables.Rule{Table: b.family.table, Chain: chain, Exprs: slices.Concat(parts...)})
}

// install fills a transaction that makes the whole table, in place of an old one.
func (f *family) install(c *nftables.Conn, old bool, to *image) error {
	if old {
		c.AddTable(f.table) // so that deleting it succeeds
		c.DelTable(f.table)
	}
	c.AddTable(f.table)
	b := builder{c: c, family: f}
	b.chain(refuse)
	b.chain(origins)
	for n := range sets {
		if err := c.AddSet(f.set(n), nil); err != nil {
			return err
		}
	}
	if err := f.change(c, &image{}, to); err != nil {
		return err
	}
	b.filter()
	b.translate()
	return nil
}

// filter judges what comes for a VIP before its destination is translated, and what this
// host sends there.
func (b *builder) filter() {
	f := b.family
	no, gate, vip := &nftables.Chain{Name: refuse, Table: f.table}, b.chain("gate"), b.chain("vip")
	in := b.base("prerouting-filter", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, priority)
	out := b.base("output-filter", nftables.ChainTypeFilter, nftables.ChainHookOutput, priority)
	b.rule(in, b.fromLAN(), nft.Goto(vip))
	b.rule(in, b.claimed(), nft.Goto(vip))
	b.rule(out, b.claimed(), nft.InState(nft.StateNew), nft.Goto(gate))

	b.rule(vip, nft.InState(nft.StateEstablished|nft.StateRelated), nft.Accept())
	// What a server says in a connection that this host does not know yet, since it has
	// just taken the VIP over, would be answered with a reset. The next packet of the
	// client brings the connection here.
	b.rule(vip, b.key(sourcePort, f.destination, f.source), b.lookup(setServers), nft.Drop())
	// A connection that is unknown is not taken up by its last packet, and the client would
	// wait for an answer.
	b.rule(vip, nft.InState(nft.StateInvalid), nft.IsTCP(), justFIN(), reset())
	b.rule(vip, nft.InState(nft.StateInvalid), nft.Drop())
	b.rule(vip, nft.Goto(gate))

	b.rule(gate, b.key(destinationPort, f.destination), b.verdict(setServices))
	b.rule(gate, nft.Goto(no))

	b.replies()
	// A server that learned a shorter way to a client would go past this host, which has to
	// translate what it says. IPv6 has no switch for that.
	b.rule(out, nft.IsProtocol(f.redirect[0]), []expr.Any{
		nft.Load(expr.PayloadBaseTransportHeader, 0, 1), nft.Equals(f.redirect[1:]),
	}, nft.Member(f.destination, f.set(setHosts)), nft.Drop())

	b.rule(no, nft.IsTCP(), reset())
	b.rule(no, nft.IsProtocol(unix.IPPROTO_UDP), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: f.unreachable}})
	b.rule(no, nft.Drop())
}

// replies judges what a server says to a client whose address it sees, if this host does not know
// the connection. What the connection cannot be taken up by reaches the client with an address
// that it does not know, and would be answered with a reset. The next packet of the client brings
// the connection here.
func (b *builder) replies() {
	through := b.base("forward-filter", nftables.ChainTypeFilter, nftables.ChainHookForward, priority)
	key := b.key(sourcePort, b.family.source)
	b.rule(through, nft.InState(nft.StateInvalid), key, b.lookup(setRepliers), nft.Drop())
	b.rule(through, nft.InState(nft.StateNew), nft.IsTCP(), key, b.lookup(setMute), nft.Drop())
	to, from := []byte{0}, []byte{1} // the directions of a connection
	b.rule(through, nft.HasStatus(translated), direction(to), b.key(destinationPort, b.family.destination), b.lookup(setReceived))
	b.rule(through, nft.HasStatus(translated), direction(from), key, b.lookup(setSent))
}

// direction matches packets of one direction of a connection.
func direction(is []byte) []expr.Any {
	return []expr.Any{&expr.Ct{Register: nft.Reg, Key: expr.CtKeyDIRECTION}, nft.Equals(is)}
}

// fromLAN matches what comes for a VIP by the interface of its clients. What comes there was sent
// to this node, as to the owner of the VIP.
func (b *builder) fromLAN() []expr.Any {
	address := b.family.address.Bytes
	return append([]expr.Any{
		&expr.Payload{DestRegister: reg32, Base: expr.PayloadBaseNetworkHeader, Offset: b.family.destination, Len: address},
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg32 + address/4},
	}, b.lookup(setLAN)...)
}

// claimed matches what is sent to a VIP that a node of the group has.
func (b *builder) claimed() []expr.Any {
	return nft.Member(b.family.destination, b.family.set(setClaimed))
}

// translate has the destination of a connection translated, and, if it is forwarded, its
// source. A client on the LAN is given the VIP as its source: so the answers come by the owner of
// the VIP, which may be another node by then. Where servers see clients, their way back leads
// there, too, and only a client whose own subnet has servers is given the VIP. This host's own connections keep its address, and
// those of its containers are given it: they get their answers here whoever the owner is.
func (b *builder) translate() {
	f := b.family
	pre := b.base("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest)
	out := b.base("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, *nftables.ChainPriorityNATDest)
	post := b.base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource)
	to := [][]expr.Any{b.key(destinationPort, f.destination), b.verdict(setTargets)}
	b.rule(pre, append([][]expr.Any{b.fromLAN()}, to...)...)
	b.rule(pre, append([][]expr.Any{b.claimed()}, to...)...)
	b.rule(out, append([][]expr.Any{b.claimed()}, to...)...)
	forwarded := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIF, Register: nft.Reg},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: nft.Reg, Data: make([]byte, 4)},
	}
	// Only the first packet of a connection comes by here.
	b.rule(post, nft.HasStatus(translated), b.key(destinationPort, f.destination), b.lookup(setOpened))
	b.rule(post, forwarded, nft.HasStatus(translated), nft.Goto(&nftables.Chain{Name: origins}))
	// A server goes on to speak to a client whose connection another node had: it speaks as the
	// VIP from now on. A server of UDP may ask others from its port, too: those of two servers may
	// be the same connection as the VIP, and get another port.
	reply := b.key(sourcePort, f.source)
	b.rule(post, forwarded, nft.IsTCP(), reply, b.value(setReplies),
		[]expr.Any{&expr.NAT{Type: expr.NATTypeSourceNAT, Family: f.number, RegAddrMin: nft.Reg, RegProtoMin: reg32 + f.address.Bytes/4}})
	b.rule(post, forwarded, nft.IsProtocol(unix.IPPROTO_UDP), reply, b.value(setDatagrams),
		[]expr.Any{&expr.NAT{Type: expr.NATTypeSourceNAT, Family: f.number, RegAddrMin: nft.Reg}})
}

// origins is the name of the chain that gives a forwarded connection its source.
const origins = "origins"

// originals has the rules of that chain, for each VIP. A set of the VIPs would do, but
// nft 1.0.6 aborts when it lists a rule with the original destination in a lookup.
func (b *builder) originals(vips map[netip.Addr]origin) error {
	to := b.chain(origins)
	b.c.FlushChain(to)
	for _, vip := range slices.SortedFunc(maps.Keys(vips), netip.Addr.Compare) {
		o := vips[vip]
		toVIP := []expr.Any{&expr.Ct{Register: nft.Reg, Key: expr.CtKeyDST}, nft.Equals(vip.AsSlice())} // direction 0
		client := []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: nft.Reg}, nft.Equals(interfaceName(o.iface))}
		seesVIP, err := b.sees(vip, o.sources)
		if err != nil {
			return err
		}
		if o.kept {
			for _, p := range o.near {
				b.rule(to, toVIP, client, b.from(p), seesVIP)
			}
			b.rule(to, toVIP, client, nft.Accept())
		} else {
			b.rule(to, toVIP, client, seesVIP)
		}
		b.rule(to, toVIP, []expr.Any{&expr.Masq{}})
	}
	return nil
}

// sees has the source translated to the VIP, or to one of the sources, by a hash of what the client
// is: so all nodes give a connection the same.
func (b *builder) sees(vip netip.Addr, sources []netip.Addr) ([]expr.Any, error) {
	snat := &expr.NAT{Type: expr.NATTypeSourceNAT, Family: b.family.number, RegAddrMin: nft.Reg}
	if len(sources) == 0 {
		return []expr.Any{&expr.Immediate{Register: nft.Reg, Data: vip.AsSlice()}, snat}, nil
	}
	m := b.indexed(len(sources), b.family.address)
	elements := make([]nftables.SetElement, len(sources))
	for i, s := range sources {
		elements[i] = nftables.SetElement{Key: b.number(i), Val: s.AsSlice()}
	}
	if err := nft.AddSet(b.c, m, elements); err != nil {
		return nil, err
	}
	key, hashed := b.client(false)
	return append(key, b.hash(hashed, balance.SourceSeed, len(sources)), b.indexedBy(m), snat), nil
}

// client puts the client side by side with its port, unless all its connections belong together, and
// tells how many bytes that are.
func (b *builder) client(affinity bool) (key []expr.Any, bytes uint32) {
	f := b.family
	key = []expr.Any{&expr.Payload{DestRegister: reg32, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: f.address.Bytes}}
	if affinity {
		return key, f.address.Bytes
	}
	port := &expr.Payload{DestRegister: reg32 + f.address.Bytes/4, Base: expr.PayloadBaseTransportHeader, Offset: sourcePort, Len: 2}
	return append(key, port), f.address.Bytes + 4
}

// hash makes an index, out of so many, of what client has put there.
func (b *builder) hash(bytes, seed uint32, among int) expr.Any {
	return &expr.Hash{SourceRegister: reg32, DestRegister: nft.Reg, Length: bytes, Modulus: uint32(among), Seed: seed, Type: expr.HashTypeJenkins}
}

// indexedBy puts what the map has for the index into the registers.
func (b *builder) indexedBy(m *nftables.Set) expr.Any {
	return &expr.Lookup{SourceRegister: nft.Reg, DestRegister: nft.Reg, IsDestRegSet: true, SetName: m.Name, SetID: m.ID}
}

// fill adds a chain of an image.
func (b *builder) fill(name string, c chain) error {
	to := b.chain(name)
	if c.slots != nil {
		return b.choose(to, c)
	}
	for _, p := range c.sources {
		if p.Addr().BitLen() != int(b.family.address.Bytes)*8 {
			continue
		}
		if c.refused {
			b.rule(to, b.from(p), nft.Goto(&nftables.Chain{Name: refuse}))
		} else {
			b.rule(to, b.from(p), nft.Accept())
		}
	}
	b.rule(to, nft.Drop())
	return nil
}

// choose has the destination translated to the server of the slot.
func (b *builder) choose(to *nftables.Chain, c chain) error {
	f := b.family
	m, err := b.slots(c)
	if err != nil {
		return err
	}
	key, hashed := b.client(c.affinity)
	server := []expr.Any{b.hash(hashed, balance.HashSeed, len(c.slots.Slots)), b.indexedBy(m)}
	port := reg32 + f.address.Bytes/4 // beside the address, as the map has it
	if c.onePort {
		ports := f.set(setPorts)
		server = append(server, b.keyAt(port, destinationPort, f.destination)...)
		server = append(server, &expr.Lookup{SourceRegister: port, DestRegister: port, IsDestRegSet: true, SetName: ports.Name, SetID: ports.ID})
	}
	b.rule(to, nft.IsProtocol(byte(c.protocol)), key, server, []expr.Any{
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: f.number, RegAddrMin: nft.Reg, RegProtoMin: port},
	})
	if c.base != "" { // the rule ends where the map has no such slot
		b.rule(to, nft.Goto(&nftables.Chain{Name: c.base, Table: f.table}))
	}
	return nil
}

// indexed describes a map from numbers. It has no name, so that nft lists it in its rule,
// in words that it can load again: a named map has to tell the type of its key, and integers
// of four bytes have none that nft could write.
// A map with a name, for what is laid over all slot tables, would take a server that is out of a thousand
// of them in 0.04 s of processor time in place of 0.8 s. The library would have to write typeof for it.
func (b *builder) indexed(size int, data nftables.SetDatatype) *nftables.Set {
	b.next++
	return &nftables.Set{
		Table: b.family.table, ID: b.next - 1, Name: "__map%d", Anonymous: true, Constant: true, IsMap: true, Size: uint32(size),
		KeyType: nftables.TypeInteger, KeyByteOrder: binaryutil.NativeEndian, DataType: data,
	}
}

// number is the key of an index.
func (b *builder) number(n int) []byte {
	for i := len(b.numbers); i <= n; i++ {
		b.numbers = append(b.numbers, binaryutil.NativeEndian.PutUint32(uint32(i)))
	}
	return b.numbers[n]
}

// slots adds the map from slots to servers.
func (b *builder) slots(c chain) (*nftables.Set, error) {
	data := b.family.address
	if !c.onePort {
		data = nftables.MustConcatSetType(b.family.address, nftables.TypeInetService)
	}
	elements := b.elements[:0]
	known := make(map[netip.AddrPort][]byte) // there are far fewer servers than slots
	for slot, server := range c.slots.Slots {
		if !c.own(slot) {
			continue
		}
		to, has := known[server]
		if !has {
			to = server.Addr().AsSlice()
			if !c.onePort {
				to = append(to, byte(server.Port()>>8), byte(server.Port()), 0, 0)
			}
			known[server] = to
		}
		elements = append(elements, nftables.SetElement{Key: b.number(slot), Val: to})
	}
	b.elements = elements
	m := b.indexed(len(elements), data)
	return m, nft.AddSet(b.c, m, elements)
}

// key puts addresses of the header side by side, then the protocol and a port.
func (b *builder) key(port uint32, addresses ...uint32) []expr.Any {
	return b.keyAt(reg32, port, addresses...)
}

func (b *builder) keyAt(at, port uint32, addresses ...uint32) (out []expr.Any) {
	for _, offset := range addresses {
		out = append(out, &expr.Payload{DestRegister: at, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: b.family.address.Bytes})
		at += b.family.address.Bytes / 4
	}
	return append(out, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: at},
		&expr.Payload{DestRegister: at + 1, Base: expr.PayloadBaseTransportHeader, Offset: port, Len: 2})
}

// lookup matches a key that is in the set, verdict does what a map says of it.
func (b *builder) lookup(number int) []expr.Any {
	s := b.family.set(number)
	return []expr.Any{&expr.Lookup{SourceRegister: reg32, SetName: s.Name, SetID: s.ID}}
}

// value puts what a map says of a key into the registers.
func (b *builder) value(number int) []expr.Any {
	s := b.family.set(number)
	return []expr.Any{&expr.Lookup{SourceRegister: reg32, DestRegister: nft.Reg, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

func (b *builder) verdict(number int) []expr.Any {
	s := b.family.set(number)
	return []expr.Any{&expr.Lookup{SourceRegister: reg32, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

// from matches a source of the prefix.
func (b *builder) from(p netip.Prefix) []expr.Any {
	length := b.family.address.Bytes
	return []expr.Any{
		nft.Load(expr.PayloadBaseNetworkHeader, b.family.source, length),
		&expr.Bitwise{SourceRegister: nft.Reg, DestRegister: nft.Reg, Len: length, Mask: net.CIDRMask(p.Bits(), int(length)*8), Xor: make([]byte, length)},
		nft.Equals(p.Masked().Addr().AsSlice()),
	}
}

// justFIN matches the last segment of a connection that was not reset.
func justFIN() []expr.Any {
	return []expr.Any{
		nft.Load(expr.PayloadBaseTransportHeader, tcpFlags, 1),
		&expr.Bitwise{SourceRegister: nft.Reg, DestRegister: nft.Reg, Len: 1, Mask: []byte{fin | rst}, Xor: []byte{0}},
		nft.Equals([]byte{fin}),
	}
}

// reset answers with a TCP reset.
func reset() []expr.Any { return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}} }
