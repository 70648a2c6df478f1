package relay

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// priority comes before connection tracking (-200), so that what is relayed
// leaves no entry there.
const priority = -310

// Where a header has what the rules look at.
const (
	ip4Destination = 16
	ip6Destination = 24
	tcpFlags       = 13
	etherSource    = 6

	syn = 0x02
	ack = 0x10
)

// More packets than this in a second are left to the own stack: a flood of
// strays is answered by resets and does not reach the other node.
const (
	relayRate  = 20000
	relayBurst = 5000
)

// Registers: one for all matches, and the second operand of dup.
const (
	reg    = 1
	regDev = 2
)

// vips describes the set of the VIPs of the flow with number n. Its ID only has
// to be unique within one transaction.
func vips(f family, n int, lifetime time.Duration) *nftables.Set {
	s := &nftables.Set{
		Table: f.table(), ID: uint32(2*n + 1), Name: fmt.Sprintf("vips%d", n),
		KeyType: nftables.TypeIPAddr, HasTimeout: true, Timeout: lifetime,
	}
	if f == v6 {
		s.KeyType = nftables.TypeIP6Addr
	}
	return s
}

func (g flow) elements(lifetime time.Duration) []nftables.SetElement {
	out := make([]nftables.SetElement, len(g.addrs))
	for i, a := range g.addrs {
		out[i] = nftables.SetElement{Key: a.AsSlice(), Timeout: lifetime}
	}
	return out
}

// refresh fills a transaction that gives the sets of a table that is there their
// VIPs, with a whole lifetime. Only newer kernels can prolong an element.
func refresh(c *nftables.Conn, f family, flows []flow, lifetime time.Duration) error {
	for n, g := range flows {
		s := vips(f, n, lifetime)
		c.FlushSet(s)
		if err := c.SetAddElements(s, g.elements(lifetime)); err != nil {
			return err
		}
	}
	return nil
}

// install fills a transaction that makes the whole table, in place of an old one.
func install(c *nftables.Conn, f family, old bool, flows []flow, lifetime time.Duration) error {
	t := f.table()
	if old {
		c.AddTable(t) // so that deleting it succeeds
		c.DelTable(t)
	}
	c.AddTable(t)
	policy := nftables.ChainPolicyAccept
	in := c.AddChain(&nftables.Chain{Name: "prerouting", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRef(priority), Policy: &policy})
	for n, g := range flows {
		if err := addFlow(c, f, in, n, g, lifetime); err != nil {
			return err
		}
	}
	return nil
}

// addFlow adds the sets, chains and rules of one flow.
func addFlow(c *nftables.Conn, f family, in *nftables.Chain, n int, g flow, lifetime time.Duration) error {
	t := f.table()
	addrs := vips(f, n, lifetime)
	if err := c.AddSet(addrs, g.elements(lifetime)); err != nil {
		return err
	}
	peers := &nftables.Set{Table: t, ID: uint32(2*n + 2), Name: fmt.Sprintf("peers%d", n), KeyType: nftables.TypeEtherAddr}
	macs := make([]nftables.SetElement, len(g.peers))
	for i, m := range g.peers {
		macs[i] = nftables.SetElement{Key: m[:]}
	}
	if err := c.AddSet(peers, macs); err != nil {
		return err
	}
	chain := func(name string) *nftables.Chain {
		return c.AddChain(&nftables.Chain{Name: fmt.Sprintf("%s%d", name, n), Table: t})
	}
	place, stray, relay := chain("place"), chain("stray"), chain("relay")
	rule := func(chain *nftables.Chain, parts ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: slices.Concat(parts...)})
	}

	// A SYN opens a new connection, which is ours. A fragment but the first has no
	// flags to look at and is left alone.
	rule(in, inOn(g.iface), destination(f, addrs), isTCP(), notOnlySYN(), jump(place))
	// Only a listener matches, whatever the packet belongs to.
	rule(place, []expr.Any{&expr.Socket{Key: expr.SocketKeyWildcard, Register: reg}, equals([]byte{1})}, jump(stray))
	// Another socket, transparent or not: established, half open, TIME-WAIT.
	for _, transparent := range []byte{0, 1} {
		rule(place, []expr.Any{&expr.Socket{Key: expr.SocketKeyTransparent, Register: reg}, equals([]byte{transparent})}, accept())
	}
	rule(place, jump(stray))
	// What a member has relayed is never relayed again. The match is positive: if
	// the source cannot be read the packet is not relayed.
	rule(stray, fromStranger(peers), jump(relay))
	rule(relay, []expr.Any{&expr.Limit{
		Type: expr.LimitTypePkts, Rate: relayRate, Unit: expr.LimitTimeSecond, Burst: relayBurst, Over: true,
	}}, accept())
	rule(relay, dup(g), []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
	return nil
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// jump goes to a chain; at its end the packet is accepted.
func jump(to *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: to.Name}}
}

func equals(data []byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: data}
}

func load(base expr.PayloadBase, offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: base, Offset: offset, Len: length}
}

// inOn matches the interface by name.
func inOn(name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg}, equals(padded)}
}

func destination(f family, s *nftables.Set) []expr.Any {
	offset := uint32(ip4Destination)
	if f == v6 {
		offset = ip6Destination
	}
	return []expr.Any{
		load(expr.PayloadBaseNetworkHeader, offset, s.KeyType.Bytes),
		&expr.Lookup{SourceRegister: reg, SetName: s.Name, SetID: s.ID},
	}
}

func isTCP() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg}, equals([]byte{unix.IPPROTO_TCP})}
}

// notOnlySYN matches every segment but the first of a connection.
func notOnlySYN() []expr.Any {
	return []expr.Any{
		load(expr.PayloadBaseTransportHeader, tcpFlags, 1),
		&expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: 1, Mask: []byte{syn | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: []byte{syn}},
	}
}

// fromStranger matches a frame whose source is none of the set.
func fromStranger(s *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: reg},
		equals(binaryutil.NativeEndian.PutUint16(unix.ARPHRD_ETHER)),
		load(expr.PayloadBaseLLHeader, etherSource, s.KeyType.Bytes),
		&expr.Lookup{SourceRegister: reg, SetName: s.Name, SetID: s.ID, Invert: true},
	}
}

// dup sends a copy to the other node.
func dup(g flow) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: reg, Data: g.to.AsSlice()},
		&expr.Immediate{Register: regDev, Data: binaryutil.NativeEndian.PutUint32(g.index)},
		&expr.Dup{RegAddr: reg, RegDev: regDev, IsRegDevSet: true},
	}
}
