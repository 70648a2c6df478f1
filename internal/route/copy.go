package route

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/nft"
)

// TableName is the name of the table in the families ip and ip6.
const TableName = "lbd-route"

// answerTimeout bounds one exchange with nf_tables.
const answerTimeout = 5 * time.Second

// A change of a table is followed by none for copyPause, or for copyShare times as long as it took: with a
// hundred next hops it takes the kernel ten times as long as that of the route itself, and many may come at once.
const (
	copyPause = 250 * time.Millisecond
	copyShare = 20
)

// last is the priority of the rules: what a firewall drops is not copied.
const last = 300

// family is what the rules of IPv4 and of IPv6 differ in.
type family struct {
	table       *nftables.Table
	is4         bool
	protocol    byte   // that of ICMP
	tooBig      []byte // type and code: RFC 1191, RFC 8201
	destination uint32 // offset of the address in the header
	ttl         uint32 // offset of the TTL, or hop limit
	checksum    expr.PayloadCsumType
}

var families = [...]family{
	{
		table: &nftables.Table{Name: TableName, Family: nftables.TableFamilyIPv4}, is4: true, protocol: unix.IPPROTO_ICMP,
		tooBig: []byte{3, 4}, destination: 16, ttl: 8, checksum: expr.CsumTypeInet,
	},
	{
		table: &nftables.Table{Name: TableName, Family: nftables.TableFamilyIPv6}, protocol: unix.IPPROTO_ICMPV6,
		tooBig: []byte{2}, destination: 24, ttl: 7, checksum: expr.CsumTypeNone,
	},
}

// ip4Checksum is the offset of the checksum of an IPv4 header.
const ip4Checksum = 10

// regDev is the register for the interface of a copy.
const regDev = 2

// copier has the kernel copy messages to all next hops. Without it they go where the kernel
// sends them.
type copier struct {
	session *nft.Session
	is      [len(families)][]audience // what the tables in the kernel are for, if known
	known   bool                      // what tables there are; not those of an earlier process
	unable  bool                      // the kernel cannot
	changed atomic.Bool               // somebody else has changed a table
	next    time.Time                 // no change before
	waits   bool                      // for that, with a change
}

// copies makes the tables those for what is in the image, now or a moment later.
func (p *pass) copies() {
	c := &p.copier
	if c.unable {
		return
	}
	rest := time.Until(c.next)
	if rest > 0 && !c.waits {
		time.AfterFunc(rest, p.alarm)
	}
	if c.waits = rest > 0; c.waits {
		return
	}
	err := c.bring(p.image.ways(), p.alarm)
	if err != nil && (nft.Impossible(err) || errors.Is(err, unix.ENOENT)) { // a part that is missing does not exist
		p.log.Warn("the kernel cannot copy messages to all next hops: those about packets that are too big reach one of them", "err", err)
		c.unable, err = true, c.session.Close()
	}
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("copies for next hops: %w", err))
	}
}

// bring makes the tables those for the ways; lost is called when somebody else changes one.
func (c *copier) bring(ways map[netip.Prefix][]target, lost func()) error {
	if c.changed.Swap(false) {
		c.known = false
	}
	var errs []error
	some := false
	for i := range families {
		want := audiences(ways, families[i].is4)
		some = some || len(want) > 0
		errs = append(errs, c.table(&families[i], c.is[i], want))
		c.is[i] = want
	}
	err := errors.Join(errs...)
	c.known = err == nil
	if !some {
		return errors.Join(err, c.session.Close())
	}
	// What goes unheard is noticed with the next look.
	_ = c.session.Watch(func() { c.changed.Store(true); lost() }, families[0].table, families[1].table)
	return err
}

// table makes the table of a family that for the audiences.
func (c *copier) table(f *family, is, want []audience) error {
	if len(want) == 0 {
		if c.known && len(is) == 0 {
			return nil
		}
		// Where there is no nf_tables, or no right to use it, there is nothing to delete.
		if err := c.session.Remove(f.table); !nft.Impossible(err) {
			return err
		}
		return nil
	}
	// A question first: to a transaction a kernel without nf_tables gives fewer answers
	// than the library waits for.
	there, err := c.session.Exists(f.table)
	if err != nil || there && c.known && slices.EqualFunc(is, want, audience.equal) {
		return err
	}
	begin := time.Now()
	err = c.session.Transact(func(n *nftables.Conn) error {
		f.install(n, there, want)
		return nil
	})
	c.next = time.Now().Add(max(copyPause, copyShare*time.Since(begin)))
	return err
}

