package machines

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

// annotatePause is the time between two writes of the annotations of one Machine.
const annotatePause = time.Second

// StewardOptions are what a Steward needs.
type StewardOptions struct {
	Logger *slog.Logger
	Client *k8s.Client
	// Manager and Host name the writer, and the process that it is.
	Manager, Host string
	// Rules have the bound of hooks.
	Rules machines.Rules
	// Changed is told that balancers or Clusters have changed. It must not block.
	Changed func()
	// Balancers is told which of them have changed, whoever leads. It must not block.
	Balancers func([]model.Key)
	// Pooled tells whether an address is given out by pools, so that a balancer has
	// to be given it too.
	Pooled func(netip.Addr) bool
	// Leads tells whether this process may write at this moment.
	Leads func() bool
}

// Steward is the part of the controller: it publishes the endpoints of balancers,
// tells Clusters, lists members while no daemon reports about them, and sees to it
// that no deletion is held for ever.
type Steward struct {
	o    StewardOptions
	set  *Set
	w    writer
	kick chan struct{}
	pace

	mu       sync.Mutex // guards both
	problems map[model.Key]string
	writes   map[string]uint64
}

// NewSteward returns a Steward; Watch and Run run it.
func NewSteward(o StewardOptions) *Steward {
	s := &Steward{o: o, kick: make(chan struct{}, 1), problems: map[model.Key]string{}, writes: map[string]uint64{},
		w: writer{client: o.Client.Dynamic, manager: o.Manager, host: o.Host}}
	s.set = NewSet(SetOptions{Client: o.Client, Rules: &s.o.Rules, Clusters: true, Balancers: o.Balancers, Changed: func() {
		wake.Up(s.kick)
		o.Changed()
	}})
	return s
}

// Addrs are the addresses that a balancer has by its status.
func (s *Steward) Addrs(k model.Key) []netip.Addr {
	if b := s.set.Balancer(k); b != nil {
		return b.Addrs()
	}
	return nil
}

// Watch watches until ctx ends, whoever leads.
func (s *Steward) Watch(ctx context.Context) { s.set.Run(ctx) }

// Synced tells whether all objects have been read.
func (s *Steward) Synced() bool { return s.set.Synced() }

// Wake has the Steward look again.
func (s *Steward) Wake() { wake.Up(s.kick) }

// Writes counts what was sent, by what it was, as Source.Writes does.
func (s *Steward) Writes() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.writes)
}

// Claim is a balancer that needs an address of a pool.
type Claim struct {
	*machines.Balancer
	// Request is what it asks pools for, Given what it has of that. What it names, and no pool
	// has, it takes by itself.
	Request machines.Request
	Given   []netip.Addr
}

// Claims returns the balancers that are to have an address of a pool.
func (s *Steward) Claims() []Claim { return s.claims(s.set.Balancers()) }

func (s *Steward) claims(all []*machines.Balancer) []Claim {
	var out []Claim
	for _, b := range all {
		if r := b.Request(s.cluster(b)); b.Usable() && !s.unpooled(r) {
			out = append(out, s.claim(b, r))
		}
	}
	return out
}

// claim leaves out what the balancer takes by itself.
func (s *Steward) claim(b *machines.Balancer, r machines.Request) Claim {
	own := func(addr netip.Addr) bool { return slices.Contains(r.Fixed, addr) && !s.o.Pooled(addr) }
	x := Claim{b, r, slices.DeleteFunc(b.Addrs(), own)}
	x.Request.Fixed = slices.DeleteFunc(slices.Clone(r.Fixed), own)
	return x
}

// unpooled tells whether no pool has any of the addresses that are asked for, so that
// the balancer takes them by itself.
func (s *Steward) unpooled(r machines.Request) bool {
	return len(r.Fixed) > 0 && !slices.ContainsFunc(r.Fixed, s.o.Pooled)
}

