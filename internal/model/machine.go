package model

import (
	"maps"
	"net/netip"
	"slices"
)

// KindMachineLoadBalancer is the VIP.Kind of the address of a MachineLoadBalancer. Of those whose
// Machines listen on another port than clients connect to it is VIP.Unbound.
const KindMachineLoadBalancer = "MachineLoadBalancer"

// Machines are what a management cluster says of the machines behind the nodes. A
// process that reads none has the zero value.
type Machines struct {
	// Manager: this process reads a management API, has all that it asks for, and is
	// told of changes. It is false as soon as the API is lost.
	Manager bool
	// Drains are the Machines that are to lose their traffic, sorted by Machine; they
	// stay as they were last known while the API is lost.
	Drains []MachineDrain
	// Balanced are the addresses for whose members the driver of SinkMachines needs
	// MachineMember.Standing, sorted.
	Balanced []netip.Addr
	// Forwarded are those of Balanced for which this node forwards to the Machines, sorted.
	Forwarded []netip.Addr
	// Checks are the entries of View.Health of Machines to which connections are forwarded, by
	// this node or by others of its group, for the same driver; sorted.
	Checks []string
}

// MachineDrain is one Machine that is to lose its traffic. It is never changed.
type MachineDrain struct {
	Machine string // "namespace/name"
	// Node is the name of its Node, "" before there is one; Addrs are its addresses.
	Node  NodeName
	Addrs []netip.Addr
	// Only are the addresses that the node is to lose; empty: all.
	Only []netip.Addr
	// Reason is one word for the signal, such as "Deleting"; Detail says more for
	// people, such as the key of a label.
	Reason, Detail string
}

// Equal tells whether both say the same.
func (d *MachineDrain) Equal(o *MachineDrain) bool {
	return d.Machine == o.Machine && d.Node == o.Node && d.Reason == o.Reason && d.Detail == o.Detail && slices.Equal(d.Addrs, o.Addrs) && slices.Equal(d.Only, o.Only)
}

// SameDrains tells whether two lists say the same.
func SameDrains(a, b []MachineDrain) bool {
	return slices.EqualFunc(a, b, func(x, y MachineDrain) bool { return x.Equal(&y) })
}

// MachinesState is what the driver of SinkMachines is to tell a management cluster.
type MachinesState struct {
	// Writer: of the live nodes that read the management API, this is the one that
	// writes. The nodes may disagree for a moment, so a write needs a guard of its own.
	Writer bool
	// Members are the nodes of the group that are alive, this one included, sorted by
	// Node; empty unless Writer. A node that is missing is not heard.
	Members []MachineMember
	// Addrs are those of this node on all of its links, sorted: by them its Machine may
	// be found. Empty without a source of Machines.
	Addrs []netip.Addr
	// Health has the state of each of Machines.Checks; empty unless Writer.
	Health map[string]Health
	// Taken are those of Machines.Forwarded that another object of this node has, such as
	// one of its files, so that nothing is forwarded here. Sorted; empty unless Writer.
	Taken []netip.Addr
}

// MachineMember is one node of the group, for the status of its Machine.
type MachineMember struct {
	Node  NodeName
	Addrs []netip.Addr // on its links, sorted
	// Draining for whatever reason; Drained: and it serves nothing any more, not even
	// connections that were open, or those were waited for long enough.
	Draining, Drained bool
	// Standing has those of Machines.Balanced that the node knows: ReasonOwner and
	// ReasonStandby mean that it may serve the address, anything else is why not.
	Standing map[netip.Addr]Reason
}

// Equal tells whether both ask for the same.
func (s *MachinesState) Equal(o *MachinesState) bool {
	return s.Writer == o.Writer && slices.Equal(s.Addrs, o.Addrs) && maps.Equal(s.Health, o.Health) && slices.Equal(s.Taken, o.Taken) && slices.EqualFunc(s.Members, o.Members, func(a, b MachineMember) bool {
		return a.Node == b.Node && a.Draining == b.Draining && a.Drained == b.Drained &&
			slices.Equal(a.Addrs, b.Addrs) && maps.Equal(a.Standing, b.Standing)
	})
}

// MachineMemory is what a node remembers of being drained with its Machine: it stays
// so until somebody who can know says otherwise.
type MachineMemory struct {
	// Drain is the one that counts, nil without; By told it.
	Drain *MachineDrain
	By    NodeName
}

// Loses tells whether the node is to lose this address with its Machine.
func (m *MachineMemory) Loses(a netip.Addr) bool {
	return m.Drain != nil && (len(m.Drain.Only) == 0 || slices.Contains(m.Drain.Only, a))
}

// Words says why the node drains with its Machine, "" if it does not.
func (m *MachineMemory) Words(self NodeName) string {
	if m.Drain == nil {
		return ""
	}
	text := "Machine " + m.Drain.Machine + ": " + m.Drain.Reason
	if m.Drain.Detail != "" {
		text += " (" + m.Drain.Detail + ")"
	}
	if m.By != self {
		text += ", told by " + string(m.By)
	}
	return text
}
