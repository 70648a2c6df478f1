package model

import (
	"net/netip"
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
	// MACs are the hardware addresses of its interfaces, so that a conflict on the
	// wire can be told from a member that still answers.
	MACs []MAC
	// Addrs are its addresses on its links, sorted.
	Addrs []netip.Addr
	// Standing says for each VIP whether the member may own it, and if not why:
	// ReasonOwner and ReasonStandby mean eligible. A VIP that is absent is not
	// eligible there.
	Standing map[netip.Addr]Reason
	// Late is when its heartbeats became overdue; zero while they arrive, and
	// while none are expected from it.
	Late time.Time
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
	// Gateway: a route of IPv4 through a router leaves by it.
	Gateway bool
	// Prefixes are the addresses with their subnets, without those that carry
	// lbd's mark, in kernel order.
	Prefixes []netip.Prefix
	// Since is when Up last changed.
	Since time.Time
}
