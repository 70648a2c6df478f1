package decide

import (
	"slices"

	"lbd.dev/lbd/internal/model"
)

// list builds one list of a decision. Thousands of entries are the same as in the
// decision before, so that its list is taken over up to the first that differs: what
// does not change costs no memory, and drivers see at a glance that it did not.
type list[T any] struct {
	old     []T // never changed
	n       int // how many of old are taken over
	made    []T // what is built instead, once something differs
	changed bool
}

// next is the entry of the decision before at the place of the one that comes, nil
// if there is none to be taken over.
func (l *list[T]) next() *T {
	if l.changed || l.n >= len(l.old) {
		return nil
	}
	return &l.old[l.n]
}

// keep takes over what next has returned.
func (l *list[T]) keep() { l.n++ }

// add appends what differs from next.
func (l *list[T]) add(x T) {
	if !l.changed {
		l.changed = true
		l.made = make([]T, l.n, max(len(l.old), l.n+1))
		copy(l.made, l.old)
	}
	l.made = append(l.made, x)
}

// result is the list; it must not be changed any more.
func (l *list[T]) result() []T {
	if l.changed {
		return l.made
	}
	return l.old[:l.n:l.n]
}

// put adds a value, or takes over the same one.
func put[T comparable](l *list[T], x T) {
	if o := l.next(); o != nil && *o == x {
		l.keep()
	} else {
		l.add(x)
	}
}

// lists are those of one decision that have an entry for each VIP.
type lists struct {
	bind   list[model.Binding]
	paths  list[model.BGPPath]
	group  list[model.GroupVIP]
	status list[model.VIPStatus]
	relay  list[model.Relay]
}

// begin prepares the lists for a decision about so many VIPs.
func begin(old *model.Lists, vips int) lists {
	l := lists{
		bind: list[model.Binding]{old: old.Bind}, paths: list[model.BGPPath]{old: old.Paths},
		group: list[model.GroupVIP]{old: old.Group}, status: list[model.VIPStatus]{old: old.Status},
		relay: list[model.Relay]{old: old.Relay},
	}
	if len(old.Status) == 0 {
		l.group.made, l.group.changed = make([]model.GroupVIP, 0, vips), true
		l.status.made, l.status.changed = make([]model.VIPStatus, 0, vips), true
	}
	return l
}

// end puts the lists into the decision, and into its memory for the next one.
func (l *lists) end(d *model.Desired) {
	d.Bind = l.bind.result()
	sortBindings(d.Bind)
	d.BGP.Paths, d.Group.VIPs, d.Status = l.paths.result(), l.group.result(), l.status.result()
	d.Relay = l.relay.result()
	d.Memory.Lists = model.Lists{Bind: d.Bind, Paths: d.BGP.Paths, Group: d.Group.VIPs, Status: d.Status, Relay: d.Relay}
}

// path adds a path, or takes over the same one.
func (l *lists) path(p model.BGPPath) {
	if o := l.paths.next(); o != nil && o.Equal(&p) {
		l.paths.keep()
	} else {
		l.paths.add(p)
	}
}

// tell adds a status, or takes over the same one.
func (l *lists) tell(s model.VIPStatus) {
	if o := l.status.next(); o != nil && sameStatus(o, &s) {
		l.status.keep()
	} else {
		l.status.add(s)
	}
}

func sameStatus(a, b *model.VIPStatus) bool {
	return a.BGP == b.BGP && a.Owner == b.Owner && a.Reason == b.Reason && a.Standing == b.Standing && a.Epoch == b.Epoch &&
		a.Healthy == b.Healthy && a.Bound == b.Bound && a.Announced == b.Announced && a.Since.Equal(b.Since) &&
		a.Interface == b.Interface && a.Detail == b.Detail && a.Ring == b.Ring && a.Duplicate == b.Duplicate && a.VIP.Same(&b.VIP) &&
		slices.Equal(a.Successors, b.Successors) && slices.Equal(a.Peers, b.Peers)
}