// Read reads the balancers from the API server's store, and not from what was
// watched: what a leader before has just written must not be missing.
func (s *Steward) Read(ctx context.Context) ([]Claim, error) {
	var all []*machines.Balancer
	r := s.o.Client.Dynamic.Resource(objects.Resource(v1alpha1.KindMachineLoadBalancer))
	for next := ""; ; {
		list, err := r.List(ctx, metav1.ListOptions{Limit: 500, Continue: next})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("machineloadbalancers: %w", err)
		}
		for i := range list.Items {
			if b, ok := balancer(&list.Items[i]); ok {
				all = append(all, b)
			}
		}
		if next = list.GetContinue(); next == "" {
			return s.claims(all), nil
		}
	}
}

func (s *Steward) cluster(b *machines.Balancer) *machines.Cluster {
	if k, ok := b.ClusterKey(); ok {
		return s.set.Cluster(k)
	}
	return nil
}

// Assign writes the addresses that a balancer has from pools, or that it has none,
// and returns what the balancer is then. uid and version are those of the object that
// it was decided about.
func (s *Steward) Assign(ctx context.Context, k model.Key, uid, version string, addrs []netip.Addr, pool string) (Claim, error) {
	var next machines.Balancer
	next.SetAddrs(s.beside(k, addrs))
	status := map[string]any{"address": nil, "addresses": nil, "addressPool": nil}
	if x := &next.Status; x.Address != "" {
		status = map[string]any{"address": x.Address, "addresses": x.Addresses, "addressPool": pool}
	}
	u, err := s.w.patch(ctx, objects.Resource(v1alpha1.KindMachineLoadBalancer), k, map[string]any{
		"metadata": map[string]any{"uid": uid, "resourceVersion": version}, "status": status,
	}, "status")
	s.done("status", err)
	if err != nil {
		return Claim{}, fmt.Errorf("status of MachineLoadBalancer %s: %w", k, err)
	}
	b, _ := balancer(u)
	return s.claim(b, b.Request(s.cluster(b))), nil
}

// beside are addresses from pools with those that the balancer has taken by itself, in the order
// in which it names them.
func (s *Steward) beside(k model.Key, addrs []netip.Addr) []netip.Addr {
	b := s.set.Balancer(k)
	if b == nil || len(addrs) == 0 {
		return addrs
	}
	var out []netip.Addr
	for _, addr := range b.Request(s.cluster(b)).Fixed {
		if slices.Contains(addrs, addr) || !s.o.Pooled(addr) && slices.Contains(b.Addrs(), addr) {
			out = append(out, addr)
		}
	}
	return union(out, addrs)
}

// SetProblem notes why a balancer gets no address; "": it does.
func (s *Steward) SetProblem(k model.Key, text string) {
	s.mu.Lock()
	changed := s.problems[k] != text
	if text == "" {
		delete(s.problems, k)
	} else {
		s.problems[k] = text
	}
	s.mu.Unlock()
	if changed {
		wake.Up(s.kick)
	}
}

// Run writes after each change until ctx ends.
func (s *Steward) Run(ctx context.Context) { turns(ctx, s.kick, s.turn) }

// turn writes what is to be written, and returns when to look again.
func (s *Steward) turn(ctx context.Context, now time.Time) (next time.Time) {
	if !s.set.Synced() {
		return now.Add(lookEvery)
	}
	balancers := s.set.Balancers()
	unread := s.set.Unread(balancers)
	all := s.set.Machines()
	taken := s.fixed(balancers)
	if len(unread) > 0 {
		next = model.Earliest(next, now.Add(lookEvery))
	}
	s.release(ctx, all, balancers, now, &next) // first: a deletion waits
	for _, m := range machines.Unregistered(all, balancers) {
		if s.o.Leads() && s.may("hook of "+m.UID, hookPause, now, &next) {
			s.failed("hook", s.w.register(ctx, m), "hook of "+m.UID, now, &next)
		}
	}
	for _, b := range balancers {
		if s.o.Leads() && ctx.Err() == nil {
			s.balancer(ctx, b, round{all, unread, taken, vipsOf(balancers), now, &next})
		}
	}
	s.annotate(ctx, all, balancers, now, &next)
	return next
}

