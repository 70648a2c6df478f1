package silence

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/nft"
)

// Rules are the rules of one family in the kernel, with the set of what is silent.
type Rules interface {
	// Silent lists what is silent now, whoever made it so. No table is no error.
	Silent() ([]netip.Addr, error)
	// Install makes the whole table anew; want.Until does not matter.
	Install(want Want) error
	// Change puts addresses into the set of a table that is there, after it has emptied
	// it with flush. The error is unix.ENOENT if there is no table.
	Change(flush bool, add []netip.Addr) error
	// Verify is nil if as many addresses are silent as that.
	Verify(want int) error
	// Remove deletes the table. That it was not there is a success.
	Remove() error
	// Watch calls lost, on a goroutine of its own, when somebody else has changed the
	// table, until Unwatch or Close.
	Watch(lost func()) error
	Unwatch()
	Close() error
}

// netfilter is nftables of the kernel that lbd runs on.
type netfilter struct {
	family   Family
	lifetime time.Duration
	session  *nft.Session
}

// Netfilter are the rules of a family, with a lifetime of what is silent, in nftables.
func Netfilter(f Family, lifetime time.Duration) Rules {
	return &netfilter{f, lifetime, nft.New(answerTimeout)}
}

func (f Family) table() *nftables.Table {
	if f == ND {
		return &nftables.Table{Name: TableName, Family: nftables.TableFamilyIPv6}
	}
	return &nftables.Table{Name: TableName, Family: nftables.TableFamilyARP}
}

func (n *netfilter) set() *nftables.Set      { return set(n.family, n.lifetime) }
func (n *netfilter) Verify(want int) error   { return n.session.Verify(n.set(), want) }
func (n *netfilter) Remove() error           { return n.session.Remove(n.family.table()) }
func (n *netfilter) Watch(lost func()) error { return n.session.Watch(lost, n.family.table()) }
func (n *netfilter) Unwatch()                { n.session.Unwatch() }
func (n *netfilter) Close() error            { return n.session.Close() }

func (n *netfilter) Install(want Want) error {
	// A question first: to a transaction a kernel without nf_tables gives fewer
	// answers than the library waits for.
	if _, err := n.session.Exists(n.family.table()); err != nil {
		return err
	}
	return n.session.Transact(func(c *nftables.Conn) error { return replace(c, n.family, n.lifetime, want) })
}

func (n *netfilter) Change(flush bool, add []netip.Addr) error {
	s := n.set()
	return n.session.Transact(func(c *nftables.Conn) error {
		if flush {
			c.FlushSet(s)
		}
		return nft.AddElements(c, s, elements(s, add))
	})
}

func (n *netfilter) Silent() ([]netip.Addr, error) {
	there, err := n.session.Exists(n.family.table())
	if err != nil || !there {
		return nil, err
	}
	var elements []nftables.SetElement
	err = n.session.Do(func(c *nftables.Conn) (err error) {
		elements, err = c.GetSetElements(n.set())
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list what is silent: %w", err)
	}
	var out []netip.Addr
	for _, e := range elements {
		if a, ok := netip.AddrFromSlice(e.Key); ok {
			out = append(out, a)
		}
	}
	return out, nil
}

// Hooks of the arp family (linux/netfilter_arp.h); the library only names those
// of IP.
const (
	arpHookIn  nftables.ChainHook = 0
	arpHookOut nftables.ChainHook = 1
)

// Offsets in an ARP packet for IPv4 over Ethernet (RFC 826).
const (
	arpOp  = 6
	arpSPA = 14
	arpTPA = 24

	arpRequest = 1
	arpReply   = 2
)

// Offsets and types of neighbour discovery (RFC 4861), and where its ICMPv6
// checksum lies in an IPv6 packet without extension headers.
const (
	icmpType   = 0
	icmpTarget = 8

	solicitation  = 135
	advertisement = 136

	ip6Source    = 8
	icmpChecksum = 40 + 2
)

const setName = "silent"

// set describes the set of silent addresses. Its ID only has to be unique within
// one transaction.
func set(f Family, lifetime time.Duration) *nftables.Set {
	s := &nftables.Set{
		Table: f.table(), ID: 1, Name: setName,
		KeyType: nftables.TypeIPAddr, HasTimeout: true, Timeout: lifetime,
	}
	if f == ND {
		s.KeyType = nftables.TypeIP6Addr
	}
	return s
}

func elements(s *nftables.Set, addrs []netip.Addr) []nftables.SetElement {
	out := make([]nftables.SetElement, len(addrs))
	for i, a := range addrs {
		out[i] = nftables.SetElement{Key: a.AsSlice(), Timeout: s.Timeout}
	}
	return out
}

// replace fills a transaction that makes the whole table anew.
func replace(c *nftables.Conn, f Family, lifetime time.Duration, want Want) error {
	t := f.table()
	c.AddTable(t) // so that deleting it succeeds
	c.DelTable(t)
	c.AddTable(t)
	s := set(f, lifetime)
	if err := nft.AddSet(c, s, elements(s, want.Addrs)); err != nil {
		return err
	}
	hookIn, hookOut := nftables.ChainHookInput, nftables.ChainHookOutput
	if f == ARP {
		hookIn, hookOut = nftables.ChainHookRef(arpHookIn), nftables.ChainHookRef(arpHookOut)
	}
	in := c.AddChain(&nftables.Chain{Name: "in", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: hookIn, Priority: nftables.ChainPriorityFilter})
	out := c.AddChain(&nftables.Chain{Name: "out", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: hookOut, Priority: nftables.ChainPriorityFilter})
	rule := func(chain *nftables.Chain, parts ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: slices.Concat(parts...)})
	}
	if f == ARP {
		arpRules(rule, in, out, s, want.Speakers)
	} else {
		ndRules(rule, in, out, s, want.Speakers)
	}
	return nil
}

