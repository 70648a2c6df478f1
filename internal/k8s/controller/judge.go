package controller

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/wake"
)

// The reasons of Accepted of objects other than pools.
const (
	reasonInvalid  = "Invalid"  // it breaks a rule by itself
	reasonProblem  = "Problem"  // it asks for something that it does not get
	reasonAccepted = "Accepted" // it is in use
)

// The reasons of events about them.
const (
	eventProblem  = "ObjectProblem"
	eventAccepted = "ObjectAccepted"
	// eventSilent is about a Service.
	eventSilent = "NotAnnounced"
)

const (
	// judgePause is the time between two judgements, judgeRetry that after a failure.
	judgePause = time.Second
	judgeRetry = 10 * time.Second
)

// judge writes the condition Accepted of all objects but pools, which the allocator
// judges, and tells of Services that nobody announces. What is said of an object is what speakers would say of it, but for what
// only a node can know.
type judge struct {
	c    *Controller
	told map[string]v1alpha1.Condition // by kind and name, what was written here
	// b knows the Services and Nodes too; silent are those with an address that nobody
	// announces, and what an event said of it.
	b      *services.Builder
	silent map[string]string
	// wrote are the versions that objects of tenants have since the last write here.
	wrote map[tenantObject]uint64
	pace  k8s.Pace // of what agents of tenants write
	blind bool     // Tenants may not be read
	// lacking: Tenants or their nodes are not known, so that nothing can be said of their Ingresses.
	lacking bool
}

func newJudge(c *Controller) *judge {
	j := &judge{
		c: c, told: map[string]v1alpha1.Condition{}, silent: map[string]string{}, wrote: map[tenantObject]uint64{},
		b: services.New(services.Options{Class: c.o.Allocator.Class, Classless: c.o.Allocator.Classless}),
	}
	c.changes.takeJudged()
	for k := range c.services.All() {
		j.set(k)
	}
	for k, n := range c.nodes.All() {
		j.b.SetNode(k.Name, n.Node)
	}
	return j
}

// run judges after each change until ctx ends.
func (j *judge) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := judgePause
		if err := j.all(ctx); err != nil && ctx.Err() == nil {
			j.c.o.Logger.Debug("conditions of objects", "err", err)
			j.c.changes.judge()
			pause = judgeRetry
		}
		if !wake.Sleep(ctx, pause) {
			return
		}
		j.next(ctx)
	}
}

// next waits until objects are to be judged. What agents of tenants write waits for its turn.
func (j *judge) next(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-j.c.changes.judged:
	case <-time.After(j.pace.Wait(time.Now())):
		select {
		case <-ctx.Done():
		case <-j.c.changes.judged:
		case <-j.c.changes.agentsJudged:
		}
	}
}

// all judges every object, and returns the first error.
func (j *judge) all(ctx context.Context) error {
	set := j.c.objects
	if !set.Synced() { // one that is read later would look missing
		return nil
	}
	began := time.Now()
	select {
	case <-j.c.changes.agentsJudged: // they come along
	default:
	}
	ofTenants := j.look() // before the objects, which have Tenants then if these can be read
	o := set.Objects().Objects
	o.TenantRests = j.c.tenants.resting()
	j.take(o)
	r, _ := j.b.Build()
	j.tellRoutes(j.b.Tenants())
	j.pace.Done(began, time.Now()) // what is written then has a pace of its own
	problems, silent, warnings := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for _, p := range r.Warnings {
		warnings[p.Kind+"/"+p.Name] = append(warnings[p.Kind+"/"+p.Name], p.Text)
	}
	for _, p := range r.Problems {
		if p.Kind == services.KindService {
			silent[p.Name] = append(silent[p.Name], p.Text)
		} else {
			problems[p.Kind+"/"+p.Name] = append(problems[p.Kind+"/"+p.Name], p.Text)
		}
	}
	j.tellServices(silent)
	var first error
	for _, err := range []error{
		judgeKind(ctx, j, set.VirtualIPs, v1alpha1.KindVirtualIP, problems, warnings), judgeKind(ctx, j, set.LoadBalancers, v1alpha1.KindLoadBalancer, problems, warnings), judgeKind(ctx, j, set.Peers, v1alpha1.KindBGPPeer, problems, warnings),
		judgeKind(ctx, j, set.Profiles, v1alpha1.KindBFDProfile, problems, warnings), judgeKind(ctx, j, set.Communities, v1alpha1.KindCommunity, problems, warnings),
		judgeKind(ctx, j, set.L2Advertisements, v1alpha1.KindL2Advertisement, problems, warnings),
		judgeKind(ctx, j, set.BGPAdvertisements, v1alpha1.KindBGPAdvertisement, problems, warnings),
		j.tenants(ctx, ofTenants, j.b.Tenants()),
	} {
		if first == nil {
			first = err
		}
	}
	return first
}

