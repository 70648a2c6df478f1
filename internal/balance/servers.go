package balance

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/steady"
)

// servers notes what became of each server, and since when. All lists are sorted.
func (s *step) servers() {
	list := steady.Begin(s.Memory.Servers, len(s.Wanted.Servers))
	left := s.Memory.Servers
	// before notes those that were there before the next one and are configured no more.
	before := func(next *model.Server) {
		for len(left) > 0 && (next == nil || compare(&left[0], next) < 0) {
			if is := s.leave(left[0], model.ServerRemoved); !s.forgotten(&is) {
				steady.Put(&list, is)
			}
			left = left[1:]
		}
	}
	var at [2]int // of the candidates
	for i := range s.Wanted.Servers {
		x := &s.Wanted.Servers[i]
		before(x)
		was, had := model.ServerMemory{Addr: x.Addr, Port: x.Port, Since: s.Now}, false
		if len(left) > 0 && same(x, &left[0]) {
			was, had, left = left[0], true, left[1:]
		}
		is := was
		is.Ports = x.Ports
		switch family := Family(x.Addr); {
		case x.Weight > 0:
			is.State, is.Why, is.By = s.stands(family, at[family])
			if is.Why == model.ServerWell && s.health(x).State == model.HealthUnknown {
				is.State, is.Why = model.ServerUnchecked, model.ServerPending
			}
			at[family]++
		case x.Leaving:
			is = s.leave(was, model.ServerLeaving)
		default:
			is = s.leave(was, model.ServerNoWeight)
		}
		if had && is.State != was.State && !is.Why.Configured() {
			is.Since = s.Now
		}
		steady.Put(&list, is)
	}
	before(nil)
	s.out.Memory.Servers = list.Result()
}

// leave is what becomes of a server that is to get no new connections by configuration. It gets them
// for a moment more while nothing is known of all that are to.
func (s *step) leave(is model.ServerMemory, why model.ServerWhy) model.ServerMemory {
	if family := Family(is.Addr); s.awaits[family] && is.State == model.ServerIn && inTable(&s.out.Memory.Fills[family], is.Addr, is.Port) {
		return is
	}
	if !is.Why.Configured() {
		is.State, is.Since = model.ServerDraining, s.Now
	}
	is.Why, is.By = why, ""
	if is.State == model.ServerOut {
		return is
	}
	end := is.Since.Add(s.Wanted.DrainTimeout)
	if s.Now.Before(end) {
		s.by(end)
		return is
	}
	is.State, is.Since = model.ServerOut, end
	return is
}

// forgotten tells whether the connections of a server that is configured no more were cut for long
// enough.
func (s *step) forgotten(is *model.ServerMemory) bool {
	end := is.Since.Add(CutFor)
	if is.State == model.ServerOut && s.Now.Before(end) {
		s.by(end)
	}
	return is.State == model.ServerOut && !s.Now.Before(end)
}

// stands is whether a candidate gets new connections, and why. What this node's own check says of
// one that it has out comes before the word of the owner.
func (s *step) stands(family, i int) (model.ServerState, model.ServerWhy, model.NodeName) {
	x, fit, p := &s.candidates[family].servers[i], s.candidates[family].fit[i], &s.picked[family]
	follows := p.by.Verdict.Servers != 0
	in := inTable(&s.out.Memory.Fills[family], x.Addr, x.Port)
	_, isVIP := model.FindVIP(s.VIPs, x.Addr)
	switch {
	case in && fit == trusted:
		return model.ServerIn, model.ServerWell, ""
	case in && follows && p.by.Until.IsZero():
		return model.ServerIn, model.ServerOwnerSays, p.by.By
	case in:
		return model.ServerIn, model.ServerNoneBetter, ""
	case isVIP:
		return model.ServerOut, model.ServerIsVIP, ""
	case fit == dead:
		return model.ServerOut, model.ServerDown, ""
	case follows && out(p.by.Verdict.Out, i):
		return model.ServerOut, model.ServerOwnerSays, p.by.By
	case fit == pending:
		return model.ServerOut, model.ServerPending, ""
	}
	return model.ServerOut, model.ServerFailing, ""
}

// inTable tells whether a server gets new connections by a table.
func inTable(f *model.BalanceFill, addr netip.Addr, port uint16) bool {
	_, in := slices.BinarySearchFunc(f.Servers, addr, func(a model.Server, addr netip.Addr) int { return ordered(a.Addr, a.Port, addr, port) })
	return in
}

// same tells whether two are one server, whatever its weight.
func same(a *model.Server, b *model.ServerMemory) bool { return a.Addr == b.Addr && a.Port == b.Port }

func compare(a *model.ServerMemory, b *model.Server) int {
	return ordered(a.Addr, a.Port, b.Addr, b.Port)
}

func ordered(a netip.Addr, aPort uint16, b netip.Addr, bPort uint16) int {
	return netip.AddrPortFrom(a, aPort).Compare(netip.AddrPortFrom(b, bPort))
}
