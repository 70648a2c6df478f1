// Package machines watches the Machines of Cluster API and the MachineLoadBalancers
// of a management cluster, and writes what lbd has to say about them: statuses, the
// end of a held deletion, annotations, and the endpoint of a Cluster.
//
// A Set has the objects. Source and driver are the part of a daemon; Steward is
// that of the controller.
package machines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

// Group is that of Cluster API.
const Group = "cluster.x-k8s.io"

// versions of Cluster API, the one that is preferred first. Which of them an API
// server has may change while it is watched.
var versions = []string{"v1beta2", "v1beta1"}

// lostAfter is how long a watch must have failed for the API to count as lost: one
// that is opened again at once is no news.
const lostAfter = time.Second

// SetOptions are what a Set needs.
type SetOptions struct {
	Client *k8s.Client
	// Namespaces are watched; none: all.
	Namespaces []string
	Rules      *machines.Rules
	// Clusters are watched too.
	Clusters bool
	// Changed is told that something has changed; it must not block.
	Changed func()
	// Balancers is told which of them have, before Changed. May be nil.
	Balancers func([]model.Key)
}

// Set has the objects of a management cluster.
type Set struct {
	o         SetOptions
	machines  many[*machines.Machine]
	clusters  many[*machines.Cluster]
	balancers many[*machines.Balancer]

	mu      sync.Mutex // guards all below
	running context.Context
	targets map[string]*target
	// moved are the clusters that were; true: none of their Machines is left.
	moved map[model.Key]bool
}

// target is a kind that stands for Machines.
type target struct {
	machines many[*machines.Machine]
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// many are the watches of one kind, one for each namespace.
type many[T any] []*k8s.Watch[T]

// all returns the values of all namespaces, in no order.
func (m many[T]) all() []T {
	var out []T
	for _, w := range m {
		out = slices.AppendSeq(out, maps.Values(w.All()))
	}
	return out
}

// get returns the value for an object.
func (m many[T]) get(k model.Key) (T, bool) {
	for _, w := range m {
		if v, ok := w.Get(k); ok {
			return v, true
		}
	}
	var none T
	return none, false
}

func (m many[T]) run(ctx context.Context, wg *sync.WaitGroup) {
	for _, w := range m {
		wg.Go(func() { w.Run(ctx) })
	}
}

// well tells whether all have been read and are being watched. present: and exist.
func (m many[T]) well(now time.Time, present bool) bool {
	return !slices.ContainsFunc(m, func(w *k8s.Watch[T]) bool {
		st := w.State()
		return !w.Synced() || present && st.Absent || !st.Connected && now.Sub(st.Since) >= lostAfter
	})
}

// err returns why one of them is not being watched, nil while all are.
func (m many[T]) err(now time.Time) error {
	for _, w := range m {
		st := w.State()
		if st.Connected || st.Err == nil || now.Sub(st.Since) < lostAfter {
			continue
		}
		if u, ok := errors.AsType[*url.Error](st.Err); ok {
			return fmt.Errorf("%s: %w", w.Name(), u.Err) // the URL differs each time
		}
		return st.Err
	}
	return nil
}

// synced tells whether all have been read.
func (m many[T]) synced() bool {
	return !slices.ContainsFunc(m, func(w *k8s.Watch[T]) bool { return !w.Synced() })
}

// NewSet returns a Set; Run fills it.
func NewSet(o SetOptions) *Set {
	s := &Set{o: o, targets: map[string]*target{}, moved: map[model.Key]bool{}}
	s.machines = newMany(s, Group, versions, "machines", func(obj runtime.Object) (*machines.Machine, bool) {
		m, ok := machine(obj, o.Rules, "", machinePaths)
		if ok && m.Moved() {
			s.note(m.Cluster())
		}
		return m, ok
	}, nil)
	if o.Clusters {
		s.clusters = newMany(s, Group, versions, "clusters", cluster, nil)
	}
	r := objects.Resource(v1alpha1.KindMachineLoadBalancer)
	s.balancers = newMany(s, r.Group, []string{r.Version}, r.Resource, func(obj runtime.Object) (*machines.Balancer, bool) {
		b, ok := balancer(obj)
		if ok && b.Moved {
			s.note(model.Key{Namespace: b.Namespace, Name: b.Spec.ClusterName})
		}
		return b, ok
	}, o.Balancers)
	return s
}

// newMany watches one kind in each namespace. changed is told what has; it may be nil.
func newMany[T any](s *Set, group string, versions []string, resource string, convert func(runtime.Object) (T, bool), changed func([]model.Key)) many[T] {
	namespaces := s.o.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var out many[T]
	for _, ns := range namespaces {
		v := &versioned{client: s.o.Client.Dynamic, group: group, versions: versions, resource: resource, namespace: ns}
		out = append(out, k8s.NewWatch(k8s.WatchOptions[T]{
			Name: resource, ListWatch: v.listWatch(), Object: &unstructured.Unstructured{}, Convert: convert,
			Lacks: func(ctx context.Context) (bool, error) { return s.o.Client.Lacks(ctx, group, versions, resource) },
			Changed: func(keys []model.Key) {
				if changed != nil {
					changed(keys)
				}
				s.o.Changed()
			},
		}))
	}
	return out
}

// versioned reads a resource in the first version that the API server has.
type versioned struct {
	client          dynamic.Interface
	group, resource string
	namespace       string
	versions        []string
}

func (v *versioned) listWatch() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return first(v, func(r dynamic.ResourceInterface) (runtime.Object, error) { return r.List(ctx, o) })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return first(v, func(r dynamic.ResourceInterface) (watch.Interface, error) { return r.Watch(ctx, o) })
		},
	}, v.client)
}

