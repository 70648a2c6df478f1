// Package gossip is the source of what other nodes say and the driver that
// tells them what this one does: members, claims, drains and heartbeats, over
// hashicorp/memberlist. One UDP and TCP port carries all of it.
//
// It is three rooms. Package record is what nodes tell and what is known of them, package beat
// their heartbeats, and this package memberlist, the sockets and the goroutines. A goroutine
// that holds one of these locks takes only locks that stand below it:
//
//	Gossip.endMu   the end happens once
//	beat.Planner   a plan is made
//	keys           the keyring
//	Gossip.mu      table and watches; held for microseconds
//	joiner         whom to reach
//	record.Own     what this node tells
//
// All others, and that of memberlist's queue of broadcasts, are held for a few instructions, in
// which nothing else is locked. memberlist calls the delegate with its own lock held, so nothing
// but that queue is called with a lock from Gossip.mu on.
package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/gossip/beat"
	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
	"lbd.dev/lbd/internal/wake"
)

const (
	// direct is up to how many members a change is sent to each of them at once;
	// in a larger group only to those that it concerns.
	direct = 16
	// manyParts is how many datagrams a record may fill; a larger one goes over a
	// stream, because a burst overflows the receiver's socket.
	manyParts = 16
	// maxQueued bounds the messages that wait to be gossiped, fewQueued those in a small
	// group.
	maxQueued = 1024
	fewQueued = 64
	// retransmits times log10 of the group is how often each one is gossiped.
	retransmits = 4
	// leaveTimeout bounds the goodbye, shutdownTimeout what follows it.
	leaveTimeout    = time.Second
	shutdownTimeout = time.Second
	maxLabel        = 64
)

// Options configure a Gossip.
type Options struct {
	Logger *slog.Logger
	Name   model.NodeName // unique in the group
	// BindAddr is the address to bind, which is also the one that others are
	// told: one of this host, neither unspecified nor link-local.
	BindAddr netip.Addr
	Port     uint16 // UDP and TCP; 0 lets the kernel choose, for tests
	// Peers are IP addresses or host names, with a port or without one; they are
	// tried for ever, and this node itself may be among them.
	Peers []string
	// Label keeps groups apart that can reach each other; at most 64 bytes.
	Label string
	// Keys decrypt, the first one encrypts; 16, 24 or 32 bytes each. Running
	// without keys needs Insecure.
	Keys     [][]byte
	Insecure bool
	// Detection is DetectionLAN if empty.
	Detection Detection
	// Rules is the newest version of the election rules that this program
	// speaks; 1 if zero. Version is that of the program, for people.
	Rules   int
	Version string
	// Elsewhere returns the address that this node would bind if it began now, nil if
	// BindAddr is given by the user. If BindAddr is gone from the host for a while and
	// Elsewhere knows another one of the same interface, the source ends with an error that says so.
	Elsewhere func() (netip.Addr, error)
	// Transport replaces the sockets in tests; BindAddr and Port must then be
	// those of the transport.
	Transport memberlist.NodeAwareTransport
}

// Gossip is one member of the group.
type Gossip struct {
	log     *slog.Logger
	name    model.NodeName
	visitor string // name of a Reach; empty for a member
	self    netip.AddrPort
	profile profile
	list    *memberlist.Memberlist
	writer  *logWriter
	keys    *keys
	own     *record.Own
	hooks   *delegate
	casts   *memberlist.TransmitLimitedQueue
	join    *joiner
	sender  *beat.Sender
	planner *beat.Planner
	seal    *beat.Sealer
	// Heartbeats go through sockets, in tests through transport.
	sockets   *transport
	transport *tapped
	away      atomic.Pointer[moved]
	elsewhere func() (netip.Addr, error)
	home      string // interface that had the own address at the start
	count     counters

	wake    chan struct{} // of Run
	inbox   *queue[packet]
	beatbox *queue[packet]
	fulls   *queue[fullState]
	outbox  *queue[outgoing]
	post    chan struct{}
	streams chan struct{} // a slot for each record that goes over a stream

	mu      sync.Mutex // guards table and watches
	table   *record.Table
	watches *beat.Watches
	members atomic.Int64 // alive, this node included

	ctx     context.Context // ends with the process's membership
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	spawnMu sync.Mutex // orders spawn and the end
	running atomic.Bool

	endMu  sync.Mutex // serialises the end
	left   bool
	closed bool
}

