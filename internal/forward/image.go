package forward

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

// The sets and maps of a table that have a name.
const (
	// setLAN has each VIP with the interface where its clients come in.
	setLAN = iota
	// setClaimed are the VIPs that a node of the group has.
	setClaimed
	// setServers are who may speak to a VIP as its server: VIP, server, protocol and port.
	setServers
	// setServices has each service, VIP, protocol and port, and the chain that judges its
	// new connections; accept if that is none.
	setServices
	// setTargets has each service that has servers, and the chain that chooses one.
	setTargets
	// setRepliers are the servers that see the addresses of clients: server, protocol and port.
	// setMute are those of them of which the address is not known that a client knows.
	// setHosts are their addresses.
	setRepliers
	setMute
	setHosts
	// setReplies has, for the others, the VIP and the port that a client of TCP knows, and
	// setDatagrams the VIP, for UDP.
	setReplies
	setDatagrams
	// setPorts has, for each service whose servers all have the same port, that port. So
	// services share the slots of their servers, whatever the ports.
	setPorts
	// setOpened, setReceived and setSent count for servers, by address, protocol and port, the
	// connections that were opened, and what went to them and came from them.
	setOpened
	setReceived
	setSent
	sets
)

var setNames = [sets]string{"lan", "claimed", "servers", "services", "targets", "repliers", "mute", "hosts", "replies", "datagrams", "ports", "opened", "received", "sent"}

// set describes one of them. Its ID only has to be unique within one transaction.
func (f *family) set(number int) *nftables.Set {
	s := &nftables.Set{Table: f.table, ID: uint32(number) + 1, Name: setNames[number]}
	switch number {
	case setLAN:
		s.KeyType = nftables.MustConcatSetType(f.address, nftables.TypeIFName)
	case setClaimed, setHosts:
		s.KeyType = f.address
	case setServers:
		s.KeyType = nftables.MustConcatSetType(f.address, f.address, nftables.TypeInetProto, nftables.TypeInetService)
	default:
		s.KeyType = nftables.MustConcatSetType(f.address, nftables.TypeInetProto, nftables.TypeInetService)
	}
	switch number {
	case setServices, setTargets:
		s.IsMap, s.DataType = true, nftables.TypeVerdict
	case setReplies:
		s.IsMap, s.DataType = true, nftables.MustConcatSetType(f.address, nftables.TypeInetService)
	case setDatagrams:
		s.IsMap, s.DataType = true, f.address
	case setPorts:
		s.IsMap, s.DataType = true, nftables.TypeInetService
	case setOpened, setReceived, setSent:
		s.Counter = true
	}
	return s
}

// image is what the table of one family has besides the rules that are always the same.
type image struct {
	// elements are those of the sets by their keys, with the name of a chain, an address, or "".
	elements [sets]map[string]string
	// chains are those that the elements lead to, by their names. What is in a chain never
	// changes: the name stands for it.
	chains map[string]chain
	// vips has the VIPs, and what sources their connections get.
	vips map[netip.Addr]origin
	// services are what the elements of setServers were made of.
	services []*model.ForwardService
	// uncounted is how many ways to servers are not counted, since there are too many.
	uncounted int
	// names of slot tables, which take time.
	names map[*model.SlotTable]slotName
}

// origin is what servers see as the source of the connections to a VIP.
type origin struct {
	// iface is where the clients come in whose servers see the VIP; those of others see this node.
	iface string
	// kept: servers see the clients of iface themselves, but for those in the subnets near.
	kept bool
	near []netip.Prefix
	// sources are what servers see in place of the VIP, by a hash of the connection.
	sources []netip.Addr
}

func (o origin) same(p origin) bool {
	return o.iface == p.iface && o.kept == p.kept && slices.Equal(o.near, p.near) && slices.Equal(o.sources, p.sources)
}

// slotName stands for what a chain has of a slot table: all of it, or the addresses alone if
// all servers have the same port, which is 0 otherwise.
type slotName struct {
	text string
	port uint16
}

