// Package loopback decides for one VIP on one node what is held on lo: the address that BGP tells
// routers of, or that has connections here silently since the VIP is Balanced. It is pure: time
// comes in with the input and goes out as a wake-up, the kernel and the routers come in as
// reports of drivers.
//
// The address is bound, then routers are told of it. A node that must go asks routers to leave,
// withdraws the path, and keeps the address until no router sends packets here and connections
// have ended.
package loopback

import (
	"time"

	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

const (
	// StopShutdown bounds ShutdownDelay when the process ends, which has to withdraw and unbind
	// in the time that it is given.
	StopShutdown = 2 * time.Second
	// FollowDelay is for how long at least a former owner advertises a VIP that another node has
	// taken over at layer 2. That one does so too, once its kernel relays.
	FollowDelay = 500 * time.Millisecond
	// WithdrawLinger is how long an address stays after the BGP driver has reported that no peer
	// has the path any more. The report says that the withdrawal is on its way; a busy router has
	// taken over a second to change its tables.
	WithdrawLinger = 2 * time.Second
	// WithdrawLate is after which time people are told that a withdrawal lasts.
	WithdrawLate = 3 * time.Second
	// AdoptPending is how long an address that an earlier process left is advertised before the
	// first result of its health check.
	AdoptPending = 5 * time.Second
	// SessionsWait is how long after its start a node begins no session because of Services whose
	// rings it does not know. It is shorter than routers keep paths of a node that starts again,
	// see audience.RestartTimeL2.
	SessionsWait = time.Second
)

// Node is what the steps for all VIPs may look at.
type Node struct {
	Now     time.Time
	Started time.Time // of the process
	Gen     uint64    // of the decision being made
	Self    model.NodeName
	// SettledBy is when this node will know its group at the latest; zero: it does. Leveled: the
	// group tells what is degraded from what is up.
	SettledBy time.Time
	Leveled   bool
	// Draining: somebody asks this node to drain, whether or not the process ends. Stopping is
	// that it ends, in words; empty if it does not.
	Draining     bool
	Stopping     string
	DrainTimeout time.Duration
	NoIPv6       bool // IPv6 is disabled on lo
	Members      map[model.NodeName]model.Member
	Layer2Gen    uint64 // with which the layer 2 driver has reported
	Routers      Routers
}

// NodeOf begins with what the View says of this node. What the group knows of it is to be added:
// Leveled, SettledBy, Draining and Stopping.
func NodeOf(v *model.View, d *model.Desired) Node {
	lo, known := v.Links[model.LoopbackInterface]
	bgp := v.Applied[model.SinkBGP]
	d.Memory.Losses = Losses(v.Memory.Losses, &bgp, v.Now)
	return Node{
		Now: v.Now, Started: v.Started, Gen: d.Gen, Self: v.Self, Members: v.Gossip.Members, Layer2Gen: v.Applied[model.SinkLayer2].Gen,
		DrainTimeout: v.DrainTimeout, NoIPv6: known && !lo.IPv6,
		Routers: Routers{Peers: d.BGP.Peers, Report: bgp, Aggregates: v.Memory.Aggregates, Conflicts: v.Memory.Conflicts, Losses: d.Memory.Losses},
	}
}

// Input is all that the step for one VIP may look at.
type Input struct {
	*Node
	VIP *model.VIP
	// Gone: neither BGP nor the balancing of its connections asks for the VIP on lo any more.
	Gone bool
	Known
	// BalancedHere: the VIP is Balanced and this node takes part in that.
	BalancedHere bool

	// Standing says whether this node may serve the VIP, see Stand. It does not count if Gone.
	Standing place.Verdict
	Health   model.HealthState // of the VIP here
	Eligible []model.NodeName
	// OwnInterface is the interface that has the address for its own; empty: none.
	OwnInterface string

	LAN
	// AddressGen is the generation that the address driver has finished with. It and OnLoopback are
	// overwritten for an Unbound VIP, see phases.
	AddressGen uint64

	// Audience is who is to be told of the VIP; nobody, not nil, if it is Gone or OnlyBalanced.
	Audience *audience.Audience
	Ring     Ring
}

// Known is what is known of a VIP on lo before it is decided about.
type Known struct {
	// Memory is that of the decision before; Remembered: there is one.
	Memory     model.BGPMemory
	Remembered bool
	// OnLoopback is what the address driver says of the binding on lo; Reported: it says something.
	OnLoopback model.AppliedVIP
	Reported   bool
}

// LAN is where the VIP is at layer 2.
type LAN struct {
	// Interface is where layer 2 has the VIP, or would have it. OwnsOnLAN: this node owns the VIP
	// there. WantsOnLAN: the address is to be bound there, silently or not.
	Interface             string
	OwnsOnLAN, WantsOnLAN bool
	// OnLAN is what the address driver says, with AddressGen, of the binding there.
	OnLAN model.AppliedVIP
	// Silent: the layer 2 driver says, with Layer2Gen, that this host is silent on the LAN.
	Silent bool
	// Owner owns the VIP there; empty: nobody is known to.
	Owner model.NodeName
}

// Stand decides whether this node may tell routers of the VIP. The owner at layer 2 tells them of
// what follows it, whatever else is the case: it goes on until it has handed the VIP over. onLAN is
// the standing at layer 2, leaves is why this node leaves the VIP to others.
func (in *Input) Stand(v *model.View, onLAN model.Reason, leaves place.Verdict) {
	where := in.Where()
	switch {
	case !in.VIP.FollowsOwner():
		in.Standing = place.Standing(v, in.VIP, &in.Health, where, leaves)
	case !where.Reason.Eligible():
		in.Standing = where
	case in.OwnsOnLAN:
		in.Standing = place.Verdict{Reason: model.ReasonStandby}
	default:
		in.Standing = place.Verdict{Reason: onLAN, Detail: "its owner at layer 2 alone advertises it"}
	}
}

// Ring is what is known of the ring of a VIP.
type Ring struct {
	// Keeps: a ring on any interface finds the connections to the VIP that this node has;
	// KeepsOnLAN: one on Input.Interface does.
	Keeps, KeepsOnLAN bool
	// Driver: there is a driver that relays; it has finished with the generation Gen, and is
	// waited for as long as Patience.
	Driver   bool
	Gen      uint64
	Patience time.Duration
	// Others: other nodes have connections to the VIP.
	Others bool
}

// Output is the decision for one VIP.
type Output struct {
	Memory model.BGPMemory
	// Bind is the wanted address on lo; without an address: none.
	Bind model.Binding
	// Silent: this host is to be silent about the address on the LAN.
	Silent bool
	// Advertise: Input.Audience is to have its paths; Shutdown: with GRACEFUL_SHUTDOWN.
	Advertise, Shutdown bool
	// HoldSessions: this node is to begin no session yet, because of this VIP.
	HoldSessions bool

	// Status is what the group and people are told, but for words about the ring. Layer 2 tells
	// of what is OnlyBalanced.
	Status model.VIPStatus
	Wake   time.Time
}

// step is the working state of one Step.
type step struct {
	in *Input
	m  model.BGPMemory
	// l2: layer 2 may have the address too, bound on the LAN. boundOnLAN: layer 2 wants the
	// address there, and the address is bound there, silently or not.
	l2, boundOnLAN bool
	// standing is ReasonStandby if the VIP may be advertised.
	standing model.Reason
	detail   string
	// degraded: the required check passes, the preferred one does not.
	degraded     bool
	holdSessions bool
	wake         time.Time
}

// Step decides for one VIP.
func Step(in *Input) (o Output) {
	s := step{in: in, m: in.Memory, l2: in.mayBeOnLAN()}
	s.boundOnLAN = s.l2 && in.WantsOnLAN && in.OnLAN.Bound && s.lasts(in.OnLAN.Expires)
	if s.m.Phase == model.BGPIdle {
		s.m.Unbound = in.VIP.Unbound
	}
	// What BGP goes on to announce is kept by its own rules.
	s.m.Balanced = in.BalancedHere || s.m.Balanced && len(in.VIP.BGP) == 0
	s.stand()
	if !in.Remembered && (in.OnLoopback.Bound && !in.VIP.Unbound || s.l2 && in.OnLAN.Bound) {
		s.adopt()
	}
	s.phases()
	s.output(&o)
	return o
}

// OnlyBalanced tells whether the address is on lo for no other reason than that the VIP is, or
// was, Balanced.
func (in *Input) OnlyBalanced() bool {
	return (in.BalancedHere || in.Memory.Balanced) && len(in.VIP.BGP) == 0
}

// mayBeOnLAN tells whether layer 2 may have the address too.
func (in *Input) mayBeOnLAN() bool { return in.VIP.L2 && !in.VIP.Unbound }

// Where says whether the address can be on lo, and who would hear of it.
func (in *Input) Where() place.Verdict {
	only := in.OnlyBalanced()
	switch {
	case in.OwnInterface != "":
		return place.Verdict{Reason: model.ReasonLocalAddress, Detail: "it is an address of " + in.OwnInterface}
	case in.NoIPv6 && in.VIP.Addr.Is6():
		return place.Verdict{Reason: model.ReasonFamilyDisabled, Detail: "IPv6 is disabled on lo; set net.ipv6.conf.lo.disable_ipv6=0"}
	case only && in.Interface == "":
		return place.Verdict{Reason: model.ReasonNoInterface} // to be silent on
	case len(in.Audience.Peers) == 0 && !only:
		return place.Verdict{Reason: model.ReasonNoPeer}
	}
	return place.Verdict{}
}

// StaysWithRouters tells whether the process ends and every router keeps the path meanwhile, so
// that this node does not leave the VIP to others.
func (in *Input) StaysWithRouters() bool {
	return in.Audience.Keep && in.Stopping != "" && !in.Draining && len(in.Audience.Peers) > 0 && !in.mayBeOnLAN()
}

// at asks for another decision no later than t.
func (s *step) at(t time.Time) { s.wake = model.Earliest(s.wake, t) }

// lasts tells whether a lifetime has not ended, and has its end decided about: no driver may
// report it.
func (s *step) lasts(end time.Time) bool {
	if !s.in.Now.Before(end) {
		return end.IsZero()
	}
	s.at(end)
	return true
}

// output turns the phase into what drivers, the group and people are told.
func (s *step) output(o *Output) {
	in, phase := s.in, s.m.Phase
	o.HoldSessions, o.Shutdown, o.Advertise = s.holdSessions, phase == model.BGPShutdown, s.carries() && s.bound()
	o.Silent = phase != model.BGPIdle && s.l2 && !s.onLAN()
	wanted := phase != model.BGPIdle && phase != model.BGPUnbinding && !s.m.Unbound && !s.onLAN()
	// An address that layer 2 announces elsewhere is only bound here once this host is silent
	// about it. A silence of before the phase may have ended.
	if wanted && (!s.l2 || s.onLoopback() || in.Silent && in.Layer2Gen >= s.m.Gen) {
		o.Bind = model.Binding{Addr: in.VIP.Addr, Interface: model.LoopbackInterface, Epoch: s.m.Epoch, Linger: phase == model.BGPKept || phase == model.BGPLingering}
		if !s.l2 {
			o.Bind.Lifetime = model.LoopbackLifetime
		}
	}
	if !in.OnlyBalanced() && !(in.Gone && phase == model.BGPIdle) {
		s.status(&o.Status)
	}
	o.Status.Standing = s.standing
	switch {
	case s.standing != model.ReasonStandby:
	case s.degraded:
		o.Status.Standing = model.ReasonDegraded
	case phase == model.BGPAdvertised && o.Status.Announced:
		o.Status.Standing = model.ReasonOwner
	}
	o.Memory, o.Wake = s.m, s.wake
}

// carries tells whether paths are to be advertised because of this VIP.
func (s *step) carries() bool {
	return s.m.Phase == model.BGPAdvertised || s.m.Phase == model.BGPShutdown
}
