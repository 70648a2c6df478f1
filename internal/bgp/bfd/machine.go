package bfd

import "time"

// slowInterval is the least bfd.DesiredMinTxInterval of a session that is not
// Up, RFC 5880 section 6.8.3.
const slowInterval = time.Second

// machine is the state machine of one session, RFC 5880 section 6.8. It has no
// clock and no socket: whoever runs it calls
//
//	receive    for each packet that belongs to the session,
//	advance    when next has come,
//	transmit   after each call, again and again until it has nothing to send.
//
// Names follow the state variables of section 6.8.1.
type machine struct {
	set  settings
	rand func() float64 // uniform in [0, 1), for the jitter
	// meet returns a time from least to most at which packets are sent in any case, or
	// own. It may be nil.
	meet func(least, most, own time.Time) time.Time

	state      State
	diag       Diag
	localDiscr uint32
	remote     Packet    // the last one that was not discarded, less what forget forgot of it
	lastRx     time.Time // when it came
	terms      terms
	out        output
	seq        sequence

	since       time.Time // of state
	everUp      bool
	transitions uint64 // changes to and from Up
	damper      damper
}

// settings are what a user chose for a session.
type settings struct {
	transmit, receive time.Duration
	mult              uint8
	passive           bool
	auth              *Auth
}

// terms are the intervals that are announced, those in use until a Poll Sequence
// has ended, and that sequence, RFC 5880 section 6.8.3.
type terms struct {
	desiredTx, usedTx  time.Duration
	requiredRx, usedRx time.Duration
	poll               pollState
	pollSent           bool // the present sequence has sent its first packet
	again              bool // the settings changed during a Poll Sequence
}

type pollState uint8

const (
	pollIdle    pollState = iota
	pollActive            // packets carry P
	pollSettled           // Final received; the next sequence waits for a packet without F, section 6.8.3
)

// newMachine begins in Down and sends at once. discr is unique and not 0; seq is
// random.
func newMachine(now time.Time, set settings, discr, seq uint32, rand func() float64) *machine {
	m := &machine{
		set: set, rand: rand, state: Down, localDiscr: discr, since: now,
		remote: Packet{State: Down, RequiredMinRx: time.Microsecond},
		terms:  terms{desiredTx: max(set.transmit, slowInterval), requiredRx: set.receive},
		out:    output{next: now},
		seq:    sequence{sent: seq},
	}
	m.terms.use()
	return m
}

// change gives the machine other settings, in whatever state it is. The session
// stays up; the peer learns of new intervals by a Poll Sequence, section 6.8.3.
func (m *machine) change(now time.Time, set settings) {
	old := m.set
	m.set = set
	if !set.auth.same(old.auth) {
		m.seq.known = false
	}
	if set.mult != old.mult {
		m.out.trigger = true
	}
	m.retime()
}

// disable takes the session down by an operator's wish, section 6.8.16. Until
// finished, a few packets tell the peer, if it was ever heard.
func (m *machine) disable(now time.Time) {
	m.out.pause = min(m.interval(), 300*time.Millisecond)
	heard := m.remote.MyDiscr != 0
	m.enter(now, AdminDown, DiagAdminDown)
	m.out.trigger = heard
	if heard {
		m.out.farewell = max(3, int(m.set.mult))
	}
}

// finished tells that a disabled session has told its peer, or has nobody to
// tell.
func (m *machine) finished() bool { return m.state == AdminDown && m.out.farewell == 0 }

func (m *machine) enter(now time.Time, s State, why Diag) {
	if m.state == Up || s == Up {
		m.transitions++
	}
	if m.state == Up {
		m.damper.ended(m.since, now)
	}
	m.state, m.diag, m.since = s, why, now
	m.everUp = m.everUp || s == Up
	m.damper.heard = false
	m.out.trigger = true
	// Whatever was being agreed on belongs to the state that ended.
	m.terms.cancel()
	m.terms.use()
	m.retime()
}

// retime brings the announced intervals to what settings and state ask for,
// RFC 5880 section 6.8.3, and begins a Poll Sequence if that changes them.
func (m *machine) retime() {
	desired, required := m.set.transmit, m.set.receive
	if m.state != Up {
		desired = max(desired, slowInterval)
	}
	old := m.interval()
	if m.terms.announce(desired, required, m.state == Up, m.remote.MyDiscr != 0) {
		m.out.trigger = true
		m.paced(old)
	}
}

