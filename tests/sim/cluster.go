// Package sim runs clusters of real daemons with real gossip in a synctest
// bubble: only the kernels, the wires, the configuration and the health checks
// are simulated, see package lbdtest. Minutes of cluster time take a second, and
// every fault comes at the moment that a scenario says.
//
// What a fault means: crash is the loss of power; kill ends the process while the
// kernel lives on; freeze stops the loop, the drivers, the sources and the
// sending of gossip, while the goroutines inside memberlist run on as those of a
// node that nobody answers, which is harsher than SIGSTOP: it may believe all
// others dead when it thaws.
package sim

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/daemon"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/gossip"
	"lbd.dev/lbd/internal/gossip/memnet"
	"lbd.dev/lbd/internal/lbdtest"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
)

const (
	port = 7947
	// Check is the name of the health check that VIPs may depend on.
	Check = "service"
)

// Options of a Cluster.
type Options struct {
	Nodes     int
	VIPs      []model.VIP
	Seed      uint64
	Detection gossip.Detection
	// Drain is how long connections may linger; 10 s if zero.
	Drain time.Duration
	// Heal is for how long two owners may both answer after a heal; repeated if
	// zero.
	Heal time.Duration
	// Latency of gossip datagrams; 0.1 ms if zero. Loss is the share of them that
	// get lost.
	Latency time.Duration
	Loss    float64
	// Pace is how long a kernel takes to say whether an interface works, for which the end of
	// each series of probes has to wait.
	Pace time.Duration
	// Routers are the BGP routers, if any VIP is advertised to some; one of each kind
	// if nil. They are called after their kind.
	Routers []lbdtest.RouterKind
	// Rings notes the rings that nodes decide for.
	Rings bool
}

// Cluster is a group of machines. Its methods are called from one goroutine
// inside the bubble.
type Cluster struct {
	opts   Options
	Begin  time.Time
	Net    *lbdtest.Net
	gossip *memnet.Network
	nodes  map[string]*Node
	vips   []model.VIP

	gossipSide, wireSide map[string]int
	parted               time.Time       // the last moment at which nodes may have lost sight of others
	unheard, rejoined    time.Time       // when gossip was cut last, and healed
	touched              map[string]bool // nodes to which something happened since the last Quiet
	owners               map[netip.Addr]string

	logMu sync.Mutex
	logs  bytes.Buffer

	routers  []*lbdtest.Router
	monitor  monitor
	failures []string
}

// Node is one machine with, perhaps, a daemon.
type Node struct {
	Name string
	Host *lbdtest.Host
	addr netip.Addr

	c         *Cluster
	powered   bool
	proc      *lbdtest.Process
	transport *memnet.Transport
	gossip    *gossip.Gossip
	Daemon    *daemon.Daemon
	Layer2    *lbdtest.Layer2
	rings     *rings
	bgpFile   *lbdtest.BGPFile
	config    *lbdtest.Facts
	health    *lbdtest.Facts
	machines  *lbdtest.Facts // of a management cluster
	cancel    context.CancelFunc
	ended     chan struct{}
	err       error

	touched, removed, thawed          time.Time // when something last happened to it, an address was removed by hand, and it went on
	draining, sick, frozen, unplugged bool
	stopping                          bool
	unchecked                         bool // its health checks have no result yet
	degraded                          bool // they pass what is required, not what is preferred

	mu     sync.Mutex
	yields map[netip.Addr]time.Time // when it last named a successor
	named  map[netip.Addr]time.Time // when it was last named one
}

// VIPs returns n objects v1, v2 ... with one IPv4 address each that depend on the
// health check.
func VIPs(n int) []model.VIP {
	var out []model.VIP
	for i := range n {
		out = append(out, model.VIP{
			Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(100 + i)}), Name: fmt.Sprintf("v%d", i+1), Kind: "VirtualIP", L2: true, Check: Check,
		})
	}
	return out
}

// Run plays f in a bubble with a cluster in which nothing runs yet, and returns
// what went wrong. Everything ends with f.
func Run(t *testing.T, o Options, f func(*Cluster)) (failures []string, trace string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		c := newCluster(o)
		defer func() {
			c.end()
			failures, trace = c.failures, c.logs.String()
		}()
		f(c)
	})
	return failures, trace
}

func newCluster(o Options) *Cluster {
	if o.Drain == 0 {
		o.Drain = 10 * time.Second
	}
	if o.Heal == 0 {
		o.Heal = repeated
	}
	c := &Cluster{
		opts: o, Begin: time.Now(), Net: lbdtest.NewNet(o.Seed), gossip: memnet.New(), nodes: map[string]*Node{},
		vips: slices.Clone(o.VIPs), gossipSide: map[string]int{}, wireSide: map[string]int{},
		touched: map[string]bool{}, owners: map[netip.Addr]string{},
	}
	slices.SortFunc(c.vips, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
	c.gossip.SetLatency(max(o.Latency, 100*time.Microsecond))
	if o.Loss > 0 {
		rng := rand.New(rand.NewPCG(o.Seed, 1))
		c.gossip.SetLoss(func(netip.AddrPort, netip.AddrPort, int) bool { return rng.Float64() < o.Loss })
	}
	var addrs []netip.Addr
	for _, v := range c.vips {
		if v.Unbound {
			c.Net.SetUnbound(v.Addr)
		}
		if v.L2 {
			addrs = append(addrs, v.Addr)
		}
	}
	c.addRouters()
	for i := range o.Nodes {
		c.install(i + 1)
	}
	c.monitor.start(c, c.Net.Client("client", "lan", addrs...))
	return c
}

// install adds machine number i, which is called after it and does not run a daemon yet.
func (c *Cluster) install(i int) {
	n := &Node{
		Name: fmt.Sprintf("m%d", i), addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), c: c, powered: true, bgpFile: &lbdtest.BGPFile{},
		yields: map[netip.Addr]time.Time{}, named: map[netip.Addr]time.Time{},
	}
	n.Host = c.Net.Host(n.Name)
	v6 := netip.AddrFrom16([16]byte{0xfd, 15: byte(i)})
	n.Host.Attach("eth0", "lan", netip.PrefixFrom(n.addr, 16), netip.PrefixFrom(v6, 64))
	c.nodes[n.Name] = n
}

