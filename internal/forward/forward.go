// Package forward has the kernel forward connections to VIPs to servers on other machines:
// nftables translates the destination of each new connection to the server of its slot, by
// a hash that is the same on every node, and its source to the VIP. Connection tracking
// does so with the later packets, so no change of the rules moves a connection that is
// open. It needs CAP_NET_ADMIN and not the nft program.
//
// A node that takes a VIP over knows none of its connections. The next packet of the client
// counts as the first one, and the hash leads it where the others went
// (net.netfilter.nf_conntrack_tcp_loose). One to which a VIP comes back has connections that it
// has missed a part of (net.netfilter.nf_conntrack_tcp_be_liberal).
//
// Where servers see the addresses of clients they answer by this node, which speaks for them as the
// VIP. A node that takes over translates what a server says first, by a map from the server and
// its port to the VIP, if that is the only one: so the connection goes on before the client has
// said a word.
//
// The VIP is bound on no node. What comes for a port that no service has is refused:
// routed, it would go back to the LAN.
//
// The rules stay in force when the process ends: connections outlive a restart. The next one
// replaces them. Whether packets for the VIP come here at all is decided elsewhere.
//
// Connections of this host and of its containers are translated here, too, whoever owns the VIP,
// once some node does. The address of another machine, which no node can take, is left alone.
//
// Limits. A host firewall that drops what is forwarded does so here too. A client that comes in by
// another interface than that of the VIP is known to this node only, as a container is.
package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync/atomic"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

var _ announce.Extender = (*Driver)(nil)

// answerTimeout bounds one exchange with the kernel. A million slots take some seconds, and a minute on a
// machine without a processor to spare. An answer that comes later is about rules that are in force.
const answerTimeout = 2 * time.Minute

// Options are what New needs.
type Options struct {
	// Logger is required.
	Logger *slog.Logger
}

// Driver is the forward part of a Desired. Its methods must not be called concurrently.
type Driver struct {
	log      *slog.Logger
	session  *nft.Session
	tables   [len(families)]table
	cuts     cuts
	reported map[netip.Addr]model.AppliedVIP
	idle     bool            // the last Apply left nothing to do
	warned   map[string]bool // of a switch of tracking

	changed chan struct{}
	removed atomic.Bool // somebody else has changed the tables
	counts  counter
	watcher watcher
}

// New returns a driver that touches the kernel only in Apply and Close.
func New(o Options) *Driver {
	d := &Driver{log: o.Logger, session: nft.New(answerTimeout), warned: make(map[string]bool), changed: make(chan struct{}, 1)}
	for i := range d.tables {
		d.tables[i].family = &families[i]
	}
	return d
}

// Name returns model.SinkForward.
func (d *Driver) Name() model.SinkName { return model.SinkForward }

// Changed fires when somebody else has changed or removed the tables, and when connections
// that are to end are to be looked for again.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

func (d *Driver) wake() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// Apply makes the kernel forward what want.Forward asks for and nothing else, then ends the
// connections that are to end. What an earlier process left is replaced or removed once
// want.Synced, or sooner if it has nothing that is not wanted. A VIP that cannot be
// forwarded has its reason in its report.
func (d *Driver) Apply(_ context.Context, want *model.Desired) (model.Applied, error) {
	d.idle = false
	if d.removed.Swap(false) {
		for f := range d.tables {
			if t := &d.tables[f]; t.state == there {
				t.forget()
			}
		}
	}
	services, report := sort(want.Forward.Services)
	d.watch(len(report) > 0)
	var errs []error
	for f := range d.tables {
		t := &d.tables[f]
		err := t.bring(d.session, services[f], repliesOf(want.Forward.Replies, f), want.Synced)
		errs = append(errs, err)
		t.report(services[f], err, report)
	}
	d.watch(len(report) > 0) // again, after a heavy change
	errs = append(errs, d.settle(services, want.Forward.Cut, time.Now()))
	d.warn(len(report) > 0)
	if maps.Equal(report, d.reported) {
		report = d.reported // the same map says at a glance that nothing is new
	}
	d.reported = report
	err := errors.Join(errs...)
	d.tell()
	d.idle = err == nil && d.tables[0].known() && d.tables[1].known()
	return model.Applied{VIPs: report}, err
}

