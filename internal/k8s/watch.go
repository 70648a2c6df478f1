package k8s

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"lbd.dev/lbd/internal/model"
)

// How long a watch waits before it tries again after an error: the first time and
// at most. Up to as much again is added by chance, so that the nodes do not come
// at once. The first watch of the process that succeeds after an outage has all
// others try at once. client-go's own bound, a minute, is long for somebody who
// waits for an address after an outage.
const (
	RetryFirst = 250 * time.Millisecond
	RetryMost  = 5 * time.Second
)

// WatchOptions are what a Watch needs.
type WatchOptions[T any] struct {
	// Name is that of the resource: "services".
	Name string
	// ListWatch reads the objects.
	ListWatch cache.ListerWatcher
	// Object is an empty object of the type that ListWatch yields.
	Object runtime.Object
	// Convert makes of an object what is kept; nothing else of the object stays in
	// memory. It must not keep a reference to it. False: the object is of no interest.
	Convert func(obj runtime.Object) (T, bool)
	// Same tells whether two values mean the same, so that the change between them
	// is none; nil: those that are deeply equal do.
	Same func(a, b T) bool
	// Changed is told what was added, changed or removed, and once, with nothing, when
	// the first full state was told and the watch is Synced. It is so once more when a guess is
	// known, and when what is known has become a guess. It is called in the goroutine of Run and must not
	// block for long. May be nil.
	Changed func([]model.Key)
	// Lacks asks whether the API server does without the kind, see Client.Lacks. It is
	// asked when the kind is not found; a watch of a kind that is lacking counts as
	// synced and connected, and asks again now and then. What was known goes only after
	// the kind was lacking for AbsentAfter. nil: the kind must exist.
	Lacks func(context.Context) (bool, error)
	// Optional: a kind that may not be read for ForbiddenAfter counts as lacking until it may.
	// It is for kinds that the roles of an earlier version do not name.
	Optional bool
}

// Watch keeps a value for each object of one resource. After an error it keeps what
// it has, for as long as the error lasts, and then catches up without a gap.
type Watch[T any] struct {
	o        WatchOptions[T]
	patience time.Duration // AbsentAfter, but for tests

	mu     sync.RWMutex // guards all below
	items  map[model.Key]T
	synced bool
	state  WatchState
	bell   <-chan struct{} // closed once another watch works again
}

// WatchState tells how a Watch is doing.
type WatchState struct {
	// Connected: objects are being watched.
	Connected bool
	// Absent: the API server does not know the kind, or does not let us read one that is
	// Optional.
	Absent bool
	// Guessed: the kind counts as empty only since it may not be read, and never was since it is there.
	Guessed bool
	// Since is when Connected last changed; zero before the first result.
	Since time.Time
	// Err is why it is not connected, or was last not; nil if it always was.
	Err error
}

// NewWatch returns a Watch; Run fills it.
func NewWatch[T any](o WatchOptions[T]) *Watch[T] {
	if o.Same == nil {
		o.Same = func(a, b T) bool { return reflect.DeepEqual(a, b) }
	}
	if o.Changed == nil {
		o.Changed = func([]model.Key) {}
	}
	return &Watch[T]{o: o, patience: AbsentAfter, items: make(map[model.Key]T)}
}

// ListWatch reads the objects of a resource.
func ListWatch(client dynamic.Interface, r dynamic.ResourceInterface) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return r.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return r.Watch(ctx, o) },
	}, client)
}

// Name returns that of the resource.
func (w *Watch[T]) Name() string { return w.o.Name }

// Synced tells whether a first full state has been read.
func (w *Watch[T]) Synced() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.synced
}

// State tells how the watch is doing.
func (w *Watch[T]) State() WatchState {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.state
}

// Known tells whether what All has is what there is. It is not where there is nothing only since the kind is
// lacking or may not be read, or since the API server is away.
func (w *Watch[T]) Known() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.synced && !w.state.Absent && !w.state.Guessed && (w.state.Connected || len(w.items) > 0)
}

// Get returns the value for an object.
func (w *Watch[T]) Get(k model.Key) (T, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	v, ok := w.items[k]
	return v, ok
}

// All returns the values of all objects.
func (w *Watch[T]) All() map[model.Key]T {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return maps.Clone(w.items)
}

// Run watches until ctx ends.
func (w *Watch[T]) Run(ctx context.Context) {
	r := cache.NewReflectorWithOptions(&attentive[T]{w.o.ListWatch, w}, w.o.Object, (*store[T])(w), cache.ReflectorOptions{Name: w.o.Name})
	wait := RetryFirst
	var said verdict
	for ctx.Err() == nil {
		began := time.Now()
		w.listen() // before the attempt: it may fail for what is over when it has failed
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the watch ended")
		}
		w.failed(err)
		w.confirm(ctx, err, &said)
		if time.Since(began) > RetryMost {
			wait = RetryFirst
			w.listen() // what rang long ago says nothing about this failure
		}
		pause := wait + rand.N(wait)
		wait = min(2*wait, RetryMost)
		if said.is == forbidden && !w.Synced() {
			pause = min(pause, max(0, ForbiddenAfter-time.Since(said.since)))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-w.rung():
		}
	}
}

// listen has rung tell of what works again from now on.
func (w *Watch[T]) listen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bell = back.wait()
}

// rung is closed once another watch works again, or did since listen.
func (w *Watch[T]) rung() <-chan struct{} {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.bell
}

// back tells the watches of the process that one of them works again.
var back = &bell{ch: make(chan struct{})}

// bell wakes all that wait.
type bell struct {
	mu sync.Mutex // guards ch
	ch chan struct{}
}

func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}

