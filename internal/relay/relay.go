// Package relay sends TCP packets for a VIP that no socket of this host can
// place, or for a VIP that kube-proxy translates no connection of it, round the ring of the nodes that may have the connection, by nftables over
// netlink. It needs CAP_NET_ADMIN and not the nft program.
//
// Whoever has the connection takes the packet and answers the client by itself. A
// packet that nobody takes comes back to the node where it came in, whose stack does
// what it would have done at once: it resets the connection, or checks a SYN cookie.
// The number of relays is in the DSCP field, and believed only from the hardware
// addresses of the group; a packet whose TTL is used up is not relayed either, so
// that every packet ends whatever the nodes know of each other. At its end a packet
// that was relayed has the default DSCP, 0; one that was not keeps what it had, and
// ECN is never touched.
//
// So goes what a router says of a packet of such a connection that was too big for it,
// and no other message of ICMP.
//
// Limits. A listener that is bound to the VIP, not to the wildcard address, takes
// every packet for its own. What comes in by another interface is left alone.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

var _ announce.Extender = (*Driver)(nil)

const (
	// defaultLifetime is how long the rules act after the last Apply.
	defaultLifetime = 3 * time.Second
	// retryAfter is the pause after the kernel has refused the rules. It will most
	// likely refuse them again.
	retryAfter = 30 * time.Second
	// retrySoon is the same if it can relay, but has refused just these rules or has not
	// answered in time.
	retrySoon = 2 * time.Second
	// answerTimeout bounds one exchange with the kernel.
	answerTimeout = time.Second
)

// Options are what New needs.
type Options struct {
	// Logger is required.
	Logger *slog.Logger
	// Lifetime is how long the kernel relays for a VIP after the last refresh,
	// which the first Apply after a third of it makes, unless its ring says
	// otherwise; 3 s, as an address, if zero.
	Lifetime time.Duration
}

// Driver is the relay part of a Desired. Its methods must not be called
// concurrently.
type Driver struct {
	log      *slog.Logger
	lifetime time.Duration
	session  *nft.Session
	tables   [families]table
	reported map[netip.Addr]model.AppliedVIP
	host     host
	warned   bool

	changed chan struct{}
	removed atomic.Bool // somebody else has changed the tables
}

// New returns a driver that touches the kernel only in Apply and Close.
func New(o Options) *Driver {
	d := &Driver{log: o.Logger, lifetime: o.Lifetime, session: nft.New(answerTimeout), changed: make(chan struct{}, 1)}
	if d.lifetime == 0 {
		d.lifetime = defaultLifetime
	}
	for f := range d.tables {
		d.tables[f].family = family(f)
	}
	return d
}

// Name returns model.SinkRelay.
func (d *Driver) Name() model.SinkName { return model.SinkRelay }

// Changed fires when somebody else has changed or removed the tables.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// watch looks after the tables while rings concern this host.
func (d *Driver) watch(want *model.Desired) {
	if !concerned(want) && d.tables[v4].state != there && d.tables[v6].state != there {
		d.session.Unwatch()
		return
	}
	err := d.session.Watch(func() {
		d.removed.Store(true)
		select {
		case d.changed <- struct{}{}:
		default:
		}
	}, v4.table(), v6.table())
	if err != nil {
		d.log.Debug("changes of tables go unheard", "err", err) // the next refresh notices
	}
}

// Apply makes the kernel relay what want.Relay asks for and nothing else. What an
// earlier process left is replaced, or removed, once the node knows its group: until
// then it is not known what is wanted, and connections depend on it. What is in force is
// refreshed when a third of its lifetime has passed, but not after
// want.ValidUntil. A VIP that cannot be relayed has its reason in its report;
// the error is always nil, since a relay is a help and never a duty.
func (d *Driver) Apply(_ context.Context, want *model.Desired) (model.Applied, error) {
	now := time.Now()
	d.watch(want)
	if d.removed.Swap(false) {
		for f := range d.tables {
			if t := &d.tables[f]; t.state == there || t.old != nil {
				t.forget(unknown)
				t.old = nil
			}
		}
	}
	frozen := !want.ValidUntil.IsZero() && now.After(want.ValidUntil)
	report := model.Applied{VIPs: make(map[netip.Addr]model.AppliedVIP, len(want.Relay))}
	flows, refused := sort(d.trackable(d.evened(want.Relay, now), now))
	for addr, err := range refused {
		report.VIPs[addr] = model.AppliedVIP{Err: err.Error()}
	}
	var errs []error
	for f := range d.tables {
		t := &d.tables[f]
		if d.keepsOld(t, flows[f], want, now, frozen) {
			t.reportOld(flows[f], report.VIPs)
			continue
		}
		err := d.bring(t, flows[f], now, frozen)
		if err != nil {
			errs = append(errs, err)
		}
		for i := range flows[f] {
			t.report(&flows[f][i], err, d.lifetime, report.VIPs)
		}
	}
	d.reportEven(want.Relay, report.VIPs)
	d.reportUntracked(want.Relay, report.VIPs)
	if maps.Equal(report.VIPs, d.reported) {
		report.VIPs = d.reported // the same map says at a glance that nothing is new
	}
	d.reported = report.VIPs
	if err := errors.Join(errs...); err != nil {
		report.Err = err.Error()
	}
	report.Ring = d.look(want, now)
	return report, nil
}

