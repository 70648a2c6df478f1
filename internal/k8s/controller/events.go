package controller

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
)

const (
	// eventQueue is how many events wait at most; more are dropped.
	eventQueue = 2000
	// eventTries is how often one is sent before it is dropped.
	eventTries = 3
	// eventMessage bounds the message: the API server refuses longer ones.
	eventMessage = 1024
)

// events sends events in the background. They are made on change only, so nothing
// has to be joined, and client-go's recorder, which would do that, brings the
// description of the whole API along. What cannot be sent is dropped and counted:
// nobody waits for an event.
type events struct {
	core  rest.Interface
	queue chan *unstructured.Unstructured
	host  string // that says so, for metrics and events

	mu            sync.Mutex // guards both
	sent, dropped uint64
	last          time.Time
}

func newEvents(core rest.Interface, host string) *events {
	return &events{core: core, host: host, queue: make(chan *unstructured.Unstructured, eventQueue)}
}

// run sends until ctx ends.
func (e *events) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-e.queue:
			ok := e.deliver(ctx, x)
			e.mu.Lock()
			if ok {
				e.sent++
			} else {
				e.dropped++
			}
			e.mu.Unlock()
		}
	}
}

func (e *events) deliver(ctx context.Context, x *unstructured.Unstructured) bool {
	body, err := json.Marshal(x)
	if err != nil {
		return false
	}
	for try := range eventTries {
		limited, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
		err := e.core.Post().Namespace(x.GetNamespace()).Resource("events").SetHeader("Content-Type", runtime.ContentTypeJSON).
			Body(body).Do(limited).Error()
		cancel()
		switch {
		case err == nil, apierrors.IsAlreadyExists(err): // an answer was lost
			return true
		case ctx.Err() != nil, apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err):
			return false // a namespace that ends takes no more
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second << try):
		}
	}
	return false
}

// send queues one event.
func (e *events) send(x allocator.Event) {
	of := corev1.ObjectReference{Kind: x.Kind, Namespace: x.Object.Namespace, Name: x.Object.Name, UID: types.UID(x.UID), APIVersion: v1alpha1.APIVersion}
	if x.Kind == "Service" {
		of.APIVersion = "v1"
	}
	event := objects.Event{
		Of: of, Reason: x.Reason, Message: x.Message[:min(len(x.Message), eventMessage)], Warning: x.Warning, Manager: Manager, Host: e.host,
	}
	select {
	case e.queue <- event.Object(e.moment()):
	default:
		e.mu.Lock()
		e.dropped++
		e.mu.Unlock()
	}
}

// moment is the time, each one once: names are made of it.
func (e *events) moment() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if !now.After(e.last) {
		now = e.last.Add(1)
	}
	e.last = now
	return now
}

func (e *events) counts() (sent, dropped uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent, e.dropped
}
