package decide

import (
	"fmt"
	"slices"
	"strings"

	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// reason explains the state in words.
func (s *bgpVIP) reason(advertised []string) (model.Reason, string) {
	switch s.m.Phase {
	case model.BGPBinding:
		return model.ReasonBinding, s.local.Err
	case model.BGPAdvertised:
		if s.standing.Planned() {
			return model.ReasonNoSuccessor, both("no other node serves it", s.conflicts())
		}
		detail := both(s.missing(advertised), s.conflicts())
		if len(advertised) == 0 {
			return model.ReasonNoSession, detail
		}
		return model.ReasonAdvertised, detail
	case model.BGPShutdown:
		if s.standing == model.ReasonDegraded {
			return model.ReasonShuttingDown, s.detail
		}
		return model.ReasonShuttingDown, membership.Stopping(s.turn.v)
	case model.BGPWithdrawing, model.BGPLingering:
		reason, detail := s.m.Lost, s.detail
		if s.m.Lost.Planned() {
			reason, detail = model.ReasonWithdrawn, strings.TrimSuffix("because of "+s.m.Lost.String()+": "+membership.Stopping(s.turn.v), ": ")
		}
		if s.m.Phase == model.BGPWithdrawing && s.m.Until.IsZero() && s.lateFor(reason) {
			detail = both(detail, "routers may still have the path")
		}
		return reason, detail
	}
	return s.standing, s.detail
}

// lateFor tells whether a withdrawal lasts for WithdrawLate; until then it has that
// looked at when it is so.
func (s *bgpVIP) lateFor(why model.Reason) bool {
	since := s.turn.v.Now
	if s.m.Reason == why {
		since = s.m.Since
	}
	late := since.Add(WithdrawLate)
	if !s.turn.v.Now.Before(late) {
		return true
	}
	s.turn.w.by(late)
	return false
}

// both puts two details into one.
func both(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// missing names the peers that do not have a path.
func (s *bgpVIP) missing(advertised []string) string {
	if s.turn.lack.is(s.to.Peers, advertised) {
		return s.turn.lack.words
	}
	var out []string
	for _, p := range s.to.Peers {
		if slices.Contains(advertised, p) {
			continue
		}
		state := "no session yet"
		for _, r := range s.turn.bgp.Peers {
			if r.Name == p {
				state = r.State
				if r.LastError != "" && r.State != "Established" {
					state += ", " + r.LastError
				}
			}
		}
		out = append(out, fmt.Sprintf("not to %s (%s)", p, state))
	}
	s.turn.lack = lack{s.to.Peers, advertised, strings.Join(out, "; ")}
	return s.turn.lack.words
}

// report adds what the group and the people are told.
func (s *bgpVIP) report(advertised []string, reason model.Reason, detail string) {
	v := s.turn.v
	told := s.standing
	up := s.m.Phase == model.BGPAdvertised && len(advertised) > 0
	switch {
	case told == model.ReasonStandby && s.degraded:
		told = model.ReasonDegraded
	case told == model.ReasonStandby && up:
		told = model.ReasonOwner
	}
	if told == model.ReasonNotSelected && s.gone {
		return
	}
	if !s.vip.L2 {
		put(&s.turn.lists.group, model.GroupVIP{Addr: s.vip.Addr, Name: s.vip.Told(), Standing: told, Holds: s.turn.holdsBGP(s.vip) || s.turn.holdsService(s.vip, "", &model.VIPMemory{})})
	}
	owner := model.NodeName("")
	if len(advertised) > 0 {
		owner = v.Self
	}
	where := ""
	if s.m.Phase != model.BGPIdle && !s.m.Unbound {
		where = model.LoopbackInterface
		if s.onLAN() {
			where = s.addr.Interface
		}
	}
	s.turn.lists.tell(model.VIPStatus{
		VIP: *s.vip, BGP: true, Owner: owner, Reason: reason, Detail: detail, Standing: told, Interface: where,
		Healthy: place.Health(v, s.vip).State.Passes(),
		Bound:   (s.local.Bound || s.onLAN()) && !s.m.Unbound, Announced: len(advertised) > 0,
		Since: s.m.Since, Peers: advertised, Ring: s.turn.ringless(s.vip, ""),
	})
}

// lack is in words who of the peers has no path although the others have it. VIPs
// whose lists of peers are the same ones share the words.
type lack struct {
	peers, advertised []string
	words             string
}

func (l *lack) is(peers, advertised []string) bool {
	return len(l.peers) > 0 && identical(l.peers, peers) && identical(l.advertised, advertised)
}

// identical tells whether two lists are one, or both empty.
func identical[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