// ring returns what the next ring closes.
func (b *bell) ring() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ch)
	b.ch = make(chan struct{})
	return b.ch
}

// failed notes why nothing is being watched. What is known stays.
func (w *Watch[T]) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.state.Absent || !apierrors.IsNotFound(err) && !w.forbidden(err) {
		w.set(false, false, fmt.Errorf("%s: %w", w.o.Name, err))
	}
}

// set changes the state; the caller holds the lock.
func (w *Watch[T]) set(connected, absent bool, err error) {
	if w.state.Connected != connected || w.state.Since.IsZero() {
		w.state.Since = time.Now()
		if connected && w.state.Err != nil {
			w.bell = back.ring() // its own ring is no news to it
		}
	}
	w.state.Connected, w.state.Absent = connected, absent
	if err != nil {
		w.state.Err = err
	}
}

// attentive is a ListerWatcher that notes at once when a watch cannot be opened,
// and keeps the reflector from retrying by itself, which it does ever more rarely.
type attentive[T any] struct {
	cache.ListerWatcher
	w *Watch[T]
}

// opaque is an error that the reflector cannot look into, but we can.
type opaque struct{ err error }

func (e opaque) Error() string { return e.err.Error() }

func (a *attentive[T]) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return a.WatchWithContext(context.Background(), o)
}

func (a *attentive[T]) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	i, err := cache.ToWatcherWithContext(a.ListerWatcher).WatchWithContext(ctx, o)
	if err != nil {
		if ctx.Err() == nil {
			a.w.failed(err)
		}
		return nil, hide(err)
	}
	a.w.mu.Lock()
	// With SendInitialEvents the objects are still to come.
	if a.w.synced && o.SendInitialEvents == nil {
		a.w.set(true, false, nil)
	}
	a.w.mu.Unlock()
	return i, nil
}

func (a *attentive[T]) List(o metav1.ListOptions) (runtime.Object, error) {
	return a.ListWithContext(context.Background(), o)
}

func (a *attentive[T]) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return cache.ToListerWithContext(a.ListerWatcher).ListWithContext(ctx, o)
}

// IsWatchListSemanticsUnSupported passes on whether the client is one of tests that
// cannot stream a list.
func (a *attentive[T]) IsWatchListSemanticsUnSupported() bool {
	u, ok := a.ListerWatcher.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && u.IsWatchListSemanticsUnSupported()
}

// hide wraps those errors after which the reflector would wait for up to a minute.
func hide(err error) error {
	if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		return opaque{err}
	}
	if apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) {
		return opaque{err}
	}
	return err
}

// store is the side of a Watch that the reflector writes to.
type store[T any] Watch[T]

// held is a value on its way from a streamed list into the store.
type held[T any] struct {
	metav1.ObjectMeta
	value T
	keep  bool
}

// Transformer has a streamed list converted while it arrives, so that it is never
// in memory as a whole.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if _, done := obj.(*held[T]); done {
			return obj, nil
		}
		return s.hold(obj)
	}
}

func (s *store[T]) hold(obj any) (*held[T], error) {
	if h, done := obj.(*held[T]); done {
		return h, nil
	}
	o, ok := obj.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("%s: %T is no object", s.o.Name, obj)
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.o.Name, err)
	}
	h := &held[T]{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), ResourceVersion: m.GetResourceVersion()}}
	h.value, h.keep = s.o.Convert(o)
	return h, nil
}

func (s *store[T]) Add(obj any) error {
	h, err := s.hold(obj)
	if err != nil {
		return err
	}
	k := model.Key{Namespace: h.Namespace, Name: h.Name}
	s.mu.Lock()
	changed := s.put(k, h)
	s.mu.Unlock()
	if changed {
		s.o.Changed([]model.Key{k})
	}
	return nil
}

// put stores or removes one value and tells whether that is news; the caller holds
// the lock.
func (s *store[T]) put(k model.Key, h *held[T]) bool {
	old, had := s.items[k]
	if !h.keep {
		delete(s.items, k)
		return had
	}
	s.items[k] = h.value
	return !had || !s.o.Same(old, h.value)
}

func (s *store[T]) Update(obj any) error { return s.Add(obj) }

func (s *store[T]) Delete(obj any) error {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("%s: %w", s.o.Name, err)
	}
	k := model.Key{Namespace: m.GetNamespace(), Name: m.GetName()}
	s.mu.Lock()
	_, had := s.items[k]
	delete(s.items, k)
	s.mu.Unlock()
	if had {
		s.o.Changed([]model.Key{k})
	}
	return nil
}

// Replace takes a full state over. What has not changed is no news. The first state
// counts as read once all of it was told, and that is told too: who has heard of nothing
// more may not take half of it for the whole.
func (s *store[T]) Replace(list []any, _ string) error {
	var keys []model.Key
	s.mu.Lock()
	gone := maps.Clone(s.items)
	for _, obj := range list {
		h, err := s.hold(obj)
		if err != nil {
			s.mu.Unlock()
			return err
		}
		k := model.Key{Namespace: h.Namespace, Name: h.Name}
		if s.put(k, h) {
			keys = append(keys, k)
		}
		delete(gone, k)
	}
	for k := range gone {
		delete(s.items, k)
		keys = append(keys, k)
	}
	first, guessed := !s.synced, s.state.Guessed
	(*Watch[T])(s).set(true, false, nil)
	s.state.Guessed = false
	s.mu.Unlock()
	if len(keys) > 0 {
		s.o.Changed(keys)
	}
	if first || guessed {
		s.mu.Lock()
		s.synced = true
		s.mu.Unlock()
		s.o.Changed(nil)
	}
	return nil
}

func (s *store[T]) Resync() error { return nil }
