package objects

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/wake"
)

const (
	// eventQueue is how many events wait at most; more are dropped.
	eventQueue = 2000
	// eventTries is how often one is sent before it is dropped.
	eventTries = 3
	// eventMessage bounds the message: the API server refuses longer ones.
	eventMessage = 1024
)

// Recorder sends events in the background. They are made on change only, so nothing
// has to be joined, and client-go's recorder, which would do that, brings the
// description of the whole API along. What cannot be sent is dropped and counted:
// nobody waits for an event.
type Recorder struct {
	core          rest.Interface
	queue         chan *unstructured.Unstructured
	manager, host string // that say so

	mu            sync.Mutex // guards both
	sent, dropped uint64
	last          time.Time
}

// NewRecorder returns a Recorder of the program manager on host; Run sends.
func NewRecorder(core rest.Interface, manager, host string) *Recorder {
	return &Recorder{core: core, queue: make(chan *unstructured.Unstructured, eventQueue), manager: manager, host: host}
}

// Run sends until ctx ends.
func (e *Recorder) Run(ctx context.Context) {
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

func (e *Recorder) deliver(ctx context.Context, x *unstructured.Unstructured) bool {
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
		wake.Sleep(ctx, time.Second<<try)
	}
	return false
}

// Send queues one event. Its Manager and Host are those of the Recorder.
func (e *Recorder) Send(x Event) {
	x.Message, x.Manager, x.Host = x.Message[:min(len(x.Message), eventMessage)], e.manager, e.host
	select {
	case e.queue <- x.Object(e.moment()):
	default:
		e.mu.Lock()
		e.dropped++
		e.mu.Unlock()
	}
}

// moment is the time, each one once: names are made of it.
func (e *Recorder) moment() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if !now.After(e.last) {
		now = e.last.Add(1)
	}
	e.last = now
	return now
}

// Counts returns how many events were sent, and how many dropped.
func (e *Recorder) Counts() (sent, dropped uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent, e.dropped
}
