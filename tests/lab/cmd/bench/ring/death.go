package ring

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// death is that of a node of a ring.
type death struct {
	what dying
	// detected is from the fault until the daemon of the node before it has logged that
	// it is gone, rules from there to the change in its kernel.
	detected, rules time.Duration
	// stalled is the longest time that a connection waited for an echo.
	stalled time.Duration
	kept    int
	// reset is from the fault until the last of as many connections of the owner that
	// died was reset; negative if one was not.
	reset time.Duration
	busy  int // percent
}

// dying is what a node is that dies.
type dying uint8

const (
	dyingRelay dying = iota // a former owner, which relays
	dyingOwner              // which relays too
	dyingBGP                // one of those that advertise
)

const relayTable = "lbd-relay"

// deaths has connections of m1 relayed by m2 over m3, or by m3 alone, and takes m3's
// link away.
func deaths(ctx context.Context, bin *lab.Bin, r *results) (err error) {
	s, err := newStage(ctx, bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for i := range 2 * r.options.runs {
		one, err := s.death(ctx, i%2 == 1)
		if err != nil {
			return fmt.Errorf("death %d: %w", i+1, err)
		}
		r.died(one)
	}
	return nil
}

func (r *results) died(one *death) {
	r.deaths = append(r.deaths, one)
	fmt.Fprintf(os.Stderr, "death %d/%d: %+v\n", len(r.deaths), 3*r.options.runs, *one)
}

// deathsBGP takes the links of nodes that advertise away, one after the other.
func deathsBGP(ctx context.Context, bin *lab.Bin, r *results) (err error) {
	n, err := interop.NewToR(ctx, bin, 3)
	if err != nil {
		return err
	}
	f, err := interop.StartFabric(ctx, n, &interop.LBD{}, interop.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for i := range r.options.runs {
		dead, looks := f.Nodes[i%3], f.Nodes[(i+2)%3]
		one, err := deathBGP(ctx, f, looks, dead)
		if err != nil {
			return fmt.Errorf("death of %s: %w", dead.Name, err)
		}
		r.died(one)
	}
	return nil
}

// deathBGP has the node before it in the ring notice.
func deathBGP(ctx context.Context, f *interop.Fabric, looks, dead *lab.Node) (o *death, err error) {
	w, err := f.WatchRules(&looks.Host)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	interop.Pause(ctx, time.Second)
	lab.RandomMoment(ctx)
	cpu, err := measure.ReadCPU()
	if err != nil {
		return nil, err
	}
	fault := measure.Now()
	if err := f.LinkDown(ctx, &dead.Host); err != nil {
		return nil, err
	}
	detected, rules, err := past(ctx, f.Lab, looks, dead, fault, w)
	if err != nil {
		return nil, errors.Join(err, f.LinkUp(ctx, &dead.Host))
	}
	now, err := measure.ReadCPU()
	o = &death{what: dyingBGP, detected: detected.Sub(fault), rules: rules.Sub(detected), busy: int(100 * measure.Load(cpu, now))}
	return o, errors.Join(err, f.LinkUp(ctx, &dead.Host), f.Spread(ctx, 60*time.Second))
}

func (s *stage) death(ctx context.Context, owner bool) (o *death, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	echo, err := s.Echo(lab.VIP4().String(), echoConns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, echo.Close()) }()
	interop.Pause(ctx, settle)
	relays := maxRelays
	if owner {
		relays = 1
	}
	for n := 1; n <= relays; n++ {
		keeper, err := s.away(ctx, n)
		if keeper != nil {
			defer keeper.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	return s.strike(ctx, owner, echo)
}

// strike has others watch while m3 dies, and gives it its link back.
func (s *stage) strike(ctx context.Context, owner bool, echo *lab.Instrument[measure.Echoes]) (o *death, err error) {
	own, err := s.Echo(lab.VIP4().String(), echoConns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	w, err := s.WatchRules(&s.Nodes[1].Host)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if owner { // so that m2 takes the address over, not m1, where the connections are
		if err := s.lbd.DrainFor(ctx, s.Lab, s.home, time.Second); err != nil {
			return nil, err
		}
	}
	interop.Pause(ctx, time.Second)
	lab.RandomMoment(ctx)
	dead, fault := s.Nodes[2], measure.Now()
	if o, err = s.kill(ctx, dead, echo, w); o != nil {
		if o.reset = lostAfter(own, fault); owner {
			o.what = dyingOwner
		}
	}
	return o, errors.Join(err, s.LinkUp(ctx, &dead.Host), s.lbd.Undrain(ctx, s.Lab, s.home))
}

func (s *stage) kill(ctx context.Context, dead *lab.Node, echo *lab.Instrument[measure.Echoes], w *lab.Instrument[measure.Rules]) (*death, error) {
	cpu, err := measure.ReadCPU()
	if err != nil {
		return nil, err
	}
	fault, looks := measure.Now(), s.Nodes[1]
	if err := s.LinkDown(ctx, &dead.Host); err != nil {
		return nil, err
	}
	detected, rules, err := past(ctx, s.Lab, looks, dead, fault, w)
	if err != nil {
		return nil, err
	}
	interop.Pause(ctx, 5*time.Second) // what waited has asked again
	end := measure.Now()
	now, err := measure.ReadCPU()
	if err != nil {
		return nil, err
	}
	all, err := echo.Events()
	if err != nil {
		return nil, err
	}
	rtt, lost := measure.RTTs(all, fault, end)
	if len(rtt) == 0 {
		return nil, errors.New("no echo since the fault")
	}
	return &death{
		detected: detected.Sub(fault), rules: rules.Sub(detected), stalled: slices.Max(rtt),
		kept: echoConns - lost, busy: int(100 * measure.Load(cpu, now)),
	}, nil
}

// lostAfter is how long after the fault the last connection was lost; negative if one
// lives.
func lostAfter(own *lab.Instrument[measure.Echoes], fault measure.Time) time.Duration {
	all, err := own.Events()
	if err != nil {
		return -1
	}
	for _, e := range all {
		if e.Lost == echoConns {
			return e.To.Sub(fault)
		}
	}
	return -1
}

// past waits until a node has detected the death of another and its ring, if it has
// one still, leads past it. It returns when it detected it, and when its kernel got
// the rules that are in force then.
func past(ctx context.Context, l *lab.Lab, n, dead *lab.Node, fault measure.Time, w *lab.Instrument[measure.Rules]) (detected, rules measure.Time, err error) {
	err = interop.Eventually(ctx, 20*time.Second, "a ring without "+dead.Name, func() error {
		if detected, err = noticed(n, dead.Name, fault); err != nil {
			return err
		}
		// The table is read before the events: what is in force has been told then.
		out, err := l.Exec(ctx, &n.Host, "nft", "list", "ruleset")
		if err != nil {
			return err
		}
		if strings.Contains(out, "dup to "+dead.IP4.String()+" ") {
			return fmt.Errorf("the ring leads to %s", dead.Name)
		}
		rules, err = lastRules(w, fault)
		return err
	})
	return detected, rules, err
}

// lastRules is when a kernel last got a new table of lbd's ring.
func lastRules(w *lab.Instrument[measure.Rules], fault measure.Time) (at measure.Time, err error) {
	all, err := w.Events()
	if err != nil {
		return 0, err
	}
	for _, e := range all {
		if e.Missed {
			return 0, errors.New("the kernel dropped messages")
		}
		if e.At > fault && e.Table == relayTable {
			at = e.At
		}
	}
	if at == 0 {
		return 0, errors.New("the rules have not changed")
	}
	return at, nil
}

// noticed is when the daemon of a node first logged, after the fault, that a member is
// gone. Its clock has milliseconds.
func noticed(n *lab.Node, member string, fault measure.Time) (measure.Time, error) {
	f, err := os.Open(n.Daemon.Log)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	wall := time.Now().Add(-measure.Since(0)) // of the moment that Time counts from
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if !saysGone(sc.Text(), member) {
			continue
		}
		stamp, _, _ := strings.Cut(strings.TrimPrefix(sc.Text(), "time="), " ")
		at, err := time.Parse(time.RFC3339, stamp)
		if err != nil {
			return 0, fmt.Errorf("log of %s: %w", n.Name, err)
		}
		if t := measure.Time(at.Sub(wall)); t >= fault {
			return t, nil
		}
	}
	return 0, fmt.Errorf("%s did not log that %s is gone", n.Name, member)
}

// saysGone tells of a line whether the wire does not answer for the member, or the group
// has given it up, or this node takes over what it had.
func saysGone(line, member string) bool {
	says := func(words ...string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w+" ") })
	}
	peer := "peer=" + member
	return says("msg=ring", peer) && strings.HasSuffix(line, "answers=false") || says("msg=member", peer) && !says("state=alive") ||
		says("msg=vip", "reason=TakingOver")
}
