package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// BeforeRenewal waits until just before the daemon renews the lifetime of the VIP
// on lo.
func (f *Fabric) BeforeRenewal(ctx context.Context, m *lab.Node, vip netip.Addr) error {
	var every time.Duration
	var last measure.Time
	read := func() error {
		events, err := f.lo[m].Events()
		if err != nil {
			return err
		}
		var previous measure.Time
		last = 0
		for _, e := range events {
			if e.Addr == vip.String() && !e.Del {
				previous, last = last, e.At
			}
		}
		if previous == 0 || last.Sub(previous) < time.Second {
			return errors.New("the VIP was not renewed yet")
		}
		every = last.Sub(previous)
		return nil
	}
	if err := Eventually(ctx, 30*time.Second, "renewal of "+vip.String(), read); err != nil {
		return err
	}
	const early = 50 * time.Millisecond
	for last.Add(every-early) <= measure.Now() { // too late for this one
		last = last.Add(every)
	}
	Pause(ctx, last.Add(every-early).Sub(measure.Now()))
	return ctx.Err()
}

// AddressGone is when the kernel of the node removed the VIP from lo, after from.
func (f *Fabric) AddressGone(m *lab.Node, vip netip.Addr, from measure.Time) (measure.Time, bool, error) {
	events, err := f.lo[m].Events()
	if err != nil {
		return 0, false, err
	}
	at, ok := measure.AddrGone(events, vip.String(), from)
	return at, ok, nil
}

// Startup is how long a daemon took from its start.
type Startup struct {
	Session time.Duration // until the last session was established, by its own word
	Route   time.Duration // until the node was a next hop of every VIP
}

// Restart stops the daemon of a node in order, starts it and measures.
func (f *Fabric) Restart(ctx context.Context, s *LBD, m *lab.Node) (Startup, error) {
	var r Startup
	if err := f.Calm(ctx); err != nil {
		return r, err
	}
	lab.RandomMoment(ctx)
	if err := m.Terminate(15 * time.Second); err != nil {
		return r, err
	}
	wall, from := time.Now(), measure.Now()
	if err := s.Start(ctx, f.Net, m); err != nil {
		return r, err
	}
	err := poll(ctx, 15*time.Second, 20*time.Millisecond, "next hop again", func() error {
		at, ok := f.back(m, from)
		if !ok {
			return errors.New(m.Name + " is no next hop yet")
		}
		r.Route = at.Sub(from)
		return nil
	})
	if err != nil {
		return r, err
	}
	st, err := s.Status(ctx, f.Net, m)
	if err != nil {
		return r, err
	}
	for _, b := range st.BGP {
		if b.State != "Established" || b.Flaps > 0 {
			return r, fmt.Errorf("%s: session with %s is %s, %d flaps: %s", m.Name, b.Peer, b.State, b.Flaps, b.Error)
		}
		r.Session = max(r.Session, b.Since.Sub(wall))
	}
	return r, nil
}

// AddVIP adds one VIP to the configuration of a node, measures until it is
// installed in the kernel of the first ToR, and takes it away again.
func (f *Fabric) AddVIP(ctx context.Context, s *LBD, m *lab.Node, vip netip.Addr) (time.Duration, error) {
	if err := f.Calm(ctx); err != nil {
		return 0, err
	}
	lab.RandomMoment(ctx)
	old := s.Addresses
	s.Addresses = append(s.VIPs(), vip)
	from := measure.Now()
	err := s.Configure(f.Net, m)
	s.Addresses = old
	if err != nil {
		return 0, err
	}
	var took time.Duration
	err = poll(ctx, 10*time.Second, 10*time.Millisecond, vip.String()+" is installed", func() error {
		events, err := f.Events(f.ToRs[0])
		if err != nil {
			return err
		}
		at, ok := measure.ViaThere(events, Prefix(vip), Gateway(&m.Host, vip), from)
		if !ok {
			return errors.New("not yet")
		}
		took = at.Sub(from)
		return nil
	})
	if err != nil {
		return 0, err
	}
	if err := s.Configure(f.Net, m); err != nil {
		return 0, err
	}
	return took, Eventually(ctx, 10*time.Second, vip.String()+" is gone", func() error {
		hops, err := f.Hops(ctx, f.ToRs[0], vip)
		if err == nil && len(hops) > 0 {
			err = fmt.Errorf("still via %v", hops)
		}
		return err
	})
}

// Bulk is what many more VIPs cost a daemon.
type Bulk struct {
	Paths int
	// Took is from the new configuration until the router's kernel had the last
	// route; RSS is how much more memory the daemon then has, in bytes.
	Took time.Duration
	RSS  int64
	Load float64 // of the machine meanwhile
}

// MeasureBulk gives one node so many more VIPs, in a net of its own.
func MeasureBulk(ctx context.Context, bin *lab.Bin, paths int) (*Bulk, error) {
	n, err := NewToR(ctx, bin, 1)
	if err != nil {
		return nil, err
	}
	s := &LBD{Addresses: Addresses(1)}
	f, err := StartManyFabric(ctx, n, s, Options{})
	if err != nil {
		return nil, err
	}
	b, err := f.bulk(ctx, s, paths)
	return b, errors.Join(err, f.Close())
}

func (f *Fabric) bulk(ctx context.Context, s *LBD, paths int) (*Bulk, error) {
	m, tor := f.Nodes[0], f.ToRs[0]
	Pause(ctx, 5*time.Second) // what the start left for the garbage collector
	before, err := measure.RSS(m.Daemon.PID())
	if err != nil {
		return nil, err
	}
	s.Addresses = Addresses(1 + paths)
	cpu, err := measure.ReadCPU()
	if err != nil {
		return nil, err
	}
	from := measure.Now()
	if err := s.Configure(f.Net, m); err != nil {
		return nil, err
	}
	b := &Bulk{Paths: paths}
	err = poll(ctx, time.Minute, 100*time.Millisecond, "all routes", func() error {
		events, err := f.Events(tor)
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, e := range events {
			if e.At >= from && len(e.Via) > 0 && strings.HasPrefix(e.Prefix, "10.99.") {
				seen[e.Prefix] = true
				b.Took = e.At.Sub(from)
			}
			if len(seen) == paths {
				return nil
			}
		}
		return fmt.Errorf("%d of %d", len(seen), paths)
	})
	if err != nil {
		return nil, err
	}
	now, err := measure.ReadCPU()
	if err != nil {
		return nil, err
	}
	b.Load = measure.Load(cpu, now)
	Pause(ctx, 20*time.Second) // for the garbage collector, and the kernel to take back
	after, err := measure.RSS(m.Daemon.PID())
	b.RSS = after - before
	return b, err
}