// chain is one that choses a server, or one that judges new connections.
type chain struct {
	slots    *model.SlotTable // nil: it judges
	protocol model.Protocol
	affinity bool
	onePort  bool // it has the addresses of the servers; setPorts has the port
	// base is another chain for most slots: this one has only those that differ. "" if there is none.
	base string
	over *model.SlotTable // the slots of base

	sources []netip.Prefix // only these may connect
	refused bool           // and nobody serves them
}

// refuse is the name of the chain that refuses a connection.
const refuse = "refuse"

// describe is the image for the services and replies, which are all of the family. It takes
// names from the image before.
func (f *family) describe(services []*model.ForwardService, replies []model.ForwardReply, before *image) *image {
	m := &image{chains: make(map[string]chain), names: make(map[*model.SlotTable]slotName), vips: make(map[netip.Addr]origin)}
	for n := range m.elements {
		m.elements[n] = make(map[string]string)
	}
	m.services = services
	kept := before != nil && slices.EqualFunc(services, before.services, sameServers)
	if kept { // nobody changes them, and there may be 100000
		for _, n := range []int{setServers, setOpened, setReceived, setSent} {
			m.elements[n] = before.elements[n]
		}
		m.uncounted = before.uncounted
	}
	if !kept {
		m.countAll(services)
	}
	var last *model.SlotTable
	for _, s := range services {
		vip := string(s.Addr.AsSlice())
		m.vips[s.Addr] = origin{s.Interface, s.ClientSource, s.Near, s.Sources}
		if s.Interface != "" {
			m.elements[setLAN][vip+string(interfaceName(s.Interface))] = ""
		}
		if s.Claimed {
			m.elements[setClaimed][vip] = ""
		}
		if !kept {
			for _, to := range s.Servers {
				m.elements[setServers][serverKey(s, to)] = ""
			}
		}
		key := serviceKey(s)
		m.elements[setServices][key] = m.judge(s)
		if !serves(s) {
			continue
		}
		if _, has := m.names[s.Slots]; !has {
			m.names[s.Slots] = nameOf(s.Slots, last, m, before)
		}
		last = s.Slots
		slots := m.names[s.Slots]
		name := slots.text
		if s.ClientAffinity {
			name = "client-" + name
		}
		name = strings.ToLower(s.Protocol.String()) + "-" + name
		if _, has := m.chains[name]; !has {
			m.choose(name, chain{slots: s.Slots, protocol: s.Protocol, affinity: s.ClientAffinity, onePort: slots.port != 0}, before, key)
		}
		m.elements[setTargets][key] = name
		if slots.port != 0 {
			m.elements[setPorts][key] = string([]byte{byte(slots.port >> 8), byte(slots.port)})
		}
	}
	for i := range replies {
		m.reply(&replies[i])
	}
	return m
}

// reply adds what becomes of what a server says in a connection that this host does not know.
func (m *image) reply(r *model.ForwardReply) {
	key := string(end(r.Server.Addr().AsSlice(), r.Protocol, r.Server.Port()))
	m.elements[setRepliers][key], m.elements[setHosts][string(r.Server.Addr().AsSlice())] = "", ""
	vip := r.VIP.Addr().AsSlice()
	switch {
	case r.Protocol == model.TCP && r.VIP.IsValid():
		m.elements[setReplies][key] = string(append(vip, byte(r.VIP.Port()>>8), byte(r.VIP.Port()), 0, 0))
	case r.Protocol == model.TCP:
		m.elements[setMute][key] = ""
	case r.VIP.Port() == r.Server.Port(): // also that of an invalid one is none
		m.elements[setDatagrams][key] = string(vip)
	}
}

// maxCounted bounds the servers of each family that are counted, each with its protocol and port,
// and so the memory of the kernel and the metrics.
const maxCounted = 4096

