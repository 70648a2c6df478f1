package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/model"
)

// TestAgentsWaitForTheAllocator: what agents of tenants write waits for its turn, or for another change
// for which all tenants are judged.
func TestAgentsWaitForTheAllocator(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Controller)
		taken  bool
	}{
		"nothing else":  {func(*Controller) {}, false},
		"a Service":     {func(c *Controller) { c.changes.service(nil) }, false},
		"a Node":        {func(c *Controller) { c.changes.node(nil) }, true},
		"a pool":        {func(c *Controller) { c.changes.mark(&c.changes.pools) }, true},
		"what they may": {func(c *Controller) { c.changes.mark(&c.changes.standIns) }, true},
	} {
		p := build(t, newAPI(t), "a")
		l := newLeader(p)
		now := time.Now()
		l.pace.Done(now, now)
		p.changes.mark(&p.changes.agents)
		c.change(p)
		again := l.changes(now)
		if again.IsZero() != c.taken || p.changes.agents == c.taken {
			t.Errorf("%s: again at %v, waiting %t", name, again, p.changes.agents)
		}
		if c.taken {
			continue
		}
		if wait := again.Sub(now); wait <= 0 || wait > time.Second {
			t.Errorf("%s: it waits %v", name, wait)
		}
		if l.changes(again); p.changes.agents {
			t.Errorf("%s: it waits when it is its turn", name)
		}
		if l.pace.Wait(time.Now()) == 0 {
			t.Errorf("%s: the next one would not wait", name)
		}
	}
}

// TestRetriesOfAgentsWait: an agent that writes without end has status writes refused. To look at all
// objects again for each of them waits for its turn.
func TestRetriesOfAgentsWait(t *testing.T) {
	p := build(t, newAPI(t), "a")
	l := newLeader(p)
	now := time.Now()
	l.pace.Done(now, now)
	key := standInKey(p.tenants.kind(), model.Key{Namespace: "shop", Name: "default.web"})
	l.retries[key] = retry{at: now}
	l.turn(t.Context(), now)
	if r, ok := l.retries[key]; !ok || !r.at.Equal(now.Add(k8s.PaceLeast)) {
		t.Errorf("the retry is due at %v, and it is %v", r.at, now)
	}
}

// TestAgentsWaitForTheJudge: it keeps others waiting for nothing that an agent of a tenant writes.
func TestAgentsWaitForTheJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Controller{changes: changes{judged: make(chan struct{}, 1), agentsJudged: make(chan struct{}, 1)}}
		j := &judge{c: c}
		waits := func() time.Duration {
			begin := time.Now()
			j.pace.Done(begin.Add(-20*time.Millisecond), begin)
			j.next(t.Context())
			return time.Since(begin)
		}
		c.changes.judgeAgents()
		if w := waits(); w != 400*time.Millisecond {
			t.Errorf("an agent waits %v", w)
		}
		c.changes.judgeAgents()
		c.changes.judge()
		if w := waits(); w != 0 {
			t.Errorf("others wait %v", w)
		}
		time.AfterFunc(time.Second, c.changes.judge)
		<-c.changes.agentsJudged
		if w := waits(); w != time.Second {
			t.Errorf("without a change it waits %v", w)
		}
	})
}
