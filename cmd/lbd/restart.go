package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/logqueue"
)

// restarter puts a new program in the place of this one, with the same process id. What
// supervises the daemon notices nothing: kubelet would make a container that has ended
// wait, longer each time. For the addresses it is a daemon that was killed and is back
// at once: the kernel keeps them, and the new one adopts them.
type restarter struct {
	path    string      // of the configuration
	asked   chan string // of 1: the program to run
	program func() (string, error)
}

func newRestarter(path string) *restarter {
	return &restarter{path, make(chan string, 1), programOnDisk}
}

// programOnDisk is where this program came from. By now it may be one of another release.
func programOnDisk() (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	return exec.LookPath(program)
}

// Restart asks for it, unless the new program would end at once. Whether the files that the
// configuration names can be read only this process can tell, with the rights that the new
// one will have. Whether the new one knows every field only the new one can.
func (r *restarter) Restart(ctx context.Context) error {
	if _, err := config.Load(r.path); err != nil {
		return fmt.Errorf("the configuration is refused, so the daemon goes on with the one it has:\n%w", err)
	}
	program, err := r.program()
	if err != nil {
		return fmt.Errorf("there is no program to restart: %w", err)
	}
	if err := accepts(ctx, program, r.path); err != nil {
		return fmt.Errorf("the program to restart refuses the configuration, so the daemon goes on as it is:\n%w", err)
	}
	select {
	case r.asked <- program:
	default: // it is on its way
	}
	return nil
}

// validateTimeout is how long the new program may take to read the configuration. It is
// less than the daemon has for the whole answer, so that the command hears the reason.
const validateTimeout = 3 * time.Second

// accepts has a program of lbd validate the configuration. The error is what it says.
func accepts(ctx context.Context, program, path string) error {
	ctx, cancel := context.WithTimeout(ctx, validateTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "validate", path)
	cmd.WaitDelay = validateTimeout / 10
	out, err := cmd.CombinedOutput()
	switch words := strings.TrimSpace(string(out)); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s validate %s: no answer in time: %w", program, path, ctx.Err())
	case words != "":
		return fmt.Errorf("%s validate %s: %w:\n%s", program, path, err, words)
	default:
		return fmt.Errorf("%s validate %s: %w", program, path, err)
	}
}

// serve answers commands until ctx ends. When one of them asks for a restart, that one is
// answered, the socket closed, and the program replaced while all else runs on. If that
// fails stop ends the daemon in order, and who supervises it starts it again.
func (r *restarter) serve(ctx context.Context, p *parts, lines *logqueue.Queue, log *slog.Logger, stop func()) {
	serving, answered := context.WithCancel(ctx)
	var program string
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-serving.Done():
		case program = <-r.asked:
			answered()
		}
	})
	if err := p.control.Run(serving); err != nil {
		log.Error("control", "err", err)
	}
	answered()
	wg.Wait()
	if program == "" || ctx.Err() != nil {
		return
	}
	log.Info("restarting in place", "program", program)
	lines.Close()
	for _, pid := range children() { // checks that run a program
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	err := syscall.Exec(program, os.Args, os.Environ())
	fmt.Fprintf(os.Stderr, "%s: lbd run: restart %s: %v\n", levelError, program, err)
	stop()
}

// reapInherited waits for the children of the program that this one has replaced. It
// comes before the first child of this one.
func reapInherited() {
	for _, pid := range children() {
		go func() {
			for {
				if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
					return
				}
			}
		}()
	}
}

// children are the processes that this one has started and not waited for; see proc(5).
func children() (pids []int) {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		list, _ := os.ReadFile(file) // of a thread that has ended meanwhile
		for f := range strings.FieldsSeq(string(list)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func newReload() *cobra.Command {
	return newAsk("reload", "Have the daemon read its configuration again, and say whether it is in force",
		`Have the daemon read its configuration again. Ends with 1 and prints every error if
it is refused; the one before stays in force then.`,
		func(ctx context.Context, c *control.Client, out io.Writer) error {
			if err := c.Reload(ctx); err != nil {
				return fmt.Errorf("the configuration was not taken, the one before stays in force:\n%w", err)
			}
			fmt.Fprintln(out, "the configuration is in force")
			return nil
		})
}

func newRestart() *cobra.Command {
	return newAsk("restart", "Restart the daemon in its place, for settings that a reload cannot change, or a new binary",
		`Restart the daemon in its place: the process begins anew with the same process id,
and the addresses stay on this node. So a static pod need not wait for kubelet, which
holds back a container that has ended. Addresses of Services and LoadBalancers do not
stay: they move as after a crash; 'lbd drain' before moves them without a failed connection.
Ends with 1 if the configuration is refused, by the daemon or by the program that is to
replace it; the daemon goes on then.`,
		func(ctx context.Context, c *control.Client, out io.Writer) error {
			s, err := c.Restart(ctx)
			if err != nil {
				return err
			}
			note := ""
			if !s.Settled {
				note = "; not settled yet, `lbd status` says more"
			}
			fmt.Fprintf(out, "restarted: lbd %s on %s%s\n", s.Version, s.Node, note)
			return nil
		})
}
