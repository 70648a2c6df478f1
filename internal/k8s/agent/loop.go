package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/tenants/propagate"
)

// How the agent takes its time.
const (
	// resyncEvery is how often both clusters are compared without a cause.
	resyncEvery = 10 * time.Minute
	// coalesce is how long further changes are waited for after a first one.
	coalesce = 20 * time.Millisecond
	// servicePause and nodesPause are between two writes of one object, whatever they write.
	servicePause = 500 * time.Millisecond
	nodesPause   = time.Second
	// seenWithin is how long a watch may take to tell what was written here: the same is not written
	// again meanwhile.
	seenWithin = 2 * time.Second
)

// loop writes for one term. One goroutine owns all of it.
type loop struct {
	a *Agent
	// past is how the last write of each object went, by the id of its job.
	past  map[string]*past
	sides map[string]*side
	// had are the Services with the condition that are ours or in the hub, by UID.
	had        map[model.Key]string
	told       map[model.Key]string // the reason that people were told of last, by Ingress
	secrets    *secrets
	complaints []string
}

func newLoop(a *Agent) *loop {
	return &loop{
		a: a, past: map[string]*past{}, sides: map[string]*side{SideHub: {}, SideTenant: {}}, had: map[model.Key]string{}, told: map[model.Key]string{},
		secrets: newSecrets(a),
	}
}

// run decides and writes until ctx ends.
func (l *loop) run(ctx context.Context) {
	defer l.secrets.running.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	alive := time.NewTicker(stuckAfter / 4)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-alive.C: // without a change the next turn is far off
			l.a.turns()
			continue
		case <-timer.C:
		case <-l.a.kick:
			select {
			case <-ctx.Done():
				return
			case <-time.After(coalesce):
			}
		}
		timer.Reset(time.Until(l.turn(ctx, time.Now())))
	}
}

// turn compares both clusters, writes what differs, and returns when to do so again at the latest.
func (l *loop) turn(ctx context.Context, now time.Time) time.Time {
	for name, s := range l.sides {
		if l.a.back[name].Swap(false) {
			s.at, s.wait = time.Time{}, 0
		}
	}
	is := whose(l.a.whose.Load())
	if is == unknown {
		l.a.turns()
		return now.Add(resyncEvery) // the answer wakes it
	}
	in := l.input()
	in.Foreign = is == foreign
	out := propagate.Step(in)
	l.note(in, &out)
	jobs := l.jobs(in, &out)
	if !in.Foreign {
		jobs = append(jobs, l.ingressJobs(ctx)...)
	}
	if l.forget(jobs, now) {
		return now
	}
	due, next := l.due(jobs, now)
	if l.write(ctx, due) {
		next = model.Earliest(next, time.Now().Add(k8s.RetryFirst))
	}
	l.tellRefusals()
	return model.Earliest(next, now.Add(resyncEvery))
}

// input is what there is now.
func (l *loop) input() *propagate.Input {
	in := &propagate.Input{
		Class: l.a.o.Class, Classless: l.a.o.Classless, Services: l.a.services.All(), Refused: map[model.Key]string{}, Had: l.had,
		HubNodes: map[string]propagate.HubNodes{}, HubServices: map[string]propagate.HubService{},
	}
	nodes := map[string]*services.Node{}
	for k, n := range l.a.nodes.All() {
		nodes[k.Name] = n
	}
	in.Nodes = services.TenantNodes(nodes, l.a.o.CordonDrains)
	in.Endpoints = propagate.Count(slices.Collect(maps.Values(l.a.slices.All())), func(k model.Key) bool { return in.Services[k] != nil && in.Services[k].Local })
	for k, n := range l.a.hubNodes.All() {
		in.HubNodes[k.Name] = n
	}
	for k, s := range l.a.hubServices.All() {
		in.HubServices[k.Name] = s
	}
	for k, s := range in.Services {
		_, there := in.HubServices[propagate.NameOf(k)]
		if s.Condition.Type != "" && (there || in.Ours(s)) {
			l.had[k] = s.UID
		}
	}
	for id, p := range l.past {
		if p.refuses != (model.Key{}) && !ofRoute(id) {
			in.Refused[p.refuses] = p.err.Error()
		}
	}
	return in
}

// note tells metrics and log what was decided.
func (l *loop) note(in *propagate.Input, out *propagate.Output) {
	states := map[v1alpha1.TenantNodeState]int{}
	for _, n := range in.Nodes {
		states[n.State]++
	}
	l.a.turns()
	l.a.mu.Lock()
	s := &l.a.stats
	s.Leader, s.Nodes, s.Counts = true, states, out.Counts
	l.a.mu.Unlock()
	if !slices.Equal(l.complaints, out.Complaints) {
		if len(out.Complaints) > 0 {
			l.a.o.Logger.Warn("the hub does not take all nodes", "namespace", l.a.o.HubNamespace, "err", errors.New(strings.Join(out.Complaints, "; ")))
		} else {
			l.a.o.Logger.Info("the hub takes all nodes", "namespace", l.a.o.HubNamespace)
		}
		l.complaints = out.Complaints
	}
}
