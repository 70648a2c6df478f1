package bfd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Watcher is what Manager and Process have in common.
type Watcher interface {
	Apply(want []Session) error
	Status() []Status
	Stats() Stats
	Close(ctx context.Context) error
}

var (
	_ Watcher = (*Manager)(nil)
	_ Watcher = (*Process)(nil)
)

const (
	childEnv = "LBD_BFD_PROCESS"
	childFD  = 3

	beat     = 500 * time.Millisecond
	lease    = 2 * time.Second // without a beat the child ends
	restart  = time.Second
	patience = 5 * time.Second        // for the answer to Apply
	glance   = 100 * time.Millisecond // for that to Status; then what was last heard
)

var errNotRunning = errors.New("the BFD process is not running; it is started again")

// Process runs sessions in a process of its own: the same program once more,
// with a Manager and nothing else. A thread inside a Go program needs its turn
// from Go's scheduler even to send one packet, and waits for it for up to a tenth
// of a second when the program computes; a process needs it from the kernel only.
//
// The child ends with its parent. It also ends when the parent has not run for
// two seconds: somebody who is frozen has no good news to tell. A child that
// ends by itself is started again; its sessions begin anew.
type Process struct {
	log     *slog.Logger
	changed func()

	apply sync.Mutex // one Apply or Close at a time
	done  chan struct{}
	ended sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	running bool
	wanted  map[Key]Session
	child   *child
	latest  map[Key]Status
	stats   Stats
}

// NewProcess is like New, but for where the sessions run: changed is called on the
// goroutine that listens to the process, and must return at once as well. The program must begin with Child. No process is started before
// the first session.
func NewProcess(log *slog.Logger, changed func()) *Process {
	if changed == nil {
		changed = func() {}
	}
	return &Process{log: log, changed: changed, done: make(chan struct{}), latest: map[Key]Status{}}
}

// Apply is as that of Manager. With an error about the process the sessions are
// remembered, and begin when it runs again.
func (p *Process) Apply(want []Session) error {
	p.apply.Lock()
	defer p.apply.Unlock()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	next, refused := normalAll(want, func(k Key) (Session, bool) { s, ok := p.wanted[k]; return s, ok })
	p.wanted = next
	for k := range p.latest {
		if _, stays := next[k]; !stays {
			delete(p.latest, k)
		}
	}
	first := !p.running && len(next) > 0
	c := p.child
	p.mu.Unlock()
	return errors.Join(refused, p.bring(c, first, len(next) > 0))
}

// bring gives the wanted sessions, if there are some, to the child, which is
// started first if asked for.
func (p *Process) bring(c *child, first, some bool) error {
	if first {
		if !inChild.armed.Load() {
			return errors.New("BFD: the program does not begin with bfd.Child")
		}
		var err error
		if c, err = p.start(); err != nil {
			return err
		}
	}
	if c == nil {
		if !some {
			return nil
		}
		return errNotRunning
	}
	return p.order(c)
}