// members are the addresses of all machines that there are, which every daemon has as its
// peers.
func (c *Cluster) members() []string {
	var peers []string
	for _, p := range c.all() {
		peers = append(peers, p.addr.String())
	}
	return peers
}

// end kills what runs and lets all timers end inside the bubble.
func (c *Cluster) end() {
	c.monitor.end()
	for _, n := range c.all() {
		c.Kill(n.Name)
	}
	for _, r := range c.routers {
		r.Stop()
	}
	c.Net.Stop()
	time.Sleep(time.Minute)
}

func (c *Cluster) all() []*Node {
	out := make([]*Node, 0, len(c.nodes))
	for _, n := range c.nodes {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *Node) int { return a.addr.Compare(b.addr) })
	return out
}

// Node returns a machine by name.
func (c *Cluster) Node(name string) *Node { return c.nodes[name] }

// Since is the time since the begin.
func (c *Cluster) Since() time.Duration { return time.Since(c.Begin) }

// failf notes that something is wrong; the scenario goes on.
func (c *Cluster) failf(format string, a ...any) {
	if len(c.failures) < 20 {
		c.failures = append(c.failures, fmt.Sprintf("%8s ", c.Since().Round(time.Millisecond))+fmt.Sprintf(format, a...))
	}
}

// Write takes the logs of all daemons.
func (c *Cluster) Write(b []byte) (int, error) {
	c.logMu.Lock()
	defer c.logMu.Unlock()
	return c.logs.Write(b)
}

func (c *Cluster) logger(name string) *slog.Logger {
	h := slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.String("t", fmt.Sprintf("%.4f", a.Value.Time().Sub(c.Begin).Seconds()))
		}
		if a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})
	return slog.New(h).With("on", name)
}

// launch starts a daemon on a machine.
func (n *Node) launch() error {
	c := n.c
	tr, err := c.gossip.Listen(netip.AddrPortFrom(n.addr, port))
	if err != nil {
		return err
	}
	log := c.logger(n.Name)
	g, err := gossip.New(gossip.Options{
		Logger: log, Name: model.NodeName(n.Name), BindAddr: n.addr, Port: port, Peers: c.members(), Insecure: true,
		Detection: c.opts.Detection, Rules: election.RulesVersion, Version: "sim", Transport: tr,
	})
	if err != nil {
		return err
	}
	p := lbdtest.NewProcess()
	n.gossip = g
	n.proc, n.transport = p, tr
	n.draining, n.frozen, n.stopping = false, false, false
	n.config = lbdtest.NewFacts(p, model.SourceConfig, c.configured())
	n.health = lbdtest.NewFacts(p, model.SourceHealth, n.checked())
	n.machines = lbdtest.NewFacts(p, model.SourceMachines, nil)
	n.Layer2 = lbdtest.NewLayer2(p, n.Host, log, c.opts.Pace)
	address, err := lbdtest.NewAddress(p, n.Host, log)
	if err != nil {
		return err
	}
	drivers := []announce.Driver{p.Driver(g.Driver(), n.saw), p.Driver(address, nil), p.Driver(n.Layer2, nil), p.Driver(lbdtest.NewBGP(p, n.Host, n.bgpFile, c.routers...), nil)}
	if n.rings = newRings(); c.opts.Rings {
		drivers = append(drivers, p.Driver(n.rings, nil))
	}
	n.Daemon, err = daemon.New(daemon.Options{
		Logger: log, Metrics: prometheus.NewRegistry(), Node: model.NodeName(n.Name), Version: "sim",
		Sources: []source.Source{n.config, lbdtest.NewLinks(p, n.Host), n.health, n.machines, p.Source(g.Source())},
		Drivers: drivers,
		Beat:    func() { _ = p.Wait() },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.ended = cancel, make(chan struct{})
	go func() {
		defer close(n.ended)
		n.err = n.Daemon.Run(ctx)
		p.Kill()
	}()
	return nil
}

// saw notes which successors a decision names.
func (n *Node) saw(d *model.Desired) {
	now := time.Now()
	for _, v := range d.Group.VIPs {
		if to := n.c.nodes[string(v.Claim.To)]; to != nil {
			n.mu.Lock()
			n.yields[v.Addr] = now
			n.mu.Unlock()
			to.mu.Lock()
			to.named[v.Addr] = now
			to.mu.Unlock()
		}
	}
}

// handing tells when the node last named a successor for the VIP, and was named.
func (n *Node) handing(a netip.Addr) (yielded, named time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.yields[a], n.named[a]
}

// configured is what the configuration says now.
func (c *Cluster) configured() func(*model.View) {
	vips, drain, peers := slices.Clone(c.vips), c.opts.Drain, c.peers()
	return func(v *model.View) { v.VIPs, v.DrainTimeout, v.Peers = vips, drain, peers }
}

// checked is what the health checks of the node say now.
func (n *Node) checked() func(*model.View) {
	state := model.HealthUp
	switch {
	case n.unchecked:
		state = model.HealthUnknown
	case n.sick:
		state = model.HealthDown
	case n.degraded:
		state = model.HealthDegraded
	}
	h := map[string]model.HealthState{Check: {State: state, Since: time.Now()}}
	return func(v *model.View) { v.Health = h }
}
