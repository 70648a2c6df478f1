// Package election decides for one VIP on one node: who owns it, whether this
// node takes it, hands it over or lets go. It is pure: time comes in with the
// input and goes out as a wake-up, the wire comes in as reports of drivers.
//
// The rules are those of docs/election.md. In short: the highest (epoch, rank)
// claim of a live node owns the VIP; without one the best ranked eligible node
// asks the wire and, if nobody answers, claims the next epoch; an owner that
// must go names a successor and falls silent when that one has claimed.
package election

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// RulesVersion is the newest version of these rules. It is gossiped; a group
// runs the highest version that all its live members speak.
const RulesVersion = 2

// RulesDegraded is the version since which a node that is up goes before one that is
// degraded. Members that speak an older one take the two for the same.
const RulesDegraded = 2

// Rules is the version that the group runs: the highest that all its live members
// speak, this node included. A member that has not said yet does not count; it
// hears of the group before it takes anything, see settling.
func Rules(members map[model.NodeName]model.Member) int {
	v := RulesVersion
	for _, m := range members {
		if m.State == model.MemberAlive && m.Known && m.Rules > 0 {
			v = min(v, m.Rules)
		}
	}
	return v
}

// Timing of the rules. All are well above a LAN's round trip and below what a
// client notices; they hold for every detection profile.
const (
	// Stagger separates the turns of the candidates for a VIP without owner. It
	// is longer than a probe series, the binding and one gossip message together.
	Stagger = 150 * time.Millisecond
	// FirstWord is how long a node waits, for a VIP that nobody ever owned, for what
	// better ranked nodes that are alive say of it.
	FirstWord = 500 * time.Millisecond
	// FirstTurn lengthens the turns for such a VIP for each other one that nobody owns yet: a
	// node that has hundreds to ask for, at a hundred or more a second, must not lose
	// them to those who come after it. FirstTurnMax bounds a turn; one that has died
	// meanwhile is not waited for.
	FirstTurn    = 10 * time.Millisecond
	FirstTurnMax = 10 * time.Second
	// DoubtFor is how long an owner that stood still asks the wire before it answers
	// again. Another node may have asked just before, and begins to answer on that
	// silence for SilenceHolds, counted from the end of its series; it must still be
	// found.
	DoubtFor = SilenceHolds + 50*time.Millisecond
	// HandoverTimeout is how long an owner waits for the claim of the successor
	// that it named before it names the next one.
	HandoverTimeout = 500 * time.Millisecond
	// ClaimFollows is how long an owner that hears its successor on the wire waits for the
	// claim, which that one sends after its first announcement, before it asks the wire.
	ClaimFollows = 50 * time.Millisecond
	// AskMin and AskMax bound the back-off between probe series for a VIP that
	// still answers although its owner is not heard.
	AskMin = 100 * time.Millisecond
	AskMax = time.Second
	// FirstAsks is for how many series a member that answers for a VIP that nobody ever
	// owned may just have taken it, and its claim be under way.
	FirstAsks = 4
	// AskClose is the pause between series around the end of the owner's lease,
	// from LeaseBefore before it until LeaseAfter after it. The kernel removes an
	// expired address 10 to 250 ms late as a rule, up to 1 s late if it has just
	// changed another one (ADDRCONF_TIMER_FUZZ_MAX), and never early; and the owner
	// may have renewed the lifetime, by up to a third of it, after the last
	// heartbeat that told of it.
	AskClose    = 15 * time.Millisecond
	LeaseBefore = 100 * time.Millisecond
	LeaseAfter  = 2300 * time.Millisecond
	// SilenceHolds is how long after a probe series nobody answered the address
	// may be bound. With a series it is shorter than Stagger, so that the next
	// candidate's first probe is answered.
	SilenceHolds = 100 * time.Millisecond
	// ConsentHolds is the same for the consent of an owner, which names another
	// successor after HandoverTimeout.
	ConsentHolds = 300 * time.Millisecond
	// StaleWords is how long a node that stood still takes no owner at its word that
	// names it: it may have waited in the socket while another successor was named,
	// and has taken the VIP. Claims are told anew at least once a second.
	StaleWords = 1500 * time.Millisecond
	// LingerMin is how long a released address stays bound, silently, at least:
	// longer than the first three announcements of the successor.
	LingerMin = 500 * time.Millisecond
	// DriverPatience is how long an address may fail to be bound or announced
	// before this node lets another one try.
	DriverPatience = 2 * time.Second
	// DriverPause is how long it then stays out of the election.
	DriverPause = 10 * time.Second
	// RetrySuccessor is when an owner that found no successor tries those again
	// that did not answer.
	RetrySuccessor = time.Second
	// OutlivedWithin is how long after its start an owner raises its epoch above
	// that of its former life.
	OutlivedWithin = 5 * time.Second
	// RelayFor is how long the new owner relays packets of connections that it does
	// not have after a planned move: handshakes under way end where they began. The
	// old owner is bound for LingerMin at least.
	RelayFor = 500 * time.Millisecond
	// PreemptDelay is how long an owner must have owned a VIP with preempt before
	// it hands it to a better ranked node.
	PreemptDelay = 5 * time.Second
	// DegradedGrace is how long the owner of a VIP must have been degraded, and another
	// node up all the while, before that one gets the VIP. What all nodes lose at once, such
	// as the quorum of etcd, each of them notices within an interval of its check, 500 ms
	// by default; then nothing moves. With the time to notice it is less than 1.5 s.
	DegradedGrace = 600 * time.Millisecond
	// DegradedDrain bounds for how long a node that is degraded keeps open connections to
	// a VIP that it has handed over: those who have them had better connect again.
	DegradedDrain = 2 * time.Second
)

