package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// sinkPort is where the service reads as fast as it can.
const sinkPort = 7001

// block is how much is written or read at once.
const block = 256 << 10

// send fills one connection and tells how much it took.
func send(ctx context.Context, args []string, out *events) error {
	fs := flag.NewFlagSet("send", flag.ContinueOnError)
	target := fs.String("target", "", "address of the service")
	if err := fs.Parse(args); err != nil {
		return err
	}
	c, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(*target, fmt.Sprint(sinkPort)))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	var taken atomic.Int64
	failed := make(chan error, 1)
	go func() { // ends when the connection is closed
		b := make([]byte, block)
		for {
			n, err := c.Write(b)
			taken.Add(int64(n))
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	from := measure.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if ctx.Err() == nil {
				return err
			}
		case <-time.After(reportEvery):
		}
		to := measure.Now()
		out.put(measure.Sent{From: from, To: to, Bytes: taken.Swap(0)})
		from = to
	}
}

// sinkAll reads and throws away what comes in until the listener is closed.
func sinkAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go func() {
			defer c.Close()
			for b := make([]byte, block); ; {
				if _, err := c.Read(b); err != nil {
					return
				}
			}
		}()
	}
}
