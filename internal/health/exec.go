package health

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// outputGrace is how long output is awaited after the program has ended or was
// killed: a child of it may hold the pipe open for ever.
const outputGrace = 50 * time.Millisecond

// execProber passes if a program ends with status 0 in time. No shell is
// involved; the program has no input, the environment of the daemon and / as its
// directory. It is the leader of a process group, which is killed as a whole.
type execProber struct {
	command []string
}

func (p execProber) probe(ctx context.Context) error {
	if len(p.command) == 0 {
		return errors.New("exec: the command is empty")
	}
	var output tail
	cmd := exec.CommandContext(ctx, p.command[0], p.command[1:]...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = outputGrace
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		// It ended well but left children behind that hold its output. They are not
		// allowed to pile up.
		_ = killGroup(cmd)
		err = nil
	}
	if err == nil {
		return nil
	}
	why := execCause(ctx, err)
	if said := clip(output.String()); said != "" {
		why += ": " + said
	}
	return fmt.Errorf("exec %s: %s", p.command[0], why)
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

func execCause(ctx context.Context, err error) string {
	var (
		exit  *exec.ExitError
		errno syscall.Errno
	)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "did not end in time and was killed"
	case errors.As(err, &exit):
		return exit.Error() // "exit status 3", "signal: segmentation fault"
	case errors.Is(err, exec.ErrNotFound):
		return "not found in PATH"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return clip(err.Error())
}

// tail is a writer that keeps the last maxDetail bytes.
type tail struct {
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - maxDetail; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.kept) }