// Report is what a driver last said of the VIP.
type Report struct {
	Gen uint64 // Desired.Gen it finished with; 0: no report yet
	model.AppliedVIP
}

// Node is what the steps for all VIPs may look at.
type Node struct {
	Now  time.Time
	Gen  uint64 // of the decision being made
	Self model.NodeName
	// Rules is the version of the rules to decide by, see RulesDegraded.
	Rules  int
	Weight int
	// Settled: the node knows the group well enough to trust what it has heard of
	// former epochs.
	Settled bool
	Members map[model.NodeName]model.Member
	// Heaviest is the weight that neither this node nor a member exceeds, known or not. If it is 0
	// the decision is the same and takes longer.
	Heaviest int
	// Fresh is how many VIPs that nobody ever owned this node was about to take when
	// they were most, since there were any.
	Fresh int
	// Crowd is how many times as many unbound VIPs wait as this node may ask the wire
	// for at once; their turns last longer by so many times.
	Crowd int
	// Distrust: the process has not run for a while; only reports of this
	// generation count.
	Distrust bool
	// Lapsed: the process has not run for so long that another node may have taken
	// what it answers for itself.
	Lapsed bool
	// Resumed is when this process last went on after it had stood still.
	Resumed time.Time
}

// Where is the place of the VIP on this node.
type Where struct {
	// Interface and MAC are where this node would bind the VIP.
	Interface string
	MAC       model.MAC
	// Unasked: whether the network of the interface carries anything has not been asked
	// lately enough to take the VIP. Hushed: it was, and nobody answered, so that an owner that is
	// well had better give the VIP to another one.
	Unasked, Hushed bool
	// Keep: the new owner relays what belongs to open connections, so that they all
	// count, and not only those that clients still send to this host.
	Keep bool
	// Hold: after a planned move the host cannot relay yet what belongs to the former
	// owner. Whoever is told of the new owner before that is reset.
	Hold bool
}

// Heard is what the group tells of the VIP.
type Heard struct {
	Claims   []model.Claim
	Eligible []model.NodeName
	Seen     uint64 // the highest epoch
}

// Input is all that the step for one VIP may look at.
type Input struct {
	*Node
	VIP *model.VIP
	// Standing is ReasonStandby if this node may own the VIP, ReasonDegraded if it may
	// but a node that is up is better, else why not.
	Standing model.Reason
	// Gone: the VIP is not configured any more.
	Gone  bool
	Drain time.Duration // how long connections may linger
	// Busy: it is not bound, and this node asks the wire for as many as it may at once.
	Busy bool
	// Enough: as many VIPs are suspected in this decision as may be, see MostSuspected.
	Enough bool
	Where
	Heard
	// Address is ignored, and overwritten, for an Unbound VIP: see byItself.
	Address, Layer2 Report
	Memory          model.VIPMemory
}

