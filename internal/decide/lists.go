package decide

import (
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/steady"
)

// lists are what a decision has for each VIP, for the drivers and the group and in its memory.
type lists struct {
	bind   steady.List[model.Binding]
	paths  steady.List[model.BGPPath]
	group  steady.List[model.GroupVIP]
	status steady.List[model.VIPStatus]
	relay  steady.List[model.Relay]

	onLAN      steady.Map[addr, model.VIPMemory]
	onLoopback steady.Map[addr, model.BGPMemory]
}

// begin prepares the lists out of those of the decision before.
func begin(v *model.View) lists {
	old, vips := &v.Memory.Lists, len(v.VIPs)
	return lists{
		bind: steady.Begin(old.Bind, 0), paths: steady.Begin(old.Paths, 0), relay: steady.Begin(old.Relay, 0),
		group: steady.Begin(old.Group, vips), status: steady.Begin(old.Status, vips),
		onLAN: steady.Map[addr, model.VIPMemory]{Old: v.Memory.VIPs}, onLoopback: steady.Map[addr, model.BGPMemory]{Old: v.Memory.BGP},
	}
}

// end puts the lists into the decision, and into its memory for the next one.
func (l *lists) end(d *model.Desired) {
	d.Bind = l.bind.Result()
	sortBindings(d.Bind)
	d.BGP.Paths, d.Group.VIPs, d.Status = l.paths.Result(), l.group.Result(), l.status.Result()
	d.Relay = l.relay.Result()
	d.Memory.VIPs, d.Memory.BGP = l.onLAN.Result(), l.onLoopback.Result()
	d.Memory.Lists = model.Lists{Bind: d.Bind, Paths: d.BGP.Paths, Group: d.Group.VIPs, Status: d.Status, Relay: d.Relay}
}

// path adds a path, or takes over the same one.
func (l *lists) path(p model.BGPPath) {
	if o := l.paths.Next(); o != nil && o.Equal(&p) {
		l.paths.Keep()
	} else {
		l.paths.Add(p)
	}
}

// tell adds a status, or takes over the same one.
func (l *lists) tell(s model.VIPStatus) {
	if o := l.status.Next(); o != nil && o.Same(&s) {
		l.status.Keep()
	} else {
		l.status.Add(s)
	}
}
