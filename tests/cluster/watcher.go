package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// Watcher watches what Write writes, by one connection for as long as it lasts, and
// by the next when it has ended, as `kubectl get --watch` in a loop.
type Watcher struct {
	mu     sync.Mutex
	events []measure.Time
	ends   []WatchEnd
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// WatchEnd is when and why a watch ended; an empty Err is an end in order.
type WatchEnd struct {
	At  measure.Time
	Err string
}

// Watch starts to watch through the VIP: from the client with Config, from a node with
// ConfigOn.
func (c *Cluster) Watch(ctx context.Context, config *rest.Config) (*Watcher, error) {
	client, end, err := freshClient(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := &Watcher{stop: stop}
	w.done.Go(func() {
		defer end()
		for ctx.Err() == nil {
			stream, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
			if err != nil {
				w.ended(ctx, err)
				lab.Pause(ctx, 100*time.Millisecond)
				continue
			}
			for range stream.ResultChan() {
				w.event()
			}
			w.ended(ctx, nil)
		}
	})
	return w, nil
}

func (w *Watcher) event() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, measure.Now())
}

func (w *Watcher) ended(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // by Stop
	}
	e := WatchEnd{At: measure.Now()}
	if err != nil {
		e.Err = measure.Cause(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = append(w.ends, e)
}

// LongestSilence is the longest time in [from, to) without an event. It means something
// while Write writes.
func (w *Watcher) LongestSilence(from, to measure.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return longestGap(w.events, from, to)
}

// Ends are the ends of watches, failed attempts to begin one included.
func (w *Watcher) Ends() []WatchEnd {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ends)
}

// Stop ends it.
func (w *Watcher) Stop() {
	w.stop()
	w.done.Wait()
}

func sorted(t []measure.Time) []measure.Time {
	t = slices.Clone(t)
	slices.Sort(t)
	return t
}

// String is for messages of tests.
func (e WatchEnd) String() string {
	return fmt.Sprintf("%v %s", time.Duration(e.At).Round(time.Millisecond), e.Err)
}