// Output is the decision for one VIP.
type Output struct {
	Memory     model.VIPMemory
	Bind       *model.Binding
	L2         *model.L2Advert
	Claim      model.Claim // Epoch 0: none
	Owner      model.NodeName
	Reason     model.Reason
	Detail     string
	Successors []model.NodeName
	// Next is 1 or 2 if this node is the first or the second successor of Owner, which has to
	// send it heartbeats; 0: neither.
	Next int
	// Asking: the VIP may be taken soon; the others should be asked whether they are
	// there.
	Asking bool
	// Urgent: this node is about to take the VIP, so the network is to be asked.
	Urgent bool
	// Fresh: so it is, nobody ever owned it, and nobody has answered for it.
	Fresh bool
	// Suspected: a heartbeat of the owner was missed, and this node has asked the wire for it.
	Suspected bool
	// Rivals are the other nodes, dead or alive, that claim the VIP too.
	Rivals []model.NodeName
	// Spared: it is unbound, and the connections to it are not to be reset.
	Spared bool
	Wake   time.Time
}

// Step decides for one VIP. Applied to its own output with unchanged facts it
// changes nothing.
func Step(in *Input) Output {
	s := step{in: in, m: in.Memory}
	s.outclass()
	if in.Distrust {
		s.distrust()
	}
	if in.VIP.Unbound {
		return s.unbound()
	}
	if s.m.Phase == model.PhaseIdle {
		s.m.Unbound = false
	}
	s.phases()
	return s.output()
}

func (s *step) phases() {
	// A phase may end at once in the next one; the number of phases bounds it.
	for range maxTransitions {
		before := s.m.Phase
		if s.m.Unbound {
			s.byItself()
		}
		s.observe() // which claims count depends on the phase
		s.run()
		if s.m.Phase == before {
			break
		}
	}
}

const maxTransitions = 8

// distrust forgets what drivers said before the process was stopped: a silence
// on the wire that it did not listen to, an address that may have expired.
func (s *step) distrust() {
	s.m.Gen = s.in.Gen
	if s.m.Phase == model.PhaseProbing || s.m.Phase == model.PhaseDoubt {
		s.m.Series++
	} else {
		s.m.Dispute = nil // it is not known what was heard meanwhile
	}
}

// step is the working state of one Step.
type step struct {
	in   *Input
	m    model.VIPMemory
	best model.Claim // highest claim of another live node; Epoch 0: none
	wake time.Time
	// counted is the last result of rankUpTo.
	counted counted
	// detail adds words to the reason.
	detail string
	// urgent: see Output.
	urgent bool
	// suspected: see Output.
	suspected bool
	// lapsed: what this node held when the step began may be with another one.
	lapsed bool
}

// enter changes the phase; reports count from this generation on.
func (s *step) enter(p model.Phase) {
	s.m.Phase = p
	s.m.Gen = s.in.Gen
	s.m.Until = time.Time{}
	if p != model.PhaseDoubt {
		s.m.Dispute = nil
	}
}

// turn changes between Owner and Handover: what is bound stays confirmed.
func (s *step) turn(p model.Phase) {
	gen := s.m.Gen
	s.enter(p)
	s.m.Gen = gen
}

// at asks for another decision no later than t.
func (s *step) at(t time.Time) {
	if s.wake.IsZero() || t.Before(s.wake) {
		s.wake = t
	}
}

// observe finds the claim that counts.
func (s *step) observe() {
	s.best = model.Claim{}
	for _, c := range s.in.Claims {
		if s.counts(c) && (s.best.Epoch == 0 || s.beats(c, s.best)) {
			s.best = c
		}
	}
}

// counts tells whether it is the claim of another live node.
func (s *step) counts(c model.Claim) bool {
	if c.Epoch == 0 || c.Owner == s.in.Self || s.gone(c.Owner) {
		return false
	}
	// That of the one that was taken over from counts when it is heard again.
	return !s.holds() || !s.m.Weak || c.Epoch != s.m.Epoch || !s.late(c.Owner) && (c.Owner != s.m.From || !s.early())
}

// gone tells whether the failure detector has given the node up. A node that is
// not known yet is not gone: its claim may arrive before its membership.
func (s *step) gone(n model.NodeName) bool {
	m, ok := s.in.Members[n]
	return ok && m.State != model.MemberAlive
}

// late tells whether heartbeats of the node are overdue.
func (s *step) late(n model.NodeName) bool { return !s.in.Members[n].Late.IsZero() }

