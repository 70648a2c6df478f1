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
	sendFor = 1200 * time.Millisecond
	// sendRounds are for each run: what a shared machine has to give changes from one
	// second to the next by more than a relay takes.
	sendRounds = 4
)

// wires are the speeds of the client's link in Gbit/s; 0 is none: then the processors of
// this machine are the limit, which client, switch, relay and server share.
var wires = []int{10, 0}

// speeds are what one connection took by a wire, round by round.
type speeds struct {
	gigabits int
	rounds   []*[maxRelays + 1]float64 // bit/s, through no, one and two relays
}

// speeds measures one connection through no, one and two relays, again and again.
func (s *stage) speeds(ctx context.Context, gigabits, rounds int) (out *speeds, err error) {
	if err := s.WireSpeed(ctx, s.Client, gigabits); err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	send, err := s.Send(lab.VIP4().String())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, send.Close()) }()
	if err := send.Pause(); err != nil {
		return nil, err
	}
	out = &speeds{gigabits: gigabits}
	for range rounds {
		one := &[maxRelays + 1]float64{}
		// The connection is at home, so that no other node keeps the address for it then.
		if err := s.lbd.MoveTo(ctx, s.Cluster, lab.VIP4(), s.home); err != nil {
			return nil, err
		}
		if err := s.Stable(ctx); err != nil {
			return nil, err
		}
		for relays := range one {
			if one[relays], err = s.speed(ctx, send, relays); err != nil {
				return nil, err
			}
		}
		out.rounds = append(out.rounds, one)
		fmt.Fprintf(os.Stderr, "wire of %d Gbit/s: %.2f Gbit/s\n", gigabits, []float64{one[0] / 1e9, one[1] / 1e9, one[2] / 1e9})
	}
	return out, ctx.Err()
}

func (s *stage) speed(ctx context.Context, send *lab.Instrument[measure.Sent], relays int) (rate float64, err error) {
	keeper, err := s.away(ctx, relays)
	if keeper != nil {
		defer func() { err = errors.Join(err, keeper.Close()) }()
	}
	if err != nil {
		return 0, err
	}
	before, err := s.Hops(ctx, &s.home.Host)
	if err != nil {
		return 0, err
	}
	if err := send.Resume(); err != nil {
		return 0, err
	}
	interop.Pause(ctx, settle)
	from := measure.Now()
	interop.Pause(ctx, sendFor)
	all, err := send.Events()
	if err := errors.Join(err, send.Pause()); err != nil {
		return 0, err
	}
	interop.Pause(ctx, settle/2)
	after, err := s.Hops(ctx, &s.home.Host)
	if err != nil {
		return 0, err
	}
	for i, n := range after.Since(before) {
		if (n > 1000) != (i+1 == relays) {
			return 0, fmt.Errorf("%d packets came in after %d relays, with %d wanted", n, i+1, relays)
		}
	}
	if rate = measure.Rate(all, from, measure.Now()); rate == 0 {
		return 0, errors.New("nothing was sent")
	}
	return rate, nil
}
