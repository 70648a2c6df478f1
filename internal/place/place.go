// Package place tells where on this node a VIP belongs, and whether the node may serve it. It is
// pure.
package place

import (
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/internal/model"
)

// Links are the links of this node, prepared once for many VIPs.
type Links struct {
	all  map[string]model.Link
	own  map[netip.Addr]string
	wide []model.Link // those with a subnet
}

// LinksOf prepares them.
func LinksOf(all map[string]model.Link) Links {
	l := Links{all: all, own: ownAddresses(all)}
	for _, x := range all {
		if slices.ContainsFunc(x.Prefixes, wide) {
			l.wide = append(l.wide, x)
		}
	}
	return l
}

// Own is the link that has the address for its own, of several the first by name; "" if none has.
func (l *Links) Own(a netip.Addr) string { return l.own[a] }

// Find finds the interface on which this node would bind the VIP, or why there
// is none, with more words. A named interface needs no subnet: it is the
// operator's word. The VIP stays on the interface where it is, if there is one,
// as long as that works.
func (l *Links) Find(vip *model.VIP, present string) (model.Link, Verdict) {
	if own := l.Own(vip.Addr); own != "" {
		return model.Link{}, Verdict{model.ReasonLocalAddress, "it is an address of " + own}
	}
	if present != "" {
		if x, ok := l.all[present]; ok && BelongsOn(vip, &x) {
			if why := usable(vip, &x); why.Reason.Eligible() {
				return x, why
			}
		}
	}
	if len(vip.Interfaces) > 0 {
		return l.named(vip)
	}
	best := -1
	var found *model.Link
	why := Verdict{Reason: model.ReasonNoSubnet}
	for i := range l.wide {
		x := &l.wide[i]
		bits := Covers(x, vip.Addr)
		if bits < 0 || bits < best {
			continue
		}
		use := usable(vip, x)
		// The longest prefix first, then an interface that works, then the lower
		// index: the order of the map must not matter.
		switch {
		case bits > best, use.Reason.Eligible() && !why.Reason.Eligible(),
			use.Reason.Eligible() == why.Reason.Eligible() && x.Index < found.Index:
			best, found, why = bits, x, use
		}
	}
	switch {
	case best < 0:
		why.Detail = "no interface has a subnet that holds " + vip.Addr.String() + "; name one in advertise.l2.interfaces"
		return model.Link{}, why
	case !why.Reason.Eligible():
		return model.Link{}, why
	}
	return *found, why
}

// BelongsOn tells whether the VIP may be on the link at all.
func BelongsOn(vip *model.VIP, l *model.Link) bool {
	if len(vip.Interfaces) > 0 {
		return slices.Contains(vip.Interfaces, l.Name)
	}
	return Covers(l, vip.Addr) >= 0
}

// Covers is the length of the longest prefix of the link that holds the address;
// -1 without one. A host route is no subnet.
func Covers(l *model.Link, a netip.Addr) int {
	bits := -1
	for _, p := range l.Prefixes {
		if p.Contains(a) && wide(p) {
			bits = max(bits, p.Bits())
		}
	}
	return bits
}

// wide tells whether other hosts may be in a prefix of a link.
func wide(p netip.Prefix) bool { return !p.Addr().IsLoopback() && !p.IsSingleIP() }

// named takes the first of the named interfaces that works.
func (l *Links) named(vip *model.VIP) (model.Link, Verdict) {
	why := Verdict{model.ReasonNoInterface, "none of " + strings.Join(vip.Interfaces, ", ") + " exists"}
	for _, n := range vip.Interfaces {
		x, ok := l.all[n]
		if !ok {
			continue
		}
		if why = usable(vip, &x); why.Reason.Eligible() {
			return x, why
		}
	}
	return model.Link{}, why
}

// usable tells whether the VIP can be bound and announced on the link now.
func usable(vip *model.VIP, l *model.Link) Verdict {
	switch {
	case !l.Up:
		return Verdict{model.ReasonLinkDown, l.Name + " is down or has no carrier"}
	case vip.Addr.Is6() && !l.IPv6:
		return Verdict{model.ReasonFamilyDisabled, "IPv6 is disabled on " + l.Name + "; set net.ipv6.conf." + l.Name + ".disable_ipv6=0"}
	case vip.Addr.Is4() && !vip.Unbound && l.ARPIgnore == answersNobody:
		return Verdict{model.ReasonARPDisabled, "arp_ignore is 8 on " + l.Name + "; set net.ipv4.conf.all.arp_ignore and that of " + l.Name + " to 0, 1 or 2"}
	}
	return Verdict{Reason: model.ReasonStandby}
}

// OwnAddress is the interface that has the address, if one has: of several the first by name.
func OwnAddress(links map[string]model.Link, a netip.Addr) (string, bool) {
	name, found := "", false
	for _, l := range links {
		if has := slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Addr() == a }); has && (!found || l.Name < name) {
			name, found = l.Name, true
		}
	}
	return name, found
}

// ownAddresses are the addresses of this node, each with its link.
func ownAddresses(links map[string]model.Link) map[netip.Addr]string {
	all := make(map[netip.Addr]string)
	for _, l := range links {
		for _, p := range l.Prefixes {
			if had, ok := all[p.Addr()]; !ok || l.Name < had {
				all[p.Addr()] = l.Name
			}
		}
	}
	return all
}

// AnyBelongsOn tells whether a VIP belongs on the link; only those of layer 2 if so
// asked.
func AnyBelongsOn(vips []model.VIP, l *model.Link, l2 bool) bool {
	for i := range vips {
		x := &vips[i]
		switch {
		case l2 && !x.L2:
		case len(x.Interfaces) > 0:
			if slices.Contains(x.Interfaces, l.Name) {
				return true
			}
		case Covers(l, x.Addr) >= 0:
			return true
		}
	}
	return false
}
