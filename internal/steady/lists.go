package steady

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// Lists are what a decision has for each VIP, for the drivers and the group and in its memory.
type Lists struct {
	Bind  List[model.Binding]
	Group List[model.GroupVIP]
	Relay List[model.Relay]

	OnLAN      Map[netip.Addr, model.VIPMemory]
	OnLoopback Map[netip.Addr, model.BGPMemory]

	paths  List[model.BGPPath]
	status List[model.VIPStatus]
}

// BeginLists prepares the lists out of those of the decision before.
func BeginLists(v *model.View) Lists {
	old, vips := &v.Memory.Lists, len(v.VIPs)
	return Lists{
		Bind: Begin(old.Bind, 0), paths: Begin(old.Paths, 0), Relay: Begin(old.Relay, 0),
		Group: Begin(old.Group, vips), status: Begin(old.Status, vips),
		OnLAN: Map[netip.Addr, model.VIPMemory]{Old: v.Memory.VIPs, Size: vips}, OnLoopback: Map[netip.Addr, model.BGPMemory]{Old: v.Memory.BGP},
	}
}

// End puts the lists into the decision, and into its memory for the next one.
func (l *Lists) End(d *model.Desired) {
	d.Bind = l.Bind.Result()
	sortBindings(d.Bind)
	d.BGP.Paths, d.Group.VIPs, d.Status = l.paths.Result(), l.Group.Result(), l.status.Result()
	d.Relay = l.Relay.Result()
	d.Memory.VIPs, d.Memory.BGP = l.OnLAN.Result(), l.OnLoopback.Result()
	d.Memory.Lists = model.Lists{Bind: d.Bind, Paths: d.BGP.Paths, Group: d.Group.VIPs, Status: d.Status, Relay: d.Relay}
}

// sortBindings sorts by address; of two of one address that on lo comes last.
// A list that was taken over is sorted, so that one of an earlier decision is never
// touched.
func sortBindings(all []model.Binding) {
	for i := 1; i < len(all); i++ {
		if all[i-1].Compare(&all[i]) > 0 {
			slices.SortFunc(all, func(a, b model.Binding) int { return a.Compare(&b) })
			return
		}
	}
}

// Path adds a path, or takes over the same one.
func (l *Lists) Path(p model.BGPPath) {
	if o := l.paths.Next(); o != nil && o.Equal(&p) {
		l.paths.Keep()
	} else {
		l.paths.Add(p)
	}
}

// Tell adds a status, or takes over the same one.
func (l *Lists) Tell(s *model.VIPStatus) {
	if o := l.status.Next(); o != nil && o.Same(s) {
		l.status.Keep()
	} else {
		l.status.Add(*s)
	}
}