// New binds the sockets and starts to take part. Source and Driver do the rest.
// An error says what to change.
func New(o Options) (*Gossip, error) { return create(o, "") }

// create is New; a visitor has a name that no member accepts as one of a node.
func create(o Options, visitor string) (*Gossip, error) {
	g, conf, err := prepare(o)
	if err != nil {
		return nil, err
	}
	if visitor != "" {
		g.visitor, conf.Name = visitor, visitor
	}
	if o.Transport == nil {
		t, err := g.listen(o.BindAddr, o.Port)
		if err != nil {
			return nil, err
		}
		g.sockets, conf.Transport = t, t
		g.home = interfaceOf(o.BindAddr)
	} else {
		g.transport = tap(o.Transport, g.takeBeat)
		conf.Transport = g.transport
	}
	ip, port, err := conf.Transport.FinalAdvertiseAddr("", 0)
	addr, ok := netip.AddrFromSlice(ip)
	if err != nil || !ok {
		return nil, errors.Join(fmt.Errorf("gossip: transport: address %v is not usable", ip), err, conf.Transport.Shutdown())
	}
	g.self = netip.AddrPortFrom(addr.Unmap(), uint16(port))
	conf.BindAddr, conf.BindPort = addr.String(), port
	conf.AdvertiseAddr, conf.AdvertisePort = conf.BindAddr, port
	if g.join, err = newJoiner(g, o.Peers); err != nil {
		return nil, errors.Join(err, conf.Transport.Shutdown())
	}
	if g.list, err = memberlist.Create(conf); err != nil {
		return nil, errors.Join(fmt.Errorf("gossip: memberlist: %w", err), conf.Transport.Shutdown())
	}
	if g.keys.ring == nil {
		g.log.Warn("gossip runs without encryption: whoever reaches the port can take every VIP")
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.wg.Go(func() { g.sender.Run(g.ctx) })
	g.wg.Go(g.deliver)
	return g, nil
}

// prepare checks the options and makes everything that needs no socket.
func prepare(o Options) (*Gossip, *memberlist.Config, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	switch {
	case !record.ValidName(string(o.Name)):
		return nil, nil, fmt.Errorf("gossip: name %q must have 1 to %d visible characters and no slash", o.Name, record.MaxName)
	case len(o.Label) > maxLabel:
		return nil, nil, fmt.Errorf("gossip: label %q is longer than %d bytes", o.Label, maxLabel)
	case !usable(o.BindAddr):
		return nil, nil, fmt.Errorf("gossip: bind %q: others must be able to reach the address: set gossip.bindAddress to one of this host, not link-local", o.BindAddr)
	}
	profile, err := o.Detection.profile()
	if err != nil {
		return nil, nil, err
	}
	keys, err := newKeys(o.Keys, o.Insecure)
	if err != nil {
		return nil, nil, err
	}
	g := &Gossip{
		log: o.Logger, name: o.Name, profile: profile, keys: keys, elsewhere: o.Elsewhere,
		own:     record.NewOwn(o.Name, time.Now(), max(o.Rules, 1), o.Version, keys.fingerprints()),
		writer:  &logWriter{log: o.Logger},
		wake:    make(chan struct{}, 1),
		post:    make(chan struct{}, 1),
		streams: make(chan struct{}, 8),
		seal:    beat.NewSealer(keys.ring, o.Label),
		table:   record.NewTable(o.Name),
		watches: beat.NewWatches(profile.beat, o.Logger),
	}
	g.hooks = &delegate{g: g, events: map[model.NodeName]event{}}
	g.inbox = newQueue(1024, 2*record.MaxMessage, func(p packet) int { return len(p.msg) }, g.wake)
	g.beatbox = newQueue(1024, 2*record.MaxMessage, func(p packet) int { return len(p.msg) }, g.wake)
	g.fulls = newQueue(32, 1<<20, func(f fullState) int { return len(f.records) }, g.wake)
	g.outbox = newQueue(4096, 4*record.MaxMessage, func(m outgoing) int { return len(m.msg) }, g.post)
	g.casts = &memberlist.TransmitLimitedQueue{
		NumNodes:       func() int { return int(max(g.members.Load(), 1)) },
		RetransmitMult: retransmits,
	}
	g.members.Store(1)
	g.sender = beat.NewSender(o.Name, profile.beat, o.Transport == nil, o.Logger, g.seal, g.sendBeat)
	g.planner = beat.NewPlanner(o.Name, g.own, g.sender, g.addresses)
	return g, g.config(o, profile), nil
}

func (g *Gossip) config(o Options, p profile) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	p.apply(c)
	c.Name = string(o.Name)
	c.Label = o.Label
	c.Keyring = g.keys.ring
	c.RetransmitMult = retransmits
	c.Delegate, c.Events, c.Conflict, c.Alive = g.hooks, g.hooks, g.hooks, g.hooks
	c.LogOutput, c.Logger = nil, log.New(g.writer, "", 0)
	return c
}