// release ends the holds whose bound is over.
func (s *Steward) release(ctx context.Context, all []*machines.Machine, balancers []*machines.Balancer, now time.Time, next *time.Time) {
	out, again := s.o.Rules.Releases(all, balancers, now)
	*next = model.Earliest(*next, again)
	for _, x := range out {
		if s.o.Leads() && s.may(x.Machine.UID, hookPause, now, next) {
			if s.failed("hook", s.w.release(ctx, x), x.Machine.UID, now, next) {
				continue
			}
			s.o.Logger.Info("a held deletion goes on", "machine", x.Machine.String(), "reason", x.Reason, "detail", x.Detail)
		}
	}
}

// fixed are the addresses that no pool has and that a balancer names itself, each
// with the balancer that has it already, else the oldest that does.
func (s *Steward) fixed(all []*machines.Balancer) map[netip.Addr]*machines.Balancer {
	taken := map[netip.Addr]*machines.Balancer{}
	for _, b := range all {
		if !b.Usable() {
			continue
		}
		for _, addr := range b.Request(s.cluster(b)).Fixed {
			if o := taken[addr]; !s.o.Pooled(addr) && (o == nil || before(b, o, addr)) {
				taken[addr] = b
			}
		}
	}
	return taken
}

// before tells whether a has more of a right to an address than b: one that is in use
// is not taken away.
func before(a, b *machines.Balancer, addr netip.Addr) bool {
	if has := slices.Contains(a.Addrs(), addr); has != slices.Contains(b.Addrs(), addr) {
		return has
	}
	return cmp.Or(a.Created.Compare(b.Created), a.Compare(b.Key)) < 0
}

// others are the conditions without some: what is not of this process stays.
func others(all []v1alpha1.Condition, own ...v1alpha1.Condition) []v1alpha1.Condition {
	rest := slices.DeleteFunc(slices.Clone(all), func(c v1alpha1.Condition) bool {
		return slices.ContainsFunc(own, func(o v1alpha1.Condition) bool { return o.Type == c.Type })
	})
	return append(own, rest...)
}

// round is what one turn goes by.
type round struct {
	all    []*machines.Machine
	unread map[model.Key]bool // balancers whose members are not known yet
	taken  map[netip.Addr]*machines.Balancer
	avoid  []netip.Addr // of all balancers
	now    time.Time
	next   *time.Time
}

// free are the addresses that a balancer has from pools, and of those that it names itself, and no
// pool has, the ones that no other balancer has more of a right to; none without the first, which
// Cluster API would be told. problem says which is not free.
func (r *round) free(b *machines.Balancer, named, given []netip.Addr) (addrs []netip.Addr, problem string) {
	for _, addr := range named {
		o := r.taken[addr]
		switch {
		case slices.Contains(given, addr), o != nil && o.Key == b.Key:
			addrs = append(addrs, addr)
		case o != nil:
			problem = fmt.Sprintf("%s is that of MachineLoadBalancer %s", addr, o.Key)
		}
	}
	if !slices.Contains(addrs, named[0]) && len(given) == 0 {
		return nil, problem
	}
	return union(addrs, given), problem
}

// union are the addresses of both, each once.
func union(a, b []netip.Addr) []netip.Addr {
	for _, addr := range b {
		if !slices.Contains(a, addr) {
			a = append(a, addr)
		}
	}
	return a
}

