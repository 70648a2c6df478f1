package nft

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// Packet is what is known of the packets that a firewall is to let through.
type Packet struct {
	Family   nftables.TableFamily // IPv4 or IPv6
	Protocol byte                 // of the IP header
	// State is expr.CtStateBitUNTRACKED, or CtStateBitNEW of a connection whose destination is
	// translated.
	State uint32
	// In and Out are the names of the interfaces; "": not known. Nothing goes out by lo.
	In, Out string
}

// Droppers finds, for each of the packets, the first base chain at one of the hooks that drops
// all such packets, by a rule or by its policy; "" if there is none. It follows what it can
// tell: matches of the connection state, of the protocol and of interfaces, in the words of nft
// and of iptables-nft. A rule that may accept, such as one for some ports or addresses, is given
// the benefit of the doubt, and everything after it. Tables with the name own are passed over,
// those of iptables-legacy are not seen.
func Droppers(c *nftables.Conn, own string, packets []Packet, hooks ...*nftables.ChainHook) (found []string, err error) {
	found = make([]string, len(packets))
	chains, err := c.ListChains()
	if err != nil {
		return found, fmt.Errorf("list chains: %w", err)
	}
	for _, chain := range chains {
		at := func(h *nftables.ChainHook) bool { return *h == *chain.Hooknum }
		if chain.Hooknum == nil || !slices.ContainsFunc(hooks, at) || chain.Type == nftables.ChainTypeNAT || chain.Table.Name == own {
			continue // those that translate let pass what they do not
		}
		for i := range packets {
			p := &packets[i]
			if found[i] != "" || chain.Table.Family != nftables.TableFamilyINet && chain.Table.Family != p.Family {
				continue
			}
			drops, err := (&walk{c: c, p: p, chains: chains}).certain(chain)
			if err != nil {
				return found, err
			}
			if drops {
				found[i] = fmt.Sprintf("chain %s of table %s %s", chain.Name, tableFamily(chain.Table.Family), chain.Table.Name)
			}
		}
	}
	return found, nil
}

func tableFamily(t nftables.TableFamily) string {
	switch t {
	case nftables.TableFamilyINet:
		return "inet"
	case nftables.TableFamilyIPv6:
		return "ip6"
	}
	return "ip"
}

// verdict is what becomes of a packet in a chain.
type verdict uint8

const (
	falls   verdict = iota // through its end
	returns                // out of a chain that was jumped to
	accepts
	drops
)

// truth is what is known of a match.
type truth uint8

const (
	no truth = iota
	maybe
	yes
)

// mostJumps bounds how deep chains are followed; the kernel allows 16.
const mostJumps = 16

// walk follows a packet through the rules of a table.
type walk struct {
	c      *nftables.Conn
	p      *Packet
	chains []*nftables.Chain
	depth  int
	// doubt: some rule may have accepted it.
	doubt bool
}

// certain tells whether each such packet ends in the base chain.
func (w *walk) certain(base *nftables.Chain) (bool, error) {
	v, err := w.chain(base)
	policy := base.Policy != nil && *base.Policy == nftables.ChainPolicyDrop
	return !w.doubt && (v == drops || (v == falls || v == returns) && policy), err
}

func (w *walk) chain(c *nftables.Chain) (verdict, error) {
	if w.depth++; w.depth > mostJumps {
		w.doubt = true
		return falls, nil
	}
	defer func() { w.depth-- }()
	rules, err := w.c.GetRules(c.Table, c)
	if err != nil {
		return falls, fmt.Errorf("list rules of chain %s: %w", c.Name, err)
	}
	for _, r := range rules {
		v, err := w.rule(c.Table, r)
		if err != nil || v != falls {
			return v, err
		}
	}
	return falls, nil
}

// rule is what a rule does for certain; falls if that is nothing.
func (w *walk) rule(t *nftables.Table, r *nftables.Rule) (verdict, error) {
	m := match{w: w, table: t, known: make(map[uint32][]byte), is: yes}
	for _, e := range r.Exprs {
		if err := m.take(e); err != nil || m.is == no {
			return falls, err
		}
		if m.then != nil {
			break
		}
	}
	if m.then == nil {
		return falls, nil
	}
	return w.act(t, m.then, m.is)
}

