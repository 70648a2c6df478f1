package allocator

import (
	"net/netip"

	"lbd.dev/lbd/internal/model"
)

// The reasons of events. Those that MetalLB has too have its names.
const (
	// EventAllocated: the status has new addresses.
	EventAllocated = "IPAllocated"
	// EventFailed: the Service does not get what it asks for. The message begins with
	// the rule.
	EventFailed = "AllocationFailed"
	// EventReleased: the Service has lost addresses.
	EventReleased = "ClearAssignment"
	// EventConflict: an address of the status cannot stay, as another Service has it.
	EventConflict = "AssignmentConflict"
	// EventOutside: an address stays, though no pool would give it out now.
	EventOutside = "AddressOutsidePools"
	// EventNotOurs: annotations ask lbd for something, and the class is that of somebody
	// else.
	EventNotOurs = "ClassNotServed"
	// EventRepaired: somebody else changed the status, which is put right.
	EventRepaired = "StatusRepaired"
	// EventPool: a rule keeps a pool, or a part of it, out of use.
	EventPool = "PoolProblem"
	// EventPoolAccepted: a pool is in use again.
	EventPoolAccepted = "PoolAccepted"
)

// Event is news about an object.
type Event struct {
	Kind    string // "Service" or "IPAddressPool"
	Object  model.Key
	UID     string // of the object
	Warning bool
	Reason  string
	Message string
}

// Write is the status that a Service is to have.
type Write struct {
	Service model.Key
	// UID and Version are of the object that the decision was made about: a write that
	// finds another one must fail.
	UID, Version string
	Ingress      []Ingress
	// Mark is the value of the annotation AllocatedFrom; "": it is removed.
	Mark string
	// Events are to be sent when the write is done.
	Events []Event
}

func (s *service) event(warning bool, reason, message string) Event {
	return Event{Kind: "Service", Object: s.Key, UID: s.UID, Warning: warning, Reason: reason, Message: message}
}

// entries are addresses as a status has them.
func entries(addrs []netip.Addr) []Ingress {
	list := make([]Ingress, len(addrs))
	for i, addr := range addrs {
		list[i].IP = addr.String()
	}
	return list
}