// first calls with one version after the other until the API server knows it.
func first[T any](v *versioned, call func(dynamic.ResourceInterface) (T, error)) (out T, err error) {
	for _, version := range v.versions {
		r := v.client.Resource(schema.GroupVersionResource{Group: v.group, Version: version, Resource: v.resource})
		if out, err = call(r.Namespace(v.namespace)); !apierrors.IsNotFound(err) {
			return out, err
		}
	}
	return out, err
}

// Run watches until ctx ends.
func (s *Set) Run(ctx context.Context) {
	var wg sync.WaitGroup
	s.mu.Lock()
	s.running = ctx
	s.mu.Unlock()
	s.machines.run(ctx, &wg)
	s.clusters.run(ctx, &wg)
	s.balancers.run(ctx, &wg)
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.targets {
		t.stop()
		t.done.Wait()
	}
}

// note keeps in mind that a cluster is being moved to another management cluster:
// its objects end here, and what is behind them does not. A deletion follows so soon
// that only here every state of an object is seen.
func (s *Set) note(cluster model.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved[cluster] = false
}

// Moved tells whether a cluster was moved to another management cluster. none: it has
// no Machines here now; one that has some after it had none was moved back.
func (s *Set) Moved(cluster model.Key, none bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone, moved := s.moved[cluster]
	switch {
	case !moved:
		return false
	case none:
		s.moved[cluster] = true
	case gone:
		delete(s.moved, cluster)
		return false
	}
	return true
}

// Synced tells whether all kinds have been read; one that does not exist counts as
// read and empty.
func (s *Set) Synced() bool {
	return s.machines.synced() && s.clusters.synced() && s.balancers.synced()
}

// Knows tells whether it can be said who drains: Machines exist, have been read and
// are being watched now.
func (s *Set) Knows(now time.Time) bool { return s.machines.well(now, true) }

// NoMachines tells whether the API server has no definition of Machines.
func (s *Set) NoMachines() bool {
	return !slices.ContainsFunc(s.machines, func(w *k8s.Watch[*machines.Machine]) bool { return !w.State().Absent })
}

// Unread returns the balancers in use whose targets have not been read yet: that they
// have no members says nothing. Balancers has the targets watched. It is to be asked
// before Machines, for a target may be read in between.
func (s *Set) Unread(balancers []*machines.Balancer) map[model.Key]bool {
	out := map[model.Key]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range balancers {
		name := b.Target()
		if name == "" || !b.Usable() {
			continue
		}
		if t := s.targets[name]; t == nil || !t.machines.synced() {
			out[b.Key] = true
		}
	}
	return out
}

// Err returns why something has not been watched for a while, nil if all is.
func (s *Set) Err(now time.Time) error {
	err := cmp.Or(s.machines.err(now), s.clusters.err(now), s.balancers.err(now))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.targets)) {
		if err == nil {
			err = s.targets[name].machines.err(now)
		}
	}
	return err
}

// Machines returns all Machines and what stands for some, in no order.
func (s *Set) Machines() []*machines.Machine {
	all := s.machines.all()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.targets {
		all = append(all, t.machines.all()...)
	}
	return all
}

// Cluster returns a Cluster, nil if it does not exist.
func (s *Set) Cluster(k model.Key) *machines.Cluster {
	c, _ := s.clusters.get(k)
	return c
}

// Balancer returns a balancer, nil if it does not exist.
func (s *Set) Balancer(k model.Key) *machines.Balancer {
	b, _ := s.balancers.get(k)
	return b
}

// Balancers returns all balancers, sorted, and watches the kinds that they speak of.
func (s *Set) Balancers() []*machines.Balancer {
	all := s.balancers.all()
	slices.SortFunc(all, func(a, b *machines.Balancer) int { return a.Compare(b.Key) })
	s.watchTargets(all)
	return all
}

// watchTargets watches the kinds that stand for Machines, and no others.
func (s *Set) watchTargets(all []*machines.Balancer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil || s.running.Err() != nil {
		return
	}
	wanted := map[string]bool{}
	for _, b := range all {
		t := b.Spec.TargetKind
		if t == nil || !b.Usable() {
			continue
		}
		at := pathsOf(t)
		name := b.Target()
		// Two that look into one kind in two ways: the first, by name, counts.
		wanted[name] = true
		if s.targets[name] != nil {
			continue
		}
		x := &target{machines: newMany(s, t.Group, []string{t.Version}, t.ResourceName(), func(obj runtime.Object) (*machines.Machine, bool) {
			return machine(obj, s.o.Rules, name, at)
		}, nil)}
		ctx, stop := context.WithCancel(s.running)
		x.stop = stop
		x.machines.run(ctx, &x.done)
		s.targets[name] = x
	}
	for name, t := range s.targets {
		if !wanted[name] {
			t.stop()
			delete(s.targets, name)
		}
	}
}