type addRule func(chain *nftables.Chain, parts ...[]expr.Any)

// arpRules: no request for a silent address reaches the kernel, no reply with
// one leaves it, and its own requests are asked by the speakers.
func arpRules(rule addRule, in, out *nftables.Chain, s *nftables.Set, speakers []Speaker) {
	request, reply := network(arpOp, []byte{0, arpRequest}), network(arpOp, []byte{0, arpReply})
	rule(in, request, silent(s, expr.PayloadBaseNetworkHeader, arpTPA), nft.Drop())
	rule(out, reply, silent(s, expr.PayloadBaseNetworkHeader, arpSPA), nft.Drop())
	for _, sp := range speakers {
		rule(out, outOn(sp.Interface), request, silent(s, expr.PayloadBaseNetworkHeader, arpSPA),
			within(sp.Subnet), write(sp.Addr, arpSPA, false))
	}
}

// ndRules do the same for solicitations and advertisements.
func ndRules(rule addRule, in, out *nftables.Chain, s *nftables.Set, speakers []Speaker) {
	rule(in, icmp(solicitation), silent(s, expr.PayloadBaseTransportHeader, icmpTarget), nft.Drop())
	rule(out, icmp(advertisement), silent(s, expr.PayloadBaseTransportHeader, icmpTarget), nft.Drop())
	for _, sp := range speakers {
		then := write(sp.Addr, ip6Source, true)
		if sp.Addr.IsUnspecified() {
			then = nft.Drop()
		}
		rule(out, outOn(sp.Interface), icmp(solicitation), silent(s, expr.PayloadBaseNetworkHeader, ip6Source), then)
	}
}

// network matches bytes behind the start of the network header.
func network(offset uint32, data []byte) []expr.Any {
	return []expr.Any{nft.Load(expr.PayloadBaseNetworkHeader, offset, uint32(len(data))), nft.Equals(data)}
}

// icmp matches the type of an ICMPv6 message.
func icmp(kind byte) []expr.Any {
	return append(nft.IsProtocol(unix.IPPROTO_ICMPV6), nft.Load(expr.PayloadBaseTransportHeader, icmpType, 1), nft.Equals([]byte{kind}))
}

// silent matches an address of the set.
func silent(s *nftables.Set, base expr.PayloadBase, offset uint32) []expr.Any {
	return []expr.Any{
		nft.Load(base, offset, s.KeyType.Bytes),
		&expr.Lookup{SourceRegister: nft.Reg, SetName: s.Name, SetID: s.ID},
	}
}

// outOn matches the interface by name, which outlives its index.
func outOn(name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: nft.Reg}, nft.Equals(padded)}
}

// within matches a request for an address of the subnet; an invalid one matches
// all.
func within(p netip.Prefix) []expr.Any {
	if !p.IsValid() {
		return nil
	}
	p = p.Masked()
	mask := make([]byte, 4)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		nft.Load(expr.PayloadBaseNetworkHeader, arpTPA, 4),
		&expr.Bitwise{SourceRegister: nft.Reg, DestRegister: nft.Reg, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		nft.Equals(p.Addr().AsSlice()),
	}
}

// write replaces an address in the network header. For IPv6 it also mends the
// ICMPv6 checksum, which covers the source: as the one's complement sum does not
// depend on where the words stand, the kernel's update for an IP checksum field
// does it when pointed at the ICMPv6 one. (The library cannot ask for the pseudo
// header update without a checksum type.)
func write(a netip.Addr, offset uint32, mend bool) []expr.Any {
	p := &expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: nft.Reg,
		Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(a.BitLen() / 8),
	}
	if mend {
		p.CsumType, p.CsumOffset = expr.CsumTypeInet, icmpChecksum
	}
	return []expr.Any{&expr.Immediate{Register: nft.Reg, Data: a.AsSlice()}, p}
}