// order gives the child the wanted sessions.
func (p *Process) order(c *child) error {
	p.mu.Lock()
	want := slices.Collect(maps.Values(p.wanted))
	p.mu.Unlock()
	a, err := c.ask(request{Apply: &want}, patience)
	if err != nil {
		return err
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// start starts the first child here, in the namespace of the caller, and then
// the goroutine that takes care of it and those after it.
func (p *Process) start() (*child, error) {
	c, err := p.spawn()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.running = true
	p.mu.Unlock()
	p.ended.Go(func() { p.tend(c) })
	return c, nil
}

// tend keeps a child running until Close.
func (p *Process) tend(c *child) {
	for {
		if c != nil {
			err := c.read(p.learn)
			p.lost()
			if !p.wait(0) {
				return
			}
			p.log.Warn("BFD process ended", "error", err)
		}
		if !p.wait(restart) {
			return
		}
		var err error
		if c, err = p.spawn(); err != nil {
			p.log.Warn("BFD process cannot be started", "error", err)
			continue
		}
		go func() {
			if err := p.order(c); err != nil {
				p.log.Warn("BFD sessions cannot begin again", "error", err)
			}
		}()
	}
}

// wait tells after d whether to go on.
func (p *Process) wait(d time.Duration) bool {
	select {
	case <-p.done:
	case <-time.After(d):
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// lost: what a child said ends with it. Its sessions are as if they never were.
func (p *Process) lost() {
	p.mu.Lock()
	p.child = nil
	for k, s := range p.latest {
		p.latest[k] = Status{Key: s.Key, State: Down, RemoteState: Down, Since: time.Now(), LastError: errNotRunning.Error()}
	}
	p.mu.Unlock()
	p.changed()
}

// learn takes in what the child says.
func (p *Process) learn(a answer) {
	if a.Log != nil {
		p.log.LogAttrs(context.Background(), a.Log.Level, a.Log.Message, a.Log.attrs()...)
	}
	news := false
	p.mu.Lock()
	for _, s := range a.Status {
		if _, ok := p.wanted[s.Key]; !ok {
			continue // from before it was removed
		}
		old, known := p.latest[s.Key]
		news = news || known && old.State != s.State || !known && s.State != Down
		p.latest[s.Key] = s
	}
	if a.Stats != nil {
		p.stats = *a.Stats
	}
	p.mu.Unlock()
	if news {
		p.changed()
	}
}

// Status returns all sessions, sorted by Key. If the process does not answer
// within a tenth of a second it is what was last heard; states are always heard
// at once.
func (p *Process) Status() []Status {
	p.glance()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.wanted) == 0 {
		return nil
	}
	all := make([]Status, 0, len(p.wanted))
	for k := range p.wanted {
		s, ok := p.latest[k]
		if !ok {
			s = Status{Key: k, State: Down, RemoteState: Down, LastError: errNotRunning.Error()}
		}
		all = append(all, s)
	}
	sortStatus(all)
	return all
}

// Stats returns the figures of the present process.
func (p *Process) Stats() Stats {
	p.glance()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// glance asks the child for everything.
func (p *Process) glance() {
	p.mu.Lock()
	c := p.child
	p.mu.Unlock()
	if c == nil {
		return
	}
	_, _ = c.ask(request{}, glance)
}

// Close is as that of Manager. The process has ended when it returns.
func (p *Process) Close(ctx context.Context) error {
	p.apply.Lock()
	defer p.apply.Unlock()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	c := p.child
	p.mu.Unlock()
	close(p.done)
	var err error
	if c != nil {
		left := patience
		if end, ok := ctx.Deadline(); ok {
			left = min(left, time.Until(end))
		}
		said := make(chan error, 1)
		go func() {
			_, err := c.ask(request{Close: true}, left)
			said <- err
		}()
		select {
		case err = <-said:
		case <-ctx.Done():
			err = ctx.Err()
		}
		c.kill()
	}
	p.ended.Wait()
	return err
}

// spawn starts a child and its heartbeat.
func (p *Process) spawn() (*child, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("BFD process: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "bfd"), os.NewFile(uintptr(fds[1]), "bfd child")
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, fmt.Errorf("BFD process: %w", err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"lbd-bfd"}
	cmd.Env = append(os.Environ(), childEnv+"=1", "GOMAXPROCS=2")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("BFD process: %w", err)
	}
	c := &child{cmd: cmd, conn: conn, waiting: map[uint64]chan answer{}, gone: make(chan struct{})}
	p.mu.Lock()
	p.child = c
	closed := p.closed
	p.mu.Unlock()
	if closed {
		c.kill()
	}
	go c.beat()
	return c, nil
}

// child is a running process.
type child struct {
	cmd  *exec.Cmd
	conn net.Conn
	gone chan struct{} // closed when nothing more comes from it

	write sync.Mutex

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan answer
}

// read hands what comes to f, in order, and answers then to who waits for them,
// until the child has ended; it returns why.
func (c *child) read(f func(answer)) error {
	defer close(c.gone)
	in := json.NewDecoder(c.conn)
	var err error
	for {
		var a answer
		if err = in.Decode(&a); err != nil {
			break
		}
		c.mu.Lock()
		to := c.waiting[a.ID]
		delete(c.waiting, a.ID)
		c.mu.Unlock()
		f(a)
		if to != nil {
			to <- a
		}
	}
	c.kill()
	if w := c.cmd.Wait(); w != nil {
		err = w
	}
	return err
}

// ask sends a request and waits for the answer.
func (c *child) ask(r request, d time.Duration) (answer, error) {
	to := make(chan answer, 1)
	c.mu.Lock()
	c.last++
	r.ID = c.last
	c.waiting[r.ID] = to
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, r.ID)
		c.mu.Unlock()
	}()
	if err := c.send(r); err != nil {
		return answer{}, err
	}
	select {
	case a := <-to:
		return a, nil
	case <-c.gone:
		return answer{}, errNotRunning
	case <-time.After(d):
		return answer{}, fmt.Errorf("the BFD process did not answer within %v", d)
	}
}

func (c *child) send(r request) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(lease))
	if _, err := c.conn.Write(append(b, '\n')); err != nil {
		c.kill() // half a request may be on its way
		return fmt.Errorf("BFD process: %w", err)
	}
	return nil
}

// beat tells the child that its parent runs.
func (c *child) beat() {
	t := time.NewTicker(beat)
	defer t.Stop()
	for {
		select {
		case <-c.gone:
			return
		case <-t.C:
			_ = c.send(request{Beat: true})
		}
	}
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.conn.Close()
}
