package address

import (
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/model"
)

// survey is one look at the addresses of the kernel.
type survey struct {
	own           map[slot][]Entry
	foreign       map[netip.Addr]Entry
	before, after time.Time
	links         map[string]link
}

// report is what was told last, which nobody changes.
type report struct {
	model.Applied
	ends map[place]leftover // of what is told and not renewed
}

// leftover is what is known of the lifetime of an address that is not renewed.
type leftover struct {
	end   time.Time
	valid uint32
}

// link is the result of looking up an interface by name.
type link struct {
	index int
	err   error
}

// look reads the addresses of the kernel.
func (d *Driver) look() (*survey, error) {
	s := &survey{
		own:     make(map[slot][]Entry, len(d.holds.at)),
		foreign: make(map[netip.Addr]Entry),
		links:   make(map[string]link),
		before:  time.Now(),
	}
	entries, err := d.kernel.Addresses()
	s.after = time.Now()
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		if addr := e.Prefix.Addr(); e.own() {
			at := slotAt(addr, e.Index)
			if more := s.own[at]; more != nil {
				s.own[at] = append(more, e)
			} else {
				s.own[at] = entries[i : i+1 : i+1] // hardly ever more than one
			}
		} else if _, seen := s.foreign[addr]; !seen {
			s.foreign[addr] = e
		}
	}
	d.here = s.foreign
	return s, nil
}

// has tells whether lbd has the address bound, on any interface.
func (s *survey) has(addr netip.Addr) bool {
	return len(s.own[slot{addr, false}])+len(s.own[slot{addr, true}]) > 0
}

// index looks an interface up, once a survey.
func (d *Driver) index(s *survey, name string) (int, error) {
	l, ok := s.links[name]
	if !ok {
		l.index, l.err = d.kernel.LinkIndex(name)
		s.links[name] = l
	}
	return l.index, l.err
}

// observeAll notes for each hold whether the kernel has it where it is wanted.
func (d *Driver) observeAll(s *survey) {
	for _, h := range d.holds.list {
		h.there = false
		index, err := d.index(s, h.want.Interface)
		if err != nil {
			continue // ensure says so
		}
		for _, e := range s.own[slotOf(&h.want)] {
			if e.Index == h.index {
				h.seen = s.before // also where it is about to move away from
			}
			if e.Index != index {
				continue
			}
			h.there, h.index, h.seen, h.err = true, index, s.before, nil
			if h.fresh() {
				d.adopt(h, e, s)
			}
		}
	}
}

// adopt takes over an address that was bound before, by an earlier process or
// under an earlier epoch. The kernel rounds what is left up to whole seconds.
func (d *Driver) adopt(h *hold, e Entry, s *survey) {
	left := h.lifetime
	if e.Valid != Forever {
		left = time.Duration(e.Valid) * time.Second
	}
	h.adopted, h.set = true, h.lifetime
	h.bound, h.end = s.before.Add(left-time.Second), s.after.Add(left)
	d.bound[place{h.want.Addr, h.index}] = true
}

// report tells the truth as last seen; without a survey only that of the holds. What
// is the same as in the report before is that report, which nobody changes.
func (d *Driver) report(s *survey) model.Applied {
	if d.repeats(s) {
		return model.Applied{VIPs: d.told.VIPs, Loopback: d.told.Loopback}
	}
	d.told = d.describe(s)
	return d.told.Applied
}

// repeats tells whether a report would be the one before: of each hold the same,
// and nothing but holds.
func (d *Driver) repeats(s *survey) bool {
	if s == nil || len(d.told.ends) > 0 || len(d.told.VIPs)+len(d.told.Loopback) != len(d.holds.at) {
		return false
	}
	there := 0
	for at, h := range d.holds.at {
		told := d.told.VIPs
		if at.loopback {
			told = d.told.Loopback
		}
		was, ok := told[at.addr]
		if now := h.report(); !ok || now.Bound != was.Bound || now.Interface != was.Interface || !now.Expires.Equal(was.Expires) ||
			now.Expired != was.Expired || now.TooLate != was.TooLate || now.Connections != was.Connections || now.Sockets != was.Sockets || now.Own != was.Own || now.Err != was.Err {
			return false
		}
		if h.there && s.own[at] != nil {
			there++
		}
	}
	return there == len(s.own) // what is in the kernel but not there is a leftover
}

// report is the truth about one hold.
func (h *hold) report() model.AppliedVIP {
	v := model.AppliedVIP{Bound: h.serves(), Expired: h.expired, TooLate: h.tooLate, Connections: h.connections.lively, Sockets: h.connections.open, Own: h.connections.own}
	if v.Bound {
		v.Interface, v.Expires = h.want.Interface, h.end
	}
	if h.err != nil {
		v.Err = h.err.Error()
	}
	return v
}

// describe makes a new report.
func (d *Driver) describe(s *survey) report {
	lan := make(map[netip.Addr]model.AppliedVIP, len(d.told.VIPs))
	loopback := make(map[netip.Addr]model.AppliedVIP, len(d.told.Loopback))
	r := report{model.Applied{VIPs: lan, Loopback: loopback}, d.told.ends}
	part := func(at slot) map[netip.Addr]model.AppliedVIP {
		if at.loopback {
			return loopback
		}
		return lan
	}
	for at, h := range d.holds.at {
		part(at)[at.addr] = h.report()
	}
	if s == nil {
		return r
	}
	r.ends = make(map[place]leftover)
	for at, entries := range s.own {
		h := d.holds.at[at]
		for _, e := range entries {
			if h != nil && h.there {
				continue
			}
			v, wanted := part(at)[at.addr]
			if !wanted {
				v = model.AppliedVIP{Bound: true, Connections: -1, Sockets: -1, Own: -1}
			}
			l := d.leftover(e, s)
			r.ends[place{at.addr, e.Index}] = l
			v.Interface, v.Expires = d.kernel.LinkName(e.Index), l.end
			part(at)[at.addr] = v
		}
	}
	return r
}

// leftover estimates the end of an address that nobody renews. The kernel tells
// whole seconds, rounded up; the earliest estimate is the best.
func (d *Driver) leftover(e Entry, s *survey) leftover {
	if e.Valid == Forever {
		return leftover{valid: Forever}
	}
	l := leftover{end: s.after.Add(time.Duration(e.Valid) * time.Second), valid: e.Valid}
	if old, ok := d.told.ends[place{e.Prefix.Addr(), e.Index}]; ok && old.valid >= e.Valid && old.end.Before(l.end) {
		l.end = old.end
	}
	return l
}