// act is what a verdict does if its rule matches, perhaps.
func (w *walk) act(t *nftables.Table, v *expr.Verdict, is truth) (verdict, error) {
	end := map[expr.VerdictKind]verdict{expr.VerdictAccept: accepts, expr.VerdictDrop: drops, expr.VerdictReturn: returns}
	switch v.Kind {
	case expr.VerdictAccept, expr.VerdictDrop, expr.VerdictReturn:
		if is == yes {
			return end[v.Kind], nil
		}
		w.doubt = w.doubt || v.Kind != expr.VerdictDrop
		return falls, nil
	case expr.VerdictJump, expr.VerdictGoto:
		for _, c := range w.chains {
			if c.Name != v.Chain || c.Table.Name != t.Name || c.Table.Family != t.Family {
				continue
			}
			got, err := w.chain(c)
			switch {
			case err != nil:
			case is != yes: // what it drops may go another way
				w.doubt = w.doubt || got == accepts || v.Kind == expr.VerdictGoto && got != drops
				return falls, nil
			case got == returns && v.Kind == expr.VerdictJump:
				return falls, nil
			case got == falls && v.Kind == expr.VerdictGoto:
				return returns, nil
			}
			return got, err
		}
	case expr.VerdictContinue:
		return falls, nil
	}
	w.doubt = true // a queue, or something newer
	return falls, nil
}

// match follows the expressions of one rule.
type match struct {
	w     *walk
	table *nftables.Table
	known map[uint32][]byte // registers; what is missing is not known
	is    truth
	then  *expr.Verdict
}

// Where headers have the protocol.
const (
	ip4Protocol = 9
	ip6NextHead = 6
)

func (m *match) take(e expr.Any) error {
	switch e := e.(type) {
	case *expr.Ct:
		switch {
		case e.Key == expr.CtKeySTATE && !e.SourceRegister:
			m.known[e.Register] = binaryutil.NativeEndian.PutUint32(m.w.p.State)
		case m.w.p.State == expr.CtStateBitUNTRACKED:
			m.is = no // it has none of that
		case !e.SourceRegister:
			delete(m.known, e.Register)
		}
	case *expr.Meta:
		m.load(e.Register, m.meta(e.Key))
	case *expr.Payload:
		m.load(e.DestRegister, m.payload(e))
	case *expr.Bitwise:
		m.load(e.DestRegister, bitwise(m.known[e.SourceRegister], e))
	case *expr.Cmp:
		m.compare(e)
	case *expr.Lookup:
		return m.lookup(e)
	case *expr.Match:
		m.and(m.w.p.conntrack(e))
	case *expr.Verdict:
		m.then = e
	case *expr.Reject:
		m.then = &expr.Verdict{Kind: expr.VerdictDrop}
	case *expr.Queue:
		m.then = &expr.Verdict{Kind: expr.VerdictQueue}
	case *expr.Target:
		m.target(e)
	case *expr.Counter, *expr.Log, *expr.Notrack, *expr.Immediate, *expr.Dup:
	default:
		m.and(maybe)
	}
	return nil
}

func (m *match) and(t truth) { m.is = min(m.is, t) }

func (m *match) load(register uint32, value []byte) {
	if delete(m.known, register); value != nil {
		m.known[register] = value
	}
}

// target is an extension of iptables that decides or has a side effect.
func (m *match) target(t *expr.Target) {
	switch t.Name {
	case "REJECT":
		m.then = &expr.Verdict{Kind: expr.VerdictDrop}
	case "NFQUEUE":
		m.then = &expr.Verdict{Kind: expr.VerdictQueue}
	case "LOG", "NFLOG", "MARK", "CT", "CONNMARK", "TRACE":
	default:
		m.and(maybe)
	}
}

// meta is what is known of the packet besides its headers.
func (m *match) meta(k expr.MetaKey) []byte {
	switch k {
	case expr.MetaKeyL4PROTO:
		return []byte{m.w.p.Protocol}
	case expr.MetaKeyNFPROTO:
		return []byte{byte(m.w.p.Family)}
	case expr.MetaKeyIIFNAME:
		return interfaceName(m.w.p.In)
	case expr.MetaKeyOIFNAME:
		if name := interfaceName(m.w.p.Out); name != nil {
			return name
		}
		return elsewhere
	}
	return nil
}

// interfaceName is a name as rules compare it, nil for none.
func interfaceName(name string) []byte {
	if name == "" {
		return nil
	}
	out := make([]byte, unix.IFNAMSIZ)
	copy(out[:unix.IFNAMSIZ-1], name)
	return out
}

// elsewhere stands for the name of an interface that is not lo.
var elsewhere = []byte("not lo")

func (m *match) payload(p *expr.Payload) []byte {
	at := uint32(ip4Protocol)
	if m.w.p.Family == nftables.TableFamilyIPv6 {
		at = ip6NextHead
	}
	if p.OperationType == expr.PayloadLoad && p.Base == expr.PayloadBaseNetworkHeader && p.Offset == at && p.Len == 1 {
		return []byte{m.w.p.Protocol}
	}
	return nil
}

