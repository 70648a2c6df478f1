package main

import (
	"bufio"
	"context"
	"flag"
	"net"
	"sync"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// reportEvery is how often what was measured without a pause is told.
const reportEvery = 100 * time.Millisecond

// rtt measures the time from a line to its echo on some connections, one line at a
// time on each.
func rtt(ctx context.Context, args []string, out *events) error {
	fs := flag.NewFlagSet("rtt", flag.ContinueOnError)
	target := fs.String("target", "", "address:port")
	n := fs.Int("n", 20, "number of connections")
	every := fs.Duration("every", 20*time.Millisecond, "time between two lines of a connection")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	b := &batch{Echoes: measure.Echoes{From: measure.Now()}}
	for range *n {
		wg.Go(func() { b.add(ctx, *target, *every) })
	}
	for ctx.Err() == nil {
		sleep(ctx, reportEvery)
		out.put(b.take())
	}
	return nil
}

// batch is what was measured since the last report.
type batch struct {
	mu sync.Mutex
	measure.Echoes
}

func (b *batch) take() measure.Echoes {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.Echoes
	e.To = measure.Now()
	b.Echoes = measure.Echoes{From: e.To, Lost: e.Lost}
	return e
}

// add measures on one connection until it or the context ends.
func (b *batch) add(ctx context.Context, target string, every time.Duration) {
	err := echoes(ctx, target, every, func(d time.Duration) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.RTT = append(b.RTT, d)
	})
	if err != nil && ctx.Err() == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.Lost++
	}
}

func echoes(ctx context.Context, target string, every time.Duration, tell func(time.Duration)) error {
	c, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", target)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer c.Close()
	r := bufio.NewReader(c)
	if _, err := r.ReadSlice('\n'); err != nil { // the name of the node
		return err
	}
	line := []byte("1234567\n")
	for {
		sleep(ctx, every)
		begin := measure.Now()
		if _, err := c.Write(line); err != nil {
			return err
		}
		if _, err := r.ReadSlice('\n'); err != nil {
			return err
		}
		tell(measure.Since(begin))
	}
}
