package decide

import (
	"slices"

	"lbd.dev/lbd/internal/model"
)

// watchRings adds what the rings of all VIPs need.
func (f *facts) watchRings(d *model.Desired) {
	o := f.rings.Output()
	d.Memory.Left, d.Memory.Rings = o.Left, o.Probes
	f.w.by(o.Wake)
	for _, n := range o.Heartbeats {
		d.Group.Heartbeat(n)
	}
	for _, q := range o.Questions {
		if !f.isVIP(d, q.Addr) { // the driver knows an address once
			d.L2 = append(d.L2, q)
		}
	}
}

// isVIP tells whether layer 2 may have something else to do for an address: a node that has a VIP
// for its own is not asked for.
func (f *facts) isVIP(d *model.Desired, at addr) bool {
	_, is := model.FindVIP(f.v.VIPs, at)
	return is || slices.ContainsFunc(d.L2, func(a model.L2Advert) bool { return a.Addr == at })
}

// placed is where a VIP of layer 2 is bound on this node, or is to be, else "".
func placed(m *model.VIPMemory) string {
	if m.Unbound || m.Phase != model.PhaseReleasing && present(m) == "" {
		return ""
	}
	return m.Interface
}
