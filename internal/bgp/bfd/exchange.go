package bfd

import "time"

// receive is the reception of a Control packet that Parse accepted and that was
// found to be for this session, RFC 5880 section 6.8.6. at is when it arrived,
// at or before now. It returns why the packet was discarded, or accepted.
func (m *machine) receive(at, now time.Time, p *Packet, raw []byte) Reason {
	if r := m.authenticate(p, raw); r != accepted {
		return r
	}
	old := m.interval()
	m.remoteDiscr = p.MyDiscr
	m.remoteState, m.remoteDiag = p.State, p.Diag
	m.remoteDemand = p.Demand
	m.remoteMinRx, m.remoteMinTx, m.remoteMult = p.RequiredMinRx, p.DesiredMinTx, p.DetectMult
	if at.After(m.lastRx) {
		m.lastRx = at
	}
	m.paced(old)
	m.polled(now, p.Final)
	if m.state == AdminDown {
		if p.State == Down || p.State == AdminDown {
			m.farewell = 0 // it knows
		}
		return accepted
	}
	m.follow(now, p.State)
	m.final = m.final || p.Poll
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

// polled moves the own Poll Sequence on, RFC 5880 sections 6.5 and 6.8.3.
func (m *machine) polled(now time.Time, final bool) {
	switch {
	case final && m.poll == pollActive && m.pollSent:
		m.poll = pollSettled
		// A longer interval is used after the packet that is already due: should
		// an older one have overtaken the Poll, it puts that right.
		m.usedTx, m.usedRx = m.desiredTx, m.requiredRx
	case !final && m.poll == pollSettled:
		m.poll = pollIdle
		if m.again {
			m.retime(now)
		}
	}
}

// authenticate is RFC 5880 section 6.7. The hash is looked at first: a stranger
// must not be able to set the sequence number that is expected.
func (m *machine) authenticate(p *Packet, raw []byte) Reason {
	a := m.set.auth
	if a == nil {
		if p.Auth.Type != 0 {
			return DropAuth
		}
		return accepted
	}
	if p.Auth.Type != a.Type || p.Auth.KeyID != a.KeyID || !authentic(raw, a.Key) {
		return DropAuth
	}
	ahead := p.Auth.Sequence - m.rcvSeq // circular
	least := uint32(0)
	if a.Type == MeticulousKeyedSHA1 {
		least = 1
	}
	if m.seqKnown && (ahead < least || ahead > 3*uint32(p.DetectMult)) {
		return DropSequence
	}
	m.seqKnown, m.rcvSeq = true, p.Auth.Sequence
	return accepted
}

// silent: a passive session says nothing to a peer that it has not heard,
// RFC 5880 section 6.8.7.
func (m *machine) silent() bool { return m.set.passive && m.remoteDiscr == 0 }

// periodic tells whether packets are sent without a cause, RFC 5880 section
// 6.8.7.
func (m *machine) periodic() bool {
	switch {
	case m.silent():
		return false
	case m.state == AdminDown:
		return m.farewell > 0
	case m.remoteMinRx == 0:
		return false
	}
	demand := m.remoteDemand && m.state == Up && m.remoteState == Up
	return !demand || m.poll == pollActive
}

// transmit returns the packet that is to be sent now, if there is one: the
// answer to a Poll, a change of content (section 6.8.7), or the periodic one.
func (m *machine) transmit(now time.Time) (p Packet, ok bool) {
	switch {
	case m.silent():
		m.final, m.trigger = false, false
		return p, false
	case m.final:
		m.final = false
		// It carries what the trigger is about, but no Poll.
		m.trigger = m.trigger && m.poll == pollActive && !m.pollSent
		p = m.packet()
		p.Final = true
		m.number(&p)
		return p, true
	case !m.trigger && (!m.periodic() || now.Before(m.nextTx)):
		return p, false
	}
	p = m.packet()
	if m.poll == pollActive {
		p.Poll, m.pollSent = true, true
	}
	m.number(&p)
	m.schedule(now)
	return p, true
}

// schedule sets the time of the next periodic packet. It is counted from when
// this one was due, so that lateness does not add up, but not closer than the
// jitter may bring two packets. A time at which another session sends is as good as
// a random one, for that one is random, and saves a wake.
func (m *machine) schedule(now time.Time) {
	if m.state == AdminDown {
		m.farewell = max(0, m.farewell-1)
		m.nextTx = now.Add(m.pause)
	} else {
		due := m.nextTx
		if m.trigger || due.After(now) {
			due = now
		}
		least, most := m.jitter()
		first, last := now.Add(least), due.Add(most)
		var met time.Time
		if m.meet != nil {
			met = m.meet(first, last)
		}
		if m.nextTx = met; met.IsZero() {
			m.nextTx = due.Add(m.jittered())
		}
		if m.nextTx.Before(first) {
			m.nextTx = first
		}
	}
	m.trigger, m.lastTx = false, now
}

// packet is the content of the next packet, RFC 5880 section 6.8.7.
func (m *machine) packet() Packet {
	return Packet{
		Diag: m.diag, State: m.state, DetectMult: m.set.mult,
		MyDiscr: m.localDiscr, YourDiscr: m.remoteDiscr,
		DesiredMinTx: m.desiredTx, RequiredMinRx: m.requiredRx,
	}
}

// number adds the authentication section, RFC 5880 section 6.7.4: meticulous
// counts packets, keyed SHA1 contents.
func (m *machine) number(p *Packet) {
	a := m.set.auth
	if a == nil {
		return
	}
	if a.Type == MeticulousKeyedSHA1 || *p != m.lastSent {
		m.xmitSeq++
	}
	m.lastSent = *p
	p.Auth = AuthSection{Type: a.Type, KeyID: a.KeyID, Sequence: m.xmitSeq}
}
