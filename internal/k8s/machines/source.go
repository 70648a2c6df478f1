package machines

import (
	"cmp"
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
	"lbd.dev/lbd/internal/wake"
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
	// OnPeers is told the addresses of the Machines of the control plane of this node's
	// cluster, if Spec.Peers asks for them; once nobody knows them, nothing. May be nil.
	OnPeers func([]netip.Addr)
	// Bind is the address at which this node talks to its peers; invalid: IPv4 if it has
	// such an address.
	Bind netip.Addr
}

// Source tells what a management cluster says of the Machines behind the nodes, and
// which addresses this node is to have as one of them. What it knew before the API
// was lost stays.
type Source struct {
	mostForwardings int // see maxForwardings
	o               Options
	rules           machines.Rules
	kick            chan struct{} // of 1: publish
	write           chan struct{} // of 1: write

	mu    sync.Mutex // guards all below
	state model.MachinesState
	addrs []netip.Addr // of this node
	err   error        // why there is no client, or nothing is read with it
	// counts for metrics
	writes map[string]uint64
}

var (
	_ source.Source   = (*Source)(nil)
	_ announce.Driver = (*driver)(nil)
)

// New returns a Source; Run connects it.
func New(o Options) *Source {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.OnChecks == nil {
		o.OnChecks = func(map[string]v1alpha1.HealthCheck) {}
	}
	if o.OnPeers == nil {
		o.OnPeers = func([]netip.Addr) {}
	}
	return &Source{o: o, mostForwardings: maxForwardings, rules: machines.RulesOf(o.Spec), kick: make(chan struct{}, 1), write: make(chan struct{}, 1), writes: map[string]uint64{}}
}

func (s *Source) Name() model.SourceName { return model.SourceMachines }

// Err returns why the management cluster is not read, or not all of it; nil if it is.
func (s *Source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Source) setErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Writes counts what was sent, by what it was: "status", and "conflict" and
// "error" for what failed.
func (s *Source) Writes() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.writes)
}

func (s *Source) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes[what]++
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
		p.fresh = true
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
	connect := func() (*k8s.Client, error) {
		*mark = s.fingerprint()
		c, err := s.o.Connect()
		s.setErr(err)
		return c, err
	}
	return k8s.Await(ctx, connect, connectEvery, func(err error) { s.o.Logger.Warn("no management cluster yet", "err", err) })
}

// session watches with one client until ctx ends or the kubeconfig has changed.
func (s *Source) session(ctx context.Context, c *k8s.Client, mark [sha256.Size]byte, p *publisher) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	set := NewSet(SetOptions{Client: c, Namespaces: s.o.Spec.Namespaces, Rules: &s.rules, Changed: func() {
		wake.Up(s.kick)
		wake.Up(s.write)
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
			p.look(set, time.Now())
		case <-s.kick:
			if !wake.Sleep(ctx, coalesce) {
				return
			}
			p.look(set, time.Now())
		}
	}
}

// me is what this node knows of itself.
func (s *Source) me(addrs []netip.Addr) machines.Node {
	return machines.Node{Name: s.o.Self, ProviderID: s.o.Spec.ProviderID, Addrs: addrs}
}

// Driver returns the part of the Source that writes.
func (s *Source) Driver() announce.Driver { return (*driver)(s) }

// driver hands decisions to the goroutine that writes: a management API that does
// not answer must delay nothing.
type driver Source

func (d *driver) Name() model.SinkName { return model.SinkMachines }

func (d *driver) Apply(_ context.Context, want *model.Desired) (model.Applied, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.state.Equal(&want.Machines) {
		d.state = want.Machines
		wake.Up(d.write)
	}
	if a := want.Machines.Addrs; len(a) > 0 && !slices.Equal(d.addrs, a) {
		d.addrs = slices.Clone(a)
		wake.Up(d.kick)
	}
	return model.Applied{}, nil
}

func (d *driver) Changed() <-chan struct{} { return nil }

func (d *driver) Close(context.Context) error { return nil }
