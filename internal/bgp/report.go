package bgp

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// notListening is why a passive peer has no session that was added after the start:
// the speaker opens its listening sockets once.
const notListening = "lbd waits for the peer to connect (passive) but does not listen for BGP, since no peer was passive when it started: restart lbd on this node"

// report tells the truth about sessions and paths, and logs changes.
func (d *Driver) report(w *model.BGPState) model.Applied {
	var all map[string]Session
	if d.isStarted() {
		all = d.speaker.Sessions()
	}
	d.pathMu.Lock()
	defer d.pathMu.Unlock()
	d.peerMu.Lock()
	defer d.peerMu.Unlock()
	var out model.Applied
	paths, count, lacks := d.advertised(all)
	out.Paths = paths
	for i := range w.Peers {
		p := &w.Peers[i]
		s := d.peers[p.Name]
		r := begin(p)
		if known, ok := all[p.Name]; ok && s != nil {
			fill(&r, &known)
			r.Paths = count[p.Name]
			if words := lacks[p.Name]; words != "" {
				r.LastError = words
			}
			d.tell(s, &known, lacks[p.Name])
		} else if s != nil && s.err != nil {
			r.LastError = s.err.Error()
		}
		if p.Passive && d.started && !d.listens {
			r.LastError = notListening
		}
		if s != nil {
			s.fill(&r)
		}
		out.Peers = append(out.Peers, r)
	}
	return out
}

// begin tells of a peer what its configuration says: the timers are those, until
// others are agreed on with the peer.
func begin(p *model.BGPPeer) model.PeerReport {
	r := model.PeerReport{
		Name: p.Name, Address: p.Address, PeerASN: p.PeerASN,
		State: Idle.String(), HoldTime: p.HoldTime,
	}
	if p.BFD != nil {
		r.BFDTransmit, r.BFDReceive = p.BFD.Transmit, p.BFD.Receive
	}
	return r
}

// fill copies what the speaker says.
func fill(r *model.PeerReport, s *Session) {
	r.State, r.Since = s.State.String(), s.Since
	if s.State == Established {
		r.HoldTime = s.HoldTime
		r.PeerASN = cmp.Or(r.PeerASN, s.PeerASN)
	}
	if s.IPv4 {
		r.Families = append(r.Families, "ipv4")
	}
	if s.IPv6 {
		r.Families = append(r.Families, "ipv6")
	}
	r.Received, r.Flaps = s.Received, s.Flaps
	r.LastError, r.LastAt = s.LastError, s.LastAt
	r.UpdatesOut, r.UpdatesIn = s.UpdatesOut, s.UpdatesIn
	r.KeepalivesOut, r.KeepalivesIn = s.KeepalivesOut, s.KeepalivesIn
	r.NotificationsOut, r.NotificationsIn = s.NotificationsOut, s.NotificationsIn
}

// fill copies what BFD says. Without a BGP session that is also what is wrong with
// BFD: a strict session waits for nothing else.
func (b *bfdState) fill(r *model.PeerReport) {
	if b.status == nil {
		return
	}
	r.BFD = b.status.State.String()
	if b.isUp() {
		r.BFDTransmit, r.BFDReceive, r.BFDDetect = b.status.Transmit, b.status.Receive, b.status.Detection
	}
	if b.status.LastError == "" || r.State == Established.String() {
		return
	}
	if r.LastError != "" {
		r.LastError += "; "
	}
	r.LastError += "BFD: " + b.status.LastError
}

// advertised tells who has each path, how many each peer has, and why it has not
// all that are for it although it is Established. Without news paths is the map of
// the report before, which nobody may change.
func (d *Driver) advertised(all map[string]Session) (paths map[netip.Prefix][]string, count map[string]int, lacks map[string]string) {
	h := holders{all: all, lacks: make(map[string]string), made: make(map[audience][]string)}
	count = make(map[string]int)
	same := d.told != nil && len(d.told) == len(d.paths)
	for prefix, p := range d.paths {
		names := h.of(&p)
		for _, name := range names {
			count[name]++
		}
		if same {
			before, ok := d.told[prefix]
			same = ok && slices.Equal(before, names)
		}
	}
	if !same {
		d.told = make(map[netip.Prefix][]string, len(d.paths))
		for prefix, p := range d.paths {
			d.told[prefix] = h.of(&p)
		}
	}
	return d.told, count, h.lacks
}

// holders finds which peers have a path. Many paths are for the same peers, often by
// the very same list; the answer for it is made once.
type holders struct {
	all   map[string]Session
	lacks map[string]string
	made  map[audience][]string
}

// audience is a list of those who get a path, by where it is in memory, for one
// family.
type audience struct {
	first *model.BGPAudience
	n     int
	four  bool
}

func (h *holders) of(p *model.BGPPath) []string {
	if len(p.To) == 0 {
		return nil
	}
	a := audience{&p.To[0], len(p.To), p.Prefix.Addr().Is4()}
	names, ok := h.made[a]
	if ok {
		return names
	}
	for i := range p.To {
		for _, name := range p.To[i].Peers {
			s := h.all[name]
			has, why := s.IPv6, s.NoIPv6
			if a.four {
				has, why = s.IPv4, s.NoIPv4
			}
			switch {
			case s.State != Established:
			case has:
				names = append(names, name)
			case h.lacks[name] < why: // of both families always the same one
				h.lacks[name] = why
			}
		}
	}
	slices.Sort(names)
	h.made[a] = names
	return names
}

// tellMost is how many reasons for the same missing session the log gets within
// tellAgain.
const (
	tellMost  = 3
	tellAgain = 30 * time.Second
)

// tell logs what has changed about a session.
func (d *Driver) tell(s *session, now *Session, lacks string) {
	up, wasUp := now.State == Established, s.state == Established
	switch {
	case up && !wasUp:
		d.log.Info("BGP session established", "peer", s.conf.Name, "addr", s.conf.Address, "hold", now.HoldTime)
	case !up && wasUp:
		d.log.Info("BGP session lost", "peer", s.conf.Name, "addr", s.conf.Address, "reason", now.LastError)
	case !up && now.LastError != s.fault && now.LastError != "":
		if time.Since(s.toldAt) >= tellAgain {
			s.toldAt, s.told = time.Now(), 0
		}
		if s.told++; s.told > tellMost {
			return // it alternates between reasons
		}
		d.log.Info("no BGP session", "peer", s.conf.Name, "addr", s.conf.Address, "reason", now.LastError)
	}
	if up && lacks != "" && lacks != s.fault {
		d.log.Info("BGP session is limited", "peer", s.conf.Name, "addr", s.conf.Address, "reason", lacks)
	}
	s.state, s.fault = now.State, now.LastError
	if up {
		s.fault = lacks
	}
}
