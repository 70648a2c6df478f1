package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/services"
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
)

const (
	// judgePause is the time between two judgements, judgeRetry that after a failure.
	judgePause = time.Second
	judgeRetry = 10 * time.Second
)

// judge writes the condition Accepted of all objects but pools, which the allocator
// judges. What is said of an object is what speakers would say of it, but for what
// only a node can know.
type judge struct {
	c    *Controller
	told map[string]v1alpha1.Condition // by kind and name, what was written here
}

// run judges after each change until ctx ends.
func (j *judge) run(ctx context.Context) {
	for {
		pause := judgePause
		if err := j.all(ctx); err != nil && ctx.Err() == nil {
			j.c.o.Logger.Debug("conditions of objects", "err", err)
			j.c.changes.judge()
			pause = judgeRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return
		case <-j.c.changes.judged:
		}
	}
}

// all judges every object, and returns the first error.
func (j *judge) all(ctx context.Context) error {
	set := j.c.objects
	if !set.Synced() { // one that is read later would look missing
		return nil
	}
	all := set.Objects()
	problems := problemsOf(all, j.c.o.Allocator)
	var first error
	for _, err := range []error{
		judgeKind(ctx, j, set.VirtualIPs, v1alpha1.KindVirtualIP, problems), judgeKind(ctx, j, set.Peers, v1alpha1.KindBGPPeer, problems),
		judgeKind(ctx, j, set.Profiles, v1alpha1.KindBFDProfile, problems), judgeKind(ctx, j, set.Communities, v1alpha1.KindCommunity, problems),
		judgeKind(ctx, j, set.L2Advertisements, v1alpha1.KindL2Advertisement, problems),
		judgeKind(ctx, j, set.BGPAdvertisements, v1alpha1.KindBGPAdvertisement, problems),
	} {
		if first == nil {
			first = err
		}
	}
	return first
}

// problemsOf are the problems of valid objects with each other, by kind and name.
func problemsOf(o objects.Objects, opts allocator.Options) map[string][]string {
	b := services.New(services.Options{Class: opts.Class, Classless: opts.Classless})
	files := map[string]string{} // that are on the nodes: here they count as there
	for _, p := range o.Peers {
		files[p.Spec.PasswordFile] = "x"
	}
	for _, p := range o.Profiles {
		files[p.Spec.AuthKeyFile] = "x"
	}
	b.SetObjects(services.Objects{
		VirtualIPs: o.VirtualIPs, Peers: o.Peers, Profiles: o.Profiles, Communities: o.Communities, Pools: o.Pools,
		L2Advertisements: o.L2Advertisements, BGPAdvertisements: o.BGPAdvertisements, Secrets: files,
	})
	r, _ := b.Build()
	list := map[string][]string{}
	for _, p := range r.Problems {
		key := p.Kind + "/" + p.Name
		list[key] = append(list[key], p.Text)
	}
	return list
}

// judgeKind writes what has changed about the objects of one kind.
func judgeKind[T any](ctx context.Context, j *judge, w *k8s.Watch[objects.Object[T]], kind string, problems map[string][]string) error {
	var first error
	for k, o := range w.All() {
		key := kind + "/" + k.Name
		c := verdict(o.Errors, problems[key])
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
			j.tell(kind, k.Name, o.UID, o.Conditions, c)
		}
	}
	return first
}

func verdict(errs []v1alpha1.FieldError, problems []string) v1alpha1.Condition {
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
	return v1alpha1.Condition{Type: v1alpha1.ConditionAccepted, Status: v1alpha1.ConditionTrue, Reason: reasonAccepted, Message: "the object is in use as it is written"}
}

// tell sends an event about a condition that has changed for the worse, or back.
func (j *judge) tell(kind, name, uid string, before []v1alpha1.Condition, now v1alpha1.Condition) {
	was := v1alpha1.ConditionTrue
	words := ""
	for _, c := range before {
		if c.Type == now.Type {
			was, words = c.Status, c.Message
		}
	}
	e := allocator.Event{Kind: kind, Object: name, UID: uid, Warning: true, Reason: eventProblem, Message: fmt.Sprintf("%s: %s", now.Reason, now.Message)}
	switch {
	case now.Status == v1alpha1.ConditionTrue && was == v1alpha1.ConditionTrue, now.Status == was && now.Message == words:
		return
	case now.Status == v1alpha1.ConditionTrue:
		e.Warning, e.Reason, e.Message = false, eventAccepted, now.Message
	}
	j.c.events.send(e)
}
