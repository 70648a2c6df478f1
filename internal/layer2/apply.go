package layer2

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// openPort is a port in use. Its fields are guarded by Driver.mu; link never
// changes.
type openPort struct {
	Port
	key    portKey
	link   Link
	addrs  []netip.Addr // that the filter names
	speaks netip.Addr   // a link-local address of the interface, once it was needed; for ND
	broken bool         // a new socket may help
}

// errStale is why an old decision is not put on the wire.
var errStale = errors.New("decision is out of date")

// scene is what one Apply has found out about the host.
type scene struct {
	want  *model.Desired
	links map[string]Link
	// addrs are the addresses of all interfaces; nil unless somebody needs them.
	addrs []Address
	// quiet are the families whose silence is not as wanted, and why.
	quiet [families]error
	// moved: there are other entries, or on other interfaces, than before.
	moved bool
	errs  []error
}

// Apply makes want.L2 true: silences first, then lifts silences, then announces
// and probes. The first frame of each is on the wire when it returns. An entry
// that is unchanged sends nothing.
func (d *Driver) Apply(_ context.Context, want *model.Desired) (model.Applied, error) {
	links, err := d.kernel.Links()
	if err != nil {
		return model.Applied{VIPs: d.reports(), Lapses: d.clock.count(), Err: err.Error()}, err
	}
	s := &scene{want: want, links: links}
	if needAddresses(want.L2) || d.speechless(want.L2) {
		if s.addrs, err = d.kernel.Addresses(); err != nil {
			s.errs = append(s.errs, err)
		}
	}
	d.silence.lookBack(d.log)
	d.reconcile(s)
	d.applySilence(s)
	d.applyPorts(s)
	d.applyGroups(s)
	d.start(s)
	err = errors.Join(s.errs...)
	applied := model.Applied{VIPs: d.reports(), Lapses: d.clock.count()}
	if err != nil {
		applied.Err = err.Error()
	}
	return applied, err
}

// Extend lets announcements go on for longer. A silence is renewed by Apply, and so
// is what has failed or was stopped.
func (d *Driver) Extend(until time.Time) bool {
	if !d.mu.TryLock() {
		return false
	}
	defer d.mu.Unlock()
	now := time.Now()
	if d.alive(); !d.validUntil.IsZero() && !now.Before(d.validUntil) {
		return false
	}
	for _, p := range d.ports {
		if p.broken {
			return false
		}
	}
	for _, e := range d.entries {
		over := e.want.Mode == model.L2Probe && e.result.Done && e.result.Series == e.want.Series
		runs := e.want.Mode == model.L2Announce && e.burst.on && !e.burst.next.IsZero()
		if e.err != "" || !runs && !over {
			return false
		}
	}
	d.validUntil = until
	return true
}

// needAddresses tells whether any entry depends on the other addresses of the
// host: whom to speak as while silent, or soon, and whence to solicit.
func needAddresses(want []model.L2Advert) bool {
	return slices.ContainsFunc(want, func(a model.L2Advert) bool {
		return silenced(&a) || yields(&a) || a.Mode == model.L2Probe && !a.Addr.Is4()
	})
}

// silenced tells whether the host is to be silent about the VIP.
func silenced(a *model.L2Advert) bool { return a.Mode == model.L2Silent || a.Quiet }

// yields tells whether the host may have to be silent about the VIP at any moment.
// Where this process answers, it just does not do so any more.
func yields(a *model.L2Advert) bool { return a.Yield && !a.Respond }

// reports returns the truth about every VIP; the map of before if it is the same.
func (d *Driver) reports() map[netip.Addr]model.AppliedVIP {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told.vips != nil && len(d.silence.leftover) == 0 && d.told.still(d.entries) {
		return d.told.vips
	}
	d.told = report{vips: make(map[netip.Addr]model.AppliedVIP, len(d.entries))}
	for _, a := range d.silence.leftover {
		d.told.vips[a] = model.AppliedVIP{Silent: true}
	}
	for a, e := range d.entries {
		r := e.report()
		d.told.vips[a] = r
		if r.Duplicate != (model.MAC{}) {
			d.told.marked++
		}
	}
	return d.told.vips
}

