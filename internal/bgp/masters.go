package bgp

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/model"
)

// connected are the masters of listeners. Driver.peerMu guards them.
type connected struct {
	masters map[netip.Addr]*master
	hears   bool                 // there are listeners
	full    map[string]bool      // listeners that had no room for a master, of which people know
	endless map[string]time.Time // when a listener last refused a session without a hold time
}

// master is one that is connected to a listener.
type master struct {
	Master
	bfdState
	conf *model.BFDProfile // of its BFD session; nil: it has none
	way  way
}

// errNoListener is about a speaker of another kind than that of lbd.
var errNoListener = errors.New("the BGP speaker takes no sessions of masters")

// applyListeners makes the listeners those of the decision, and finds out who is connected.
func (d *Driver) applyListeners(w *model.BGPState) error {
	l, is := d.speaker.(Listener)
	if !is {
		if len(w.Listeners) > 0 {
			return errNoListener
		}
		return nil
	}
	listeners := w.Listeners
	if w.Leave {
		listeners = nil
	}
	d.peerMu.Lock()
	none := len(listeners) == 0 && len(d.masters) == 0 && !d.hears
	d.peerMu.Unlock()
	if none {
		return nil
	}
	err := l.SetListeners(listeners)
	d.peerMu.Lock()
	d.hears = len(listeners) > 0
	d.peerMu.Unlock()
	admitted, surplus := d.admit(d.refuseEndless(l))
	for _, m := range surplus {
		l.EndMaster(m.Address, fullWords)
	}
	d.tellFull(admitted, surplus)
	if d.meet(admitted, listeners) {
		err = errors.Join(err, d.applyBFD(w))
	}
	return err
}

// MaxMasters is how many masters a listener has at most: no more are next hops of a prefix, and
// whoever has many addresses in its prefixes must not fill the memory. Without a password such a
// machine can keep masters out that come later; those that are connected stay.
const MaxMasters = 256

// fullWords is what a master is told for which there is no room, RFC 9003.
const fullWords = "no room for another master"

// endlessWords is what a master is told that asked for no hold time, RFC 9003.
const endlessWords = "a session needs a hold time"

// tellEndless is how long people need not be told again of such a master, which comes again and again.
const tellEndless = 10 * time.Minute

// refuseEndless ends sessions for which the master has asked for no hold time, and leaves the others:
// the path of a master that has died would last as long as its connection. The speaker says nothing
// of it while a session is opened (RFC 4271 section 6.2 lets it).
func (d *Driver) refuseEndless(l Listener) (others []Master) {
	for _, m := range l.Masters() {
		if m.State != Established || m.HoldTime > 0 {
			others = append(others, m)
			continue
		}
		l.EndMaster(m.Address, endlessWords)
		d.peerMu.Lock()
		told := time.Since(d.endless[m.Listener]) <= tellEndless
		d.endless[m.Listener] = time.Now()
		d.peerMu.Unlock()
		if !told {
			d.log.Warn("BGPListener refuses a session without a hold time", "listener", m.Listener, "address", m.Address)
		}
	}
	return others
}

// admit leaves no more masters of a listener than it may have: those with a session that are known go
// first. Whoever has no session yet takes no room; the speaker bounds how many those are.
func (d *Driver) admit(all []Master) (admitted, surplus []Master) {
	if len(all) <= MaxMasters {
		return all, nil
	}
	d.peerMu.Lock()
	defer d.peerMu.Unlock()
	count := make(map[string]int)
	for _, known := range []bool{true, false} {
		for _, m := range all {
			if is := d.masters[m.Address]; known != (is != nil && is.Master.State == Established) {
				continue
			}
			if m.State == Established {
				count[m.Listener]++
			}
			if m.State == Established && count[m.Listener] > MaxMasters {
				surplus = append(surplus, m)
			} else {
				admitted = append(admitted, m)
			}
		}
	}
	return admitted, surplus
}

// tellFull says once that a listener has no room for a master, and once that it has again.
func (d *Driver) tellFull(admitted, surplus []Master) {
	d.peerMu.Lock()
	defer d.peerMu.Unlock()
	for _, m := range surplus {
		if !d.full[m.Listener] {
			d.full[m.Listener] = true
			d.log.Warn("BGPListener has no room for another master; BGP sessions end until it has", "listener", m.Listener, "address", m.Address, "most", MaxMasters)
		}
	}
	for name := range d.full {
		count := 0
		for _, m := range admitted {
			if m.Listener == name && m.State == Established {
				count++
			}
		}
		if count < MaxMasters {
			delete(d.full, name)
			d.log.Info("BGPListener has room for masters again", "listener", name)
		}
	}
}

