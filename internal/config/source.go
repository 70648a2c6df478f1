package config

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
)

// How the files are watched.
const (
	// DefaultPoll is how often the files are looked at.
	DefaultPoll = 2 * time.Second
	// settleShare is the part of a poll for which the files must stay the same
	// before a change is read, so that a file is not read half written.
	settleShare = 8
)

// SourceOptions are what a Source needs.
type SourceOptions struct {
	// Config is the result of Load(Path); the source starts with it.
	Config *Config
	// Path is watched.
	Path   string
	Logger *slog.Logger
	// OnChange is given every good change after the start, also one of the keys
	// alone, before it is published. It runs on the goroutine of Run and must not
	// block. It may be nil.
	OnChange func(*Config)
	// OnStatus is given the status at the start and after each change of Generation or Err.
	// It runs where OnChange does, and must not block. It may be nil.
	OnStatus func(Status)
	// Poll is how often the files are looked at; 0 means DefaultPoll.
	Poll time.Duration
}

// Status is what a Source says about itself.
type Status struct {
	Path   string
	Loaded time.Time // when the configuration in use was read
	// Generation counts the configurations that were in use, from 1.
	Generation uint64
	// Err is why the files as they are now are refused; empty if they are in use.
	Err string
	// Warnings are those of the configuration in use.
	Warnings []string
}

// Source watches the files, the keyring and the files with passwords, and publishes what they say. What it
// cannot use it refuses as a whole, and the state stays as it was.
type Source struct {
	opts   SourceOptions
	loader loader
	asked  chan chan<- error // Reload was called, and waits for an answer

	mu     sync.Mutex // guards all below
	cfg    *Config
	status Status
}

var _ source.Source = (*Source)(nil)

// NewSource returns a source that starts with what was loaded already.
func NewSource(opts SourceOptions) *Source {
	if opts.Poll <= 0 {
		opts.Poll = DefaultPoll
	}
	return &Source{
		opts:   opts,
		loader: loader{path: opts.Path, hostName: opts.Config.hostName, watched: opts.Config.watched},
		asked:  make(chan chan<- error),
		cfg:    opts.Config,
		status: Status{
			Path:       opts.Path,
			Loaded:     time.Now(),
			Generation: 1,
			Warnings:   opts.Config.Warnings,
		},
	}
}

func (s *Source) Name() model.SourceName { return model.SourceConfig }

// Config returns the configuration in use.
func (s *Source) Config() *Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// Status says which configuration is in use, and what is wrong with a newer one.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Warnings = slices.Clone(st.Warnings)
	return st
}

// Reload has Run read the files now, and returns why they are refused; nil if they are
// in use. It waits as long as ctx allows.
func (s *Source) Reload(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case s.asked <- answer:
		return <-answer
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run publishes the configuration and then every change of it until ctx ends.
func (s *Source) Run(ctx context.Context, publish source.Publish) error {
	cfg := s.Config()
	for _, w := range cfg.Warnings {
		s.opts.Logger.Warn("configuration", "reason", w)
	}
	publish(func(v *model.View) { cfg.into(v) })
	s.tell()

	// The files may have changed since they were loaded, so the first look reads
	// them whatever they look like.
	var seen, pending string
	timer := time.NewTimer(s.opts.Poll)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case answer := <-s.asked:
			// Somebody may still be writing; so the next look reads once more.
			seen, pending = "", ""
			answer <- s.reload(publish)
		case <-timer.C:
			mark := s.mark()
			switch {
			case mark == seen:
				pending = ""
			case mark != pending:
				pending = mark
				timer.Reset(max(s.opts.Poll/settleShare, 1))
				continue
			default:
				// What is written from here on changes the mark again.
				seen, pending = mark, ""
				_ = s.reload(publish) // logged, and in the status
			}
		}
		timer.Reset(s.opts.Poll)
	}
}

// mark is the fingerprint of all that the last load looked at.
func (s *Source) mark() string {
	return fingerprint(s.opts.Path, s.loader.watched...)
}