// Addr is the address and port that others reach this node at.
func (g *Gossip) Addr() netip.AddrPort { return g.self }

// Source publishes into View.Gossip. It may run again after it has ended, but
// not twice at a time.
func (g *Gossip) Source() source.Source { return gossipSource{g} }

// Driver tells the group what Desired.Group says. A Desired with Leave says
// goodbye; after that Apply does nothing.
func (g *Gossip) Driver() announce.Driver { return &driver{g: g} }

// SetPeers replaces the configured peers. Entries that are neither an address
// nor a host name are logged and left out.
func (g *Gossip) SetPeers(peers []string) {
	if err := g.join.set(peers); err != nil {
		g.log.Warn("gossip peers left out", "err", err)
	}
}

// SetKeys replaces the keys while running. All of them decrypt at once; the
// first one encrypts once every member that is alive knows it, so that the
// nodes may be given the new keys one after the other; keys that are not among
// them any more still decrypt for ten seconds. A daemon that was started
// without keys refuses them. Nothing changes on error.
func (g *Gossip) SetKeys(keys [][]byte) error {
	if err := g.keys.set(keys, g.keyKnown); err != nil {
		return err
	}
	g.tellKeys()
	wake.Up(g.wake)
	return nil
}

// keyKnown tells whether every live member has said that it knows the key.
func (g *Gossip) keyKnown(fingerprint string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.table.AllKnow(fingerprint)
}

func (g *Gossip) tellKeys() {
	if part, ok := g.own.SetKeys(g.keys.fingerprints()); ok {
		g.tell(part, nil)
	}
}

// Leave says goodbye and closes the sockets, within two seconds. The others see
// the node as left, and its claims as withdrawn, at once.
func (g *Gossip) Leave(ctx context.Context) error {
	g.endMu.Lock()
	defer g.endMu.Unlock()
	if g.closed || g.left {
		return nil
	}
	g.left = true
	part := g.own.Leave()
	g.tell(part, nil)
	g.planner.End()
	timeout := leaveTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(deadline), time.Millisecond))
	}
	// Only the announcement can time out, and then the others find out anyway.
	if err := g.list.Leave(timeout); err != nil {
		g.log.Debug("gossip leave", "err", err)
	}
	g.tell(part, nil) // once more, should the first have been lost
	return g.shutdown()
}

// close ends the membership without a word, as a crash would.
func (g *Gossip) close() error {
	g.endMu.Lock()
	defer g.endMu.Unlock()
	return g.shutdown()
}

func (g *Gossip) shutdown() error {
	if g.closed {
		return nil
	}
	g.closed = true
	g.drain(shutdownTimeout / 2)
	g.spawnMu.Lock()
	g.cancel()
	g.spawnMu.Unlock()
	done := make(chan error, 1)
	go func() {
		err := g.list.Shutdown()
		g.wg.Wait()
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("gossip: close: %w", err)
		}
		return nil
	case <-time.After(shutdownTimeout):
		return errors.New("gossip: close: a socket is stuck")
	}
}