// countAll has the servers counted, those of tenants last.
func (m *image) countAll(services []*model.ForwardService) {
	for _, ofTenant := range []bool{false, true} {
		for _, s := range services {
			for _, to := range s.Servers {
				if s.OfTenant == ofTenant {
					m.count(s.Protocol, to)
				}
			}
		}
	}
}

// count has a server counted, if there is room.
func (m *image) count(p model.Protocol, to netip.AddrPort) {
	key := string(end(to.Addr().AsSlice(), p, to.Port()))
	if _, has := m.elements[setOpened][key]; has {
		return
	}
	if len(m.elements[setOpened]) == maxCounted {
		m.uncounted++
		return
	}
	for _, n := range []int{setOpened, setReceived, setSent} {
		m.elements[n][key] = ""
	}
}

// judge is the name of the chain for new connections to the service, "" if all are welcome.
func (m *image) judge(s *model.ForwardService) string {
	c := chain{sources: s.AllowedSources, refused: !serves(s)}
	switch {
	case len(c.sources) == 0 && c.refused:
		return refuse
	case len(c.sources) == 0:
		return ""
	}
	var text []byte
	for _, p := range c.sources {
		text = append(p.AppendTo(text), ' ')
	}
	name := "from-" + digest(text)
	if c.refused {
		name = "none-" + name
	}
	m.chains[name] = c
	return name
}

// sameServers tells whether two services have the same elements in setServers.
func sameServers(a, b *model.ForwardService) bool {
	return a.Addr == b.Addr && a.Protocol == b.Protocol && slices.Equal(a.Servers, b.Servers)
}

func serves(s *model.ForwardService) bool { return s.Slots != nil && len(s.Slots.Slots) > 0 }

// nameOf is the same for slot tables that are the same, but for the port if all servers have
// the same one. Of a thousand ports with the same servers most are like the last one, which
// is seen sooner than a digest is made.
func nameOf(t, last *model.SlotTable, m, before *image) slotName {
	if before != nil {
		if n, has := before.names[t]; has {
			return n
		}
	}
	port := t.Slots[0].Port()
	if slices.ContainsFunc(t.Slots, func(to netip.AddrPort) bool { return to.Port() != port }) {
		port = 0
	}
	sameAddr := func(a, b netip.AddrPort) bool { return a.Addr() == b.Addr() }
	if last != nil && port != 0 && m.names[last].port != 0 && slices.EqualFunc(t.Slots, last.Slots, sameAddr) {
		return slotName{m.names[last].text, port}
	}
	text := make([]byte, 0, 18*len(t.Slots))
	for _, to := range t.Slots {
		a := to.Addr().As16()
		text = append(text, a[:]...)
		if port == 0 {
			text = binary.BigEndian.AppendUint16(text, to.Port())
		}
	}
	return slotName{digest(text), port}
}

// digest is short enough for the name of a chain, of which old kernels take 31 bytes.
func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// interfaceName is a name as the kernel compares it.
func interfaceName(name string) []byte {
	var b [unix.IFNAMSIZ]byte
	copy(b[:len(b)-1], name)
	return b[:]
}

// Each part of a key begins at a multiple of four bytes.
func serviceKey(s *model.ForwardService) string {
	return string(end(s.Addr.AsSlice(), s.Protocol, s.Port))
}

func serverKey(s *model.ForwardService, to netip.AddrPort) string {
	return string(end(slices.Concat(s.Addr.AsSlice(), to.Addr().AsSlice()), s.Protocol, to.Port()))
}

func end(key []byte, p model.Protocol, port uint16) []byte {
	return append(key, byte(p), 0, 0, 0, byte(port>>8), byte(port), 0, 0)
}