// keepsOld tells whether what an earlier process left is better than what is wanted.
func (d *Driver) keepsOld(t *table, flows []flow, want *model.Desired, now time.Time, frozen bool) bool {
	switch {
	case t.state != unknown || t.err != nil:
		return false
	case len(flows) == 0:
		return want.Hearing || !(want.Synced && want.Memory.Settled)
	}
	return want.Hearing && t.inherit(d.session, flows, d.lifetime, now, frozen)
}

// report tells what is true of the VIPs of a wanted flow.
func (t *table) report(g *flow, err error, usual time.Duration, vips map[netip.Addr]model.AppliedVIP) {
	is := t.relaying(g, usual, time.Now())
	for _, a := range g.addrs {
		v := model.AppliedVIP{Interface: g.iface, Relaying: is[a]}
		if err != nil && !v.Relaying {
			v.Err = err.Error()
		}
		vips[a] = v
	}
}

// Extend does nothing while nothing is relayed; rules are renewed by Apply.
func (d *Driver) Extend(time.Time) bool {
	for f := range d.tables {
		if t := &d.tables[f]; t.state != absent || t.err != nil {
			return false
		}
	}
	return true
}

// bring puts the wanted flows of one family into the kernel.
func (d *Driver) bring(t *table, want []flow, now time.Time, frozen bool) error {
	if now.Before(t.retry) {
		if len(want) == 0 {
			return nil // what may be there acts no more after its lifetime
		}
		return t.err
	}
	if frozen && len(want) > 0 {
		return nil // let the lifetime end
	}
	err := t.set(d.session, want, d.lifetime, now)
	if err == nil {
		t.err, t.retry = nil, time.Time{}
		if len(want) > 0 {
			t.unfit = ""
		}
		return nil
	}
	// Where there is no nf_tables, or no right to use it, there is nothing to
	// delete either, or it acts no more.
	if len(want) == 0 {
		d.log.Debug("relay table not deleted", "family", t.family, "err", err)
		if nft.Impossible(err) {
			t.forget(absent)
			return nil
		}
	}
	t.err, t.retry = fmt.Errorf("relay: %s: %w", t.family, err), now.Add(retrySoon)
	if t.unfit = d.lacks(t.family, want, err); t.unfit != "" || len(want) == 0 {
		t.retry = now.Add(retryAfter)
	}
	if !d.warned && len(want) > 0 {
		d.warned = true
		d.log.Warn("rules of relays are not in force; open connections may be reset when VIPs move", "err", t.err)
	}
	return t.err
}

// lacks says, after the kernel has refused rules, why it cannot relay at all; empty if it
// can. "Does not exist" may be a part of nf_tables that is missing, or something in just
// these rules. So it is asked for others of the kind, which are few and known to be good:
// a node that took one for the other would leave all of its rings.
func (d *Driver) lacks(f family, want []flow, why error) string {
	if len(want) == 0 || !unsupported(why) {
		return ""
	}
	d.tables[f].untracked.asked = time.Time{} // perhaps it had not answered
	if err := probe(d.session, f, sample(f, false)); !unsupported(err) {
		return ""
	}
	return why.Error()
}

// Close deletes the tables, but not what the last Apply asked for: the next process
// goes on with it, or it acts no more after its lifetime.
func (d *Driver) Close(context.Context) error {
	var errs []error
	for f := range d.tables {
		t := &d.tables[f]
		if t.state != unknown || t.err == nil {
			continue
		}
		if err := t.set(d.session, nil, d.lifetime, time.Now()); !nft.Impossible(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, d.session.Close())...)
}

// Cleanup deletes the tables that a daemon left behind, and names them.
func Cleanup(context.Context) ([]string, error) {
	s := nft.New(answerTimeout)
	removed, err := s.Clean(v4.table(), v6.table())
	return removed, errors.Join(err, s.Close())
}

// sort puts together the wanted relays that share their rules. A relay that
// could do harm is refused.
func sort(want []model.Relay) (flows [families][]flow, refused map[netip.Addr]error) {
	if len(want) == 0 {
		return flows, nil
	}
	refused = make(map[netip.Addr]error)
	links, err := openLinks()
	defer links.close()
	for i := range want {
		r := &want[i]
		f := familyOf(r.Addr)
		g := flow{iface: r.Interface, ring: r.Ring, tracked: r.Tracked, repliers: r.Repliers}
		why := err
		if why == nil {
			why = sane(r, f)
		}
		if why == nil {
			g.index, why = links.ethernet(r.Interface)
		}
		if why != nil {
			refused[r.Addr] = fmt.Errorf("relay: %w", why)
			continue
		}
		at := slices.IndexFunc(flows[f], g.sameRules)
		if at < 0 {
			at = len(flows[f])
			flows[f] = append(flows[f], g)
		}
		flows[f][at].addrs = append(flows[f][at].addrs, r.Addr)
	}
	return flows, refused
}

// sane refuses a ring that nothing would bound.
func sane(r *model.Relay, f family) error {
	switch {
	case r.Ring == nil || r.Ring.Nodes < 2 || r.Ring.Nodes > model.MaxRing:
		return fmt.Errorf("a ring has 2 to %d nodes", model.MaxRing)
	case !r.Ring.Next.IsValid() || familyOf(r.Ring.Next) != f:
		return fmt.Errorf("to %s: not of the family of %s", r.Ring.Next, r.Addr)
	case len(r.Ring.Peers) == 0:
		return errors.New("no hardware address of another node")
	}
	return saneSpread(r.Ring, f)
}
