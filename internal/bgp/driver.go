// Package bgp advertises virtual IP addresses to routers by BGP (RFC 4271): it
// compares what a decision wants with what the speaker has, keeps BFD sessions
// with the routers (RFC 5880, RFC 5882), and remembers what it advertised so that
// a restart of the daemon is graceful (RFC 4724). The speaker itself is in gobgp.
package bgp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

var (
	_ announce.Extender = (*Driver)(nil)
	_ BFD               = (*bfd.Manager)(nil)
)

const (
	// restartWait bounds how long sessions wait after a restart for the paths that
	// the routers have kept.
	restartWait = 2 * time.Second
	// stopping is what routers are told, RFC 9003.
	stopping = "lbd stops on this node"
)

// BFD keeps BFD sessions; see bfd.Manager.
type BFD interface {
	Apply([]bfd.Session) error
	Status() []bfd.Status
	Close(context.Context) error
}

// Options are what New needs.
type Options struct {
	// Logger is required.
	Logger *slog.Logger
	// Speaker makes the speaker, which calls changed when a session may have
	// changed.
	Speaker func(changed func()) Speaker
	// BFD makes the BFD sessions, which call changed when one has changed.
	BFD func(changed func()) BFD
	// StateFile is where it is written down what was advertised to peers with
	// graceful restart; it need not survive a reboot. Empty: every start is a first
	// one.
	StateFile string
}

// Driver is the BGP part of a Desired. Its methods but Apply and Close are safe
// for concurrent use.
type Driver struct {
	log     *slog.Logger
	speaker Speaker
	memory  *memory
	changed chan struct{}
	stop    context.CancelFunc
	wg      sync.WaitGroup

	// peerMu guards the sessions; it is never held while paths change, so that the
	// answer to a BFD failure does not wait for them.
	peerMu sync.Mutex
	sessions
	watched
	connected

	// pathMu guards the paths, for Apply and the dead man's switch.
	pathMu sync.Mutex
	paths  map[netip.Prefix]model.BGPPath // that the speaker has
	told   map[netip.Prefix][]string      // the last report; never changed
	deadMan
}

// New returns a driver; its speaker starts with the first peer. It reads at once
// what an earlier process left in StateFile.
func New(o Options) *Driver {
	ctx, stop := context.WithCancel(context.Background())
	d := &Driver{
		log: o.Logger, stop: stop,
		changed:   make(chan struct{}, 1),
		sessions:  sessions{peers: make(map[string]*session)},
		connected: connected{full: make(map[string]bool), endless: make(map[string]time.Time)},
		watched:   watched{ways: make(map[string]way), news: make(chan struct{}, 1)},
		paths:     make(map[netip.Prefix]model.BGPPath),
		memory:    recall(o.StateFile, o.Logger),
	}
	d.speaker = o.Speaker(d.notify)
	d.bfd = o.BFD(d.lookAgain)
	d.dead = time.AfterFunc(time.Hour, d.expire)
	d.dead.Stop() // nothing is decided yet
	d.wg.Go(func() { d.watch(ctx) })
	return d
}

func (d *Driver) Name() model.SinkName { return model.SinkBGP }

// Changed fires when a session or a BFD session has changed.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

func (d *Driver) notify() { wake.Up(d.changed) }

// Restarted tells whether an earlier process of this node was here a moment ago,
// so that routers still have its paths, and to which prefixes.
func (d *Driver) Restarted() (bool, []netip.Prefix) {
	return len(d.memory.peers) > 0, d.memory.prefixes
}

// Close ends the sessions without graceful restart; the others end with the
// process, and their routers keep the paths for a while.
func (d *Driver) Close(ctx context.Context) error {
	d.peerMu.Lock()
	d.closed = true
	d.peerMu.Unlock()
	d.stop()
	d.wg.Wait()
	d.pathMu.Lock()
	d.deadMan.end()
	d.pathMu.Unlock()
	var errs []error
	errs = append(errs, d.memory.save(len(d.memory.last.Prefixes) > 0))
	done := make(chan struct{})
	go func() { d.speaker.Close(stopping); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		errs = append(errs, context.Cause(ctx))
	}
	errs = append(errs, d.bfd.Close(ctx))
	return errors.Join(errs...)
}
