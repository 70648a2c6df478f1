package daemon_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/daemon"
	"lbd.dev/lbd/internal/lbdtest"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
)

var vip = netip.MustParseAddr("10.0.0.200")

// bed is one daemon m1 in a bubble, with a test that plays the group.
type bed struct {
	t       *testing.T
	begin   time.Time
	host    *lbdtest.Host
	net     *lbdtest.Net
	proc    *lbdtest.Process
	config  *lbdtest.Facts
	health  *lbdtest.Facts
	gossip  *lbdtest.Facts
	sink    *sink
	router  *router
	address announce.Driver
	layer2  *lbdtest.Layer2
	reg     *prometheus.Registry
	beats   int
	daemon  *daemon.Daemon
	stop    context.CancelFunc
	ended   chan struct{}
	err     error

	mu   sync.Mutex
	logs bytes.Buffer
	slow time.Duration // of the address driver in the farewell
}

// hamper makes the address driver slow in the farewell.
func (b *bed) hamper(by time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow = by
}

// hinder delays the address driver in the farewell.
func (b *bed) hinder(d *model.Desired) {
	if d.Group.Leave {
		b.mu.Lock()
		slow := b.slow
		b.mu.Unlock()
		time.Sleep(slow)
	}
}

// sink stands for the driver of gossip: it keeps what the drivers are told.
type sink struct {
	mu     sync.Mutex
	told   []*model.Desired
	stuck  bool
	closed time.Time
	err    error // of Close
}

func (*sink) Name() model.SinkName     { return "all" } // it is told whatever changes
func (*sink) Changed() <-chan struct{} { return nil }

func (s *sink) Apply(ctx context.Context, d *model.Desired) (model.Applied, error) {
	s.mu.Lock()
	s.told = append(s.told, d)
	stuck := s.stuck
	s.mu.Unlock()
	if stuck {
		<-ctx.Done()
	}
	return model.Applied{}, ctx.Err()
}

func (s *sink) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = time.Now()
	return s.err
}

func (s *sink) last() model.GroupState { return s.newest().Group }

// newest is what the drivers were told last.
func (s *sink) newest() *model.Desired {
	if told := s.all(); len(told) > 0 {
		return told[len(told)-1]
	}
	return &model.Desired{}
}

// all is what the drivers were told, in this order; one may come twice.
func (s *sink) all() []*model.Desired {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

// Write takes the log.
func (b *bed) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs.Write(p)
}

func (b *bed) log() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs.String()
}

// turns is how often the loop has turned.
func (b *bed) turns() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.beats
}

// run plays f with a daemon that has started, with changed options; it must have
// ended, or be able to end, when f returns.
func run(t *testing.T, f func(t *testing.T, b *bed), change ...func(*daemon.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, begin: time.Now(), net: lbdtest.NewNet(1), proc: lbdtest.NewProcess(), sink: &sink{}, router: &router{}, reg: prometheus.NewRegistry(), ended: make(chan struct{})}
		b.router.bed = b
		b.host = b.net.Host("m1")
		b.host.Attach("eth0", "lan", netip.MustParsePrefix("10.0.0.1/24"))
		p := b.proc
		b.config = lbdtest.NewFacts(p, model.SourceConfig, func(v *model.View) {
			v.VIPs = []model.VIP{{Addr: vip, Name: "cp", Kind: "VirtualIP", L2: true, Check: "api"}}
			v.DrainTimeout = 2 * time.Second
		})
		b.health = lbdtest.NewFacts(p, model.SourceHealth, healthy(model.HealthUp))
		b.gossip = lbdtest.NewFacts(p, model.SourceGossip, group(time.Now(), model.Claim{}))
		log := slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		var err error
		if b.address, err = lbdtest.NewAddress(p, b.host, log); err != nil {
			t.Fatal(err)
		}
		b.layer2 = lbdtest.NewLayer2(p, b.host, log, 0)
		o := daemon.Options{
			Logger: log, Metrics: b.reg, Node: "m1", Version: "v1",
			Sources: []source.Source{b.config, lbdtest.NewLinks(p, b.host), b.health, b.gossip},
			Drivers: []announce.Driver{b.sink, b.router, p.Driver(b.address, b.hinder), p.Driver(b.layer2, nil)},
			Extras:  []func(*v1alpha1.NodeStatus){func(s *v1alpha1.NodeStatus) { s.Config.Path = "extra" }},
			Beat: func() {
				_ = p.Wait()
				b.mu.Lock()
				b.beats++
				b.mu.Unlock()
			},
		}
		for _, c := range change {
			c(&o)
		}
		b.daemon, err = daemon.New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		b.stop = cancel
		go func() {
			defer close(b.ended)
			b.err = b.daemon.Run(ctx)
		}()
		defer func() {
			b.proc.Kill()
			cancel()
			<-b.ended // a goroutine that is left over makes the bubble fail
		}()
		f(t, b)
	})
}

func healthy(h model.Health) func(*model.View) {
	return func(v *model.View) { v.Health = map[string]model.HealthState{"api": {State: h}} }
}

// group is what the member m2 says: it may own the VIP and has this claim.
func group(at time.Time, claim model.Claim) func(*model.View) {
	return func(v *model.View) {
		v.Gossip = model.Gossip{
			Peers: 1, Exchanged: at.Add(time.Millisecond),
			Members: map[model.NodeName]model.Member{"m2": {
				Name: "m2", Known: true, Told: true, Settled: true, MACs: []model.MAC{{2, 0, 0, 0, 0, 0x99}},
				Standing: map[netip.Addr]model.Reason{vip: model.ReasonStandby},
			}},
			Eligible: map[netip.Addr][]model.NodeName{vip: {"m2"}},
			Claims:   map[netip.Addr][]model.Claim{}, Seen: map[netip.Addr]uint64{vip: claim.Epoch},
		}
		if claim.Epoch > 0 {
			v.Gossip.Claims[vip] = []model.Claim{claim}
		}
	}
}

// alone is a group of which nobody else is there.
func alone(v *model.View) { v.Gossip = model.Gossip{Seen: map[netip.Addr]uint64{}} }

// pass lets time pass until all have come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// own waits until the daemon owns the VIP.
func (b *bed) own() {
	b.t.Helper()
	pass(2 * time.Second)
	if got := b.status().VIPs[0]; got.Owner != "m1" || !got.Announced || !got.Bound {
		b.t.Fatalf("not the owner: %+v\n%s", got, b.log())
	}
}

func (b *bed) status() v1alpha1.NodeStatus {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
	defer cancel()
	s, err := b.daemon.Status(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// claim lets m2 claim with the epoch after the last one, as a successor does.
func (b *bed) claim() {
	b.gossip.Set(group(b.begin, model.Claim{Owner: "m2", Epoch: b.sink.last().VIPs[0].Claim.Epoch + 1}))
}

func (b *bed) hasEnded() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}
