// Package link watches the network interfaces of this node and their addresses
// over rtnetlink.
package link

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
	"lbd.dev/lbd/internal/wake"
)

var _ source.Source = (*Source)(nil)

// Defaults of Options.
const (
	// DefaultResync is how often everything is read again without a message.
	DefaultResync = 30 * time.Second
	// coalesce is the shortest time between two readings: the first message of a
	// burst is obeyed at once, the rest of it together.
	coalesce = 5 * time.Millisecond
	// backoffMin and backoffMax bound the wait before a new subscription.
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// Options configures a Source.
type Options struct {
	Logger *slog.Logger
	// Resync is the time between two full readings; 0 means DefaultResync.
	Resync time.Duration
}

// Source publishes View.Links.
type Source struct {
	log    *slog.Logger
	resync time.Duration
	read   func() ([]model.Link, error)
	listen func() (listener, error)
}

// New returns a Source; nothing is opened before Run.
func New(opt Options) *Source {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	if opt.Resync <= 0 {
		opt.Resync = DefaultResync
	}
	return &Source{
		log:    opt.Logger,
		resync: opt.Resync,
		read:   readLinks,
		listen: func() (listener, error) { return subscribe() },
	}
}

// Snapshot reads the interfaces once. Since is the time of the call.
func Snapshot() (map[string]model.Link, error) {
	links, err := readLinks()
	if err != nil {
		return nil, err
	}
	return merge(nil, links, time.Now()), nil
}

func (s *Source) Name() model.SourceName { return model.SourceLink }

// Run publishes the interfaces now and on every change until ctx ends; then it
// returns nil. A lost subscription is made anew, for ever.
func (s *Source) Run(ctx context.Context, publish source.Publish) error {
	st := &state{source: s, publish: publish}
	wait := backoffMin
	for ctx.Err() == nil {
		healthy, err := s.watch(ctx, st)
		if ctx.Err() != nil {
			break
		}
		if healthy {
			wait = backoffMin
		}
		s.log.Warn("lost the subscription to the interfaces", "err", err, "retry", wait)
		wake.Sleep(ctx, wait)
		wait = min(2*wait, backoffMax)
	}
	return nil
}

// watch holds one subscription until it fails or ctx ends. It tells whether the
// subscription ever worked.
func (s *Source) watch(ctx context.Context, st *state) (healthy bool, err error) {
	l, err := s.listen()
	if err != nil {
		return false, err
	}
	changed := make(chan struct{}, 1)
	failed := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		failed <- l.wait(func() { wake.Up(changed) })
	}()
	defer func() {
		l.Close()
		<-done
	}()

	resync := time.NewTicker(s.resync)
	defer resync.Stop()
	for {
		if err := st.update(); err != nil {
			return healthy, err
		}
		healthy = true
		gap := time.NewTimer(coalesce)
		select {
		case <-ctx.Done():
			gap.Stop()
			return healthy, nil
		case <-gap.C:
		}
		select {
		case <-ctx.Done():
			return healthy, nil
		case err := <-failed:
			return healthy, err
		case <-changed:
		case <-resync.C:
		}
	}
}

// state is what was published last. It outlives subscriptions.
type state struct {
	source  *Source
	publish source.Publish
	links   map[string]model.Link
}

// update reads the interfaces and publishes them if anything changed.
func (st *state) update() error {
	links, err := st.source.read()
	if err != nil {
		return err
	}
	next := merge(st.links, links, time.Now())
	if st.links != nil && maps.EqualFunc(st.links, next, func(a, b model.Link) bool { return a.Equal(&b) }) {
		return nil
	}
	st.report(next)
	st.links = next
	st.publish(func(v *model.View) {
		v.Links = next
		if v.Synced == nil {
			v.Synced = make(map[model.SourceName]bool)
		}
		v.Synced[model.SourceLink] = true
	})
	return nil
}

// report logs every interface that came, went or changed its state.
func (st *state) report(next map[string]model.Link) {
	first := st.links == nil
	for name, l := range next {
		if old, known := st.links[name]; !first && (!known || old.Up != l.Up) {
			st.source.log.Info("interface changed", "iface", name, "up", l.Up)
		}
	}
	for name := range st.links {
		if _, still := next[name]; !still {
			st.source.log.Info("interface is gone", "iface", name)
		}
	}
}

// merge makes a map of the links; Since is taken over from old where Up did not
// change and the interface is the same one.
func merge(old map[string]model.Link, links []model.Link, now time.Time) map[string]model.Link {
	next := make(map[string]model.Link, len(links))
	for _, l := range links {
		l.Since = now
		if o, ok := old[l.Name]; ok && o.Index == l.Index && o.Up == l.Up {
			l.Since = o.Since
		}
		next[l.Name] = l
	}
	return next
}
