package notify

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"

	"lbd.dev/lbd/internal/program"
)

// run runs a command as a process of this host.
func run(ctx context.Context, command []string, variables ...string) (output string, err error) {
	if err := reachable(ctx, command[0]); err != nil {
		return "", err
	}
	return program.Run(ctx, command, variables...)
}

// reachable tells whether the beginning of a program can be read in time. A new process is one
// with this one until it has read its program, and all goroutines may have to wait for that. From
// a file system that hangs it must not be started.
func reachable(ctx context.Context, name string) error {
	done := make(chan struct{})
	go func() { // may never end
		defer close(done)
		path, err := exec.LookPath(name)
		if err != nil {
			return // that is said by whoever runs it
		}
		if f, err := os.Open(path); err == nil {
			_, _ = io.ReadFull(f, make([]byte, 4096))
			_ = f.Close()
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.New("the program cannot be read in time")
	}
}
