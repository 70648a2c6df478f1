// Package wire decides whether the network of an interface carries anything. An
// interface may have carrier while its VLAN is missing on a trunk; where gossip goes
// another way nothing else tells.
//
// Now and then a node asks another one on the wire. Where nobody answers it asks all that
// it may, and asks the group who is there: if others hear each other on that network, and
// still nobody answers, the wire of this node is dark. Where nobody at all is heard,
// or nobody can be asked, nothing is known, and nothing follows from it.
package wire

import (
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// Every is how often one host is asked while one answers.
	Every = 5 * time.Second
	// Again is how often all are asked while nobody does, and others hear each other, or have
	// yet to notice; and how often it is tried to ask where that did not succeed.
	Again = time.Second
	// Lasts is how long a question is repeated: longer than for a takeover, unless a VIP waits
	// for it.
	Lasts = 150 * time.Millisecond
	// Fresh is how old an answer may be when a VIP is about to be taken.
	Fresh = 100 * time.Millisecond
	// Patience is how long there may be no result of questions: then they could not be
	// put.
	Patience = time.Second
	// Verdict is for how long a wire that has just fallen silent gets no VIP from an owner
	// that is well: until the others have noticed, too.
	Verdict = Every + 2*Again
	// WitnessHolds is how old the sign of life of a node may be whose word begins the case
	// against a wire. Who is cut off altogether is told apart by it.
	WitnessHolds = 3 * time.Second
	// Most is how many hosts are asked at once, and how many of those that others hear are
	// asked beside them before a wire is dark.
	Most = 4
)

// State is what is known of a wire.
type State uint8

const (
	// Unknown: nobody can be asked, or nobody hears anybody.
	Unknown State = iota
	// Lit: somebody answers.
	Lit
	// Dark: nobody answers, while others hear each other.
	Dark
)

// Other is what another node that is alive says.
type Other struct {
	Hears []netip.Addr // who answers it, on whatever wires
	Heard time.Time    // see model.Member
}

// Input is all that the step for one interface may look at.
type Input struct {
	Now time.Time
	Gen uint64 // of the decision being made
	// Urgent: a VIP is about to come here.
	Urgent bool
	// Hosts may be asked, the one that answered last first if it still may; at most Most.
	Hosts []netip.Addr
	// Known are hosts that may be asked, too, since others say that they answer; at most Most.
	Known []netip.Addr
	// Own are the addresses of this node on the interface, with their subnets.
	Own    []netip.Prefix
	Others []Other
	// Results are what layer 2 last reported.
	Results map[netip.Addr]model.AppliedVIP
	Memory  model.WireMemory
}

// Output is what follows.
type Output struct {
	Memory model.WireMemory
	State  State
	// Pending: the questions that an urgent case needs are to be put, or are out.
	Pending bool
	// Hushed: it is silent, and others hear each other, or it is too early to know why.
	Hushed bool
	// Ask the group who is there.
	Ask  bool
	Wake time.Time
}

// Step decides for one interface. Applied to its own output with unchanged facts it
// changes nothing.
func Step(in *Input) Output {
	s := step{in: in, m: in.Memory}
	if len(in.Hosts) == 0 {
		return Output{}
	}
	// What others said holds until they say otherwise, or are gone: not all of them can be
	// asked each time who is there.
	if !s.m.Silent.IsZero() && !s.words().apart() {
		s.m.Witness, s.m.Dark = time.Time{}, false
	}
	if s.m.Phase == model.WireAsking {
		s.asking()
	}
	if s.m.Phase == model.WireAsking && in.Urgent && !s.m.Short && !s.m.Mute {
		s.ask(true) // the one that is asked may be the owner that is gone
	}
	switch s.m.Phase {
	case model.WireResting:
		s.resting()
	case model.WireSilent:
		s.silent()
	}
	return s.output()
}

type step struct {
	in   *Input
	m    model.WireMemory
	wake time.Time
}

func (s *step) at(t time.Time) {
	if s.wake.IsZero() || t.Before(s.wake) {
		s.wake = t
	}
}

// ask puts the question to the host that answered last, or to all.
func (s *step) ask(all bool) {
	s.m.Phase, s.m.At, s.m.Series, s.m.All = model.WireAsking, s.in.Now, s.in.Gen, all
	s.m.Asked, s.m.Short = s.in.Hosts, s.in.Urgent
	switch {
	case !all:
		s.m.Asked = s.in.Hosts[:1]
	case !s.m.Witness.IsZero():
		s.m.Asked = slices.Concat(s.in.Hosts, s.in.Known)
	}
	s.at(s.in.Now.Add(Patience))
}

// asking looks for answers.
func (s *step) asking() {
	left := false
	for _, a := range s.m.Asked {
		r := s.in.Results[a].Probe
		// A node of a ring may have been asked for by another series.
		if !r.Done || r.Series != s.m.Series && r.At.Before(s.m.At) {
			left = true
			continue
		}
		if r.Answered {
			s.m.By, s.m.Heard, s.m.Mute = a, s.in.Now, false
			s.rest()
			return
		}
	}
	switch over := s.m.At.Add(Patience); {
	case left && s.in.Now.Before(over):
		s.at(over)
	case left: // the questions could not be put, which is another matter
		s.unput()
	case !s.m.All:
		s.ask(true)
	default:
		s.unanswered()
	}
}

// rest ends what is held against the wire.
func (s *step) rest() {
	s.m.Phase = model.WireResting
	s.m.Silent, s.m.Witness, s.m.Dark = time.Time{}, time.Time{}, false
}

