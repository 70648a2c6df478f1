package allocator

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/ipam"
	"lbd.dev/lbd/internal/model"
)

// restore rebuilds the assignments from the status of Services. Addresses of a
// status count if lbd has marked them, or if a pool has them.
func (a *Allocator) restore(r *Result) {
	var list []ipam.Assignment
	for key, s := range a.services {
		if !a.ours(s) {
			continue
		}
		homes := marked(s.Annotations[AllocatedFrom])
		x := ipam.Assignment{Owner: key, Created: s.Created, Sharing: a.basics(s).Sharing}
		for _, addr := range s.status {
			home, ok := homes[addr]
			if pool := a.ipam.PoolOf(addr); pool != "" {
				home, ok = pool, true
			}
			if ok {
				x.Addresses = append(x.Addresses, ipam.Address{Addr: addr})
				s.keep(addr, home)
			}
		}
		if len(x.Addresses) > 0 {
			list = append(list, x)
		}
	}
	for _, c := range a.ipam.Restore(list) {
		s := a.services[c.Owner]
		a.conflict(s, c.Addr, c.Err, r)
	}
}

// keep notes the pool that an address came from.
func (s *service) keep(addr netip.Addr, pool string) {
	if s.homes == nil {
		s.homes = map[netip.Addr]string{}
	}
	s.homes[addr] = pool
}

func (a *Allocator) conflict(s *service, addr netip.Addr, err error, r *Result) {
	what := fmt.Sprintf("%s cannot stay: %v", addr, err)
	if s.conflict == what {
		return
	}
	s.conflict = what
	a.fails(ruleOf(err))
	r.Events = append(r.Events, s.event(true, EventConflict, what))
}

// adopt lets a Service that holds nothing keep what its status has, if a pool has
// it: the pool may have come later than the Service.
func (a *Allocator) adopt(s *service, now time.Time, r *Result) {
	if len(s.status) == 0 || !a.ours(s) {
		return
	}
	if _, ok := a.ipam.Get(s.Key); ok {
		return
	}
	req := a.keeping(s)
	for _, addr := range s.status {
		if a.ipam.PoolOf(addr) == "" || slices.Contains(req.Addresses, addr) || slices.Contains(s.left, addr) {
			continue
		}
		before := req.Addresses
		req.Addresses = append(slices.Clone(before), addr)
		if _, err := a.ipam.Allocate(req, now); err != nil {
			req.Addresses = before
			a.conflict(s, addr, err, r)
			continue
		}
		a.report.stale = true
	}
}

// process decides about one Service.
func (a *Allocator) process(s *service, now time.Time, r *Result) {
	key := s.Key
	before, _ := a.ipam.Get(key)
	had := addrsOf(before)
	delete(a.todo.waiting, key)
	why := ""
	if a.ours(s) {
		why = a.allocate(s, now, r)
	} else if len(had) > 0 {
		a.ipam.Free(key, now)
		why = "the Service is not one of this controller any more"
	}
	after, _ := a.ipam.Get(key)
	has := addrsOf(after)
	a.changed(s, &before, &after, had, has, why, r)
	a.strays(s, has, r)
	if a.ours(s) {
		a.settle(s, has, now, r)
	} else {
		a.clean(s, r)
	}
	a.others(s, r)
}

// others tells of a Service that asks lbd for something and has the class of somebody
// else: it would wait for ever, and nobody would say why.
func (a *Allocator) others(s *service, r *Result) {
	text := ""
	if s.Type == typeLoadBalancer && !a.ours(s) && s.asks() {
		text = fmt.Sprintf("spec.loadBalancerClass is not set, and only %q is served", a.opts.Class)
		if s.Class != nil {
			text = fmt.Sprintf("spec.loadBalancerClass is %q, and only %q is served", *s.Class, a.opts.Class)
		}
	}
	if text != "" && text != s.foreign {
		r.Events = append(r.Events, s.event(true, EventNotOurs, text))
	}
	s.foreign = text
}

func addrsOf(x ipam.Assignment) []netip.Addr {
	var list []netip.Addr
	for _, at := range x.Addresses {
		list = append(list, at.Addr)
	}
	return list
}

// allocate asks for what the Service wants, and returns why it lost something, if
// it did.
func (a *Allocator) allocate(s *service, now time.Time, r *Result) (why string) {
	const asks = "the Service asks for something else"
	req, err := a.request(s)
	rule := BadAnnotation
	if err == nil {
		why, err = a.insist(s, req, now)
		rule = ruleOf(err)
	}
	if err == nil {
		s.failure = ""
		if req.Policy == ipam.PreferDualStack && len(req.Addresses) == 0 && a.lacks(&req) {
			a.todo.waiting[req.Owner] = true
		}
		return cmp.Or(why, asks)
	}
	a.todo.waiting[req.Owner] = true
	a.fail(s, rule, identity(err), err.Error(), r)
	return cmp.Or(a.renew(s, now), why, asks)
}

// insist asks for an address until it is clear that the Service must have none of
// those that it may no longer share.
func (a *Allocator) insist(s *service, req ipam.Request, now time.Time) (why string, err error) {
	for {
		_, err = a.ipam.Allocate(req, now)
		e := (*ipam.Error)(nil)
		if !errors.As(err, &e) || !a.mustLeave(req.Owner, e) {
			return why, err
		}
		why = e.Error()
		a.leave(s, e.Addr, now)
	}
}