// take brings what has changed into the Builder.
func (j *judge) take(o services.Objects) {
	o.Secrets = map[string]string{} // they are on the nodes: here they count as there
	o.Passwords, o.Namespace = map[string]services.Password{}, j.c.o.Namespace
	for _, p := range o.Peers {
		o.Secrets[p.Spec.PasswordFile] = "x"
		if ref := p.Spec.PasswordSecret; ref != nil {
			o.Passwords[ref.Name] = services.Password{Key: "x"}
		}
	}
	for _, p := range o.Profiles {
		o.Secrets[p.Spec.AuthKeyFile] = "x"
	}
	j.b.SetObjects(o)
	changed, nodes := j.c.changes.takeJudged()
	for k := range changed {
		j.set(k)
	}
	for k := range nodes {
		n, _ := j.c.nodes.Get(k)
		j.b.SetNode(k.Name, n.Node)
	}
}

// set brings one Service into the Builder.
func (j *judge) set(k model.Key) {
	s, ok := j.c.services.Get(k)
	if !ok {
		j.b.SetService(k, nil)
		return
	}
	x := &services.Service{Labels: s.Labels, Local: s.Local}
	if s.Class != nil {
		x.Class = *s.Class
	}
	for _, i := range s.Ingress {
		if a, err := netip.ParseAddr(i.IP); err == nil && a.Zone() == "" {
			x.Addresses = append(x.Addresses, a.Unmap())
		}
	}
	j.b.SetService(k, x)
}

// tellServices sends an event about each Service with an address that nobody
// announces, once while that lasts.
func (j *judge) tellServices(problems map[string][]string) {
	silent := make(map[string]string, len(problems))
	for name, list := range problems {
		silent[name] = strings.Join(list, "; ")
	}
	j.c.silent.Store(&silent)
	wake.Up(j.c.changes.seen)
	for name, list := range problems {
		words := strings.Join(list, "; ")
		if j.silent[name] == words {
			continue
		}
		if s, ok := j.c.services.Get(model.ParseKey(name)); ok && j.c.elector.Valid() {
			j.c.events.send(allocator.Event{Kind: services.KindService, Object: s.Key, UID: s.UID, Warning: true, Reason: eventSilent, Message: words})
			j.silent[name] = words
		}
	}
	maps.DeleteFunc(j.silent, func(name, _ string) bool { return problems[name] == nil })
}

// judgeKind writes what has changed about the objects of one kind.
func judgeKind[T any](ctx context.Context, j *judge, w *k8s.Watch[objects.Object[T]], kind string, problems, warnings map[string][]string) error {
	var first error
	for k, o := range w.All() {
		key := kind + "/" + k.Name
		c := verdict(o.Errors, problems[key], warnings[key])
		c.ObservedGeneration = o.Generation
		if j.told[key] == c || !j.c.elector.Valid() {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
		sent, err := j.c.writer.Write(limited, kind, k.Name, o.Conditions, []v1alpha1.Condition{c}, nil)
		cancel()
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		j.told[key] = c
		if sent {
			j.tell(kind, k, o.UID, o.Conditions, c)
		}
	}
	return first
}

func verdict(errs []v1alpha1.FieldError, problems, warnings []string) v1alpha1.Condition {
	switch {
	case len(errs) > 0:
		var words []string
		for _, err := range errs {
			words = append(words, err.Error())
		}
		return v1alpha1.Condition{Type: v1alpha1.ConditionAccepted, Status: v1alpha1.ConditionFalse, Reason: reasonInvalid,
			Message: strings.Join(words, "; ") + ": the object is not used"}
	case len(problems) > 0:
		return v1alpha1.Condition{Type: v1alpha1.ConditionAccepted, Status: v1alpha1.ConditionFalse, Reason: reasonProblem, Message: strings.Join(problems, "; ")}
	}
	return v1alpha1.Condition{Type: v1alpha1.ConditionAccepted, Status: v1alpha1.ConditionTrue, Reason: reasonAccepted,
		Message: strings.Join(append([]string{"the object is in use as it is written"}, warnings...), "; ")}
}

// tell sends an event about a condition that has changed for the worse, or back.
func (j *judge) tell(kind string, k model.Key, uid string, before []v1alpha1.Condition, now v1alpha1.Condition) {
	was := v1alpha1.ConditionTrue
	words := ""
	for _, c := range before {
		if c.Type == now.Type {
			was, words = c.Status, c.Message
		}
	}
	e := allocator.Event{Kind: kind, Object: k, UID: uid, Warning: true, Reason: eventProblem, Message: fmt.Sprintf("%s: %s", now.Reason, now.Message)}
	switch {
	case now.Status == v1alpha1.ConditionTrue && was == v1alpha1.ConditionTrue, now.Status == was && now.Message == words:
		return
	case now.Status == v1alpha1.ConditionTrue:
		e.Warning, e.Reason, e.Message = false, eventAccepted, now.Message
	}
	j.c.events.send(e)
}
