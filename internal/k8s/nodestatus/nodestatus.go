// Package nodestatus keeps the NodeStatus object of one node in a cluster.
//
// The object is written on change only. A first change is written at once, further
// ones are collected; an address or a session that moves is written sooner than
// others, but not for ever: what flaps is paced like the rest. Without the API
// server nothing is queued: the newest is written when it is back.
package nodestatus

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
)

// Manager names this writer among those of one object.
const Manager = "lbd-speaker"

// How the writer takes its time.
const (
	// Look is how often it is looked for changes.
	Look = 500 * time.Millisecond
	// Pace is the time between two writes.
	Pace = 5 * time.Second
	// Soon replaces Pace for what has moved, Sooner times in a row; each time comes
	// back after 2 * Pace.
	Soon   = time.Second
	Sooner = 3
	// Slow replaces Pace where only words of errors are others.
	Slow = time.Minute
	// After a failure it is tried again after RetryFirst, doubling to RetryMost, and
	// up to as much again by chance.
	RetryFirst = time.Second
	RetryMost  = 30 * time.Second
	// Timeout bounds one write, and Farewell the last.
	Timeout  = 10 * time.Second
	Farewell = time.Second
)

// Options are what a Writer needs.
type Options struct {
	Logger *slog.Logger
	// Client sends the requests.
	Client dynamic.Interface
	// Status tells what is to be written, with Summary, and whether it is known yet.
	// What it returns is not changed.
	Status func() (v1alpha1.NodeStatus, bool)
	// VIPs are those of the newest decision, all of them, while a status names some. What it
	// returns is not changed, and is the same list for as long as the VIPs are the same.
	VIPs func() []model.VIPStatus
}

// Writer writes one object.
type Writer struct {
	o Options

	written  *v1alpha1.NodeStatus // nil: nothing was
	at       time.Time            // of the last write
	sooner   int                  // times that are left
	earned   time.Time            // when the last of them came back
	wait     time.Duration        // after a failure; 0: there is none
	retry    time.Time
	told     bool // the failure was logged
	assigned assignments

	mu    sync.Mutex // guards stats
	stats Stats
}

// Stats count writes.
type Stats struct{ OK, Failed uint64 }

// New returns a Writer; Run runs it.
func New(o Options) *Writer {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Writer{o: o, sooner: Sooner, assigned: assignments{tokens: assignedBurst}}
}

// Stats returns the counts until now.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Run writes until ctx ends, and then once more what is not written yet.
func (w *Writer) Run(ctx context.Context) {
	look := time.NewTicker(Look)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			if s, ok := w.status(); ok && w.wait == 0 && w.written != nil && compare(w.written, &s) != none {
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), Farewell)
				defer cancel()
				w.write(last, s)
			}
			return
		case <-look.C:
			s, ok := w.status()
			if ok && w.due(&s, time.Now()) {
				w.write(ctx, s)
			}
			if ok && w.written != nil && w.wait == 0 { // else the API server does not take it
				w.tellAssigned(ctx, &s)
			}
		}
	}
}

func (w *Writer) status() (v1alpha1.NodeStatus, bool) {
	s, ok := w.o.Status()
	if !ok || s.Summary == nil || s.Node == "" {
		return s, false
	}
	return trim(s), true
}

// due tells whether a status is to be written now.
func (w *Writer) due(s *v1alpha1.NodeStatus, now time.Time) bool {
	if w.wait > 0 {
		return !now.Before(w.retry)
	}
	if w.written == nil {
		return true
	}
	for w.sooner < Sooner && now.Sub(w.earned) >= 2*Pace {
		w.sooner++
		w.earned = w.earned.Add(2 * Pace)
	}
	since := now.Sub(w.at)
	switch compare(w.written, s) {
	case none:
		w.written.VIPs = s.VIPs // the same list next time is the same at a glance
		return false
	case words:
		return since >= Slow
	case usual:
		return since >= Pace
	}
	if since >= Pace {
		return true
	}
	if since < Soon || w.sooner == 0 {
		return false
	}
	if w.sooner == Sooner {
		w.earned = now
	}
	w.sooner--
	return true
}

func (w *Writer) write(ctx context.Context, s v1alpha1.NodeStatus) {
	err := w.send(ctx, s)
	now := time.Now()
	w.mu.Lock()
	if err == nil {
		w.stats.OK++
	} else {
		w.stats.Failed++
	}
	w.mu.Unlock()
	if err == nil {
		if w.told {
			w.o.Logger.Info("the status of the node is written again")
		}
		before := w.written
		w.written, w.at, w.wait, w.told = &s, now, 0, false
		w.tellDuplicates(ctx, before, &s)
		return
	}
	w.wait = min(max(2*w.wait, RetryFirst), RetryMost)
	w.retry = now.Add(w.wait + rand.N(w.wait))
	// That the API server is away is said elsewhere; that it refuses is said here.
	if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || ctx.Err() != nil {
		w.o.Logger.Debug("status of the node", "err", err)
		return
	}
	if !w.told {
		w.told = true
		w.o.Logger.Warn("the status of the node is not written; it is tried again", "err", err)
	}
}

// send applies the object: one that is not there is made, and fields that are gone
// are removed.
func (w *Writer) send(ctx context.Context, s v1alpha1.NodeStatus) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("NodeStatus %q: %w", s.Node, err)
	}
	_, err = w.o.Client.Resource(objects.Resource(v1alpha1.NodeStatusKind)).Patch(ctx, s.Node, types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: Manager, Force: new(true)})
	if err != nil {
		return fmt.Errorf("NodeStatus %q: %w", s.Node, err)
	}
	return nil
}