// reconcile makes the entries those of the decision. What is no longer wanted
// stops here, before anything else happens.
func (d *Driver) reconcile(s *scene) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.alive()
	d.validUntil, d.responder.known = s.want.ValidUntil, s.want.Lapses
	d.own = make(map[model.MAC]struct{}, len(s.links))
	for _, l := range s.links {
		d.own[l.MAC] = struct{}{}
	}
	responders := false
	for i := range s.want.L2 {
		w := &s.want.L2[i]
		responders = responders || w.Respond
		e := d.entries[w.Addr]
		if e == nil {
			e = &entry{}
			d.entries[w.Addr] = e
			s.moved = true
		}
		if e.want.Mode != w.Mode || e.want.Interface != w.Interface || e.want.Respond != w.Respond {
			s.moved = s.moved || e.want.Interface != w.Interface || (e.want.Mode == model.L2Silent) != (w.Mode == model.L2Silent)
			e.quiet()
			e.tooLate = false
			d.queue.update(e)
		}
		e.want = *w
	}
	if len(d.entries) != len(s.want.L2) {
		d.forget(s.want.L2)
		s.moved = true
	}
	d.clock.set(responders)
}

// forget drops the entries that are not wanted.
func (d *Driver) forget(want []model.L2Advert) {
	wanted := make(map[netip.Addr]struct{}, len(want))
	for i := range want {
		wanted[want[i].Addr] = struct{}{}
	}
	for a, e := range d.entries {
		if _, stays := wanted[a]; !stays {
			e.quiet()
			d.queue.remove(e)
			delete(d.entries, a)
		}
	}
}

// applyPorts opens a port for each interface and family in use, replaces those
// whose interface has changed, and closes the others.
func (d *Driver) applyPorts(s *scene) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !s.moved && !d.portless && d.portsHold(s) {
		return
	}
	users := portUsers(s.want.L2)
	for key, p := range d.ports {
		if users[key] == nil || !s.holds(p) {
			p.Close()
			delete(d.ports, key)
		}
	}
	failed := make(map[portKey]error)
	for key, addrs := range users {
		slices.SortFunc(addrs, netip.Addr.Compare)
		if err := d.openPort(key, s, addrs); err != nil {
			d.counters.errors.Add(1)
			failed[key] = err
			s.errs = append(s.errs, err)
		}
	}
	d.portless = len(failed) > 0
	for _, p := range d.ports {
		if ip := linkLocal(s.addrs, p.link.Index); ip.IsValid() {
			p.speaks = ip
		}
	}
	for a, e := range d.entries {
		key := portKey{e.want.Interface, familyOf(a)}
		if p := d.ports[key]; p != e.port {
			e.quiet()
			e.port = p
			e.router = p != nil && !a.Is4() && d.kernel.Router(key.iface)
			d.queue.update(e)
		}
		if err := failed[key]; err != nil {
			e.fault(d, err)
		}
	}
}

// portUsers are the addresses that frames of a port are about.
func portUsers(want []model.L2Advert) map[portKey][]netip.Addr {
	users := make(map[portKey][]netip.Addr)
	var last portKey
	var addrs []netip.Addr // of last; most are of one port
	for i := range want {
		w := &want[i]
		if w.Mode == model.L2Silent {
			continue
		}
		if key := (portKey{w.Interface, familyOf(w.Addr)}); key != last {
			if addrs != nil {
				users[last] = addrs
			}
			last, addrs = key, users[key]
		}
		addrs = append(addrs, w.Addr)
	}
	if addrs != nil {
		users[last] = addrs
	}
	return users
}

// portsHold tells whether every port is that of an interface as it is.
func (d *Driver) portsHold(s *scene) bool {
	for _, p := range d.ports {
		if !s.holds(p) {
			return false
		}
	}
	return true
}

// holds tells whether a port works on its interface as it is.
func (s *scene) holds(p *openPort) bool {
	l, there := s.links[p.key.iface]
	return there && l == p.link && !p.broken
}

