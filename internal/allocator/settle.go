package allocator

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Repairs of a status that somebody else keeps changing: the first one at once,
// then after a second, doubling to the limit; forgotten after a time of peace.
const (
	repairFirst = time.Second
	repairMost  = 5 * time.Minute
	repairPeace = 10 * time.Minute
)

// settle compares the status of a Service with what it holds.
func (a *Allocator) settle(s *service, has []netip.Addr, now time.Time, r *Result) {
	w := Write{Service: s.Key, UID: s.UID, Version: s.Version, Ingress: entries(has), Mark: mark(has, s.homes)}
	if len(has) == 0 {
		w.Ingress = a.foreign(s)
	}
	delete(a.todo.repairs, w.Service)
	delete(a.todo.late, w.Service)
	delete(r.writes, s) // what an earlier round of the Step decided
	is := digest(s.Ingress, s.Annotations[AllocatedFrom])
	if a.elsewhere(s, has) {
		a.todo.late[w.Service] = true
		if !a.inTheWay(s, has) {
			s.written = is // until then it stays as it is
			return
		}
		has = without(s.status, without(s.status, has))
		w.Ingress, w.Mark = entries(has), mark(has, s.homes)
	}
	want := digest(w.Ingress, w.Mark)
	switch {
	case is == want:
		s.written = want
	case s.written != want:
		s.written = ""
		if !a.todo.late[w.Service] {
			w.Events = s.allocated(has)
		}
		r.writes[s] = w
	case a.mayRepair(s, now):
		s.written = ""
		w.Events = []Event{s.event(true, EventRepaired,
			fmt.Sprintf("somebody else changed the status: it was [%s] and is [%s] again", join(s.status), join(has)))}
		a.counts.Repaired++
		r.writes[s] = w
	}
}

// elsewhere tells whether an address that the status is to get is still in that of a
// Service of ours that has lost it. Nobody must ever see it twice.
func (a *Allocator) elsewhere(s *service, has []netip.Addr) bool {
	for _, addr := range without(has, s.status) {
		holders := a.ipam.Holders(addr)
		for key := range a.shown[addr] {
			o := a.services[key]
			if _, known := marked(o.Annotations[AllocatedFrom])[addr]; (known || a.ours(o)) && !slices.Contains(holders, key) {
				return true
			}
		}
	}
	return false
}

// inTheWay tells whether the status has an address that the Service has lost to another one.
// It lets go of it while it waits for its own: two that exchange addresses would wait for
// each other for ever.
func (a *Allocator) inTheWay(s *service, has []netip.Addr) bool {
	return slices.ContainsFunc(without(s.status, has), func(addr netip.Addr) bool { return len(a.ipam.Holders(addr)) > 0 })
}

// holdBack has those writes wait that were decided before a Service lost an address
// which they tell: one that changed the key under which it shared it, and was looked at
// after the older one that joined it. Nothing is told to be a second one's before the
// first has let go of it.
func (a *Allocator) holdBack(now time.Time, r *Result) {
	for _, s := range slices.Collect(maps.Keys(r.writes)) {
		x, _ := a.ipam.Get(s.Key)
		if has := addrsOf(x); a.elsewhere(s, has) {
			a.settle(s, has, now, r)
		}
	}
}

// digest is a status and its mark in one text, whatever their order.
func digest(ingress []Ingress, mark string) string {
	parts := strings.Split(mark, ",")
	slices.Sort(parts)
	list := make([]string, len(ingress))
	for i, x := range ingress {
		list[i] = x.IP + "/" + x.Hostname
		if addr, err := netip.ParseAddr(x.IP); err == nil {
			list[i] = addr.String() + "/" + x.Hostname
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",") + " " + strings.Join(parts, ",")
}

// foreign are the entries of a status that stay when the Service holds nothing:
// those that are neither marked nor of a pool.
func (a *Allocator) foreign(s *service) []Ingress {
	return unmarked(s, func(addr netip.Addr) bool { return a.ipam.PoolOf(addr) != "" })
}

// unmarked are the entries of a status that lbd has not marked, and that are not
// ours otherwise.
func unmarked(s *service, ours func(netip.Addr) bool) []Ingress {
	homes := marked(s.Annotations[AllocatedFrom])
	return slices.DeleteFunc(slices.Clone(s.Ingress), func(x Ingress) bool {
		addr, err := netip.ParseAddr(x.IP)
		_, known := homes[addr]
		return err == nil && (known || ours(addr))
	})
}

// allocated is the event about addresses that the status does not have yet.
func (s *service) allocated(has []netip.Addr) []Event {
	fresh := without(has, s.status)
	if len(fresh) == 0 {
		return nil
	}
	words := make([]string, len(fresh))
	for i, addr := range fresh {
		words[i] = fmt.Sprintf("%s from pool %q", addr, s.homes[addr])
	}
	return []Event{s.event(false, EventAllocated, "assigned "+strings.Join(words, ", "))}
}

// mayRepair tells whether a status that was as decided, and was changed by somebody
// else, is put right now. Two that disagree for ever must not flood the API.
func (a *Allocator) mayRepair(s *service, now time.Time) bool {
	if now.Sub(s.repaired) > repairPeace {
		s.repairs = 0
	}
	if s.repairs > 0 {
		at := s.repaired.Add(min(repairFirst<<min(s.repairs-1, 20), repairMost))
		if now.Before(at) {
			a.todo.repairs[s.Key] = at
			return false
		}
	}
	s.repairs++
	s.repaired = now
	return true
}

// clean takes what lbd marked out of the status of a Service that is not served.
func (a *Allocator) clean(s *service, r *Result) {
	s.failure, s.conflict, s.written = "", "", ""
	delete(a.todo.repairs, s.Key)
	if _, ok := s.Annotations[AllocatedFrom]; !ok {
		return
	}
	r.writes[s] = Write{Service: s.Key, UID: s.UID, Version: s.Version,
		Ingress: unmarked(s, func(netip.Addr) bool { return false })}
}

// strays reports addresses that stay though no pool would give them out.
func (a *Allocator) strays(s *service, has []netip.Addr, r *Result) {
	var words []string
	for _, addr := range has {
		if err := a.ipam.Stray(addr); err != nil {
			words = append(words, err.Error())
		}
	}
	text := strings.Join(words, "; ")
	if text == s.stray {
		return
	}
	s.stray, a.report.stale = text, true
	if text != "" {
		r.Events = append(r.Events, s.event(true, EventOutside, text+"; the Service keeps it"))
	}
}