// renew has a Service that does not get what it asks for keep what it has, but under
// its present key, ports and policy: others must not share with what it was.
func (a *Allocator) renew(s *service, now time.Time) (why string) {
	x, ok := a.ipam.Get(s.Key)
	if !ok {
		return ""
	}
	req := a.keeping(s)
	for _, addr := range addrsOf(x) {
		if slices.Contains(req.Families, ipam.FamilyOf(addr)) {
			req.Addresses = append(req.Addresses, addr)
		}
	}
	switch {
	case len(req.Families) == 0:
		return ""
	case len(req.Addresses) == 0:
		a.ipam.Free(req.Owner, now)
		return ""
	}
	_, err := a.ipam.Allocate(req, now)
	if e := (*ipam.Error)(nil); errors.As(err, &e) && a.mustLeave(req.Owner, e) {
		a.leave(s, e.Addr, now)
		return cmp.Or(a.renew(s, now), e.Error())
	}
	return ""
}

// keeping is a request for addresses that the Service has already.
func (a *Allocator) keeping(s *service) ipam.Request {
	req := a.basics(s)
	req.Rested, req.Shown = false, true // they are its own
	switch {
	case req.Policy == ipam.RequireDualStack:
		req.Policy = ipam.PreferDualStack // one family is better than none
	case req.Policy == ipam.SingleStack && len(req.Families) > 1:
		req.Families = req.Families[:1]
	}
	return req
}

// mustLeave tells whether the error is about an address that the Service holds: it
// was shared, and may no longer be.
func (a *Allocator) mustLeave(owner model.Key, e *ipam.Error) bool {
	switch e.Rule {
	case ipam.InUse, ipam.SharingKey, ipam.SharingBackend, ipam.PortInUse:
		return slices.Contains(a.ipam.Holders(e.Addr), owner)
	}
	return false
}

// leave takes one address from a Service, and all if the others cannot stay.
func (a *Allocator) leave(s *service, addr netip.Addr, now time.Time) {
	x, _ := a.ipam.Get(s.Key)
	req := a.keeping(s)
	req.Addresses = without(addrsOf(x), []netip.Addr{addr})
	if len(req.Addresses) > 0 {
		if _, err := a.ipam.Allocate(req, now); err == nil {
			return
		}
	}
	a.ipam.Free(s.Key, now)
}

// lacks tells whether a family that the Service prefers is not complete.
func (a *Allocator) lacks(req *ipam.Request) bool {
	x, _ := a.ipam.Get(req.Owner)
	for _, f := range req.Families {
		n := 0
		for _, at := range x.Addresses {
			if ipam.FamilyOf(at.Addr) == f {
				n++
			}
		}
		if n < max(req.Count, 1) {
			return true
		}
	}
	return false
}

func ruleOf(err error) string {
	if e := (*ipam.Error)(nil); errors.As(err, &e) {
		return e.Rule.String()
	}
	return BadAnnotation
}

// identity is an error without the numbers that change while it stays the same.
func identity(err error) string {
	if e := (*ipam.Error)(nil); errors.As(err, &e) && e.Rule == ipam.Exhausted {
		return fmt.Sprint(e.Rule, e.Family, e.Pools)
	}
	return err.Error()
}

// fail reports a failure that is news.
func (a *Allocator) fail(s *service, rule, identity, words string, r *Result) {
	if s.failure == identity {
		return
	}
	s.failure = identity
	a.fails(rule)
	r.Events = append(r.Events, s.event(true, EventFailed, rule+": "+words))
}

func (a *Allocator) fails(rule string) { a.counts.Failures[rule]++ }

// changed counts and reports what a Service got and lost.
func (a *Allocator) changed(s *service, before, after *ipam.Assignment, had, has []netip.Addr, why string, r *Result) {
	got, lost := without(has, had), without(had, has)
	for _, at := range after.Addresses {
		if at.Pool != "" {
			s.keep(at.Addr, at.Pool)
		}
	}
	a.counts.Assigned += uint64(len(got))
	a.counts.Released += uint64(len(lost))
	if len(lost) > 0 {
		a.todo.stir = true
		r.Events = append(r.Events, s.event(true, EventReleased, fmt.Sprintf("gives up %s: %s", join(lost), why)))
		for _, addr := range lost {
			delete(s.homes, addr)
		}
		s.left = append(s.left, lost...)
	}
	if len(got) > 0 || len(lost) > 0 {
		a.report.stale = true
	}
	if after.Sharing.Key != "" || before.Sharing.Key != "" {
		if len(got) > 0 || !sameSharing(&before.Sharing, &after.Sharing) {
			a.todo.stir = a.todo.stir || len(a.todo.waiting) > 0
		}
	}
}

// sameSharing compares two of one form.
func sameSharing(x, y *ipam.Sharing) bool {
	return x.Key == y.Key && x.Local == y.Local && slices.Equal(x.Ports, y.Ports) && maps.Equal(x.Selector, y.Selector)
}
