package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// echoPort is where the service says its name.
const echoPort = 7000

// record collects the events of one agent.
type record[T any] struct {
	mu     sync.Mutex
	events []T
}

// read decodes events until the agent closes its output.
func (r *record[T]) read(in io.Reader) {
	dec := json.NewDecoder(in)
	for {
		var e T
		if dec.Decode(&e) != nil {
			return // the agent ended, or died in the middle of a line
		}
		r.mu.Lock()
		r.events = append(r.events, e)
		r.mu.Unlock()
	}
}

func (r *record[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// trim forgets all but the newest keep events once there are twice as many.
func (r *record[T]) trim(keep int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.events); n > 2*keep {
		r.events = slices.Clone(r.events[n-keep:])
	}
}

// Eyes are the instruments: a client that connects to every VIP each
// Bin.ProbeEvery, an observer of ARP and ND, and long-lived connections.
type Eyes struct {
	VIPs []netip.Addr

	lab      *Lab
	frames   record[measure.Frame]
	attempts map[netip.Addr]*record[measure.Attempt]
	conns    record[measure.ConnEvent]
	procs    []*Proc
	connProc *Proc
	pipes    []io.Closer
}

// Open starts the instruments for the VIPs.
func (l *Lab) Open(vips []netip.Addr) (*Eyes, error) {
	e := &Eyes{VIPs: vips, lab: l, attempts: map[netip.Addr]*record[measure.Attempt]{}}
	names := make([]string, len(vips))
	for i, v := range vips {
		names[i] = v.String()
	}
	if _, err := startAgent(e, l.Watch, "observe", &e.frames, "-vip", strings.Join(names, ",")); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	for i, v := range vips {
		r := &record[measure.Attempt]{}
		e.attempts[v] = r
		target := netip.AddrPortFrom(v, echoPort).String()
		if _, err := startAgent(e, l.Client, "probe", r, "-target", target, "-every", fmt.Sprint(l.Bin.ProbeEvery)); err != nil {
			return nil, errors.Join(fmt.Errorf("probe %d: %w", i, err), e.Close())
		}
	}
	return e, nil
}

func startAgent[T any](e *Eyes, h *Host, mode string, r *record[T], args ...string) (*Proc, error) {
	in, out := io.Pipe()
	p, err := e.lab.Start(h, mode, out, append([]string{e.lab.Bin.Agent, mode}, args...)...)
	if err != nil {
		return nil, err
	}
	go r.read(in) // ends when the pipe is closed
	e.procs = append(e.procs, p)
	e.pipes = append(e.pipes, out)
	return p, nil
}

// Dial begins to open a connection to the VIP every 20 ms, and waits for each as long as a
// person might. It returns what has become of them so far.
func (e *Eyes) Dial(vip netip.Addr) (attempts func() []measure.Attempt, err error) {
	r := &record[measure.Attempt]{}
	_, err = startAgent(e, e.lab.Client, "probe", r, "-target", netip.AddrPortFrom(vip, echoPort).String(), "-every", "20ms", "-timeout", "10s")
	return r.all, err
}

// OpenConns opens n long-lived connections to the VIP, in place of those that
// were open before.
func (e *Eyes) OpenConns(ctx context.Context, vip netip.Addr, n int) error {
	return e.openConns(ctx, vip, n)
}

// OpenMixed is OpenConns for connections of which one third only listen, until Speak, and one
// third are of UDP.
func (e *Eyes) OpenMixed(ctx context.Context, vip netip.Addr, n int) error {
	return e.openConns(ctx, vip, n, "-mixed")
}

// Speak has the connections of OpenMixed that only listen say a word, once.
func (e *Eyes) Speak() error { return e.connProc.Signal(syscall.SIGUSR1) }

// Servers says who serves the long-lived connections: what each read first.
func (e *Eyes) Servers() (first []string) {
	for _, c := range e.conns.all() {
		if c.Kind == measure.ConnOpen {
			first = append(first, c.Node)
		}
	}
	return first
}

func (e *Eyes) openConns(ctx context.Context, vip netip.Addr, n int, more ...string) error {
	e.CloseConns()
	e.conns.mu.Lock()
	e.conns.events = nil
	e.conns.mu.Unlock()
	p, err := startAgent(e, e.lab.Client, "conns", &e.conns, append([]string{"-target", netip.AddrPortFrom(vip, echoPort).String(), "-n", fmt.Sprint(n)}, more...)...)
	if err != nil {
		return err
	}
	e.connProc = p
	return Wait(ctx, 3*time.Second, 10*time.Millisecond, "long-lived connections", func() error {
		if c := e.Conns(measure.Now(), measure.Now()); c.Open != n {
			return fmt.Errorf("%d of %d are open", c.Open, n)
		}
		return nil
	})
}

// CloseConns closes the long-lived connections, if any.
func (e *Eyes) CloseConns() {
	if e.connProc != nil {
		_ = e.connProc.Kill() // it is only a client; Close of the lab comes for it at last
		e.connProc = nil
	}
}

// Frames returns what was seen on the wire so far.
func (e *Eyes) Frames() []measure.Frame { return e.frames.all() }

// Attempts returns the client's attempts so far.
func (e *Eyes) Attempts(vip netip.Addr) []measure.Attempt { return e.attempts[vip].all() }

// Reach sums up the client's attempts that started in [from, to).
func (e *Eyes) Reach(vip netip.Addr, from, to measure.Time) measure.Reach {
	return measure.Reached(e.Attempts(vip), from, to)
}

// Dual is for how long two hosts claimed the VIP in [from, to).
func (e *Eyes) Dual(vip netip.Addr, from, to measure.Time) time.Duration {
	return measure.Dual(e.Frames(), vip.String(), from, to)
}

// Conns sums up the long-lived connections.
func (e *Eyes) Conns(from, to measure.Time) measure.Conns {
	return measure.ConnsIn(e.conns.all(), from, to)
}

// Claimants are the names of the hosts that claimed the VIP in the last d.
func (e *Eyes) Claimants(vip netip.Addr, d time.Duration) []string {
	now := measure.Now()
	macs := measure.Claimants(e.Frames(), vip.String(), now.Add(-d), now)
	for i, m := range macs {
		macs[i] = e.lab.NodeByMAC(m)
	}
	return macs
}

// Trim forgets old events; a soak would otherwise grow for ever.
func (e *Eyes) Trim() {
	e.frames.trim(20_000)
	for _, r := range e.attempts {
		r.trim(20_000)
	}
}

// Close stops the instruments. It may be called more than once.
func (e *Eyes) Close() error {
	var errs []error
	defer func() { e.procs, e.pipes, e.connProc = nil, nil, nil }()
	for _, p := range e.procs {
		if p.Alive() && p.Signal(syscall.SIGTERM) == nil && p.Wait(2*time.Second) == nil {
			continue
		}
		errs = append(errs, p.Kill())
	}
	for _, p := range e.pipes {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