// beats orders claims by epoch, then by rank.
func (s *step) beats(a, b model.Claim) bool {
	if a.Epoch != b.Epoch {
		return a.Epoch > b.Epoch
	}
	if a.Weak != b.Weak {
		return b.Weak
	}
	// Of two nodes that both have the VIP, each must think the same of who yields.
	// What is preferred comes from the API server, and may reach one before the other.
	x, y := s.candidate(a.Owner), s.candidate(b.Owner)
	x.Preference, y.Preference = 0, 0
	x.Degraded, y.Degraded = false, false // nor does gossip bring that to all at once
	name := s.in.VIP.Name
	if m, n := s.told(a.Owner), s.told(b.Owner); m != n && m != "" && n != "" {
		name = "" // by those names each may rank first
	}
	return Better(name, x, y)
}

// beaten tells whether another live node has a better claim than this one.
func (s *step) beaten() bool {
	own := model.Claim{Owner: s.in.Self, Epoch: s.m.Epoch, Weak: s.m.Weak}
	// Of three with different names the best one may not be the one that beats this.
	return slices.ContainsFunc(s.in.Claims, func(c model.Claim) bool { return s.counts(c) && s.beats(c, own) })
}

func (s *step) candidate(n model.NodeName) Candidate {
	if n == s.in.Self {
		return Candidate{Node: n, Weight: s.in.Weight, Preference: s.in.VIP.Preference.Of(n), Degraded: s.degraded()}
	}
	m := s.in.Members[n]
	return s.candidateOf(n, &m)
}

// candidateOf is a candidate that was looked up.
func (s *step) candidateOf(n model.NodeName, m *model.Member) Candidate {
	return Candidate{Node: n, Weight: m.Weight, Preference: s.in.VIP.Preference.Of(n), Degraded: s.leveled() && m.Standing[s.in.VIP.Addr] == model.ReasonDegraded}
}

// nextEpoch is above everything that was ever claimed as far as this node knows.
func (s *step) nextEpoch() uint64 {
	e := max(s.in.Seen, s.m.Epoch)
	for _, c := range s.in.Claims {
		e = max(e, c.Epoch)
	}
	return e + 1
}

// HeardWithin is how old an answer to GroupState.Ask may be: the question is put
// with each decision while a VIP has no owner, which is twice a second.
const HeardWithin = time.Second

// lostTogether is how long before the owner another node may have died for the same cause,
// which may be that this node is cut off: memberlist gives up one after the other.
const lostTogether = 30 * time.Second

// alone tells whether no other node has answered since the owner was missed. Then
// the owner may be well and this node cut off: it takes the VIP for its side of the
// wire, but must not win when the sides meet. In a group of two nobody can tell.
func (s *step) alone() bool {
	others := 0
	for n, m := range s.in.Members {
		if n == s.m.From || m.State == model.MemberLeft {
			continue
		}
		if m.State == model.MemberDead && !m.Gone.IsZero() && s.m.LostAt.Sub(m.Gone) > lostTogether {
			continue // it was not lost with the owner, and cannot answer
		}
		others++
		if !m.Heard.Before(s.m.LostAt) && s.in.Now.Sub(m.Heard) <= HeardWithin {
			return false
		}
	}
	return others > 0 && s.m.From != "" && s.m.From != s.in.Self
}

// claimed is the highest epoch that another node, dead or alive, claims now. An
// owner does not outbid it: two owners that believe each other dead and meet
// after a partition would go on for ever, one message after the other.
func (s *step) claimed() uint64 {
	var e uint64
	for _, c := range s.in.Claims {
		if c.Owner != s.in.Self {
			e = max(e, c.Epoch)
		}
	}
	return e
}

// mayOwn tells whether this node may take the VIP.
func (s *step) mayOwn() bool { return s.in.Standing.Eligible() && !s.in.Gone && !s.pausing() }

// pausing: a driver has just failed this node for the VIP. The next decision has
// it in the standing too.
func (s *step) pausing() bool {
	return s.m.Lost == model.ReasonDriverError && s.in.Now.Before(s.m.Deferred)
}

// bound tells whether the address driver has said, since the phase began, that
// the VIP is bound where it is wanted.
func (s *step) bound() bool {
	a := s.in.Address
	return a.Gen >= s.m.Gen && a.Bound && a.Interface == s.m.Interface
}

// ownerName is who owns the VIP as this node sees it.
func (s *step) ownerName() model.NodeName {
	if s.holds() && !s.beaten() {
		return s.in.Self
	}
	return s.best.Owner
}

// holds tells whether this node stands by a claim of its own.
func (s *step) holds() bool {
	switch s.m.Phase {
	case model.PhaseTaking, model.PhaseOwner, model.PhaseHandover, model.PhaseDoubt:
		return true
	}
	return false
}
