package layer2

import (
	"fmt"
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/model"
)

// A probe series is far shorter than that of RFC 5227 section 1.1 (up to 7 s):
// the VIP is down meanwhile, and a host that does answer does so within a
// millisecond on a local network.
const (
	probeCount    = 3
	probeInterval = 15 * time.Millisecond // between probes, and after the last one
	// probeLate is how late the end of a series may be noticed. Beyond it the
	// process, and perhaps the whole machine, did not run; then silence proves
	// nothing, and the wire is asked once more.
	probeLate = 20 * time.Millisecond
)

// series is a running series of probes for one VIP.
type series struct {
	number uint64
	sent   int
	wait   time.Time     // end of the present interval; zero: no series runs
	waits  bool          // for its turn, see backlog
	lasts  time.Duration // see model.L2Advert
	source netip.Addr
	heard  model.ProbeResult // only who else asks
}

// least is how many probes there are at least.
func (s *series) least() int {
	if s.lasts > 0 {
		return probeCount + 1 // the last one when it is over
	}
	return probeCount
}

// pause is how long to wait after a probe.
func (s *series) pause() time.Duration {
	if s.sent < s.least() {
		return max(probeInterval, s.lasts/probeCount)
	}
	return probeInterval
}

func (s *series) running() bool { return !s.wait.IsZero() }

// over tells, at the end of an interval, whether the wire was silent, if nothing waits
// in the socket. Otherwise the question is put once more.
func (s *series) over(now time.Time) bool {
	return s.sent >= s.least() && now.Sub(s.wait) <= probeLate
}

// startSeries has the series that is asked for wait for its turn unless it runs or
// has ended. source is the link-local address for IPv6.
func (d *Driver) startSeries(e *entry, source netip.Addr) error {
	if n := e.want.Series; n == e.result.Series && e.result.Done || (e.series.running() || e.series.waits) && n == e.series.number {
		return nil
	}
	if !e.want.Addr.Is4() && !source.IsValid() {
		return fmt.Errorf("interface %q: has no usable IPv6 link-local address", e.want.Interface)
	}
	e.series = series{number: e.want.Series, lasts: e.want.Lasts, source: source, waits: true}
	d.backlog.add(e)
	return nil
}

// stepProbe goes on with a running series; it is true if the series may end.
func (d *Driver) stepProbe(e *entry, now time.Time) bool {
	if !e.series.running() || now.Before(e.series.wait) {
		return false
	}
	if e.series.over(now) {
		return true
	}
	d.proceed(e, now)
	return false
}

// probe sends one probe and waits for an interval.
func (d *Driver) probe(e *entry, now time.Time) error {
	if err := d.ask(e, e.series.source); err != nil {
		e.series = series{}
		return err
	}
	e.series.sent++
	e.series.wait = now.Add(e.series.pause())
	return nil
}

// ask puts the question who has the address; source is the link-local address for IPv6.
func (d *Driver) ask(e *entry, source netip.Addr) error {
	mac := e.port.link.MAC
	var frame []byte
	switch {
	case e.want.From.IsValid():
		frame = arp.Request(mac, e.want.From, e.want.Addr)
	case e.want.Addr.Is4():
		frame = arp.Probe(mac, e.want.Addr)
	default:
		frame = nd.Probe(mac, source, e.want.Addr, d.nonce)
	}
	if err := d.send(e.port, frame); err != nil {
		return err
	}
	d.lineOf(e).pay(time.Now())
	d.counters.probes.Add(1)
	return nil
}

// ending is a series that may have ended, and the port that it ran on.
type ending struct {
	entry *entry
	port  *openPort
}

// conclude ends series whose last interval is over. First it handles the frames
// that have arrived, because the answer may wait in a socket for its reader, and
// makes sure that the questions could leave the host: a packet socket does not
// tell when there is no carrier. It is called without the lock.
func (d *Driver) conclude(over []ending) {
	ready := make(map[*openPort]error)
	for _, x := range over {
		if _, ok := ready[x.port]; !ok {
			ready[x.port] = d.kernel.Ready(x.port.link)
			x.port.Drain()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range over {
		e, now, err := x.entry, time.Now(), ready[x.port]
		switch {
		case e.port != x.port || !e.series.running() || now.Before(e.series.wait):
			// Answered, or changed by Apply, in the meantime.
		case err != nil:
			d.fail(e, err)
		case !e.series.over(now):
			d.proceed(e, now)
		default:
			d.finish(e, model.ProbeResult{}, now)
		}
		d.queue.update(e)
	}
	_ = d.pump() // fail tells what went wrong
}

// proceed puts the question once more. A series whose end was noticed too late begins
// anew when it is its turn if more run than may, which is why they are late.
func (d *Driver) proceed(e *entry, now time.Time) {
	if e.series.sent >= e.series.least() {
		if d.backlog.ended(true); d.backlog.crowded(e) {
			e.series = series{number: e.series.number, lasts: e.series.lasts, source: e.series.source, heard: e.series.heard, waits: true}
			d.backlog.add(e)
			return
		}
	}
	if err := d.probe(e, now); err != nil {
		d.fail(e, err)
	}
}

// finish ends the running series with what the wire said.
func (d *Driver) finish(e *entry, r model.ProbeResult, now time.Time) {
	d.backlog.ended(false)
	r.Series, r.Done, r.Rivals, r.At = e.series.number, true, e.series.heard.Rivals, now
	e.result, e.series = r, series{}
	if r.Answered {
		d.counters.answered.Add(1)
	} else {
		d.counters.silent.Add(1)
	}
	d.log.Debug("probe series ended", "vip", e.want.Addr, "iface", e.want.Interface, "peer", r.By.String())
	d.notify()
}
