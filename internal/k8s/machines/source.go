package machines

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/resolve"
	"lbd.dev/lbd/internal/source"
)

// How the source takes its time.
const (
	// coalesce is how long further changes are waited for after a first one.
	coalesce = 10 * time.Millisecond
	// lookEvery is how often it is looked whether the API is still there, and
	// connectEvery whether the kubeconfig is, or has changed.
	lookEvery    = 500 * time.Millisecond
	connectEvery = 2 * time.Second
)

// Manager names the daemons among those that write one object.
const Manager = "lbd"

// Options are what a Source needs.
type Options struct {
	Logger *slog.Logger
	// Spec is the section machines of the NodeConfiguration, defaulted.
	Spec *v1alpha1.MachinesSpec
	// Self is the name of this node.
	Self model.NodeName
	// Connect makes the client. It is asked again until it succeeds, and whenever the
	// kubeconfig has changed.
	Connect func() (*k8s.Client, error)
	// OnChecks is told the health checks of balancers by model.VIP.Check, before they
	// are needed. May be nil.
	OnChecks func(map[string]v1alpha1.HealthCheck)
}

// Source tells what a management cluster says of the Machines behind the nodes, and
// which addresses this node is to have as one of them. What it knew before the API
// was lost stays.
type Source struct {
	o     Options
	rules machines.Rules
	kick  chan struct{} // of 1: publish
	write chan struct{} // of 1: write

	mu    sync.Mutex // guards all below
	state model.MachinesState
	addrs []netip.Addr // of this node
	err   error        // why there is no client
	// counts for metrics
	writes map[string]uint64
}

var (
	_ source.Source   = (*Source)(nil)
	_ announce.Driver = (*driver)(nil)
)

// New returns a Source; Run connects it.
func New(o Options) *Source {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnChecks == nil {
		o.OnChecks = func(map[string]v1alpha1.HealthCheck) {}
	}
	return &Source{o: o, rules: machines.RulesOf(o.Spec), kick: make(chan struct{}, 1), write: make(chan struct{}, 1), writes: map[string]uint64{}}
}

// Name returns model.SourceMachines.
func (s *Source) Name() model.SourceName { return model.SourceMachines }

// Err returns why there is no client, nil if there is one.
func (s *Source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Writes counts what was sent, by what it was: "status" or "hook", and "conflict" and
// "error" for what failed.
func (s *Source) Writes() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]uint64, len(s.writes))
	for k, n := range s.writes {
		out[k] = n
	}
	return out
}

func (s *Source) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes[what]++
}

func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // one is waiting already
	}
}

// Run watches and publishes until ctx ends.
func (s *Source) Run(ctx context.Context, publish source.Publish) error {
	p := &publisher{s: s, publish: publish}
	for ctx.Err() == nil {
		mark := s.fingerprint()
		c := s.connect(ctx, &mark)
		if c == nil {
			return nil
		}
		s.session(ctx, c, mark, p)
		p.lost()
	}
	return nil
}

// fingerprint tells two kubeconfigs apart.
func (s *Source) fingerprint() [sha256.Size]byte {
	data, err := os.ReadFile(s.o.Spec.Kubeconfig)
	if err != nil {
		return [sha256.Size]byte{} // it will be asked for the error elsewhere
	}
	return sha256.Sum256(data)
}

// connect makes the client, however long that takes; nil when ctx has ended.
func (s *Source) connect(ctx context.Context, mark *[sha256.Size]byte) *k8s.Client {
	said := ""
	for ctx.Err() == nil {
		*mark = s.fingerprint()
		c, err := s.o.Connect()
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		if err == nil {
			return c
		}
		if said != err.Error() {
			said = err.Error()
			s.o.Logger.Warn("no management cluster yet", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(connectEvery):
		}
	}
	return nil
}

// session watches with one client until ctx ends or the kubeconfig has changed.
func (s *Source) session(ctx context.Context, c *k8s.Client, mark [sha256.Size]byte, p *publisher) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	set := NewSet(SetOptions{Logger: s.o.Logger, Client: c.Dynamic, Namespaces: s.o.Spec.Namespaces, Rules: &s.rules, Changed: func() {
		wake(s.kick)
		wake(s.write)
	}})
	running.Go(func() { set.Run(ctx) })
	w := &reporter{s: s, set: set, w: writer{client: c.Dynamic, manager: Manager, host: string(s.o.Self)}}
	running.Go(func() { w.run(ctx) })
	look, config := time.NewTicker(lookEvery), time.NewTicker(connectEvery)
	defer look.Stop()
	defer config.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-config.C:
			if now := s.fingerprint(); s.o.Spec.Kubeconfig != "" && now != mark {
				s.o.Logger.Info("the kubeconfig of the management cluster has changed")
				return
			}
		case <-look.C:
			p.look(set)
		case <-s.kick:
			select {
			case <-ctx.Done():
				return
			case <-time.After(coalesce):
			}
			p.look(set)
		}
	}
}

// publisher is the goroutine that tells the View.
type publisher struct {
	s       *Source
	publish source.Publish
	told    facts
	ever    bool
	cluster machines.Key // of the Machine of this node, as far as it was known
}