// meet notes who is connected, and tells whether BFD sessions have to begin or end. One begins
// when the BGP session is up, and ends with it.
func (d *Driver) meet(all []Master, listeners []model.BGPListener) (news bool) {
	d.peerMu.Lock()
	defer d.peerMu.Unlock()
	next := make(map[netip.Addr]*master, len(all))
	for _, m := range all {
		is := d.masters[m.Address]
		if is == nil {
			is = &master{}
		}
		if is.Master.State != m.State {
			d.log.Debug("master", "listener", m.Listener, "address", m.Address, "state", m.State.String())
		}
		is.Master = m
		var conf *model.BFDProfile
		if i := slices.IndexFunc(listeners, func(l model.BGPListener) bool { return l.Name == m.Listener }); i >= 0 && m.State == Established {
			conf = listeners[i].BFD
		}
		if (conf == nil) != (is.conf == nil) || conf != nil && *conf != *is.conf {
			news = true
			if is.conf == nil || conf == nil {
				is.bfdState = bfdState{}
			}
			is.way = way{peer: m.Address, source: m.Local, local: m.Local, at: time.Now()}
		}
		is.conf = conf
		next[m.Address] = is
	}
	for addr, m := range d.masters {
		news = news || next[addr] == nil && m.conf != nil
	}
	d.masters = next
	return news
}

// masterSessions are the BFD sessions of masters. d.peerMu is held.
func (d *Driver) masterSessions() (out []bfd.Session) {
	for _, m := range d.masters {
		if m.conf != nil {
			out = append(out, bfdSession(&model.BGPPeer{Address: m.Address, BFD: m.conf}, m.way))
		}
	}
	slices.SortFunc(out, func(a, b bfd.Session) int { return a.Peer.Compare(b.Peer) })
	return out
}

// failedMasters are those whose BFD session went down since the last look, and why. d.peerMu is held.
func (d *Driver) failedMasters() map[netip.Addr]string {
	if d.left || d.closed {
		return nil
	}
	var failed map[netip.Addr]string
	for addr, m := range d.masters {
		if m.failed(time.Now()) {
			if failed == nil {
				failed = make(map[netip.Addr]string)
			}
			failed[addr] = bfdWords(m.status)
		}
		if !m.doubt.IsZero() {
			time.AfterFunc(time.Until(m.doubt), d.lookAgain)
		}
		m.wasUp = m.isUp()
	}
	return failed
}

// endMasters ends the sessions of masters to which the path is broken, and so forgets their paths.
func (d *Driver) endMasters(failed map[netip.Addr]string) {
	l, is := d.speaker.(Listener)
	if !is {
		return
	}
	for addr, reason := range failed {
		d.log.Info("BFD went down; BGP session ended", "peer", addr, "reason", reason)
		l.EndMaster(addr, reason)
	}
}

// reportMasters tells who is connected, and what they advertise.
func (d *Driver) reportMasters(out *model.Applied) {
	l, is := d.speaker.(Listener)
	d.peerMu.Lock()
	defer d.peerMu.Unlock()
	if !is || !d.hears {
		return
	}
	// One whose session was ended may have sent a path before it knew.
	out.Learned = slices.DeleteFunc(l.Learned(), func(p model.LearnedPath) bool { return d.masters[p.Peer] == nil })
	slices.SortFunc(out.Learned, func(a, b model.LearnedPath) int { return a.Compare(&b) })
	for _, m := range d.masters {
		r := model.MasterReport{
			Listener: m.Listener, Address: m.Address, ASN: m.ASN, State: m.Master.State.String(), HoldTime: m.HoldTime, Received: m.Received,
			Error: m.Error,
		}
		if m.status != nil {
			r.BFD = m.status.State.String()
			if m.isUp() {
				r.BFDDetect = m.status.Detection
			}
		}
		out.Masters = append(out.Masters, r)
	}
	slices.SortFunc(out.Masters, func(a, b model.MasterReport) int { return a.Address.Compare(b.Address) })
}