// reload reads everything and applies it if it is good and new. The error is why it is
// not good.
func (s *Source) reload(publish source.Publish) error {
	now := s.Config()
	next, err := s.loader.load()
	if err == nil {
		err = join(restartOnly(now, next))
	}
	if err != nil {
		s.refuse(err)
		return err
	}
	if next.equal(now) {
		s.accept(now, next.Warnings, false)
		return nil
	}
	s.accept(next, next.Warnings, true)
	if s.opts.OnChange != nil {
		s.opts.OnChange(next)
	}
	if !next.sameFacts(now) {
		publish(func(v *model.View) { next.into(v) })
	}
	return nil
}

// refuse keeps the configuration in use and says why, once.
func (s *Source) refuse(err error) {
	s.mu.Lock()
	again := s.status.Err == err.Error()
	s.status.Err = err.Error()
	s.mu.Unlock()
	if !again {
		s.opts.Logger.Error("configuration refused, the former one stays in use", "err", err)
		s.tell()
	}
}

// accept clears the error, and takes cfg into use if it is new.
func (s *Source) accept(cfg *Config, warnings []string, isNew bool) {
	s.mu.Lock()
	healed := s.status.Err != ""
	fresh := slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return slices.Contains(s.status.Warnings, w) })
	s.cfg = cfg
	s.status.Err = ""
	s.status.Warnings = warnings
	if isNew {
		s.status.Generation++
		s.status.Loaded = time.Now()
	}
	gen := s.status.Generation
	s.mu.Unlock()

	switch {
	case isNew:
		s.opts.Logger.Info("configuration applied", "generation", gen, "vips", len(cfg.VIPs), "checks", len(cfg.Checks),
			"peers", len(cfg.Node.Gossip.Peers), "keys", len(cfg.Node.Gossip.Keys), "bgp_peers", len(cfg.Peers))
	case healed:
		s.opts.Logger.Info("configuration is good again, nothing has changed", "generation", gen)
	}
	for _, w := range fresh {
		s.opts.Logger.Warn("configuration", "reason", w)
	}
	if isNew || healed {
		s.tell()
	}
}

// tell hands the status on.
func (s *Source) tell() {
	if s.opts.OnStatus != nil {
		s.opts.OnStatus(s.Status())
	}
}

// equal tells whether two configurations mean the same.
func (c *Config) equal(o *Config) bool {
	return reflect.DeepEqual(c.Node, o.Node) && reflect.DeepEqual(c.VIPs, o.VIPs) && reflect.DeepEqual(c.Checks, o.Checks) &&
		reflect.DeepEqual(c.LoadBalancers, o.LoadBalancers) && c.sameBGP(o)
}

// sameFacts tells whether two configurations put the same into a View.
func (c *Config) sameFacts(o *Config) bool {
	return reflect.DeepEqual(c.VIPs, o.VIPs) && reflect.DeepEqual(c.LoadBalancers, o.LoadBalancers) && maps.Equal(c.Node.Labels, o.Node.Labels) &&
		c.Node.Weight == o.Node.Weight && c.Node.DrainTimeout == o.Node.DrainTimeout && c.Node.NoRelay == o.Node.NoRelay &&
		c.Node.ServiceConnections == o.Node.ServiceConnections && c.sameBGP(o)
}

// sameBGP tells whether sessions are to be the same.
func (c *Config) sameBGP(o *Config) bool {
	return reflect.DeepEqual(c.Peers, o.Peers) && reflect.DeepEqual(c.Listeners, o.Listeners) && reflect.DeepEqual(c.BGP, o.BGP)
}

// into puts the facts into a View, which then shares them.
func (c *Config) into(v *model.View) {
	v.SetObjects(model.SourceConfig, model.Objects{VIPs: c.VIPs, Peers: c.Peers, LoadBalancers: c.LoadBalancers, Listeners: c.Listeners})
	v.SetLabels(model.SourceConfig, c.Node.Labels)
	v.Weight = c.Node.Weight
	v.DrainTimeout = c.Node.DrainTimeout
	v.NoRelay, v.ServiceConnections = c.Node.NoRelay, c.Node.ServiceConnections
	v.BGP = c.BGP
	if v.Synced == nil {
		v.Synced = make(map[model.SourceName]bool)
	}
	v.Synced[model.SourceConfig] = true
}
