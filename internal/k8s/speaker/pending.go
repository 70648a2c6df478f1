package speaker

import (
	"time"

	"lbd.dev/lbd/internal/model"
)

// pending is what has changed and is not yet in the Builder.
type pending struct {
	services, slices, nodes map[model.Key]bool
	objects                 bool
	agents                  bool // objects that agents of tenants write
}

func newPending() pending {
	return pending{services: make(map[model.Key]bool), slices: make(map[model.Key]bool), nodes: make(map[model.Key]bool)}
}

// pending returns what has changed and forgets it. What agents of tenants have written waits for its
// turn, or for another change that has all objects looked at. One of a Service or its endpoints
// has not, and is not to wait for that.
func (l *loop) pending(now time.Time) pending {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	p := l.s.pending
	l.s.pending = newPending()
	if wait := l.pace.Wait(now); p.agents && wait > 0 && l.synced && !p.objects && len(p.nodes) == 0 {
		p.agents, l.s.pending.agents = false, true
		l.later.Reset(wait)
	}
	p.objects = p.objects || p.agents
	return p
}
