package lab

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"lbd.dev/lbd/tests/lab/measure"
)

// Instrument is an agent on a host and what it tells.
type Instrument[T any] struct {
	Proc   *Proc
	events record[T]
	pipe   io.Closer
}

// instrument starts an agent in one of its modes.
func instrument[T any](l *Lab, h *Host, mode string, args ...string) (*Instrument[T], error) {
	i := &Instrument[T]{}
	in, out := io.Pipe()
	p, err := l.Start(h, mode, out, append([]string{l.Bin.Agent, mode}, args...)...)
	if err != nil {
		return nil, err
	}
	go i.events.read(in) // ends when the pipe is closed
	i.Proc, i.pipe = p, out
	return i, nil
}

// Events returns what was told so far, and an error if the agent has ended.
func (i *Instrument[T]) Events() ([]T, error) {
	all := i.events.all()
	if !i.Proc.Alive() {
		return all, fmt.Errorf("%s has ended: %s", i.Proc.Name, i.Proc.Tail(3))
	}
	return all, nil
}

// Pause stops the agent without ending it; Resume lets it run again.
func (i *Instrument[T]) Pause() error { return i.Proc.Signal(syscall.SIGSTOP) }

// Resume undoes Pause.
func (i *Instrument[T]) Resume() error { return i.Proc.Signal(syscall.SIGCONT) }

// Close ends the agent.
func (i *Instrument[T]) Close() error { return errors.Join(i.Proc.Kill(), i.pipe.Close()) }

// Echo has n connections from the client to the VIP, each of which measures a round
// trip now and then.
func (c *Cluster) Echo(vip string, n int) (*Instrument[measure.Echoes], error) {
	return instrument[measure.Echoes](c.Lab, c.Client, "rtt", "-target", fmt.Sprintf("%s:%d", vip, echoPort), "-n", fmt.Sprint(n))
}

// Send fills a connection from the client to the VIP.
func (c *Cluster) Send(vip string) (*Instrument[measure.Sent], error) {
	return instrument[measure.Sent](c.Lab, c.Client, "send", "-target", vip)
}

// Strays sends n segments that belong to no connection from the client to the VIP.
func (c *Cluster) Strays(vip string, n, rate int) (*Instrument[measure.Sent], error) {
	return instrument[measure.Sent](c.Lab, c.Client, "strays", "-from", c.Client.IP4.String(),
		"-target", fmt.Sprintf("%s:%d", vip, echoPort), "-n", fmt.Sprint(n), "-rate", fmt.Sprint(rate))
}

// WatchRules notes every table of nftables that is made or deleted on a host.
func (l *Lab) WatchRules(h *Host) (*Instrument[measure.Rules], error) {
	return instrument[measure.Rules](l, h, "rules")
}
