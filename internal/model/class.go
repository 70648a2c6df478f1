package model

// Class says what a standing means for the VIP of a node. docs/reasons.md has a row for each.
type Class uint8

const (
	// ClassProgress is of words for what goes on, which are no standing.
	ClassProgress Class = iota + 1
	// ClassMayServe: the node may have the VIP.
	ClassMayServe
	// ClassDegraded: the node may have the VIP, but one that is up is better.
	ClassDegraded
	// ClassWaiting: the node does not know yet whether it may.
	ClassWaiting
	// ClassDrain: the node is to go and works meanwhile.
	ClassDrain
	// ClassLeave: clients of the node may miss it already.
	ClassLeave
	// ClassRemoved: other nodes may have the VIP in their configuration.
	ClassRemoved
	// ClassDead: nothing here would answer the clients.
	ClassDead
	// ClassImpossible: the VIP cannot be here.
	ClassImpossible
	// ClassBlocked: what the node needs to announce the VIP anew is missing.
	ClassBlocked
	classCount // keep last
)

// classes says what each class means. An owner on the LAN hands over, or lets go; towards
// routers, where others serve the VIP too, a path is withdrawn, in haste or not.
var classes = [classCount]struct {
	eligible, // may take it
	adopts, // an owner keeps what an earlier process of the node had
	leaves, // an owner hands over
	letsGo, // an owner keeps it no longer if nobody takes it
	planned bool // routers are asked to prefer other nodes before the path is withdrawn
}{
	ClassMayServe:   {eligible: true, adopts: true},
	ClassDegraded:   {eligible: true, adopts: true, planned: true}, // an owner leaves only to one that is up
	ClassWaiting:    {adopts: true},
	ClassDrain:      {adopts: true, leaves: true, planned: true},
	ClassLeave:      {leaves: true},
	ClassRemoved:    {leaves: true, letsGo: true},
	ClassDead:       {leaves: true, letsGo: true},
	ClassImpossible: {letsGo: true},
}

// Class is what the reason means as a standing.
func (r Reason) Class() Class {
	if r < reasonCount {
		return reasons[r].class
	}
	return 0
}

// Eligible tells whether a node with this standing may own the VIP.
func (r Reason) Eligible() bool { return classes[r.Class()].eligible }

// Adopts tells whether an owner keeps what an earlier process of its node had.
func (r Reason) Adopts() bool { return classes[r.Class()].adopts }

// Leaves tells whether an owner hands the VIP over.
func (r Reason) Leaves() bool { return classes[r.Class()].leaves }

// LetsGo tells whether an owner lets the VIP go although nobody takes it.
func (r Reason) LetsGo() bool { return classes[r.Class()].letsGo }

// Planned tells whether routers are asked to prefer other nodes before the path is withdrawn.
func (r Reason) Planned() bool { return classes[r.Class()].planned }