// change fills a transaction that makes one image of another, in a table that has all that
// never changes. Nothing else is touched.
func (f *family) change(c *nftables.Conn, from, to *image) error {
	b := builder{c: c, family: f, next: sets + 1}
	for _, name := range to.byBase() {
		if _, has := from.chains[name]; !has {
			if err := b.fill(name, to.chains[name]); err != nil {
				return err
			}
		}
	}
	if !maps.EqualFunc(from.vips, to.vips, origin.same) {
		if err := b.originals(to.vips); err != nil {
			return err
		}
	}
	for n := range sets {
		if len(to.elements[n]) > 0 && reflect.ValueOf(from.elements[n]).Pointer() == reflect.ValueOf(to.elements[n]).Pointer() {
			continue
		}
		set := f.set(n)
		gone, fresh := differ(n, from.elements[n], to.elements[n])
		if err := nft.DeleteElements(c, set, gone); err != nil {
			return err
		}
		if err := nft.AddElements(c, set, fresh); err != nil {
			return err
		}
	}
	for _, name := range slices.Backward(from.byBase()) {
		if _, has := to.chains[name]; !has {
			c.DelChain(&nftables.Chain{Name: name, Table: f.table})
		}
	}
	return nil
}

// choose adds a chain of slots. One that differs little from what the service had is laid over that: so
// a server that is out of a thousand tables costs the slots that it had.
func (m *image) choose(name string, c chain, before *image, key string) {
	m.chains[name] = c
	if before == nil {
		return
	}
	if was, has := before.chains[name]; has {
		m.chains[name] = was
		if was.base != "" {
			m.chains[was.base] = before.chains[was.base]
		}
		return
	}
	base := before.elements[setTargets][key]
	if was := before.chains[base]; was.base != "" {
		base = was.base
	}
	was := before.chains[base]
	if was.slots == nil || was.protocol != c.protocol || was.affinity != c.affinity || was.onePort != c.onePort || len(was.slots.Slots) != len(c.slots.Slots) {
		return
	}
	c.base, c.over = base, was.slots
	if c.differs() <= len(c.slots.Slots)/laidOver {
		m.chains[name], m.chains[base] = c, was
	}
}

// laidOver is which part of the slots may differ at most from those of a base.
const laidOver = 4

// own tells whether a slot is in the chain itself, and not left to its base.
func (c *chain) own(slot int) bool {
	if c.over == nil {
		return true
	}
	to, was := c.slots.Slots[slot], c.over.Slots[slot]
	return to.Addr() != was.Addr() || !c.onePort && to.Port() != was.Port()
}

// differs is how many slots the chain has itself.
func (c *chain) differs() (n int) {
	for slot := range c.slots.Slots {
		if c.own(slot) {
			n++
		}
	}
	return n
}

// byBase orders the names of chains so that a base comes before what is laid over it.
func (m *image) byBase() []string {
	return slices.SortedFunc(maps.Keys(m.chains), func(a, b string) int {
		return cmp.Or(cmp.Compare(btoi(m.chains[a].base != ""), btoi(m.chains[b].base != "")), cmp.Compare(a, b))
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// heavy is how many slots are loaded without a watch: for whoever listens the kernel writes a
// message about each, which takes six times as long as the change.
const heavy = 50_000

// fresh is how many slots the image has that are not in the one before.
func (m *image) fresh(before *image) (n int) {
	for name, c := range m.chains {
		if before != nil && before.chains[name].slots != nil {
			continue
		}
		if c.slots != nil {
			n += c.differs()
		}
	}
	return n
}

// differ are the elements to delete and those to add.
func differ(set int, from, to map[string]string) (gone, fresh []nftables.SetElement) {
	for key, chain := range from {
		if now, has := to[key]; !has || now != chain {
			gone = append(gone, nftables.SetElement{Key: []byte(key)})
		}
	}
	for key, chain := range to {
		if was, has := from[key]; has && was == chain {
			continue
		}
		e := nftables.SetElement{Key: []byte(key)}
		switch {
		case set == setReplies || set == setDatagrams || set == setPorts:
			e.Val = []byte(chain)
		case chain != "":
			e.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}
		case set == setServices:
			e.VerdictData = &expr.Verdict{Kind: expr.VerdictAccept}
		}
		fresh = append(fresh, e)
	}
	return gone, fresh
}
