package layer2

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// silences are what the host is silent about, of each family. Only Apply uses them.
type silences struct {
	of       [families]silencer
	looked   bool         // at what an earlier process left
	leftover []netip.Addr // silent when this process began, until that is lifted
	// unprepared are the families whose silence could not be prepared.
	unprepared [families]bool
}

// lookBack finds, once, what an earlier process of this node had silenced when it
// was killed: it had handed those VIPs over, so they must not be taken for its own
// although they are still bound.
func (s *silences) lookBack(log *slog.Logger) {
	if s.looked {
		return
	}
	s.looked = true
	for _, t := range s.of {
		addrs, err := t.Leftover()
		if err != nil {
			log.Debug("what an earlier process silenced cannot be read", "err", err)
		}
		s.leftover = append(s.leftover, addrs...)
	}
}

// applySilence makes exactly the silent entries silent. For an entry that yields,
// which may have to be silent at any moment, it prepares all but that.
func (d *Driver) applySilence(s *scene) {
	var addrs [families][]netip.Addr
	var ifaces [families]map[string]struct{}
	var speaks [families]bool
	for i := range s.want.L2 {
		w := &s.want.L2[i]
		f := familyOf(w.Addr)
		switch {
		case silenced(w):
			addrs[f] = append(addrs[f], w.Addr)
		case w.Mode == model.L2Announce:
			speaks[f] = true
		}
		if silenced(w) || yields(w) {
			if ifaces[f] == nil {
				ifaces[f] = make(map[string]struct{})
			}
			ifaces[f][w.Interface] = struct{}{}
		}
	}
	for f, t := range d.silence.of {
		switch {
		case len(addrs[f]) > 0:
			slices.SortFunc(addrs[f], netip.Addr.Compare)
			s.quiet[f] = t.Set(silence.Want{
				Addrs:    addrs[f],
				Speakers: speakers(Family(f), s, ifaces[f]),
				Until:    s.want.ValidUntil.Add(defaultSilence),
			})
		case ifaces[f] != nil && d.prepare(Family(f), s, ifaces[f]):
		case s.want.Synced || speaks[f]:
			s.quiet[f] = t.Clear()
		default:
			continue
		}
		if ifaces[f] == nil {
			d.silence.unprepared[f] = false
		}
		d.silence.leftover = slices.DeleteFunc(d.silence.leftover, func(a netip.Addr) bool { return familyOf(a) == Family(f) })
		if s.quiet[f] != nil {
			d.counters.errors.Add(1)
			s.errs = append(s.errs, fmt.Errorf("silence: %w", s.quiet[f]))
		}
	}
}

// prepare makes a family ready to fall silent at once. What fails is not tried
// again in the same handover, in which it may hold up announcements.
func (d *Driver) prepare(f Family, s *scene, ifaces map[string]struct{}) bool {
	if d.silence.unprepared[f] {
		return false
	}
	if err := d.silence.of[f].Prepare(speakers(f, s, ifaces)); err != nil {
		d.silence.unprepared[f] = true
		d.counters.errors.Add(1)
		d.log.Debug("silence not prepared", "err", err)
		return false
	}
	return true
}

// linkLocal returns a usable IPv6 link-local address of an interface; an invalid
// one if there is none.
func linkLocal(addrs []Address, index int) netip.Addr {
	for _, a := range addrs {
		if ip := a.Prefix.Addr(); a.Index == index && a.Usable && ip.Is6() && ip.IsLinkLocalUnicast() {
			return ip
		}
	}
	return netip.Addr{}
}

// speakers are the addresses in whose name the interfaces ask while VIPs on them
// are silent.
func speakers(f Family, s *scene, ifaces map[string]struct{}) []silence.Speaker {
	var all []silence.Speaker
	for _, name := range slices.Sorted(maps.Keys(ifaces)) {
		index := s.links[name].Index
		if f == silence.ND {
			ip := linkLocal(s.addrs, index)
			if !ip.IsValid() {
				ip = netip.IPv6Unspecified()
			}
			all = append(all, silence.Speaker{Interface: name, Addr: ip})
			continue
		}
		all = append(all, speakers4(name, nodeAddresses(s, index))...)
	}
	return all
}

// speakers4 answers for each subnet with the address in it, as arp_announce=1
// would, and for the rest with the first one. Without any the request becomes a
// probe, which is answered too.
func speakers4(name string, own []netip.Prefix) []silence.Speaker {
	rest := silence.Speaker{Interface: name, Addr: netip.IPv4Unspecified()}
	if len(own) > 0 {
		rest.Addr = own[0].Addr()
	}
	var all []silence.Speaker
	seen := make(map[netip.Prefix]struct{})
	for _, p := range own {
		if _, dup := seen[p.Masked()]; !dup && !p.IsSingleIP() {
			seen[p.Masked()] = struct{}{}
			all = append(all, silence.Speaker{Interface: name, Addr: p.Addr(), Subnet: p.Masked()})
		}
	}
	return append(all, rest)
}

// nodeAddresses are the IPv4 addresses of an interface that are not VIPs, those
// with a subnet first.
func nodeAddresses(s *scene, index int) []netip.Prefix {
	vips := make(map[netip.Addr]struct{}, len(s.want.L2)+len(s.want.Bind))
	for _, w := range s.want.L2 {
		vips[w.Addr] = struct{}{}
	}
	for _, b := range s.want.Bind {
		vips[b.Addr] = struct{}{}
	}
	var own []netip.Prefix
	for _, a := range s.addrs {
		if _, vip := vips[a.Prefix.Addr()]; a.Index == index && a.Prefix.Addr().Is4() && !vip {
			own = append(own, a.Prefix)
		}
	}
	slices.SortStableFunc(own, func(a, b netip.Prefix) int {
		switch {
		case a.IsSingleIP() == b.IsSingleIP():
			return 0
		case b.IsSingleIP():
			return -1
		}
		return 1
	})
	return own
}