func bitwise(value []byte, b *expr.Bitwise) []byte {
	if len(value) == 0 || len(b.Mask) != len(value) || len(b.Xor) != len(value) {
		return nil
	}
	out := make([]byte, len(value))
	for i := range value {
		out[i] = value[i]&b.Mask[i] ^ b.Xor[i]
	}
	return out
}

func (m *match) compare(c *expr.Cmp) {
	value := m.known[c.Register]
	same := bytes.HasPrefix(value, c.Data) // shorter where a rule names interfaces by their begin
	switch {
	case value == nil || len(value) > 0 && &value[0] == &elsewhere[0]:
		lo := value != nil && bytes.HasPrefix(c.Data, []byte("lo\x00")) && c.Op == expr.CmpOpEq
		m.and(map[bool]truth{true: no, false: maybe}[lo])
	case c.Op == expr.CmpOpEq && !same, c.Op == expr.CmpOpNeq && same:
		m.is = no
	case c.Op != expr.CmpOpEq && c.Op != expr.CmpOpNeq:
		m.and(maybe)
	}
}

// lookup is a member of a set, or a map with a verdict for each.
func (m *match) lookup(l *expr.Lookup) error {
	value := m.known[l.SourceRegister]
	if value != nil && &value[0] == &elsewhere[0] {
		value = nil
	}
	s, err := m.w.c.GetSetByName(m.table, l.SetName)
	if err != nil {
		return fmt.Errorf("set %s: %w", l.SetName, err)
	}
	elements, err := m.w.c.GetSetElements(s)
	if err != nil {
		return fmt.Errorf("elements of set %s: %w", l.SetName, err)
	}
	if value == nil || s.Interval || s.Concatenation {
		m.and(maybe)
		for i := range elements { // any of them may be the one
			if v := verdictOf(l, &elements[i]); v != nil {
				if _, err := m.w.act(m.table, v, maybe); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for i := range elements {
		if bytes.Equal(elements[i].Key, value) {
			m.then = verdictOf(l, &elements[i])
			if l.Invert {
				m.is = no
			}
			return nil
		}
	}
	if !l.Invert {
		m.is = no
	}
	return nil
}

// verdictOf is that of an element of a map, nil in a set. The library leaves it as the
// kernel encodes it: attributes (NFTA_VERDICT_CODE, NFTA_VERDICT_CHAIN).
func verdictOf(l *expr.Lookup, e *nftables.SetElement) *expr.Verdict {
	const header, align = 4, 4
	if !l.IsDestRegSet {
		return nil
	}
	v := &expr.Verdict{Kind: expr.VerdictContinue}
	for b := e.Val; len(b) >= header; {
		size := int(binaryutil.NativeEndian.Uint16(b))
		if size < header || size > len(b) {
			break
		}
		switch value := b[header:size]; binaryutil.NativeEndian.Uint16(b[2:]) {
		case unix.NFTA_VERDICT_CODE:
			v.Kind = expr.VerdictKind(int32(binaryutil.BigEndian.Uint32(value)))
		case unix.NFTA_VERDICT_CHAIN:
			v.Chain = string(bytes.TrimRight(value, "\x00"))
		}
		b = b[min((size+align-1)/align*align, len(b)):]
	}
	return v
}

// What iptables calls the states (include/uapi/linux/netfilter/xt_conntrack.h).
const (
	xtNew        = 1 << 3
	xtTranslated = 1 << 7 // of its destination
	xtUntracked  = 1 << 8
	xtMatchState = 1
)

// conntrack is what is known of an extension of iptables that matches.
func (p *Packet) conntrack(e *expr.Match) truth {
	var base xt.ConntrackMtinfoBase
	var mask uint16
	switch i := e.Info.(type) {
	case *xt.ConntrackMtinfo1:
		base, mask = i.ConntrackMtinfoBase, uint16(i.StateMask)
	case *xt.ConntrackMtinfo2:
		base, mask = i.ConntrackMtinfoBase, i.StateMask
	case *xt.ConntrackMtinfo3:
		base, mask = i.ConntrackMtinfoBase, i.StateMask
	default:
		return maybe
	}
	untracked := p.State == expr.CtStateBitUNTRACKED
	states := uint16(xtNew | xtTranslated)
	if untracked {
		states = xtUntracked
	}
	switch {
	case base.MatchFlags&xtMatchState == 0 && untracked:
		return no
	case base.MatchFlags&xtMatchState == 0:
		return maybe
	case (mask&states != 0) == (base.InvertFlags&xtMatchState != 0):
		return no
	case base.MatchFlags != xtMatchState && !untracked:
		return maybe
	}
	return yes
}
