package lab

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"lbd.dev/lbd/tests/lab/measure"
)

// Routes is what the kernel of one host tells of changes of its routes.
type Routes struct {
	events record[measure.Route]
	proc   *Proc
	pipe   io.Closer
}

// WatchRoutes notes every change of a route on a host, from now on.
func (l *Lab) WatchRoutes(h *Host) (*Routes, error) {
	r := &Routes{}
	in, out := io.Pipe()
	p, err := l.Start(h, "routes", out, l.Bin.Agent, "routes")
	if err != nil {
		return nil, err
	}
	go r.events.read(in) // ends when the pipe is closed
	r.proc, r.pipe = p, out
	return r, nil
}

// Events returns the changes so far, and an error if some were missed.
func (r *Routes) Events() ([]measure.Route, error) {
	if !r.proc.Alive() {
		return nil, fmt.Errorf("routes: the watcher has ended: %s", r.proc.Tail(3))
	}
	all := r.events.all()
	for _, e := range all {
		if e.Missed {
			return nil, errors.New("routes: the kernel dropped messages")
		}
	}
	return all, nil
}

// Close ends the watch.
func (r *Routes) Close() error { return errors.Join(r.proc.Kill(), r.pipe.Close()) }

// LoAddrs is what the kernel of one host tells of changes of its addresses on lo.
type LoAddrs struct {
	events record[measure.Addr]
	proc   *Proc
	pipe   io.Closer
}

// WatchLo notes every change of an address on lo of a host, from now on.
func (l *Lab) WatchLo(h *Host) (*LoAddrs, error) {
	w := &LoAddrs{}
	in, out := io.Pipe()
	p, err := l.Start(h, "addrs", out, l.Bin.Agent, "addrs", "-if", "lo")
	if err != nil {
		return nil, err
	}
	go w.events.read(in) // ends when the pipe is closed
	w.proc, w.pipe = p, out
	return w, nil
}

// Events returns the changes so far, and an error if some were missed.
func (w *LoAddrs) Events() ([]measure.Addr, error) {
	if !w.proc.Alive() {
		return nil, fmt.Errorf("addrs: the watcher has ended: %s", w.proc.Tail(3))
	}
	all := w.events.all()
	for _, e := range all {
		if e.Missed {
			return nil, errors.New("addrs: the kernel dropped messages")
		}
	}
	return all, nil
}

// Close ends the watch.
func (w *LoAddrs) Close() error { return errors.Join(w.proc.Kill(), w.pipe.Close()) }

// OpenProbes is Open without the observer of ARP and ND: for VIPs that are
// behind a router.
func (l *Lab) OpenProbes(vips []netip.Addr) (*Eyes, error) {
	e := &Eyes{VIPs: vips, lab: l, attempts: map[netip.Addr]*record[measure.Attempt]{}}
	for _, v := range vips {
		r := &record[measure.Attempt]{}
		e.attempts[v] = r
		target := netip.AddrPortFrom(v, echoPort).String()
		if _, err := startAgent(e, l.Client, "probe", r, "-target", target, "-every", fmt.Sprint(l.Bin.ProbeEvery)); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

// ConnEvents returns what happened to the long-lived connections so far.
func (e *Eyes) ConnEvents() []measure.ConnEvent { return e.conns.all() }
