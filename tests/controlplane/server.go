package controlplane

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// readyLimit is how long a server may take to become ready on a busy machine.
const readyLimit = 90 * time.Second

// Server is one program of the control plane on one host. It can be stopped, or
// killed, and started again with what it has on disk.
type Server struct {
	Name string
	Host *lab.Host

	lab   *lab.Lab
	argv  []string
	ready func(context.Context) error
	proc  *lab.Proc
}

// Start starts the program and waits until it says that it is ready.
func (s *Server) Start(ctx context.Context) error {
	if err := s.Launch(); err != nil {
		return err
	}
	return s.WaitReady(ctx)
}

// Launch starts the program and does not wait.
func (s *Server) Launch() error {
	if s.proc.Alive() {
		return fmt.Errorf("%s on %s: it runs already", s.Name, s.Host.Name)
	}
	p, err := s.lab.Start(s.Host, s.Name, nil, s.argv...)
	if err != nil {
		return err
	}
	s.proc = p
	return nil
}

// WaitReady waits until the program says that it is ready.
func (s *Server) WaitReady(ctx context.Context) error {
	return Eventually(ctx, readyLimit, s.Name+" on "+s.Host.Name+" is ready", func() error {
		if !s.proc.Alive() {
			return fmt.Errorf("%w: %s", errEnded, s.proc.Tail(5))
		}
		return s.Ready(ctx)
	})
}

// errEnded ends every wait.
var errEnded = errors.New("it ended")

// Ready asks the program whether it is ready.
func (s *Server) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return s.ready(ctx)
}

// Proc is the process that was started last; nil before the first Start. Its PID
// and Signal are those of the program itself.
func (s *Server) Proc() *lab.Proc { return s.proc }

// Kill kills the process (SIGKILL) and returns when it is gone.
func (s *Server) Kill() error { return s.proc.Kill() }

// Stop asks the process to end (SIGTERM) and waits for it; one that does not end
// within the limit is killed, which is an error.
func (s *Server) Stop(limit time.Duration) error {
	if err := s.signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := s.proc.Wait(limit)
	if errors.Is(err, lab.ErrTimeout) {
		return errors.Join(err, s.proc.Kill())
	}
	return nil
}

// Freeze stops the process without ending it; Thaw undoes that.
func (s *Server) Freeze() error { return s.signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (s *Server) Thaw() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	if s.proc == nil {
		return fmt.Errorf("%s on %s: it was not started", s.Name, s.Host.Name)
	}
	return s.proc.Signal(sig)
}

// patience is how many times as long as on an idle machine everything may take. What is
// promised is measured, not waited for.
const patience = 4

// Eventually polls until check succeeds, ctx ends or limit, which is that of an idle
// machine, is over for long; the error is then the last one of check.
func Eventually(ctx context.Context, limit time.Duration, what string, check func() error) error {
	deadline := time.Now().Add(patience * limit)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if errors.Is(err, errEnded) {
			return fmt.Errorf("%s: %w", what, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %v: %w", what, patience*limit, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