// facts are what is told.
type facts struct {
	machines model.Machines
	vips     []model.VIP
	checks   map[string]v1alpha1.HealthCheck
}

// look tells what has changed.
func (p *publisher) look(set *Set) {
	if !set.Synced() {
		return
	}
	knows := set.Knows(time.Now())
	if p.ever && (!knows || set.Moved(p.cluster)) {
		// What an API says that is lost, has no Machines or had them moved is no news.
		p.lost()
		return
	}
	s := p.s
	s.mu.Lock()
	me := s.me(s.addrs)
	s.mu.Unlock()
	if len(me.Addrs) == 0 { // it is not known yet which Machine this node is
		return
	}
	all, balancers := set.Machines(), set.Balancers()
	self := machines.Self(all, me, &s.rules, "")
	if self != nil {
		p.cluster = self.Cluster()
	}
	f := facts{checks: map[string]v1alpha1.HealthCheck{}}
	f.machines.Manager = knows
	f.machines.Drains = s.rules.Drains(all, p.cluster, me)
	for _, b := range balancers {
		addr := b.Addr()
		if !b.Usable() || !addr.IsValid() {
			continue
		}
		f.machines.Balanced = append(f.machines.Balanced, addr)
		own := self
		if t := b.Target(); t != "" {
			own = machines.Self(all, me, &s.rules, t)
		}
		if own == nil || !b.Has(own) {
			continue
		}
		f.vips = append(f.vips, vip(b, addr))
		if h := b.Spec.HealthCheck; h != nil {
			f.checks[checkName(b)] = *h
		}
	}
	slices.SortFunc(f.machines.Balanced, netip.Addr.Compare)
	f.machines.Balanced = slices.Compact(f.machines.Balanced)
	slices.SortStableFunc(f.vips, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	f.vips = slices.CompactFunc(f.vips, func(a, b model.VIP) bool { return a.Addr == b.Addr })
	p.tell(f)
}

// me is what this node knows of itself.
func (s *Source) me(addrs []netip.Addr) machines.Node {
	return machines.Node{Name: s.o.Self, ProviderID: s.o.Spec.ProviderID, Addrs: addrs}
}

// lost tells that nobody here knows any more who drains; all else stays.
func (p *publisher) lost() {
	if p.told.machines.Manager {
		f := p.told
		f.machines.Manager = false
		p.s.o.Logger.Warn("the management cluster is lost; what it said last stays in force")
		p.tell(f)
	}
}

// tell publishes if it is news.
func (p *publisher) tell(f facts) {
	if p.ever && reflect.DeepEqual(f, p.told) {
		return
	}
	if f.machines.Manager && !p.told.machines.Manager {
		p.s.o.Logger.Info("the management cluster is known", "drains", len(f.machines.Drains), "addresses", len(f.vips))
	}
	objects := !p.ever || !reflect.DeepEqual(f.vips, p.told.vips)
	if !reflect.DeepEqual(f.checks, p.told.checks) {
		p.s.o.OnChecks(f.checks)
	}
	p.told, p.ever = f, true
	p.publish(func(v *model.View) {
		v.Machines = f.machines
		if objects {
			v.SetObjects(model.SourceMachines, f.vips, nil)
		}
		v.Synced[model.SourceMachines] = true
	})
}

func checkName(b *machines.Balancer) string { return model.KindMachineLoadBalancer + "/" + b.String() }

// vip is the address of a balancer as its members announce it.
func vip(b *machines.Balancer, addr netip.Addr) model.VIP {
	v := model.VIP{Name: b.String(), Kind: model.KindMachineLoadBalancer, Addr: addr}
	if a := b.Spec.Advertise; a != nil {
		if a.L2 != nil {
			v.L2, v.Interfaces = true, slices.Clone(a.L2.Interfaces)
		}
		if a.BGP != nil {
			v.BGP = []model.BGPAdvert{resolve.Advert(a.BGP, nil)}
		}
	}
	if b.Spec.HealthCheck != nil {
		v.Check = checkName(b)
	}
	return v
}

// Driver returns the part of the Source that writes.
func (s *Source) Driver() announce.Driver { return (*driver)(s) }

// driver hands decisions to the goroutine that writes: a management API that does
// not answer must delay nothing.
type driver Source

// Name returns model.SinkMachines.
func (d *driver) Name() model.SinkName { return model.SinkMachines }

// Apply implements announce.Driver.
func (d *driver) Apply(_ context.Context, want *model.Desired) (model.Applied, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.state.Equal(&want.Machines) {
		d.state = want.Machines
		wake(d.write)
	}
	if a := want.Machines.Addrs; len(a) > 0 && !slices.Equal(d.addrs, a) {
		d.addrs = slices.Clone(a)
		wake(d.kick)
	}
	return model.Applied{}, nil
}

// Changed implements announce.Driver.
func (d *driver) Changed() <-chan struct{} { return nil }

// Close implements announce.Driver.
func (d *driver) Close(context.Context) error { return nil }
