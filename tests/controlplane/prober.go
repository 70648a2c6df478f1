package controlplane

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// Prober asks the API again and again, each time by a new connection, as clients
// do that have just started.
type Prober struct {
	mu       sync.Mutex
	attempts []measure.Attempt
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// Probe starts to ask for a path at an address, from a host, until Stop. Each
// attempt may take limit, and does not wait for those before.
func (c *ControlPlane) Probe(ctx context.Context, from *lab.Host, server netip.Addr, path string, every, limit time.Duration) (*Prober, error) {
	conf, err := c.adminTLS()
	if err != nil {
		return nil, err
	}
	url := URL(server) + path
	return probe(ctx, every, limit, func(ctx context.Context) error {
		_, err := get(ctx, c.Lab, from, url, conf)
		return err
	}), nil
}

// probe begins to ask.
func probe(ctx context.Context, every, limit time.Duration, ask func(context.Context) error) *Prober {
	ctx, stop := context.WithCancel(ctx)
	p := &Prober{stop: stop}
	p.done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				p.done.Go(func() { p.attempt(ctx, limit, ask) })
			}
		}
	})
	return p
}

func (p *Prober) attempt(ctx context.Context, limit time.Duration, ask func(context.Context) error) {
	one, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a := measure.Attempt{Start: measure.Now()}
	if err := ask(one); err != nil {
		a.Err = measure.Cause(err)
	}
	a.End = measure.Now()
	if ctx.Err() != nil {
		return // cut off by Stop
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts = append(p.attempts, a)
}

// Reach sums up the attempts that started in [from, to).
func (p *Prober) Reach(from, to measure.Time) measure.Reach {
	p.mu.Lock()
	defer p.mu.Unlock()
	return measure.Reached(p.attempts, from, to)
}

// Stop ends it and waits for what is under way.
func (p *Prober) Stop() {
	p.stop()
	p.done.Wait()
}
