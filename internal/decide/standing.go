package decide

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wire"
)

type addr = netip.Addr

// Place finds the interface on which this node would bind the VIP, or why there
// is none, with more words. A named interface needs no subnet: it is the
// operator's word. The VIP stays on the interface where it is, if there is one,
// as long as that works.
func Place(links map[string]model.Link, vip model.VIP, present string) (model.Link, model.Reason, string) {
	if l, ok := localAddress(links, vip.Addr); ok {
		return model.Link{}, model.ReasonLocalAddress, "it is an address of " + l
	}
	if l, ok := links[present]; ok && serves(vip, &l) {
		if why, _ := usable(vip, &l); why.Eligible() {
			return l, why, ""
		}
	}
	if len(vip.Interfaces) > 0 {
		return named(links, vip)
	}
	best := -1
	var found model.Link
	why, detail := model.ReasonNoSubnet, ""
	for _, l := range links {
		bits := covers(&l, vip.Addr)
		if bits < 0 || bits < best {
			continue
		}
		use, words := usable(vip, &l)
		// The longest prefix first, then an interface that works, then the lower
		// index: the order of the map must not matter.
		switch {
		case bits > best, use.Eligible() && !why.Eligible(),
			use.Eligible() == why.Eligible() && l.Index < found.Index:
			best, found, why, detail = bits, l, use, words
		}
	}
	switch {
	case best < 0:
		return model.Link{}, why, "no interface has a subnet that holds " + vip.Addr.String() + "; name one in advertise.l2.interfaces"
	case !why.Eligible():
		return model.Link{}, why, detail
	}
	return found, why, ""
}

// serves tells whether the VIP may be on the link at all.
func serves(vip model.VIP, l *model.Link) bool {
	if len(vip.Interfaces) > 0 {
		return slices.Contains(vip.Interfaces, l.Name)
	}
	return covers(l, vip.Addr) >= 0
}

// covers is the length of the longest prefix of the link that holds the address;
// -1 without one. A host route is no subnet.
func covers(l *model.Link, a addr) int {
	bits := -1
	for _, p := range l.Prefixes {
		if p.Contains(a) && !p.Addr().IsLoopback() && !p.IsSingleIP() {
			bits = max(bits, p.Bits())
		}
	}
	return bits
}

// named takes the first of the named interfaces that works.
func named(links map[string]model.Link, vip model.VIP) (model.Link, model.Reason, string) {
	why, detail := model.ReasonNoInterface, "none of "+strings.Join(vip.Interfaces, ", ")+" exists"
	for _, n := range vip.Interfaces {
		l, ok := links[n]
		if !ok {
			continue
		}
		if why, detail = usable(vip, &l); why.Eligible() {
			return l, why, ""
		}
	}
	return model.Link{}, why, detail
}

// usable tells whether the VIP can be bound and announced on the link now.
func usable(vip model.VIP, l *model.Link) (model.Reason, string) {
	switch {
	case !l.Up:
		return model.ReasonLinkDown, l.Name + " is down or has no carrier"
	case vip.Addr.Is6() && !l.IPv6:
		return model.ReasonFamilyDisabled, "IPv6 is disabled on " + l.Name + "; set net.ipv6.conf." + l.Name + ".disable_ipv6=0"
	case vip.Addr.Is4() && !vip.Unbound && l.ARPIgnore == answersNobody:
		return model.ReasonARPDisabled, "arp_ignore is 8 on " + l.Name + "; set net.ipv4.conf.all.arp_ignore and that of " + l.Name + " to 0, 1 or 2"
	}
	return model.ReasonStandby, ""
}

func localAddress(links map[string]model.Link, a addr) (string, bool) {
	for _, l := range links {
		for _, p := range l.Prefixes {
			if p.Addr() == a {
				return l.Name, true
			}
		}
	}
	return "", false
}

// standing says whether this node may own the VIP and, if not, the first reason
// in the order in which an operator would want to hear them.
func (f *facts) standing(vip *model.VIP, lan string, place model.Reason, m *model.VIPMemory) (model.Reason, string) {
	v := f.v
	quorum, missing := true, ""
	if vip.Partition == model.PartitionQuorum {
		quorum, missing = f.majority()
	}
	switch {
	case !vip.L2:
		return model.ReasonNotAnnounced, ""
	case v.Unable != "":
		return model.ReasonDriverError, v.Unable
	case !matches(vip.NodeSelector, v.Labels):
		return model.ReasonNotSelected, ""
	case !place.Eligible():
		return place, ""
	case !quorum:
		return model.ReasonNoQuorum, missing
	case vip.Barred.LetsGo():
		return vip.Barred, vip.BarredDetail
	}
	h := checked(v, vip)
	switch h.State {
	case model.HealthDown:
		return model.ReasonUnhealthy, h.Detail
	case model.HealthUnknown:
		return model.ReasonHealthPending, h.Detail
	}
	switch {
	case v.Draining || v.Stopping:
		return model.ReasonDraining, stopping(v)
	case f.machine != "":
		return model.ReasonMachineDraining, f.machine
	case f.disabled.Loses(vip.Addr):
		return model.ReasonMachineDisabled, f.disabled.Words(v.Self)
	case vip.Barred != model.ReasonOwner:
		return vip.Barred, vip.BarredDetail
	case !f.settled:
		return model.ReasonNotSettled, ""
	case f.wire(lan).State == wire.Dark:
		return model.ReasonWireDark, "nobody answers on " + lan + ", where other nodes hear each other: is its VLAN missing on a port of the switch?"
	case m.Lost == model.ReasonDriverError && (m.Phase == model.PhaseIdle || m.Phase == model.PhaseUnbinding) && v.Now.Before(m.Deferred):
		f.w.by(m.Deferred)
		return model.ReasonDriverError, m.LostDetail
	case f.leveled && h.State == model.HealthDegraded:
		return model.ReasonDegraded, h.Detail
	}
	return model.ReasonStandby, ""
}

// checked is how the service of a VIP does on this node; one without a check is well.
func checked(v *model.View, vip *model.VIP) model.HealthState {
	if vip.Check == "" {
		return model.HealthState{State: model.HealthUp}
	}
	return v.Health[vip.Check]
}

// drain is how long this node keeps open connections to what it hands over because of
// its standing.
func (f *facts) drain(stand model.Reason) time.Duration {
	if stand == model.ReasonDegraded {
		return min(f.v.DrainTimeout, election.DegradedDrain)
	}
	return f.v.DrainTimeout
}

// stopping is the detail of a drain that nobody can end.
func stopping(v *model.View) string {
	if v.Stopping {
		return "the daemon is stopping"
	}
	return ""
}

// matches tells whether all labels of the selector are there.
func matches(selector, labels map[string]string) bool {
	for k, want := range selector {
		if got, ok := labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}
