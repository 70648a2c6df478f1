// Package program runs a program of this host, in bounded time.
package program

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// outputGrace is how long output is awaited after the program has ended or was
	// killed: a child of it may hold the pipe open for ever.
	outputGrace = 50 * time.Millisecond
	// maxOutput is how much of the output is kept, in bytes.
	maxOutput = 200
)

// Run runs a command, which names at least a program, until it ends or ctx does. It returns the
// end of what the program wrote, and an error unless the program ended with status 0. No shell
// is involved; the program has no input, the environment of this process with the variables
// NAME=value added, and / as its directory. It is the leader of a process group, which is
// killed as a whole.
func Run(ctx context.Context, command []string, variables ...string) (output string, err error) {
	var kept tail
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = "/"
	if len(variables) > 0 {
		cmd.Env = append(os.Environ(), variables...)
	}
	cmd.Stdout, cmd.Stderr = &kept, &kept
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = outputGrace
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		// It ended well but left children behind that hold its output. They are not
		// allowed to pile up.
		_ = killGroup(cmd)
		err = nil
	}
	return string(kept), cause(ctx, err)
}

// killGroup kills the program and all its descendants that have not left its
// process group.
func killGroup(cmd *exec.Cmd) error {
	err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// cause says in short why a program failed.
func cause(ctx context.Context, err error) error {
	var (
		exit  *exec.ExitError
		errno syscall.Errno
	)
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("did not end in time and was killed")
	case errors.As(err, &exit):
		return exit // "exit status 3", "signal: segmentation fault"
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("not found in PATH")
	case errors.As(err, &errno):
		return errno
	}
	return err
}

// tail is a writer that keeps the last maxOutput bytes.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	if extra := len(*t) - maxOutput; extra > 0 {
		*t = append((*t)[:0], (*t)[extra:]...)
	}
	return len(p), nil
}
