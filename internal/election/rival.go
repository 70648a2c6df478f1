package election

import (
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// Anybody on the wire can send a frame with any hardware address, so nothing is lost or
// held up for long because of what one frame says: only frames of members count, and only
// if they come again when the wire is asked again.

// asksAgain is how many series in a row bear out what the wire says before an owner lets go
// for it.
const asksAgain = 3

// member is who speaks at a hardware address; of several, as after a machine got another
// name, one that is alive. Dead is only what gossip says, which may be what is broken. Who
// has said goodbye has nothing any more.
func (s *step) member(mac model.MAC) (name model.NodeName, ok bool) {
	alive := false
	for n, m := range s.in.Members {
		if m.State == model.MemberLeft || alive && m.State != model.MemberAlive || !slices.Contains(m.MACs, mac) {
			continue
		}
		if is := m.State == model.MemberAlive; !ok || is != alive || n < name {
			name, alive, ok = n, is, true
		}
	}
	return name, ok
}

// rival looks at the members among the hosts that probe at once, and tells for how many turns
// this node leaves the VIP to one of them, and to which; 0: it goes on. It does so for one that
// goes first, and for one that gossip does not reach, which may not know this node: of the two
// the one that goes first asks again first. A host that is no member takes nothing by the
// rules of the group, and hears of the owner as any other.
func (s *step) rival(heard []model.MAC) (at model.MAC, turns int, met bool) {
	note := func(n model.NodeName, mac model.MAC) {
		met = true
		t := 0
		if s.gone(n) {
			t++
		}
		if s.behind(n, mac) {
			t++ // the rank is that among the living
		}
		if t > turns {
			at, turns = mac, t
		}
	}
	for _, mac := range heard {
		if mac == (model.MAC{}) {
			break
		}
		if n, ok := s.member(mac); ok {
			note(n, mac)
			continue
		}
		for n, m := range s.in.Members { // it may be one that has not told its addresses yet
			if m.State == model.MemberAlive && len(m.MACs) == 0 {
				note(n, mac)
			}
		}
	}
	return at, turns, met
}

// stepsBack is how long a candidate that has heard nobody answer leaves the VIP to others
// that ask at the same time; 0: not at all.
func (s *step) stepsBack(heard []model.MAC) time.Duration {
	at, turns, _ := s.rival(heard)
	if turns == 0 {
		return 0
	}
	s.m.Rival = at
	return time.Duration(turns)*Stagger + time.Duration(s.rank(s.m.From))*s.apart()
}

// behind tells whether this node goes after another one that it meets at a hardware address.
// Ranks come from the name of the VIP's object. Of two nodes that have it under different names
// each may rank first, or none, so the lower hardware address goes first. Of one that tells no
// name neither is known: what this node takes it has by both.
func (s *step) behind(n model.NodeName, at model.MAC) bool {
	ranks := Better(s.in.VIP.Name, s.candidate(n), s.candidate(s.in.Self))
	lower := at.Compare(s.in.MAC) < 0
	switch mine, theirs := s.told(s.in.Self), s.told(n); {
	case mine == theirs:
		return ranks
	case theirs == "":
		return ranks || lower
	}
	return lower
}

// told is the name under which a node has the VIP, "" if it does not say.
func (s *step) told(n model.NodeName) string {
	if n == s.in.Self {
		return s.in.VIP.Told()
	}
	return s.in.Members[n].Names[s.in.VIP.Addr]
}
