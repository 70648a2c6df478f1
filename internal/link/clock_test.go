package link

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/model"
)

// fakeListener is a subscription under the test's control.
type fakeListener struct {
	notify chan struct{}
	fail   chan error
	closed chan struct{}
	once   sync.Once
}

func (f *fakeListener) wait(notify func()) error {
	for {
		select {
		case <-f.notify:
			notify()
		case err := <-f.fail:
			return err
		case <-f.closed:
			return errors.New("closed")
		}
	}
}

func (f *fakeListener) Close() { f.once.Do(func() { close(f.closed) }) }

// TestSubscribesAnew runs on a fake clock: failures of the subscription, a
// reading that fails, the resync and the coalescing of a burst.
func TestSubscribesAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*fakeListener
		var mu sync.Mutex // the fake clock orders everything, but the race detector wants it said
		var refuse, readErr error
		reads, mtu := 0, 1500
		set := func(change func()) {
			mu.Lock()
			defer mu.Unlock()
			change()
		}
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		src := New(Options{Resync: time.Minute})
		src.listen = func() (listener, error) {
			mu.Lock()
			defer mu.Unlock()
			if refuse != nil {
				return nil, refuse
			}
			l := &fakeListener{notify: make(chan struct{}), fail: make(chan error), closed: make(chan struct{})}
			made = append(made, l)
			return l, nil
		}
		src.read = func() ([]model.Link, error) {
			mu.Lock()
			defer mu.Unlock()
			reads++
			return []model.Link{{Name: "eth0", Index: 2, Up: true, MTU: mtu}}, readErr
		}
		out := &sink{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- src.Run(ctx, out.publish) }()
		synctest.Wait()
		if reads != 1 || out.published != 1 {
			t.Fatalf("start: %d readings, %d published", reads, out.published)
		}
		start := out.view.Links["eth0"].Since

		// A burst: nothing changed, so nothing is published, with few readings.
		for range 100 {
			made[0].notify <- struct{}{}
		}
		pass(20 * time.Millisecond)
		if reads > 3 || out.published != 1 {
			t.Errorf("burst: %d readings, %d published", reads, out.published)
		}
		// The subscription fails and cannot be made for a while.
		set(func() { refuse, mtu = errors.New("refused"), 9000 })
		made[0].fail <- errors.New("broken")
		pass(3 * time.Second)
		if out.published != 1 || len(made) != 1 {
			t.Errorf("without a subscription: published %d, made %d", out.published, len(made))
		}
		select {
		case <-made[0].closed:
		default:
			t.Error("the failed subscription is not closed")
		}
		set(func() { refuse = nil })
		pass(backoffMax + time.Second)
		if out.published != 2 || out.view.Links["eth0"].MTU != 9000 || !out.view.Links["eth0"].Since.Equal(start) {
			t.Errorf("after it was made anew: %d, %+v", out.published, out.view.Links)
		}
		// A reading that fails keeps the last state, and the next one is right.
		set(func() { readErr, mtu = errors.New("EMFILE"), 1400 })
		made[len(made)-1].notify <- struct{}{}
		pass(time.Second)
		if out.published != 2 {
			t.Error("a failed reading was published")
		}
		set(func() { readErr = nil })
		pass(backoffMax + time.Second)
		if out.published != 3 {
			t.Errorf("published %d", out.published)
		}
		// A message that never came is made good by the resync.
		set(func() { mtu = 1300 })
		pass(time.Minute)
		if out.published != 4 {
			t.Errorf("resync: published %d", out.published)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
