package model

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// MemberState is what the failure detector of the gossip layer says of a node.
type MemberState uint8

const (
	// MemberAlive answers probes of some member.
	MemberAlive MemberState = iota
	// MemberDead was not reached by anybody.
	MemberDead
	// MemberLeft said goodbye.
	MemberLeft
)

// String returns "alive", "dead" or "left".
func (s MemberState) String() string {
	switch s {
	case MemberAlive:
		return "alive"
	case MemberDead:
		return "dead"
	}
	return "left"
}

// Member is what this node knows of another one. All of it comes by gossip.
type Member struct {
	Name     NodeName
	Addr     netip.Addr // gossip address
	State    MemberState
	Known    bool // its own state record has arrived at least once
	Told     bool // and with it how it stands to each VIP, so that GroupVIP.Holds is known
	Draining bool
	Settled  bool
	Rules    int    // newest version of the election rules it speaks
	Weight   int    // for rendezvous hashing; 0 counts as DefaultWeight
	Version  string // of its program, for people
	// Manager: it reads a management API, and knows the group. Drains are its
	// Machines.Drains of nodes of the group, each with the name of that node.
	Manager bool
	Drains  []MachineDrain
	// Partial: there was no room for all of them. Those of nodes that are not draining
	// yet go first.
	Partial bool
	// Drained: it is draining and serves nothing any more, see MachineMember.
	Drained bool
	// MACs are the hardware addresses from which it speaks to the group and answers for
	// VIPs, at most MaxMACs, so that a conflict on the wire can be told from a member that
	// still answers.
	MACs []MAC
	// Addrs are its addresses on its links, at most four, sorted.
	Addrs []netip.Addr
	// Hears are the hosts that answer it on the networks of VIPs, one for each of them, at
	// most four.
	Hears []netip.Addr
	// Standing says for each VIP whether the member may own it, and if not why:
	// ReasonOwner and ReasonStandby mean eligible, and so does ReasonDegraded, after
	// those two. A VIP that is absent is not eligible there.
	Standing map[netip.Addr]Reason
	// Names are those of the objects of its VIPs, as in GroupVIP; a member of the version
	// before tells none.
	Names map[netip.Addr]string
	// Late is when its heartbeats became overdue; zero while they arrive, and
	// while none are expected from it.
	Late time.Time
	// Suspect is when a heartbeat of an owner was missed whose first successor this node
	// is, and Missing that a second one was; zero once one arrives. It counts for nothing
	// but for the question to the wire.
	Suspect time.Time
	Missing bool
	// Back is when it was last heard again after it was late or away; what is known of
	// its VIPs may still be what it said before. Zero: it was neither.
	Back time.Time
	// Gone is since when memberlist has not had it, of this node or of whoever told of
	// it; zero while memberlist has it.
	Gone time.Time
	// Heard is when it last answered the question of GroupState.Ask.
	Heard time.Time
	// LeaseEnd is the latest moment at which the kernel of the member still holds
	// its VIPs if nobody renews them, by its last heartbeat; zero if not known.
	LeaseEnd time.Time
}

// DefaultWeight is the weight of a node that does not set one.
const DefaultWeight = 100

// MAC is a hardware address as a comparable value.
type MAC [6]byte

// String returns the usual form with colons, or "" for the zero value.
func (m MAC) String() string {
	if m == (MAC{}) {
		return ""
	}
	const hex = "0123456789abcdef"
	b := make([]byte, 0, 17)
	for i, x := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, hex[x>>4], hex[x&15])
	}
	return string(b)
}

// Compare orders hardware addresses as bytes.
func (m MAC) Compare(o MAC) int {
	for i := range m {
		if m[i] != o[i] {
			return int(m[i]) - int(o[i])
		}
	}
	return 0
}

// MaxTold is how much of a name a node tells, in bytes.
const MaxTold = 128

// Told is what the group is told of the name of the VIP's object, see GroupVIP.
func (v *VIP) Told() string {
	if v.Unbound {
		return ""
	}
	return strings.ToValidUTF8(v.Name[:min(len(v.Name), MaxTold)], "")
}

// MaxMACs is how many hardware addresses a node tells.
const MaxMACs = 16

// Link is one network interface of this node.
type Link struct {
	Name  string
	Index int
	Up    bool // administratively up with carrier
	MAC   MAC
	MTU   int
	// IPv6 is false if IPv6 is disabled on the interface.
	IPv6 bool
	// Strict: the kernel drops IPv4 packets that come in here if the way back to their
	// source is by another interface (rp_filter 1, RFC 3704 section 2.2).
	Strict bool
	// ARPIgnore is the arp_ignore that is in force on it: 0 to 8, see
	// Documentation/networking/ip-sysctl.rst of Linux.
	ARPIgnore int
	// Gateway: a route of IPv4 through a router leaves by it.
	Gateway bool
	// Bond is the name of the bond of which the interface is a port; empty if of none.
	Bond string
	// Parent is the name of the interface below a macvlan or ipvlan in this network
	// namespace, which is on the same LAN; empty for any other.
	Parent string
	// Prefixes are the addresses with their subnets, without those that carry
	// lbd's mark, in kernel order.
	Prefixes []netip.Prefix
	// Since is when Up last changed.
	Since time.Time
}

// Equal compares all that is known of two links.
func (l *Link) Equal(o *Link) bool {
	return l.Name == o.Name && l.Index == o.Index && l.Up == o.Up && l.MAC == o.MAC && l.MTU == o.MTU &&
		l.IPv6 == o.IPv6 && l.Strict == o.Strict && l.Gateway == o.Gateway && l.ARPIgnore == o.ARPIgnore &&
		l.Bond == o.Bond && l.Parent == o.Parent && l.Since.Equal(o.Since) && slices.Equal(l.Prefixes, o.Prefixes)
}
