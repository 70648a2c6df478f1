package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// stallAfter is how long an echo may take.
const stallAfter = time.Second

// conns keeps long-lived connections open and sends a line on each of them every
// interval.
func conns(ctx context.Context, args []string, out *events) error {
	fs := flag.NewFlagSet("conns", flag.ContinueOnError)
	target := fs.String("target", "", "address:port")
	n := fs.Int("n", 20, "number of connections")
	every := fs.Duration("every", 50*time.Millisecond, "time between lines")
	again := fs.Bool("reconnect", false, "open a lost connection anew")
	mixed := fs.Bool("mixed", false, "of three connections one only listens, until SIGUSR1, and one is of UDP")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *mixed {
		at, err := netip.ParseAddrPort(*target)
		if err != nil {
			return err
		}
		return mixedConns(ctx, at.Addr(), *n, *every, out)
	}
	var wg sync.WaitGroup
	for i := range *n {
		wg.Go(func() {
			for ctx.Err() == nil {
				longLived(ctx, i, *target, *every, out)
				if !*again {
					return
				}
				sleep(ctx, 200*time.Millisecond)
			}
		})
	}
	wg.Wait()
	return nil
}

func longLived(ctx context.Context, id int, target string, every time.Duration, out *events) {
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		out.put(measure.ConnEvent{At: measure.Now(), Conn: id, Kind: measure.ConnLost, Err: measure.Cause(err)})
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer c.Close()
	go func() { // ends when the connection is closed
		for {
			if _, err := c.Write([]byte("x\n")); err != nil {
				return
			}
			sleep(ctx, every)
		}
	}()
	readEchoes(c, id, out, false, func() bool { return ctx.Err() != nil })
}

// readEchoes reports what happens to the connection until it ends. With alike it ends with a line
// that is not the first one again.
func readEchoes(c net.Conn, id int, out *events, alike bool, stopped func() bool) {
	r := bufio.NewReader(c)
	opened, stalled, first := false, false, ""
	for {
		_ = c.SetReadDeadline(time.Now().Add(stallAfter))
		line, err := r.ReadString('\n')
		e := measure.ConnEvent{At: measure.Now(), Conn: id}
		switch {
		case stopped():
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			if stalled {
				continue
			}
			stalled = true
			e.Kind = measure.ConnStall
		case err != nil:
			e.Kind, e.Err = measure.ConnLost, measure.Cause(err)
			out.put(e)
			return
		case alike && opened && line != first:
			e.Kind, e.Err = measure.ConnLost, "another line: "+strings.TrimSpace(line)
			out.put(e)
			return
		case !opened:
			opened, first = true, line
			e.Kind, e.Node = measure.ConnOpen, strings.TrimSpace(line)
		case stalled:
			stalled = false
			e.Kind = measure.ConnResume
		default:
			continue
		}
		out.put(e)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