// unput ends a round of questions that could not be put. That says nothing of the wire; but
// what is known already is not forgotten for one such round, for the driver may be busy.
func (s *step) unput() {
	if again := s.m.Mute; s.m.Silent.IsZero() || again {
		s.m.Heard = time.Time{}
		s.rest()
	} else {
		s.m.Phase = model.WireSilent
	}
	s.m.Mute = true
}

// unanswered ends a round of questions to all.
func (s *step) unanswered() {
	s.m.Phase, s.m.Mute = model.WireSilent, false
	if s.m.Silent.IsZero() {
		s.m.Silent = s.m.At
	}
	// What was asked before the others were known to hear each other shows nothing: the
	// whole network may have come back in between.
	s.m.Dark = s.m.Dark || s.words().apart() && !s.m.Witness.IsZero() && !s.m.At.Before(s.m.Witness)
}

// resting waits until it is time to ask.
func (s *step) resting() {
	next := s.m.At.Add(Every)
	if s.m.Mute { // nothing is known of the wire until a question can be put
		next = s.m.At.Add(Again)
	}
	urgent := s.in.Urgent && s.stale() && !s.m.Mute
	if s.in.Now.Before(next) && !urgent {
		s.at(next)
		return
	}
	s.ask(urgent || s.m.By != s.in.Hosts[0])
}

// stale tells whether the last answer says nothing of this moment any more.
func (s *step) stale() bool { return s.in.Now.Sub(s.m.Heard) > Fresh }

// silent: nobody answers, and it is seen whether others hear each other.
func (s *step) silent() {
	if w := s.words(); w.apart() && w.fresh && s.m.Witness.IsZero() {
		s.m.Witness = s.in.Now
		s.ask(true)
		return
	}
	next := s.m.At.Add(Every)
	if !s.m.Witness.IsZero() || s.early() {
		next = s.m.At.Add(Again)
	}
	if s.in.Now.Before(next) {
		s.at(next)
		return
	}
	s.ask(true)
}

// early tells whether the others may not have noticed yet that the wire is silent.
func (s *step) early() bool { return s.in.Now.Before(s.m.Silent.Add(Verdict)) }

// words are what the others said last of the networks of the interface.
type words struct {
	us    bool // one hears this node
	other bool // one hears another
	fresh bool // and has given a sign of life since the silence began
}

// apart tells whether others hear each other, and none of them hears this node.
func (w words) apart() bool { return w.other && !w.us }

func (s *step) words() (w words) {
	for _, o := range s.in.Others {
		fresh := o.Heard.After(s.m.Silent) && s.in.Now.Sub(o.Heard) <= WitnessHolds
		for _, a := range o.Hears {
			us, other := s.whose(a)
			w.us, w.other, w.fresh = w.us || us, w.other || other, w.fresh || other && fresh
		}
	}
	return w
}

// whose tells whether an address is one of this node, or of another in a subnet of the
// interface.
func (s *step) whose(a netip.Addr) (us, other bool) {
	for _, p := range s.in.Own {
		us = us || p.Addr() == a
		other = other || !p.IsSingleIP() && p.Contains(a)
	}
	return us, other && !us
}

// For is how long the questions that are out are repeated.
func For(m *model.WireMemory) time.Duration {
	if m.Short {
		return 0
	}
	return Lasts
}

func (s *step) output() Output {
	silent := !s.m.Silent.IsZero()
	o := Output{Memory: s.m}
	switch {
	case s.m.Dark:
		o.State = Dark
	case !silent && !s.m.Heard.IsZero():
		o.State = Lit
	}
	o.Pending = s.stale() && !silent && !s.m.Mute && (s.m.Phase == model.WireAsking || s.m.At.IsZero() || s.in.Now.Sub(s.m.At) > Fresh)
	if silent {
		o.Ask, o.Hushed = s.hush()
	}
	o.Wake = s.wake
	return o
}

// hush tells whether the group is to be asked who is there, which is to be for a moment with
// each round only if nobody ever answers, and whether an owner that is well is to keep its VIP. While
// the silence is new the owner keeps it, whatever the others say: they may not have noticed yet.
func (s *step) hush() (ask, hushed bool) {
	w := s.words()
	if s.early() {
		s.at(s.m.Silent.Add(Verdict))
		return s.m.Witness.IsZero(), true
	}
	if end := s.m.At.Add(Again); w.apart() && s.m.Witness.IsZero() && s.in.Now.Before(end) {
		s.at(end)
		ask = true
	}
	return ask, w.apart()
}

// Nearest adds a host to those that are asked, if it is to be: first goes first, then the
// next higher addresses do. So each node asks others than its neighbours do.
func Nearest(hosts []netip.Addr, host, own, first netip.Addr) []netip.Addr {
	i, _ := slices.BinarySearchFunc(hosts, host, func(a, b netip.Addr) int { return compare(own, first, a, b) })
	if i == Most {
		return hosts
	}
	hosts = slices.Insert(hosts, i, host)
	return hosts[:min(len(hosts), Most)]
}

func compare(own, first, a, b netip.Addr) int {
	if x, y := rank(own, first, a), rank(own, first, b); x != y {
		return x - y
	}
	return a.Compare(b)
}

func rank(own, first, a netip.Addr) int {
	switch {
	case a == first:
		return 0
	case own.Less(a):
		return 1
	}
	return 2
}
