package notify

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// target is an address, and what is known of it.
type target struct {
	addr     netip.Addr
	name     string // of its object
	commands []command
	fact     fact                            // newest
	told     map[string]v1alpha1.NotifyState // by the key of the command
	working  bool
	gone     bool // no program is to be told any more, but for what it was told last
}

// fact is what a program is told of an address.
type fact struct {
	state  v1alpha1.NotifyState // "": not known yet
	reason model.Reason
	owner  model.NodeName
	iface  string
}

// concern sets the programs of the address. It forgets what those knew that are none any more.
func (t *target) concern(programs []v1alpha1.NotifySpec) {
	told := make(map[string]v1alpha1.NotifyState)
	t.commands = nil
	for i := range programs {
		p := &programs[i]
		if len(p.VirtualIPs) > 0 && !slices.Contains(p.VirtualIPs, t.name) {
			continue
		}
		c := newCommand(p)
		t.commands = append(t.commands, c)
		if state, ok := t.told[c.key]; ok {
			told[c.key] = state
		}
	}
	t.told = told
}

// due is the first program that does not know the state of the address, nil if there is none.
func (t *target) due() *command {
	for i := range t.commands {
		c := &t.commands[i]
		switch {
		case t.fact.state == "" || t.told[c.key] == t.fact.state:
		case len(c.States) > 0 && !slices.Contains(c.States, t.fact.state):
			t.told[c.key] = t.fact.state // it knows another one, and will be told of a return
		default:
			return c
		}
	}
	return nil
}

// variables are those of the environment of a program.
func (t *target) variables(node model.NodeName) []string {
	return []string{
		"LBD_STATE=" + string(t.fact.state),
		"LBD_VIP=" + t.name,
		"LBD_ADDRESS=" + t.addr.String(),
		"LBD_REASON=" + t.fact.reason.String(),
		"LBD_NODE=" + string(node),
		"LBD_OWNER=" + string(t.fact.owner),
		"LBD_INTERFACE=" + t.fact.iface,
	}
}

// look finds out what this node is to an address. A VIP that is announced on the LAN and to
// routers has a status for each: the better one counts.
func look(want *model.Desired, self model.NodeName, t *target) fact {
	had := t.fact.state == v1alpha1.NotifyOwner
	var best fact
	i, found := slices.BinarySearchFunc(want.Status, t.addr, func(s model.VIPStatus, a netip.Addr) int { return s.VIP.Addr.Compare(a) })
	for ; i < len(want.Status) && want.Status[i].VIP.Addr == t.addr; i++ {
		s := &want.Status[i]
		f := fact{state: stateOf(s, self, had), reason: s.Reason, owner: s.Owner, iface: s.Interface}
		if order[f.state] > order[best.state] {
			best = f
		}
	}
	switch {
	case !found && had:
		return fact{state: v1alpha1.NotifyStandby, reason: model.ReasonRemoved}
	case want.Group.Leave && (had || best.state == v1alpha1.NotifyOwner):
		// The kernel, or a router, may keep it for a moment, but nobody renews it.
		return fact{state: v1alpha1.NotifyStandby, reason: model.ReasonDraining}
	}
	return best
}

var order = map[v1alpha1.NotifyState]int{v1alpha1.NotifyFault: 1, v1alpha1.NotifyStandby: 2, v1alpha1.NotifyOwner: 3}

// stateOf is what a status says; had: the node was the owner. "" means that it is not known yet.
func stateOf(s *model.VIPStatus, self model.NodeName, had bool) v1alpha1.NotifyState {
	switch {
	case s.Owner == self && (s.Announced || had && stands(s.Reason)):
		return v1alpha1.NotifyOwner
	case s.Standing.Class() == model.ClassWaiting && !had:
		return ""
	case s.Standing.Look() && !s.Standing.Eligible():
		return v1alpha1.NotifyFault
	}
	return v1alpha1.NotifyStandby
}

// stands tells whether an owner goes on being one although it is silent for a moment, as while
// it asks the wire whether another one is there.
func stands(r model.Reason) bool {
	switch r {
	case model.ReasonOwner, model.ReasonNoSuccessor, model.ReasonHandingOver, model.ReasonProbing, model.ReasonTakingOver:
		return true
	}
	return false
}
