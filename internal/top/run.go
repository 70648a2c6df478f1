package top

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/wake"
)

const (
	// interval is between two questions.
	interval = time.Second
	// keyGap is after how long what may be the begin of a key is one.
	keyGap = 50 * time.Millisecond
	// mostBalancers bounds the LoadBalancers whose backends are asked for, mostEvents the events
	// that are kept.
	mostBalancers, mostEvents = 8, 500
)

// Run shows the daemon on the terminal until somebody ends it, or ctx does. The terminal is left
// as it was.
func Run(ctx context.Context, in, out *os.File, c *control.Client, color bool) error {
	leave, err := enter(in, out)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages := make(chan any)
	send := func(message any) {
		select {
		case messages <- message:
		case <-ctx.Done():
		}
	}
	go keys(in, send)
	go poll(ctx, c, send)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	next := func() any {
		select {
		case <-resized:
			return size(out)
		case now := <-tick.C:
			return Tick(now)
		case message := <-messages:
			return message
		case <-ctx.Done():
			return Key("ctrl+c")
		}
	}

	m, _ := Update(Model{}, size(out))
	for shown, message := "", any(Tick(time.Now())); ; message = next() {
		if err, gone := message.(error); gone {
			return err
		}
		var w Wish
		if m, w = Update(m, message); w.Quit {
			return nil
		}
		if w.Explain != "" {
			go func() {
				list, err := c.Explain(ctx, w.Explain, "")
				send(Explained{w.Explain, list, err})
			}()
		}
		if f := frame(View(m), color); f != shown {
			if _, err := out.WriteString(f); err != nil {
				return err
			}
			shown = f
		}
	}
}

// enter takes the terminal; leave gives it back.
func enter(in, out *os.File) (leave func(), err error) {
	restore, err := raw(in)
	if err != nil {
		return nil, err
	}
	leave = func() {
		_, _ = out.WriteString(end)
		_ = restore()
	}
	if _, err = out.WriteString(begin); err != nil {
		leave()
	}
	return leave, err
}

// keys sends the keys that are typed. A read cannot be interrupted: it ends with the process.
func keys(in *os.File, send func(any)) {
	chunks := make(chan []byte)
	go func() {
		defer close(chunks)
		for {
			b := make([]byte, 256)
			n, err := in.Read(b)
			if n > 0 {
				chunks <- b[:n]
			}
			if err != nil || n == 0 {
				return
			}
		}
	}()
	var pending []byte
	for {
		var late <-chan time.Time
		if len(pending) > 0 {
			late = time.After(keyGap)
		}
		var found []Key
		select {
		case chunk, more := <-chunks:
			if !more {
				send(errGone)
				return
			}
			found, pending = parseKeys(append(pending, chunk...), false)
		case <-late:
			found, pending = parseKeys(pending, true)
		}
		for _, k := range found {
			send(k)
		}
	}
}

// poll asks the daemon again and again, and sends what it says.
func poll(ctx context.Context, c *control.Client, send func(any)) {
	a := asker{client: c}
	for ctx.Err() == nil {
		send(a.ask(ctx))
		wake.Sleep(ctx, interval)
	}
}

// asker remembers the events that it was told.
type asker struct {
	client  *control.Client
	started time.Time // of the daemon whose events they are
	newest  uint64
	events  []v1alpha1.Event
}

func (a *asker) ask(ctx context.Context) Told {
	s, err := a.client.Status(ctx)
	if err == nil {
		err = a.more(ctx)
	}
	told := Told{Status: s, Events: a.events, Err: err, At: time.Now()}
	if err == nil {
		told.Backends = a.backends(ctx, s)
	}
	return told
}

// more asks for the events that are new. Another process of the daemon counts anew, and one of an
// older version knows of none.
func (a *asker) more(ctx context.Context) error {
	e, err := a.client.Events(ctx, control.EventQuery{After: a.newest})
	if err == nil && a.newest > 0 && !e.Started.Equal(a.started) {
		e, err = a.client.Events(ctx, control.EventQuery{})
		a.events = nil
	}
	if errors.Is(err, control.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	all := append(a.events[:len(a.events):len(a.events)], e.Events...) // what was sent stays as it is
	a.events = all[max(len(all)-mostEvents, 0):]
	a.newest, a.started = e.Newest, e.Started
	return nil
}

// backends asks for those of the first LoadBalancers. One that went away meanwhile has none.
func (a *asker) backends(ctx context.Context, s v1alpha1.NodeStatus) (list []v1alpha1.Explanation) {
	seen := make(map[string]bool)
	for _, v := range s.VIPs {
		if v.Kind != v1alpha1.KindLoadBalancer || seen[v.Name] || len(seen) == mostBalancers {
			continue
		}
		seen[v.Name] = true
		if found, err := a.client.Explain(ctx, v.Address, ""); err == nil {
			list = append(list, found...)
		}
	}
	return list
}
