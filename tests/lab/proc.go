package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Proc is a process that the lab started, with its process group.
type Proc struct {
	Name string
	Log  string // file with its output
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait, once done is closed
}

// startProc starts argv in a namespace. Standard output goes to out, or to the
// log if out is nil; standard error always goes to the log.
func startProc(ns, name, log string, out io.Writer, argv ...string) (*Proc, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: log: %w", name, err)
	}
	defer f.Close() // the child has its own descriptor
	full := append([]string{"ip", "netns", "exec", ns}, argv...)
	p := &Proc{Name: name, Log: log, cmd: exec.Command(full[0], full[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	if out != nil {
		p.cmd.Stdout = out
	}
	p.cmd.SysProcAttr = ownGroup()
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: start: %w", name, err)
	}
	go func() { // ends with the process
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the process id; `ip netns exec` replaces itself, so it is that of argv.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Alive tells whether the process has not ended.
func (p *Proc) Alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the process and all of its group.
func (p *Proc) Signal(s syscall.Signal) error {
	if !p.Alive() {
		return fmt.Errorf("%s: signal: it has ended", p.Name)
	}
	if err := syscall.Kill(-p.PID(), s); err != nil {
		return fmt.Errorf("%s: signal: %w", p.Name, err)
	}
	return nil
}

// Wait waits for the end of the process; errors.Is(err, ErrTimeout) if it did
// not come in time.
func (p *Proc) Wait(limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.done:
		return p.err
	case <-t.C:
		return fmt.Errorf("%s: wait: %w", p.Name, ErrTimeout)
	}
}

// ErrTimeout is returned by Proc.Wait.
var ErrTimeout = errors.New("still running")

// Kill kills the process group and waits for the process.
func (p *Proc) Kill() error {
	if p == nil {
		return nil
	}
	// The group may outlive its leader.
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	err := p.Wait(30 * time.Second)
	if errors.Is(err, ErrTimeout) {
		return err
	}
	return nil
}

// Tail returns the last lines of the log.
func (p *Proc) Tail(lines int) string {
	b, err := os.ReadFile(p.Log)
	return tail(b, err, lines)
}

func tail(b []byte, err error, lines int) string {
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// ownGroup keeps the terminal's signals away from a child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
