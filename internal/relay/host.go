package relay

import (
	"errors"
	"net/netip"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

const (
	// listenersEvery is how often servers are looked for while an address is bound.
	listenersEvery = 5 * time.Second
	// firewallEvery is the same for the firewall, which may have thousands of chains. If
	// somebody has changed it, it is looked at after firewallAgain, and firewallShare times
	// as long as a look takes, or when this node begins to drain.
	firewallEvery = time.Minute
	firewallAgain = time.Second
	firewallShare = 50
)

// host is what the driver knows of its host.
type host struct {
	seen                *model.RingHost // nil: it has not looked
	listeners, firewall time.Time       // when it looked
	tracked, proxy      time.Time       // when to look again
	blind               bool            // the rules of kube-proxy could not be looked for, which is logged
	found               []netip.Addr    // by the last look, see RingHost.Tracked
	others              uint64          // nft.Session.Others when the firewall was looked at
	rest                time.Duration   // before it is again
	drained             bool            // it was looked at while this node drains
}

// stale tells whether the firewall is to be looked at, again or at last.
func (h *host) stale(others uint64, draining bool, now time.Time) bool {
	since := now.Sub(h.firewall)
	switch {
	case h.firewall.IsZero(), since >= firewallEvery:
		return true
	case others == h.others:
		return false
	}
	return since >= h.rest || draining && !h.drained
}

// concerned tells whether a ring may be on this host now or soon.
func concerned(want *model.Desired) bool {
	return len(want.Bind) > 0 || len(want.Relay) > 0 || want.Rings || want.Track || want.Services.Asked
}

// look finds out whether rings would work on this host, at times, while an address is
// bound, or is to be if they would. What cannot be found out stands in no ring's way.
func (d *Driver) look(want *model.Desired, now time.Time) *model.RingHost {
	h := &d.host
	if !concerned(want) {
		*h = host{}
		return nil
	}
	next := model.RingHost{}
	if h.seen != nil {
		next = *h.seen
	}
	for f := range d.tables {
		next.Kernel[f] = d.tables[f].unfit
	}
	if h.listeners.IsZero() || now.Sub(h.listeners) >= listenersEvery {
		h.listeners = now
		if found, err := listeners(); err != nil {
			d.log.Debug("servers cannot be listed", "err", err)
		} else {
			next.Listeners = found
		}
	}
	if others := d.session.Others(); h.stale(others, want.Group.Draining, now) {
		h.firewall, h.others, h.drained = now, others, want.Group.Draining
		if found, err := d.droppers(); err != nil {
			d.log.Debug("firewall cannot be read", "err", err)
		} else {
			next.Drops = found
		}
		h.rest = max(firewallAgain, firewallShare*time.Since(now))
	}
	d.lookTracked(want, &next, now)
	d.lookServices(want, &next, now)
	if h.seen == nil || !h.seen.Same(&next) {
		h.seen = &next
	}
	return h.seen
}

func (d *Driver) droppers() (found model.PerFamily, err error) {
	err = d.session.Do(func(c *nftables.Conn) error {
		found, err = droppers(c)
		return err
	})
	return found, err
}

// Look finds out once whether rings would work on this host, without changing it.
func Look() (*model.RingHost, error) {
	s := nft.New(answerTimeout)
	defer func() { _ = s.Close() }()
	var seen model.RingHost
	var errs [3]error
	seen.Listeners, errs[0] = listeners()
	errs[1] = s.Do(func(c *nftables.Conn) (err error) {
		seen.Drops, err = droppers(c)
		return err
	})
	seen.Proxy, errs[2] = proxy(s)
	for f := range families {
		if err := try(s, f); unsupported(err) {
			seen.Kernel[f] = err.Error()
		}
	}
	return &seen, errors.Join(errs[:]...)
}

// Unspreadable is why the kernel cannot spread connections to an address of this family
// over nodes, in words; empty if it can, or did not answer. Nothing is changed.
func Unspreadable(a netip.Addr) string { return refused(familyOf(a), sample(familyOf(a), true)) }

// refused is why the kernel cannot have the rules of the flow, whether or not there are
// some already.
func refused(f family, g flow) string {
	s := nft.New(answerTimeout)
	defer func() { _ = s.Close() }()
	if err := probe(s, f, g); unsupported(err) {
		return err.Error()
	}
	return ""
}

// unsupported tells an error of a kernel that cannot relay, or not for this process: a
// part of nf_tables that is missing does not exist.
func unsupported(err error) bool { return nft.Impossible(err) || errors.Is(err, unix.ENOENT) }

// try asks the kernel for the rules of a ring in a transaction that cannot succeed, so
// that nothing is changed: its last step makes a table that is there by then. Another
// failure is one of the rules. A table that is there already says enough.
func try(s *nft.Session, f family) error {
	if there, err := s.Exists(f.table()); err != nil || there {
		return err
	}
	return probe(s, f, sample(f, false))
}

// probe asks for the rules of a flow in place of a table that is there already, if one is.
func probe(s *nft.Session, f family, g flow) error {
	err := s.Transact(func(c *nftables.Conn) error {
		if err := install(c, f, true, []flow{g}, defaultLifetime); err != nil {
			return err
		}
		c.CreateTable(f.table())
		return nil
	})
	if errors.Is(err, unix.EEXIST) && !unsupported(err) {
		return nil
	}
	return err
}

// sample is a flow with every kind of rule that there is.
func sample(f family, spread bool) flow {
	any := [families]netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1}), netip.MustParseAddr("2001:db8::1")}[f] // RFC 5737, RFC 3849
	g := flow{iface: model.LoopbackInterface, index: 1, addrs: []netip.Addr{any}, ring: &model.Ring{
		Nodes: 2, Next: any, Peers: []model.MAC{{2}}, Origins: []model.Origin{{MAC: model.MAC{2}, Addr: any}}, Ends: []netip.Addr{any},
	}}
	if spread {
		g.ring.Shared, g.ring.Spread = true, []model.Backend{{Node: "a"}, {Node: "b", Addr: any}}
	}
	return g
}
