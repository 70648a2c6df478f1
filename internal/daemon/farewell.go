package daemon

import (
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// stop is until when a daemon that stops waits at most: for all VIPs, and for successors
// once only those without one are left.
type stop struct{ deadline, aloneTill time.Time }

// finished tells whether a stopping daemon has nothing more to hand over.
func (d *Daemon) finished() bool {
	held, alone := 0, 0
	for _, m := range d.last.Memory.VIPs {
		switch {
		case m.Phase == model.PhaseOwner && m.Reason == model.ReasonNoSuccessor:
			alone++
		case m.Phase >= model.PhaseTaking:
			held++
		}
	}
	for _, m := range d.last.Memory.BGP {
		switch {
		case m.Phase == model.BGPAdvertised && m.Reason == model.ReasonNoSuccessor:
			alone++
		case m.Phase >= model.BGPShutdown:
			held++
		}
		// One that is still advertised otherwise is kept by its peers over the
		// restart of this daemon.
	}
	late := !d.view.Now.Before(d.stop.deadline)
	if held > 0 && !late {
		d.stop.aloneTill = time.Time{}
		return false
	}
	if alone > 0 && !late {
		if d.stop.aloneTill.IsZero() {
			d.stop.aloneTill = d.view.Now.Add(stopAlone)
		}
		if d.view.Now.Before(d.stop.aloneTill) {
			return false
		}
	}
	if alone > 0 {
		d.log.Warn("no successor: the VIPs stay until their lifetime ends, or until this daemon is back", "vips", alone)
	}
	if held > 0 {
		d.log.Warn("stopping before everything was handed over", "vips", held)
	}
	return true
}

// farewell takes down what could not be handed over, leaves the group, and waits
// a moment for the drivers to say so. VIPs without a successor, and those whose
// path BGP peers keep over a graceful restart, stay in the kernel until their
// lifetime ends: a daemon that comes back before finds them.
func (d *Daemon) farewell() {
	bye := d.last
	bye.Gen++
	bye.Bind, bye.L2 = nil, nil
	for _, b := range d.last.Bind {
		if d.stays(&b) {
			bye.Bind = append(bye.Bind, b)
		}
	}
	for _, a := range d.last.L2 {
		if a.Mode == model.L2Silent {
			// Until the address is gone: the drivers do not wait for each other. The
			// layer 2 driver ends the silence when it is closed. A node that stops asks
			// the wire for nothing, so no probe is Quiet any more.
			bye.L2 = append(bye.L2, a)
		}
	}
	bye.BGP.Leave = true
	// A router that keeps paths over a graceful restart must not keep one whose
	// address goes now.
	kept := d.kept(&bye)
	bye.BGP.Paths = slices.DeleteFunc(slices.Clone(d.last.BGP.Paths), func(p model.BGPPath) bool { return !kept[p.Prefix] })
	bye.Relay, bye.Machines = d.relayed(&bye), model.MachinesState{}
	bye.Group = model.GroupState{Leave: true, Draining: true, MACs: bye.Group.MACs, Weight: bye.Group.Weight}
	for _, r := range d.runners {
		r.Submit(&bye)
	}
	timeout := time.After(farewellTimeout)
	for waiting := true; waiting; {
		select {
		case change := <-d.changes:
			change(&d.view)
		case <-timeout:
			return
		}
		waiting = false
		for _, dr := range d.opts.Drivers {
			waiting = waiting || d.view.Applied[dr.Name()].Gen < bye.Gen
		}
	}
}

// kept are the prefixes of VIPs that this node goes on serving without this daemon:
// they stay bound, or were never bound and are not drained.
func (d *Daemon) kept(bye *model.Desired) map[netip.Prefix]bool {
	bound := make(map[netip.Addr]bool, len(bye.Bind))
	for i := range bye.Bind {
		bound[bye.Bind[i].Addr] = true
	}
	kept := make(map[netip.Prefix]bool)
	for i := range d.view.VIPs {
		v := &d.view.VIPs[i]
		m := d.last.Memory.BGP[v.Addr]
		serves := m.Phase == model.BGPAdvertised || m.Phase == model.BGPShutdown && bound[v.Addr]
		if !serves || !m.Unbound && !bound[v.Addr] {
			continue
		}
		for j := range v.BGP {
			kept[v.BGP[j].Prefix(v.Addr)] = true
		}
	}
	return kept
}

// relayed are the rings of the VIPs that stay bound: connections depend on them while
// the next process begins.
func (d *Daemon) relayed(bye *model.Desired) []model.Relay {
	return slices.DeleteFunc(slices.Clone(d.last.Relay), func(r model.Relay) bool {
		return !r.Tracked && !slices.ContainsFunc(bye.Bind, func(b model.Binding) bool { return b.Addr == r.Addr })
	})
}

// stays tells whether a binding is left to its lifetime when the process ends.
func (d *Daemon) stays(b *model.Binding) bool {
	if b.Linger && !d.view.NoRelay {
		return true // for what connections are left, and a daemon that is back soon
	}
	if b.Interface == model.LoopbackInterface {
		return d.last.Memory.BGP[b.Addr].Phase == model.BGPAdvertised
	}
	return d.last.Memory.VIPs[b.Addr].Reason == model.ReasonNoSuccessor
}
