package ring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

const (
	maxRelays = 2
	echoConns = 20
	settle    = 500 * time.Millisecond
	echoFor   = 4 * time.Second
	// strayRate is below the limit of a ring, 100000 a second.
	strayRate = 15000
)

// round is what the same connections were like through no, one and two relays.
type round struct {
	busy     [maxRelays + 1]int // percent, during the echoes
	echoes   [maxRelays + 1]int
	p50, p99 [maxRelays + 1]time.Duration
}

// relayLoad is the processor time of the machine while packets that belong to
// nothing came in, without ring and with one of three nodes.
type relayLoad struct {
	packets, relays int
	plain, ring     time.Duration
	took            time.Duration
}

// stage is a cluster whose VIP moves so that connections of its first node are reached
// through relays.
type stage struct {
	*lab.Cluster
	lbd  *lab.LBD
	home *lab.Node
}

func newStage(ctx context.Context, bin *lab.Bin) (*stage, error) {
	lbd := &lab.LBD{NoIPv6: true}
	c, err := lab.NewCluster(ctx, bin, lbd, 3)
	if err != nil {
		return nil, err
	}
	s := &stage{Cluster: c, lbd: lbd, home: c.Nodes[0]}
	if err := s.CountHops(ctx, &s.home.Host, lab.VIP4()); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return s, nil
}

// begin moves the VIP home once no node keeps it for old connections.
func (s *stage) begin(ctx context.Context) error {
	if err := s.Stable(ctx); err != nil {
		return err
	}
	if err := s.lbd.MoveTo(ctx, s.Cluster, lab.VIP4(), s.home); err != nil {
		return err
	}
	return s.Stable(ctx)
}

// away moves the VIP so that home is reached through so many relays. A ring goes from
// name to name: m3 relays to m1, and m2 to m3 if that keeps the VIP for a connection,
// which the caller closes.
func (s *stage) away(ctx context.Context, relays int) (keeper *lab.Instrument[measure.Echoes], err error) {
	switch relays {
	case 0:
		return nil, nil
	case 1:
		return nil, s.lbd.MoveTo(ctx, s.Cluster, lab.VIP4(), s.Nodes[2])
	}
	if keeper, err = s.Echo(lab.VIP4().String(), 1); err != nil {
		return nil, err
	}
	interop.Pause(ctx, settle)
	return keeper, s.lbd.MoveTo(ctx, s.Cluster, lab.VIP4(), s.Nodes[1])
}

func costs(ctx context.Context, bin *lab.Bin, r *results) (err error) {
	s, err := newStage(ctx, bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for i := range r.options.runs {
		one, err := s.round(ctx, i == 0, r)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		r.cost = append(r.cost, one)
		fmt.Fprintf(os.Stderr, "cost %d/%d: p50 %v, p99 %v, busy %v\n", i+1, r.options.runs, one.p50, one.p99, one.busy)
	}
	for _, wire := range wires {
		w, err := s.speeds(ctx, wire, sendRounds*r.options.runs)
		if err != nil {
			return fmt.Errorf("throughput: %w", err)
		}
		r.speeds = append(r.speeds, w)
	}
	return nil
}

// round measures the same connections through more and more relays.
func (s *stage) round(ctx context.Context, strays bool, r *results) (o *round, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	echo, err := s.Echo(lab.VIP4().String(), echoConns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, echo.Close()) }()
	interop.Pause(ctx, settle)
	if err := echo.Pause(); err != nil {
		return nil, err
	}
	o = &round{}
	for relays := range maxRelays + 1 {
		keeper, err := s.away(ctx, relays)
		if keeper != nil {
			defer keeper.Close()
		}
		if err != nil {
			return nil, err
		}
		interop.Pause(ctx, settle)
		if err := s.echoes(ctx, echo, relays, o); err != nil {
			return nil, err
		}
		if strays && relays != 1 && r.options.strays > 0 {
			if err := s.flood(ctx, relays, r); err != nil {
				return nil, err
			}
		}
	}
	return o, ctx.Err()
}

// echoes measures round trips, and makes sure that they went through the relays.
func (s *stage) echoes(ctx context.Context, echo *lab.Instrument[measure.Echoes], relays int, o *round) error {
	if err := echo.Resume(); err != nil {
		return err
	}
	interop.Pause(ctx, settle)
	before, err := s.Hops(ctx, &s.home.Host)
	if err != nil {
		return err
	}
	cpu, err := measure.ReadCPU()
	if err != nil {
		return err
	}
	from := measure.Now()
	interop.Pause(ctx, echoFor)
	to := measure.Now()
	now, err := measure.ReadCPU()
	if err != nil {
		return err
	}
	after, err := s.Hops(ctx, &s.home.Host)
	if err != nil {
		return err
	}
	interop.Pause(ctx, settle)
	all, err := echo.Events()
	if err := errors.Join(err, echo.Pause()); err != nil {
		return err
	}
	rtt, lost := measure.RTTs(all, from, to)
	if lost > 0 || len(rtt) == 0 {
		return fmt.Errorf("%d relays: %d connections lost, %d echoes", relays, lost, len(rtt))
	}
	for i, n := range after.Since(before) {
		if through := n >= len(rtt); through != (i+1 == relays) {
			return fmt.Errorf("%d packets came in after %d relays, with %d echoes and %d relays wanted", n, i+1, len(rtt), relays)
		}
	}
	o.busy[relays] = int(100 * measure.Load(cpu, now))
	o.echoes[relays], o.p50[relays], o.p99[relays] = len(rtt), measure.Quantile(rtt, 0.5), measure.Quantile(rtt, 0.99)
	return nil
}

// flood sends what belongs to no connection, which goes all the way round a ring, and
// adds up the processor time of the machine meanwhile.
func (s *stage) flood(ctx context.Context, relays int, r *results) error {
	n := r.options.strays
	before, err := s.Hops(ctx, &s.home.Host)
	if err != nil {
		return err
	}
	cpu, err := measure.ReadCPU()
	if err != nil {
		return err
	}
	begin := measure.Now()
	strays, err := s.Strays(lab.VIP4().String(), n, strayRate)
	if err != nil {
		return err
	}
	err = strays.Proc.Wait(time.Duration(2*n/strayRate)*time.Second + 10*time.Second)
	took := measure.Since(begin)
	if err := errors.Join(err, strays.Close()); err != nil {
		return err
	}
	now, err := measure.ReadCPU()
	if err != nil {
		return err
	}
	after, err := s.Hops(ctx, &s.home.Host)
	if err != nil {
		return err
	}
	busy := time.Duration(now.Busy-cpu.Busy) * time.Second / 100
	hops := after.Since(before)
	fmt.Fprintf(os.Stderr, "%d strays in %v, %d relays to m1: %v of processor time, %v came in there after 1, 2 and 3 relays\n", n, took, relays, busy, hops)
	if relays == 0 {
		r.load = &relayLoad{packets: n, plain: busy}
		return nil
	}
	// They come in at m2, and by m3 at m1: each of these has seen them all.
	r.load.ring, r.load.took, r.load.relays = busy, took, (maxRelays+1)*hops[maxRelays-1]
	return nil
}