// announce begins to agree on other intervals, and tells whether the next packet
// says them. Without a peer that was heard there is nobody to poll.
func (t *terms) announce(desired, required time.Duration, up, heard bool) bool {
	same := desired == t.desiredTx && required == t.requiredRx
	t.again = !same && up && t.poll != pollIdle // a Final could not be told from that of this sequence
	if same || t.again {
		return false
	}
	// The peer must know before packets come at longer intervals, and must send
	// faster before they are expected at shorter ones.
	if !up || desired <= t.usedTx {
		t.usedTx = desired
	}
	if !up || required >= t.usedRx {
		t.usedRx = required
	}
	t.desiredTx, t.requiredRx = desired, required
	if heard {
		t.poll, t.pollSent = pollActive, false
	}
	return true
}

// polled moves the own Poll Sequence on, RFC 5880 sections 6.5 and 6.8.3, and
// tells whether the settings have to be looked at again.
func (t *terms) polled(final bool) bool {
	switch {
	case final && t.poll == pollActive && t.pollSent:
		t.poll = pollSettled
		// A longer interval is used after the packet that is already due: should
		// an older one have overtaken the Poll, it puts that right.
		t.use()
	case !final && t.poll == pollSettled:
		t.poll = pollIdle
		return t.again
	}
	return false
}

func (t *terms) use()    { t.usedTx, t.usedRx = t.desiredTx, t.requiredRx }
func (t *terms) cancel() { t.poll, t.again = pollIdle, false }

// interval is the agreed time from one packet to the next, before jitter,
// RFC 5880 section 6.8.2.
func (m *machine) interval() time.Duration { return max(m.terms.usedTx, m.remote.RequiredMinRx) }

// detection is the time without a packet after which the peer is lost, RFC 5880
// section 6.8.4; 0 as long as nothing was heard.
func (m *machine) detection() time.Duration {
	return time.Duration(m.remote.DetectMult) * max(m.terms.usedRx, m.remote.DesiredMinTx)
}

// paced takes a new interval into use, counted from the last packet, as section
// 6.8.3 asks. old is the interval before.
func (m *machine) paced(old time.Duration) {
	if m.interval() != old && !m.out.last.IsZero() {
		m.out.next = m.out.last.Add(m.jittered())
	}
}

// jitter is the least time and the most from one packet to the next: the interval
// less 0 to 25 %, or 10 to 25 % if a single lost packet counts, RFC 5880 section
// 6.8.7.
func (m *machine) jitter() (least, most time.Duration) {
	i := float64(m.interval())
	if m.set.mult == 1 {
		return time.Duration(0.75 * i), time.Duration(0.9 * i)
	}
	return time.Duration(0.75 * i), time.Duration(i)
}

// jittered is a random time from least to most.
func (m *machine) jittered() time.Duration {
	least, most := m.jitter()
	return least + time.Duration(float64(most-least)*m.rand())
}

// advance does what is due at now: the end of the Detection Time, or of a hold.
func (m *machine) advance(now time.Time) {
	m.release(now)
	if m.remote.MyDiscr != 0 && !now.Before(m.lastRx.Add(m.detection())) {
		m.forget(now)
	}
	if m.seq.known && !now.Before(m.lastRx.Add(2*m.detection())) {
		m.seq.known = false // section 6.8.1, bfd.AuthSeqKnown
	}
}

// forget is the end of the Detection Time, RFC 5880 sections 6.8.4 and 6.8.1.
// The state of a peer in AdminDown is kept: that it was taken down by intent
// stays true when it then falls silent.
func (m *machine) forget(now time.Time) {
	if m.state == Init || m.state == Up {
		m.enter(now, Down, DiagTimeExpired)
	}
	old := m.interval()
	m.remote.MyDiscr, m.remote.Demand = 0, false
	m.remote.RequiredMinRx = time.Microsecond // else one that refused packets could never be called again
	if m.remote.State != AdminDown {
		m.remote.State = Down
	}
	m.terms.cancel()
	m.out.final, m.out.farewell, m.damper.heard = false, 0, false
	m.paced(old)
}

// expires is when advance has something to do; zero: never.
func (m *machine) expires() time.Time {
	switch {
	case m.remote.MyDiscr != 0:
		return m.lastRx.Add(m.detection())
	case m.seq.known:
		return m.lastRx.Add(2 * m.detection())
	}
	return time.Time{}
}

// next is when advance or transmit has something to do if no packet comes
// before; zero: never.
func (m *machine) next() time.Time {
	t := m.expires()
	if m.periodic() && (t.IsZero() || m.out.next.Before(t)) {
		t = m.out.next
	}
	if m.damper.heard && (t.IsZero() || m.damper.until.Before(t)) {
		t = m.damper.until
	}
	return t
}
