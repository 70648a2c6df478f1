package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// command runs a program to its end and returns what it prints, after a failure too;
// the error carries the end of what it said. It dies, with its children, when ctx ends.
func command(ctx context.Context, stdin io.Reader, env []string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Env = stdin, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		said := strings.TrimSpace(out.String() + "\n" + errs.String())
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, said[max(0, len(said)-3000):])
	}
	return out.String(), nil
}
