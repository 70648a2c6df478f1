package v1alpha1

import (
	"encoding/json"
	"time"
)

// NodeEventsKind is the kind of the object that `lbd events -o json` prints.
const NodeEventsKind = "NodeEvents"

// NodeEvents is what has changed on one node, as its daemon saw it. It is read from the
// control socket. Field names are stable; new fields and new kinds of events may appear, so
// readers must ignore what they do not know.
type NodeEvents struct {
	// APIVersion is filled in when the object is encoded.
	APIVersion string `json:"apiVersion"`
	// Kind is filled in when the object is encoded.
	Kind string `json:"kind"`
	// Node is the name of the node that answers.
	Node string `json:"node"`
	// Version of the daemon, such as "v0.1.0".
	Version string `json:"version"`
	// Time is when the list was made, by the clock of the node.
	Time time.Time `json:"time,omitzero"`
	// Started is when the daemon began. It remembers nothing from before.
	Started time.Time `json:"started,omitzero"`
	// Forgotten counts the events since then that it no longer remembers, whatever they
	// were about.
	Forgotten uint64 `json:"forgotten"`
	// Newest is the Seq of the newest event, whether or not it is listed; 0 without any.
	Newest uint64 `json:"newest"`
	// Events are in the order of their times, the newest last.
	Events []Event `json:"events"`
}

// MarshalJSON fills in apiVersion and kind and writes events as [] and never as null.
func (e NodeEvents) MarshalJSON() ([]byte, error) {
	type plain NodeEvents // without this method
	e.APIVersion, e.Kind = APIVersion, NodeEventsKind
	e.Events = notNil(e.Events)
	return json.Marshal(plain(e))
}

// EventKind says what an event is about.
type EventKind string

// The kinds of events. Each has a row in docs/commands.md; a test compares the two.
const (
	EventDaemon    EventKind = "daemon"    // the daemon began
	EventStall     EventKind = "stall"     // the daemon did not run for a while
	EventConfig    EventKind = "config"    // a configuration was read, or refused
	EventGroup     EventKind = "group"     // the node knows its group, or no more; the rules of the group changed
	EventMember    EventKind = "member"    // another node came, died, left or was forgotten
	EventDrain     EventKind = "drain"     // a node began or ended to drain
	EventVIP       EventKind = "vip"       // the configuration has a VIP, or has it no more
	EventOwner     EventKind = "owner"     // the owner of a VIP changed
	EventAnnounced EventKind = "announced" // this node began to answer for a VIP that had been missed
	EventStanding  EventKind = "standing"  // whether this node may own a VIP changed
	EventReason    EventKind = "reason"    // why a VIP is, or is not, on this node changed
	EventConflict  EventKind = "conflict"  // a host that is no member used a VIP that is announced here
	EventDuplicate EventKind = "duplicate" // another host began or ceased to answer for a VIP beside its owner
	EventBGP       EventKind = "bgp"       // a BGP session came up or was lost
	EventBFD       EventKind = "bfd"       // a BFD session came up or went down
	EventBackend   EventKind = "backend"   // a backend of a LoadBalancer counts as up, down or out of service
	EventRing      EventKind = "ring"      // a node of a ring does not answer on the wire, or does again
)

// EventKinds lists every kind.
func EventKinds() []EventKind {
	return []EventKind{
		EventDaemon, EventStall, EventConfig, EventGroup, EventMember, EventDrain, EventVIP, EventOwner, EventAnnounced,
		EventStanding, EventReason, EventConflict, EventDuplicate, EventBGP, EventBFD, EventBackend, EventRing,
	}
}

// Event is one change.
type Event struct {
	// Seq numbers the events of one process of the daemon, from 1, in the order in which it
	// noticed them.
	Seq uint64 `json:"seq"`
	// Time is when it happened, in UTC with milliseconds. A change that is only noted if it
	// lasts has the time at which it began.
	Time time.Time `json:"time"`
	// Kind is one of EventKinds, or one of a newer version.
	Kind EventKind `json:"kind"`
	// VIP is the name of the object that the address comes from; empty if the event is about
	// no VIP, or about More of them.
	VIP string `json:"vip,omitempty"`
	// Address is that of the VIP; of members and sessions that of the node or the peer, and of
	// a backend its address, with its port if it names one.
	Address string `json:"address,omitempty"`
	// Mode is how the VIP is announced, "l2" or "bgp"; empty without a VIP.
	Mode string `json:"mode,omitempty"`
	// Node is the node that it happened to: another member, or the node that answers.
	Node string `json:"node"`
	// Peer is the name of the BGPPeer of a session.
	Peer string `json:"peer,omitempty"`
	// From and To are what changed, each empty if there was, or is, none: owners, reasons,
	// states, generations.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Reason is why, in one word: one of docs/reasons.md, or Dead, Left, Late or Forgotten
	// for a node that was lost.
	Reason string `json:"reason,omitempty"`
	// Detail is free text: the failing check, the last error, the hardware address.
	Detail string `json:"detail,omitempty"`
	// Gap is how long the VIP was without, as a Go duration such as "250ms": of an owner,
	// during which this node knew of none; of an announcement, from the moment at which the
	// former owner was missed; of a stall, how long the daemon did not run. Empty if the
	// node cannot know.
	Gap string `json:"gap,omitempty"`
	// More counts VIPs that changed in the same way at the same time and are not listed.
	More int `json:"more,omitempty"`
}

// eventTime is RFC 3339 with milliseconds, always as many digits.
const eventTime = "2006-01-02T15:04:05.000Z07:00"

// Clock is the time of the event as JSON and tables have it.
func (e *Event) Clock() string { return e.Time.UTC().Format(eventTime) }

// MarshalJSON writes the time with milliseconds.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event // without this method
	return json.Marshal(struct {
		Seq  uint64 `json:"seq"`
		Time string `json:"time"`
		plain
	}{e.Seq, e.Clock(), plain(e)})
}
