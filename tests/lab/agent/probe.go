package main

import (
	"bufio"
	"context"
	"flag"
	"net"
	"strings"
	"sync"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// probe opens a connection each interval, whatever became of those before, and
// reads the name of the node that serves it.
func probe(ctx context.Context, args []string, out *events) error {
	fs := flag.NewFlagSet("probe", flag.ContinueOnError)
	target := fs.String("target", "", "address:port")
	every := fs.Duration("every", 5*time.Millisecond, "time between attempts")
	timeout := fs.Duration("timeout", 250*time.Millisecond, "time limit of an attempt")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			wg.Go(func() { out.put(attempt(*target, *timeout)) })
		}
	}
}

func attempt(target string, timeout time.Duration) measure.Attempt {
	a := measure.Attempt{Start: measure.Now()}
	node, err := askName(target, timeout)
	a.End = measure.Now()
	a.Node = node
	if err != nil {
		a.Err = measure.Cause(err)
	}
	return a
}

func askName(target string, timeout time.Duration) (string, error) {
	limit := time.Now().Add(timeout)
	d := net.Dialer{Deadline: limit, KeepAlive: -1}
	c, err := d.Dial("tcp", target)
	if err != nil {
		return "", err
	}
	defer c.Close()
	// A reset instead of TIME_WAIT: 200 a second would use up the local ports.
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	if err := c.SetDeadline(limit); err != nil {
		return "", err
	}
	line, err := bufio.NewReaderSize(c, 64).ReadString('\n')
	return strings.TrimSpace(line), err
}
