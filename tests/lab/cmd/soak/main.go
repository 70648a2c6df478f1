// Soak breaks a running group of lbd again and again, at random, and looks after
// each fault whether everything is as it should be: one claimant for each VIP,
// served by a healthy node, nothing left behind, and no growth. The seed that it
// prints replays the same sequence of faults.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

func main() {
	length := flag.Duration("for", 30*time.Minute, "how long to go on")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "replays a sequence of faults")
	nodes := flag.Int("nodes", 3, "number of nodes")
	only := flag.String("fault", "", "only this fault")
	flag.Parse()
	if flag.NArg() > 0 || *nodes < 2 || *nodes > 20 {
		flag.Usage()
		os.Exit(2)
	}
	lab.Program("soak", func(ctx context.Context) error { return soak(ctx, *length, *seed, *nodes, *only) })
}

func soak(ctx context.Context, length time.Duration, seed uint64, nodes int, only string) (err error) {
	if err := lab.Usable(); err != nil {
		return err
	}
	faults, err := pickFaults(only)
	if err != nil {
		return err
	}
	bin, err := lab.Build(ctx, true)
	if err != nil {
		return err
	}
	defer bin.Close()
	c, err := lab.NewCluster(ctx, bin, &lab.LBD{}, nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	s := &run{
		cluster: c, begin: time.Now(), rng: rand.New(rand.NewPCG(seed, 0)), faults: faults,
		base: map[life]sample{}, last: map[life]sample{},
	}
	s.say("seed %d, %d nodes, for %v", seed, nodes, length)
	for time.Since(s.begin) < length && ctx.Err() == nil {
		s.once(ctx)
	}
	s.growth()
	s.say("summary: seed %d, %d faults in %v, %d violations, worst outage %v (%s), longest wait for quiet %v",
		seed, s.count, time.Since(s.begin).Round(time.Second), s.violations, s.worst.Round(time.Millisecond), s.worstOf, s.slowest.Round(time.Millisecond))
	if s.violations > 0 {
		return fmt.Errorf("%d violations; replay with -seed %d", s.violations, seed)
	}
	return nil
}

// run is the state of one soak.
type run struct {
	cluster    *lab.Cluster
	begin      time.Time
	rng        *rand.Rand
	faults     []fault
	count      int
	violations int
	worst      time.Duration
	worstOf    string
	slowest    time.Duration
	base, last map[life]sample
}

func (s *run) say(format string, args ...any) {
	fmt.Printf("[%8.1f s] %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}

func (s *run) violation(format string, args ...any) {
	s.violations++
	s.say("VIOLATION: "+format, args...)
}

// once does one fault, ends it, and checks. Everything random is drawn first, so
// that the sequence depends on the seed alone.
func (s *run) once(ctx context.Context) {
	f := s.faults[s.rng.IntN(len(s.faults))]
	onOwner := s.rng.IntN(3) > 0
	vip := s.cluster.Eyes.VIPs[s.rng.IntN(len(s.cluster.Eyes.VIPs))]
	index := s.rng.IntN(len(s.cluster.Nodes))
	hold := f.hold/4 + time.Duration(s.rng.Int64N(int64(f.hold)))
	wait := time.Duration(s.rng.Int64N(int64(time.Second)))

	sleep(ctx, wait)
	n, err := s.victim(ctx, f, s.cluster.Nodes[index], onOwner, vip)
	if err != nil {
		s.violation("before %s: %v", f.name, err)
		return
	}
	from := measure.Now()
	err = f.do(ctx, s.cluster, n, vip)
	sleep(ctx, hold)
	if f.undo != nil {
		err = errors.Join(err, f.undo(ctx, s.cluster, n, vip))
	}
	if ctx.Err() != nil {
		return
	}
	s.count++
	if err != nil {
		s.violation("%s on %s: %v", f.name, n.Name, err)
	}
	s.check(ctx, f, n, from, hold)
	s.cluster.Eyes.Trim()
}

// victim is the node that the fault hits: the drawn one, or the owner of the VIP.
// The daemon of the last node is never ended, so that growth would show there;
// when it is the owner it hands over first.
func (s *run) victim(ctx context.Context, f fault, n *lab.Node, onOwner bool, vip netip.Addr) (*lab.Node, error) {
	if owner, err := s.cluster.Owner(vip); onOwner && err == nil {
		n = owner
	}
	last := s.cluster.Nodes[len(s.cluster.Nodes)-1]
	if !f.ends || n != last {
		return n, nil
	}
	err := errors.Join(
		s.cluster.System.Drain(ctx, s.cluster.Lab, last),
		s.cluster.System.Undrain(ctx, s.cluster.Lab, last),
		s.cluster.Stable(ctx),
	)
	if err != nil {
		return nil, err
	}
	if owner, err := s.cluster.Owner(vip); err == nil && owner != last {
		return owner, nil
	}
	return s.cluster.Nodes[0], nil
}

// No single fault may keep clients away, or the group busy after its end, for
// longer. The outage is bounded by the lifetime of addresses.
const (
	outageLimit = 6 * time.Second
	quietLimit  = 15 * time.Second
)

// check waits for quiet and looks at everything.
func (s *run) check(ctx context.Context, f fault, n *lab.Node, from measure.Time, hold time.Duration) {
	ended, before := measure.Now(), s.violations
	defer func() {
		if s.violations > before {
			s.say("logs:\n%s", s.cluster.Logs(40))
		}
	}()
	err := s.cluster.Stable(ctx)
	if ctx.Err() != nil {
		return
	}
	took := measure.Since(ended)
	s.slowest = max(s.slowest, took)
	if err != nil || took > quietLimit {
		s.violation("after %s on %s: quiet after %v: %v", f.name, n.Name, took.Round(time.Millisecond), err)
	}
	line := ""
	for _, v := range s.cluster.Eyes.VIPs {
		r := s.cluster.Eyes.Reach(v, from, ended.Add(took))
		dual := s.cluster.Eyes.Dual(v, from, ended.Add(took))
		line += fmt.Sprintf("; %s outage %v, %d failed, dual %v, now %v", v, r.Outage.Round(time.Millisecond), r.Failed,
			dual.Round(time.Millisecond), s.cluster.Eyes.Claimants(v, 200*time.Millisecond))
		if r.Outage > s.worst {
			s.worst, s.worstOf = r.Outage, f.name
		}
		if f.single && dual > 0 {
			s.violation("%s on %s: %s had two claimants for %v", f.name, n.Name, v, dual)
		}
		if f.planned && r.Failed > 0 {
			s.violation("%s on %s: %s: %d of %d attempts failed %v", f.name, n.Name, v, r.Failed, r.Attempts, r.Errors)
		}
		if r.Outage > outageLimit {
			s.violation("%s on %s: %s was not reached for %v", f.name, n.Name, v, r.Outage)
		}
	}
	s.say("#%d %s on %s, held %v, quiet after %v%s", s.count, f.name, n.Name, hold.Round(time.Millisecond), took.Round(time.Millisecond), line)
	s.inspect(ctx)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