// gossipSource and driver give Gossip the shape of the two ports.
type gossipSource struct{ g *Gossip }

func (gossipSource) Name() model.SourceName { return model.SourceGossip }

func (s gossipSource) Run(ctx context.Context, publish source.Publish) error {
	return s.g.run(ctx, publish)
}

// Detection names how fast the death of a node is seen.
type Detection string

// The three profiles. What differs most is the interval of heartbeats, because
// those decide a takeover; memberlist only gives the second opinion.
const (
	DetectionLAN  Detection = "lan"  // heartbeats every 50 ms
	DetectionFast Detection = "fast" // heartbeats every 20 ms
	DetectionWAN  Detection = "wan"  // heartbeats every 200 ms
)

// profile holds the timing of one Detection.
type profile struct {
	beat time.Duration // interval of heartbeats

	// probeTimeout must leave 2*probeTimeout + RTT + slack < probeInterval. A
	// helper sends its nack probeTimeout after it was asked, that is
	// 2*probeTimeout after the probe began; if that is too late, every genuine
	// death makes the prober doubt itself and probe at half the rate.
	probeInterval, probeTimeout time.Duration
	// suspicion multiplies probeInterval*max(1, log10 N). 3 leaves room for one
	// confirmation by another node; 2 gave false deaths under load.
	suspicion int
	gossip    time.Duration // interval of gossip rounds
	pushPull  time.Duration // interval of full exchanges up to 32 nodes
}

func (d Detection) profile() (profile, error) {
	switch d {
	case DetectionLAN, "":
		return profile{
			beat: 50 * time.Millisecond, probeInterval: time.Second, probeTimeout: 400 * time.Millisecond,
			suspicion: 3, gossip: 200 * time.Millisecond, pushPull: 10 * time.Second,
		}, nil
	case DetectionFast:
		return profile{
			beat: 20 * time.Millisecond, probeInterval: 500 * time.Millisecond, probeTimeout: 200 * time.Millisecond,
			suspicion: 3, gossip: 50 * time.Millisecond, pushPull: 10 * time.Second,
		}, nil
	case DetectionWAN: // for round trips up to 500 ms
		return profile{
			beat: 200 * time.Millisecond, probeInterval: 3 * time.Second, probeTimeout: 1200 * time.Millisecond,
			suspicion: 4, gossip: 200 * time.Millisecond, pushPull: 20 * time.Second,
		}, nil
	}
	return profile{}, fmt.Errorf("gossip: detection %q is not one of lan, fast, wan", string(d))
}

// TakenAfter is how long after a node stops another one may begin to take what it
// owned, at the earliest: its heartbeats are then late.
func (d Detection) TakenAfter() time.Duration {
	p, err := d.profile()
	if err != nil {
		p, _ = DetectionFast.profile()
	}
	return beat.LateAtLeast(p.beat)
}

// apply sets what the profile and lbd's use of memberlist ask for.
func (p profile) apply(c *memberlist.Config) {
	c.ProbeInterval = p.probeInterval
	c.ProbeTimeout = p.probeTimeout
	c.SuspicionMult = p.suspicion
	// The longest suspicion, for when nobody confirms, e.g. because two of three
	// nodes died: twice the shortest and not six times.
	c.SuspicionMaxTimeoutMult = 2
	c.GossipInterval = p.gossip
	c.PushPullInterval = p.pushPull
	// Bounds each dial, read and write of an exchange.
	c.TCPTimeout = streamTimeout
	if p.probeTimeout > streamTimeout {
		c.TCPTimeout = 3 * time.Second
	}
	// A member that is reachable by TCP only would count as alive although
	// neither heartbeats nor claims reach it, and could be chosen as successor.
	c.DisableTcpPings = true
	// A node that is cut off doubts itself more with every probe that fails, up to
	// eight times slower; alone, it would take half a minute to see that it is.
	c.AwarenessMaxMultiplier = 2
	// A node that comes back under its name with another address.
	c.DeadNodeReclaimTime = 2 * time.Second
	// LZW costs more than it saves: messages are small and most fit one packet.
	c.EnableCompression = false
}

// streamTimeout bounds one step of a full exchange on a LAN.
const streamTimeout = time.Second