// watch looks after the tables while there are some, but not while one is loaded that is heavy.
func (d *Driver) watch(wanted bool) {
	if !wanted && d.tables[0].state != there && d.tables[1].state != there {
		d.session.Unwatch()
		return
	}
	err := d.session.Watch(func() {
		d.removed.Store(true)
		d.wake()
	}, families[0].table, families[1].table)
	if err != nil {
		d.log.Debug("changes of tables go unheard", "err", err) // the next look notices
	}
}

// known tells whether the table is as wanted, and not that of an earlier process.
func (t *table) known() bool { return t.state == there || t.state == absent }

// report tells what is true of the VIPs of the services.
func (t *table) report(services []*model.ForwardService, failed error, vips map[netip.Addr]model.AppliedVIP) {
	if len(services) == 0 {
		return
	}
	lacks := t.family.lacks()
	for _, s := range services {
		v := vips[s.Addr]
		switch {
		case v.Err != "":
		case lacks != "":
			v.Err = lacks
		case failed != nil:
			v.Err = failed.Error()
		case !t.forwards(s):
			v.Err = "forward: not in the rules of an earlier process, which stay until all sources are heard"
		}
		v.Forwarding = v.Err == ""
		vips[s.Addr] = v
	}
}

// Extend goes on while nothing is to be done; rules have no lifetime.
func (d *Driver) Extend(time.Time) bool { return d.idle && !d.removed.Load() }

// Close leaves the rules: connections go on, and the next process takes them over.
func (d *Driver) Close(context.Context) error {
	d.cuts.stop()
	return errors.Join(d.session.Close(), d.counts.close())
}

// Cleanup deletes the tables that a daemon left behind, and names them.
func Cleanup(context.Context) ([]string, error) {
	s := nft.New(answerTimeout)
	removed, err := s.Clean(families[0].table, families[1].table)
	return removed, errors.Join(err, s.Close())
}

// sort divides the services by families. The report has all of their VIPs, with the reason
// of those of which a service makes no sense.
func sort(want []model.ForwardService) (services [len(families)][]*model.ForwardService, report map[netip.Addr]model.AppliedVIP) {
	report = make(map[netip.Addr]model.AppliedVIP)
	for i := range want {
		s := &want[i]
		v := report[s.Addr]
		err := sane(s)
		if err == nil && i > 0 && twins(s, &want[i-1]) {
			err = errors.New("twice")
		}
		if err != nil {
			v.Err = fmt.Sprintf("forward: %s port %d: %v", s.Protocol, s.Port, err)
		} else {
			services[familyOf(s.Addr)] = append(services[familyOf(s.Addr)], s)
		}
		report[s.Addr] = v
	}
	return services, report
}

// repliesOf are those of a family that make sense.
func repliesOf(all []model.ForwardReply, family int) (out []model.ForwardReply) {
	for _, r := range all {
		if a := r.Server.Addr(); a.IsValid() && !a.Is4In6() && a.Zone() == "" && familyOf(a) == family && (!r.VIP.IsValid() || familyOf(r.VIP.Addr()) == family) {
			out = append(out, r)
		}
	}
	return out
}

func twins(a, b *model.ForwardService) bool {
	return a.Addr == b.Addr && a.Protocol == b.Protocol && a.Port == b.Port
}

// sane refuses what the kernel would refuse, with all else that is wanted.
func sane(s *model.ForwardService) error {
	if !s.Addr.IsValid() || s.Addr.Is4In6() || s.Addr.Zone() != "" {
		return errors.New("no address")
	}
	if s.Protocol != model.TCP && s.Protocol != model.UDP {
		return fmt.Errorf("protocol %d", uint8(s.Protocol))
	}
	fits := func(to netip.AddrPort) bool {
		a := to.Addr()
		return a.IsValid() && !a.Is4In6() && a.Zone() == "" && a.Is4() == s.Addr.Is4()
	}
	for _, to := range s.Servers {
		if !fits(to) {
			return fmt.Errorf("server %s: not of the family of the VIP", to)
		}
	}
	for _, a := range s.Sources {
		if !fits(netip.AddrPortFrom(a, 0)) {
			return fmt.Errorf("source %s: not of the family of the VIP", a)
		}
	}
	if s.Slots == nil {
		return nil
	}
	for _, to := range s.Slots.Slots {
		if !fits(to) {
			return fmt.Errorf("server %s: not of the family of the VIP", to)
		}
	}
	return nil
}
