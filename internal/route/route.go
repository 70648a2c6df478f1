// Package route has the kernel send packets for prefixes to next hops: machines that have told
// by BGP that they take them. It writes next-hop objects, groups of them and routes that lead to
// the groups (Linux 5.3). It needs CAP_NET_ADMIN.
//
// Each prefix has a group of its own, which stays the same object while next hops come and go.
// In a resilient group (Linux 5.13) a change moves only the buckets that have to move, and so
// only connections of a next hop that has left. The table of buckets is in the kernel alone: it
// is kept by changing the group in place, also after a restart of the process.
//
// Beside the route there is one of a high metric by which the prefix is unreachable. So packets
// never follow the default route, which might lead back to where they came from.
//
// The kernel itself removes next hops whose interface has lost its carrier, and groups and
// routes with their last one. They are put back as soon as they can be.
//
// Messages of ICMP that a packet was too big go to all next hops of a prefix, by rules of nf_tables.
//
// All of it stays when the process ends: packets go on while it restarts. What carries lbd's
// protocol number and is not wanted is removed; nothing else is touched. A next hop or a group
// stays while a route of somebody else leads to it, for the kernel would remove that as well.
package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

var _ announce.Extender = (*Driver)(nil)

// relook is after what time the kernel is looked at although nobody has said that it changed.
const relook = 4 * time.Second

// Options are what New needs.
type Options struct {
	// Logger is required.
	Logger *slog.Logger
}

// Driver is the part of a Desired about routes. Its methods must not be called concurrently.
type Driver struct {
	log      *slog.Logger
	kernel   *kernel
	image    *image // what the kernel has; nil: to be looked at
	looked   time.Time
	asked    map[netip.Prefix]map[target]bool // the next hops that this process has asked for
	reported map[netip.Prefix]model.AppliedRoute
	plain    bool // the kernel knows no resilient groups
	idle     bool // the last Apply left nothing to do
	none     bool // and nothing of ours in the kernel
	copier   copier

	changed chan struct{}
	foreign atomic.Bool // somebody else has changed something
	stop    context.CancelFunc
	watcher sync.WaitGroup
}

// target is where a next hop leads.
type target struct {
	gateway netip.Addr
	index   int // of the interface
}

func (t target) compare(o target) int {
	return cmp.Or(t.gateway.Compare(o.gateway), cmp.Compare(t.index, o.index))
}

// New returns a driver that touches the kernel only in Apply and Close.
func New(o Options) *Driver {
	return &Driver{
		log: o.Logger, asked: make(map[netip.Prefix]map[target]bool), changed: make(chan struct{}, 1),
		copier: copier{session: nft.New(answerTimeout)},
	}
}

func (d *Driver) Name() model.SinkName { return model.SinkRoute }

// Changed fires when somebody else has changed what this driver has made, or an interface.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Extend goes on while nothing is to be done; routes have no lifetime.
func (d *Driver) Extend(time.Time) bool { return d.idle && !d.foreign.Load() }

// Apply makes the routes of want.Routes true. What an earlier process left is removed once
// want.Synced and not want.Routes.Hearing. A route that lacks something has the reason in its report.
func (d *Driver) Apply(_ context.Context, want *model.Desired) (model.Applied, error) {
	if d.none && len(want.Routes.Routes) == 0 {
		return model.Applied{}, nil // as on all machines that learn of no master
	}
	d.idle, d.none = false, false
	err := d.look(len(want.Routes.Routes) > 0)
	if err != nil {
		if len(want.Routes.Routes) == 0 && errors.Is(err, unix.EOPNOTSUPP) {
			d.idle, d.none = true, true // a kernel without next-hop objects has none of ours
			return model.Applied{}, nil
		}
		return model.Applied{Routes: d.reported}, err
	}
	keep := !want.Synced || want.Routes.Hearing
	report := make(map[netip.Prefix]model.AppliedRoute, len(want.Routes.Routes))
	p := pass{Driver: d, keep: keep, used: make(map[uint32]bool), foreign: make(map[int]map[uint32]bool)}
	for i := range want.Routes.Routes {
		r := &want.Routes.Routes[i]
		if _, twice := report[r.Prefix]; twice || !sane(r) {
			p.errs = append(p.errs, fmt.Errorf("%s: twice, or no route", r.Prefix))
			continue
		}
		report[r.Prefix] = p.bring(r)
	}
	p.prune(report)
	p.copies()
	if err = errors.Join(p.errs...); err != nil {
		d.image = nil // it may differ from the kernel
	}
	if maps.EqualFunc(report, d.reported, same) {
		report = d.reported // the same map says at a glance that nothing is new
	}
	d.reported, d.idle = report, err == nil
	d.none = d.idle && !keep && len(report) == 0 && len(d.image.lent) == 0 && !d.copier.waits
	return model.Applied{Routes: report}, err
}

func same(a, b model.AppliedRoute) bool {
	return a.Err == b.Err && a.Resilient == b.Resilient && slices.Equal(a.NextHops, b.NextHops)
}

// sane refuses what the kernel would take for something else.
func sane(r *model.Route) bool {
	plain := func(a netip.Addr) bool { return a.IsValid() && !a.Is4In6() && a.Zone() == "" }
	return r.Prefix.IsValid() && plain(r.Prefix.Addr()) && r.Prefix == r.Prefix.Masked() &&
		!slices.ContainsFunc(r.NextHops, func(h model.NextHop) bool {
			return !plain(h.Gateway) || r.Prefix.Addr().Is6() && h.Gateway.Is4() // no kernel has that
		})
}

// look brings the image up to date if it may differ from the kernel. Changes are heard before
// it looks, so that none is missed.
func (d *Driver) look(wanted bool) error {
	if d.kernel == nil {
		k, err := openKernel()
		if err != nil {
			return err
		}
		d.kernel = k
	}
	if d.stop == nil && wanted {
		d.watch()
	}
	if !d.foreign.Swap(false) && d.image != nil && time.Since(d.looked) < relook {
		return nil
	}
	d.image = nil
	im, err := d.kernel.read()
	if err != nil {
		return err
	}
	d.image, d.looked = im, time.Now()
	return nil
}

// Close leaves the routes and rules: packets go on, and the next process takes them over.
func (d *Driver) Close(context.Context) error {
	if d.stop != nil {
		d.stop()
		d.watcher.Wait()
	}
	if d.kernel != nil {
		d.kernel.Close()
		d.kernel, d.image = nil, nil
	}
	return d.copier.session.Close()
}

// Cleanup removes all routes, next hops and rules that a daemon left behind, and names the routes
// and tables.
func Cleanup(ctx context.Context) ([]string, error) {
	d := New(Options{Logger: slog.New(slog.DiscardHandler)})
	removed, errRules := d.copier.session.Clean(families[0].table, families[1].table)
	err := d.look(false)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		err = nil
	case err == nil:
		for _, prefix := range d.image.prefixes() {
			removed = append(removed, "route to "+prefix.String())
		}
		_, err = d.Apply(ctx, &model.Desired{Synced: true})
	}
	return removed, errors.Join(errRules, err, d.Close(ctx))
}