// openPort opens the port if needed and sets its filter.
func (d *Driver) openPort(key portKey, s *scene, addrs []netip.Addr) error {
	l, there := s.links[key.iface]
	if !there {
		return fmt.Errorf("interface %q: does not exist", key.iface)
	}
	if err := l.usable(); err != nil {
		return err
	}
	if p := d.ports[key]; p != nil {
		if slices.Equal(p.addrs, addrs) {
			return nil
		}
		if err := p.Filter(addrs); err != nil {
			p.broken = true
			return fmt.Errorf("interface %q: set filter: %w", key.iface, err)
		}
		p.addrs = addrs
		return nil
	}
	p := &openPort{key: key, link: l, addrs: addrs}
	var err error
	p.Port, err = d.kernel.Open(l, key.family, addrs, Events{
		Frame:  func(b []byte) { d.receive(key, b) },
		Broken: func(err error) { d.portBroken(p, err) },
	})
	if err != nil {
		return err
	}
	d.ports[key] = p
	return nil
}

// portBroken notes that a socket has failed; the next Apply replaces it.
func (d *Driver) portBroken(p *openPort, err error) {
	d.counters.errors.Add(1)
	d.log.Debug("socket failed", "iface", p.link.Name, "err", err)
	d.mu.Lock()
	p.broken = true
	d.mu.Unlock()
	d.notify()
}

// start begins what the entries ask for and writes down what stands in the way.
func (d *Driver) start(s *scene) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.alive() // what runs after it may go on
	for i := range s.want.L2 {
		w := &s.want.L2[i]
		err := s.quiet[familyOf(w.Addr)]
		if e := d.entries[w.Addr]; err != nil || !e.runs() {
			d.startEntry(s, e, w, err)
		}
	}
	if err := d.pump(); err != nil {
		s.errs = append(s.errs, err)
	}
	d.rouse()
}

// runs tells whether the entry announces as it is to, with nothing to put right. That
// is so for nearly all of thousands.
func (e *entry) runs() bool {
	b := &e.burst
	return e.want.Mode == model.L2Announce && b.on && b.number == e.want.Burst && !b.next.IsZero() &&
		e.err == "" && !e.silent && !e.tooLate && e.port != nil
}

// startEntry is start for one entry; quiet is why its family is not as silent as wanted.
func (d *Driver) startEntry(s *scene, e *entry, w *model.L2Advert, quiet error) {
	if w.Mode == model.L2Silent {
		d.startSilent(e, quiet)
		return
	}
	if quiet != nil && w.Quiet {
		e.silent = false
		e.fault(d, fmt.Errorf("cannot silence: %w", quiet)) // it may answer its own question
		return
	}
	if quiet != nil && e.silent {
		e.fault(d, fmt.Errorf("still silent: %w", quiet)) // so it must not speak
		return
	}
	e.silent = w.Quiet
	if e.port == nil {
		return // applyPorts has said why
	}
	var err error
	switch w.Mode {
	case model.L2Announce:
		d.alive()
		if err := d.mayStart(e, time.Now()); err != nil {
			e.quiet()
			e.fault(d, err) // the report tells the next decision
			d.queue.update(e)
			return
		}
		err = d.startAnnouncing(e, s.want.ValidUntil)
	case model.L2Probe:
		err = d.startSeries(e, linkLocal(s.addrs, e.port.link.Index))
	}
	if err != nil {
		d.counters.errors.Add(1)
		e.quiet()
		s.errs = append(s.errs, err)
	}
	e.fault(d, err)
	d.queue.update(e)
}

// startSilent notes whether the rules are in force.
func (d *Driver) startSilent(e *entry, err error) {
	if err != nil {
		err = fmt.Errorf("cannot silence: %w", err)
	} else if !e.silent {
		d.log.Info("silent", "vip", e.want.Addr, "iface", e.want.Interface)
	}
	e.silent = err == nil
	e.fault(d, err)
}

// fault sets the error of an entry and logs a change of it.
func (e *entry) fault(d *Driver, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && e.err == "" {
		d.log.Info("not on the wire", "vip", e.want.Addr, "iface", e.want.Interface, "err", err)
	}
	e.err = text
}

// closePorts closes all ports; nothing is announced any more.
func (d *Driver) closePorts() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, p := range d.ports {
		p.Close()
		delete(d.ports, key)
	}
	clear(d.entries)
}
