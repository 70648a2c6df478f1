package bfd

import "time"

// output is what is to be sent next, and when.
type output struct {
	final      bool          // a Poll waits for its answer
	trigger    bool          // the next packet differs from the last one: send it now
	last, next time.Time     // packets
	farewell   int           // AdminDown: packets left to send
	pause      time.Duration // between them
}

// receive is the reception of a Control packet that Parse accepted and that was
// found to be for this session, RFC 5880 section 6.8.6. at is when it arrived,
// at or before now. It returns why the packet was discarded, or accepted.
func (m *machine) receive(at, now time.Time, p *Packet, raw []byte) Reason {
	if r := m.seq.authenticate(m.set.auth, p, raw); r != accepted {
		return r
	}
	old := m.interval()
	m.remote = *p
	if at.After(m.lastRx) {
		m.lastRx = at
	}
	m.paced(old)
	if m.terms.polled(p.Final) {
		m.retime()
	}
	if m.state == AdminDown {
		if p.State == Down || p.State == AdminDown {
			m.out.farewell = 0 // it knows
		}
		return accepted
	}
	m.follow(now, p.State)
	m.out.final = m.out.final || p.Poll
	return accepted
}

// follow is the state machine of RFC 5880 section 6.2, in the words of 6.8.6,
// but for a session that the damper holds in Down.
func (m *machine) follow(now time.Time, remote State) {
	switch {
	case remote == AdminDown:
		if m.state != Down {
			m.enter(now, Down, DiagNeighborDown)
		}
	case m.state == Down && m.damper.holds(now):
	case m.state == Down && remote == Down:
		m.enter(now, Init, DiagNone)
	case m.state == Down && remote == Init,
		m.state == Init && remote >= Init:
		m.enter(now, Up, DiagNone)
	case m.state == Up && remote == Down:
		m.enter(now, Down, DiagNeighborDown)
	}
}

// silent: a passive session says nothing to a peer that it has not heard,
// RFC 5880 section 6.8.7.
func (m *machine) silent() bool { return m.set.passive && m.remote.MyDiscr == 0 }

// periodic tells whether packets are sent without a cause, RFC 5880 section
// 6.8.7.
func (m *machine) periodic() bool {
	switch {
	case m.silent():
		return false
	case m.state == AdminDown:
		return m.out.farewell > 0
	case m.remote.RequiredMinRx == 0:
		return false
	}
	demand := m.remote.Demand && m.state == Up && m.remote.State == Up
	return !demand || m.terms.poll == pollActive
}

// transmit returns the packet that is to be sent now, if there is one: the
// answer to a Poll, a change of content (section 6.8.7), or the periodic one.
func (m *machine) transmit(now time.Time) (p Packet, ok bool) {
	switch {
	case m.silent():
		m.out.final, m.out.trigger = false, false
		return p, false
	case m.out.final:
		m.out.final = false
		// It carries what the trigger is about, but no Poll.
		m.out.trigger = m.out.trigger && m.terms.poll == pollActive && !m.terms.pollSent
		p = m.packet()
		p.Final = true
		m.seq.number(m.set.auth, &p)
		return p, true
	case !m.out.trigger && (!m.periodic() || now.Before(m.out.next)):
		return p, false
	}
	p = m.packet()
	if m.terms.poll == pollActive {
		p.Poll, m.terms.pollSent = true, true
	}
	m.seq.number(m.set.auth, &p)
	m.schedule(now)
	return p, true
}

// schedule sets the time of the next periodic packet. It is counted from when
// this one was due, so that lateness does not add up, but not closer than the
// jitter may bring two packets. A time at which another session sends is as good as
// a random one, for that one is random, and saves a wake.
func (m *machine) schedule(now time.Time) {
	if m.state == AdminDown {
		m.out.farewell = max(0, m.out.farewell-1)
		m.out.next = now.Add(m.out.pause)
	} else {
		due := m.out.next
		if m.out.trigger || due.After(now) {
			due = now
		}
		least, most := m.jitter()
		first := now.Add(least)
		if m.out.next = due.Add(m.jittered()); m.out.next.Before(first) {
			m.out.next = first
		}
		if m.meet != nil {
			m.out.next = m.meet(first, due.Add(most), m.out.next)
		}
	}
	m.out.trigger, m.out.last = false, now
}

// packet is the content of the next packet, RFC 5880 section 6.8.7.
func (m *machine) packet() Packet {
	return Packet{
		Diag: m.diag, State: m.state, DetectMult: m.set.mult,
		MyDiscr: m.localDiscr, YourDiscr: m.remote.MyDiscr,
		DesiredMinTx: m.terms.desiredTx, RequiredMinRx: m.terms.requiredRx,
	}
}