// balancer writes the status of one balancer, and tells its Cluster.
func (s *Steward) balancer(ctx context.Context, b *machines.Balancer, r round) {
	members := b.Members(r.all)
	work := *b
	work.Status.ObservedGeneration = b.Generation
	if !b.Usable() {
		accepted := b.Acceptance(members, r.avoid)
		accepted.ObservedGeneration = b.Generation
		// What somebody else provides is theirs to tell.
		work.Status.Conditions = others(b.Status.Conditions, accepted)
		s.write(ctx, b, work.Status, r.now, r.next)
		return
	}
	c := s.cluster(b)
	q, addrs, problem := b.Request(c), b.Addrs(), ""
	x := s.claim(b, q)
	if len(x.Request.Fixed) < len(q.Fixed) {
		if s.unpooled(q) {
			x.Given, work.Status.AddressPool = nil, ""
		}
		addrs, problem = r.free(b, q.Fixed, x.Given)
	}
	work.SetAddrs(addrs)
	var first netip.Addr
	if len(addrs) > 0 {
		first = addrs[0]
	}
	if !s.unpooled(q) && problem == "" {
		s.mu.Lock()
		problem = s.problems[b.Key]
		s.mu.Unlock()
	}
	e, tell, assigned := b.Endpoint(first, c, members, r.avoid)
	if problem != "" && !q.Met(addrs) { // an old one may be over
		assigned.Message += ": " + problem
	}
	assigned.ObservedGeneration = b.Generation
	work.Status.Endpoint, work.Status.URL = e, b.URL(e)
	accepted := work.Acceptance(members, r.avoid)
	accepted.ObservedGeneration = b.Generation
	work.Status.Conditions = others(b.Status.Conditions, accepted, assigned)
	want := work.Status
	if !r.unread[b.Key] {
		want = work.Summary(members, nil, &s.o.Rules, r.now)
	}
	s.write(ctx, b, want, r.now, r.next)
	if tell && s.may(c.UID, hookPause, r.now, r.next) {
		if !s.failed("cluster", s.w.endpoint(ctx, c, e), c.UID, r.now, r.next) {
			s.o.Logger.Info("a Cluster has its endpoint", "cluster", c.Key.String(), "host", e.Host, "port", e.Port)
		}
	}
}

func (s *Steward) write(ctx context.Context, b *machines.Balancer, want v1alpha1.MachineLoadBalancerStatus, now time.Time, next *time.Time) {
	if same, err := unchanged(b, want, now); same || err != nil || !s.may(b.UID, statusPause, now, next) {
		return
	}
	_, err := s.w.status(ctx, b, want, now)
	s.failed("status", err, b.UID, now, next)
}

// annotate writes the annotations of members that want them, and removes those of
// Machines that are none any more.
func (s *Steward) annotate(ctx context.Context, all []*machines.Machine, balancers []*machines.Balancer, now time.Time, next *time.Time) {
	wanted := machines.Annotations(balancers)
	for _, m := range all {
		if m.Target != "" {
			continue
		}
		want, ok := wanted[m.Key]
		have := [2]string{m.Annotations[machines.NameAnnotation], m.Annotations[machines.StatusAnnotation]}
		if have == want || !ok && have[1] == "" || !s.o.Leads() || !s.may("annotations of "+m.UID, annotatePause, now, next) {
			continue // one without a status was not written by lbd
		}
		s.failed("annotation", s.w.annotate(ctx, m, want[0], want[1]), "annotations of "+m.UID, now, next)
	}
}

// failed counts a write, and sees to another attempt if it failed.
func (s *Steward) failed(what string, err error, id string, now time.Time, next *time.Time) bool {
	s.done(what, err)
	if err != nil && !apierrors.IsNotFound(err) {
		s.pace.next[id] = now.Add(retryPause)
		*next = model.Earliest(*next, now.Add(retryPause))
	}
	return err != nil
}

func (s *Steward) done(what string, err error) {
	switch {
	case apierrors.IsConflict(err):
		what = "conflict"
	case err != nil:
		what = "error"
		s.o.Logger.Debug("writing to the management cluster", "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes[what]++
}
