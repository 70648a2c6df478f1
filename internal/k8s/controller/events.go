package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s/lease"
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
	queue chan *corev1.Event
	host  string // that says so, for metrics and events

	mu            sync.Mutex // guards both
	sent, dropped uint64
	last          time.Time
}

func newEvents(core rest.Interface, host string) *events {
	return &events{core: core, host: host, queue: make(chan *corev1.Event, eventQueue)}
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

func (e *events) deliver(ctx context.Context, x *corev1.Event) bool {
	body, err := json.Marshal(x)
	if err != nil {
		return false
	}
	for try := range eventTries {
		limited, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
		err := e.core.Post().Namespace(x.Namespace).Resource("events").SetHeader("Content-Type", runtime.ContentTypeJSON).
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
	ref := corev1.ObjectReference{Kind: x.Kind, Name: x.Object, UID: types.UID(x.UID), APIVersion: v1alpha1.APIVersion}
	namespace := metav1.NamespaceDefault // where events about objects of the cluster are
	if x.Kind == "Service" {
		ref.APIVersion = "v1"
	}
	if x.Kind == "Service" || x.Kind == v1alpha1.KindMachineLoadBalancer {
		ref.Namespace, ref.Name, _ = strings.Cut(x.Object, "/")
		namespace = ref.Namespace
	}
	kind := corev1.EventTypeNormal
	if x.Warning {
		kind = corev1.EventTypeWarning
	}
	now := e.moment()
	select {
	case e.queue <- &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", ref.Name, now.UnixNano())},
		InvolvedObject: ref, Reason: x.Reason, Message: x.Message[:min(len(x.Message), eventMessage)], Type: kind, Count: 1,
		Source: corev1.EventSource{Component: Manager}, ReportingController: Manager, ReportingInstance: e.host,
		FirstTimestamp: metav1.Time{Time: now}, LastTimestamp: metav1.Time{Time: now},
	}:
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
