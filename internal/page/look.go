package page

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/control"
)

const (
	// fresh is how old a snapshot may be that is shown to somebody who asks.
	fresh = 500 * time.Millisecond
	// restFactor is how many times as long as the source took for an answer it is left alone.
	restFactor = 4
	// shortestRest is for how long it is in any case.
	shortestRest = 10 * time.Millisecond
)

// taken is a snapshot, and what is looked up in it. It is never changed.
type taken struct {
	Snapshot
	at                time.Time
	names, remembered map[string]bool // names and addresses of VIPs
	words             string          // about the newest change
}

// ask asks the source a question. Those who ask come one after the other, and the source rests
// for longer than it works: however many people look, or somebody floods the listener, it is the
// loop of decisions that answers, and it has other things to do.
func (p *Page) ask(ctx context.Context, question func() error) error {
	select {
	case p.asking <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	began := time.Now()
	err := question()
	time.AfterFunc(max(restFactor*time.Since(began), shortestRest), func() { <-p.asking })
	return err
}

// look returns the newest snapshot if it is not older, else it takes one.
func (p *Page) look(ctx context.Context, older time.Duration) (*taken, error) {
	if s := p.known(older); s != nil {
		return s, nil
	}
	var s *taken
	err := p.ask(ctx, func() (err error) {
		if s = p.known(older); s != nil { // somebody else has asked meanwhile
			return nil
		}
		if s, err = take(ctx, p.source); err != nil {
			return err
		}
		p.mu.Lock()
		p.newest = s
		clear(p.pages) // they show the one before
		p.mu.Unlock()
		return nil
	})
	return s, err
}

// known is the newest snapshot unless it is older than that.
func (p *Page) known(older time.Duration) *taken {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.newest == nil || time.Since(p.newest.at) >= older {
		return nil
	}
	return p.newest
}

// explain asks about a VIP that there is.
func (p *Page) explain(ctx context.Context, vip string) (list []v1alpha1.Explanation, err error) {
	err = p.ask(ctx, func() (err error) {
		list, err = p.source.Explain(ctx, vip, "")
		return err
	})
	return list, err
}

// take asks for all that the overview shows.
func take(ctx context.Context, source Source) (*taken, error) {
	s := &taken{names: map[string]bool{}, remembered: map[string]bool{}}
	var err error
	// What happens in between is in the status then, and in the events of the next snapshot.
	if s.Events, err = source.Events(ctx, "", 0, 0); err != nil {
		return nil, err
	}
	if s.Status, err = source.Status(ctx); err != nil {
		return nil, err
	}
	s.at = time.Now()
	if s.Status.Time.IsZero() {
		s.Status.Time = s.at
	}
	lead := forwarded(&s.Status)
	for _, address := range lead[:min(len(lead), maxForwards)] {
		list, err := source.Explain(ctx, address, "")
		if err != nil {
			continue // it has gone since
		}
		if i := slices.IndexFunc(list, func(e v1alpha1.Explanation) bool { return len(e.Backends) > 0 }); i >= 0 {
			s.Forwards = append(s.Forwards, list[i])
		}
	}
	for i := range s.Status.VIPs {
		s.names[s.Status.VIPs[i].Name], s.names[s.Status.VIPs[i].Address] = true, true
	}
	for i := range s.Events.Events {
		e := &s.Events.Events[i]
		if e.Mode != "" && e.Address != "" {
			s.remembered[e.VIP], s.remembered[e.Address] = true, true
		}
		s.words = control.About(e) + ": " + cmp.Or(arrows(control.Change(e)), string(e.Kind))
	}
	s.ID = identity(s)
	return s, nil
}

// identity is another one whenever something is to be shown that was not there before. What
// only counts or grows older is no reason to show anything anew.
func identity(s *taken) string {
	still := s.Status
	still.Time = time.Time{}
	still.Members = slices.Clone(still.Members)
	for i := range still.Members {
		still.Members[i].Late = some(still.Members[i].Late)
	}
	still.Health = slices.Clone(still.Health)
	for i := range still.Health {
		h := &still.Health[i]
		h.LastDuration, h.Successes, h.Failures = "", 0, 0
	}
	still.BGP = slices.Clone(still.BGP)
	for i := range still.BGP {
		still.BGP[i].Received, still.BGP[i].Paths = 0, nil
	}
	still.LoadBalancers = nil // those that are shown are explained
	still.Gossip = v1alpha1.GossipStatus{Absent: still.Gossip.Absent, Error: still.Gossip.Error, LastConflictName: still.Gossip.LastConflictName}
	sum := fnv.New64a()
	encoder := json.NewEncoder(sum)
	_ = encoder.Encode(still) // values that are made to be encoded, into memory
	for i := range s.Forwards {
		backends := slices.Clone(s.Forwards[i].Backends)
		for n := range backends {
			backends[n].Connections = nil
		}
		_ = encoder.Encode(backends)
	}
	fmt.Fprint(sum, s.Events.Started, s.Events.Newest)
	return fmt.Sprintf("%016x", sum.Sum64())
}

// some keeps of a text only whether there is any.
func some(text string) string {
	if text == "" {
		return ""
	}
	return "some"
}