// install fills a transaction that makes the table, in place of an old one.
func (f *family) install(c *nftables.Conn, old bool, want []audience) {
	if old {
		c.AddTable(f.table) // so that deleting it succeeds
		c.DelTable(f.table)
	}
	c.AddTable(f.table)
	rule := func(chain *nftables.Chain, parts ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: f.table, Chain: chain, Exprs: slices.Concat(parts...)})
	}
	which := c.AddChain(&nftables.Chain{Name: "which", Table: f.table})
	// The machine itself is the router if its own link to the clients is the narrow one. The kernel then
	// chooses by the packet that was too big, but another box may have placed the connection otherwise.
	for name, hook := range map[string]*nftables.ChainHook{"forward": nftables.ChainHookForward, "output": nftables.ChainHookOutput} {
		base := c.AddChain(&nftables.Chain{
			Name: name, Table: f.table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityRef(last),
		})
		rule(base, nft.IsProtocol(f.protocol), f.isTooBig(), f.mayBeCopied(), nft.Goto(which))
	}
	for i := range want {
		a := &want[i]
		to := c.AddChain(&nftables.Chain{Name: fmt.Sprintf("to%d", i), Table: f.table})
		for _, prefix := range a.prefixes {
			rule(which, f.isFor(prefix), nft.Goto(to))
		}
		rule(to, []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: a.rate, Unit: expr.LimitTimeSecond, Burst: uint32(a.rate), Over: true}},
			[]expr.Any{&expr.Counter{}}, nft.Accept())
		rule(to, f.setTTL(), []expr.Any{&expr.Counter{}})
		for _, h := range a.hops {
			rule(to, copyTo(h))
		}
		rule(to, nft.Drop())
	}
}

func (f *family) isTooBig() []expr.Any {
	return []expr.Any{nft.Load(expr.PayloadBaseTransportHeader, 0, uint32(len(f.tooBig))), nft.Equals(f.tooBig)}
}

// mayBeCopied matches what has more of a TTL than a copy.
func (f *family) mayBeCopied() []expr.Any {
	return []expr.Any{
		nft.Load(expr.PayloadBaseNetworkHeader, f.ttl, 1),
		&expr.Cmp{Op: expr.CmpOpGt, Register: nft.Reg, Data: []byte{copyTTL}},
	}
}

// isFor matches an address of the prefix.
func (f *family) isFor(prefix netip.Prefix) []expr.Any {
	size := uint32(prefix.Addr().BitLen() / 8)
	return []expr.Any{
		nft.Load(expr.PayloadBaseNetworkHeader, f.destination, size),
		&expr.Bitwise{
			SourceRegister: nft.Reg, DestRegister: nft.Reg, Len: size,
			Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen()), Xor: make([]byte, size),
		},
		nft.Equals(prefix.Addr().AsSlice()),
	}
}

// setTTL gives the message that of a copy. It writes 16 bits, in which the checksum counts.
func (f *family) setTTL() []expr.Any {
	word, keep := []byte{0, 0}, []byte{0xff, 0xff}
	word[f.ttl%2], keep[f.ttl%2] = copyTTL, 0
	return []expr.Any{
		nft.Load(expr.PayloadBaseNetworkHeader, f.ttl&^1, 2),
		&expr.Bitwise{SourceRegister: nft.Reg, DestRegister: nft.Reg, Len: 2, Mask: keep, Xor: word},
		&expr.Payload{
			OperationType: expr.PayloadWrite, SourceRegister: nft.Reg, Base: expr.PayloadBaseNetworkHeader, Offset: f.ttl &^ 1, Len: 2,
			CsumType: f.checksum, CsumOffset: ip4Checksum,
		},
	}
}

// copyTo sends a copy to a next hop.
func copyTo(t target) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: nft.Reg, Data: t.gateway.AsSlice()},
		&expr.Immediate{Register: regDev, Data: binaryutil.NativeEndian.PutUint32(uint32(t.index))},
		&expr.Dup{RegAddr: nft.Reg, RegDev: regDev, IsRegDevSet: true},
	}
}
