package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/wake"
)

// conditionAnnounced is the type of the condition of a Service that says which node announces it.
const conditionAnnounced = "lbd.dev/Announced"

// conditionUnknown is the status of a condition of which nothing is known.
const conditionUnknown v1alpha1.ConditionStatus = "Unknown"

// The reasons of events about a change of the condition's status. Of a Service without an
// advertisement the judge tells, with the same word.
const (
	eventAnnounced = "Announced"
	eventUnheard   = eventSilent
)

// announcePace is how the conditions of Services are paced. Nothing is queued: what is to be written
// follows from what the nodes say now. So thousands of Services whose nodes restart are a few writes
// a second, and what has come back by then is no write at all.
type announcePace struct {
	// look is the time between two looks, and most the writes after one of them.
	look time.Duration
	most int
	// again is the time between two writes of one Service.
	again time.Duration
	// hold is how long a Service must be worse off until its condition says so, and how long a
	// message must be another one where the status stays: two nodes between which an address moves
	// tell of it one after the other, up to five seconds apart.
	hold time.Duration
	// beat is how often it is looked without a cause, and retry how long after a failure.
	beat, retry time.Duration
}

var announceSlowly = announcePace{look: time.Second, most: 25, again: 5 * time.Second, hold: 10 * time.Second, beat: 30 * time.Second, retry: 10 * time.Second}

// announcer writes into Services which nodes announce them. One goroutine owns all of it.
type announcer struct {
	c     *Controller
	pace  announcePace
	nodes *k8s.Watch[sight]
	ours  services.Options
	// wanted are the conditions that are not written yet, and since when they are to be.
	wanted map[model.Key]wanted
	// wrote are the newest writes: the watch may not have them yet.
	wrote map[model.Key]wrote
	// had are the Services that had a condition at the last look, by UID. One that has gone from
	// the watch may have become of another type, and still have it.
	had map[model.Key]string
	// refused are the Services whose condition the API server did not take.
	refused map[model.Key]bool
}

// wanted is a condition, without a type if there is to be none.
type wanted struct {
	is    v1alpha1.Condition
	since time.Time // it has had its status, or its message if the status stays
}

type wrote struct {
	is v1alpha1.Condition
	at time.Time
}

// change is one write that is due.
type change struct {
	key     model.Key
	uid     string
	before  v1alpha1.Condition
	is      v1alpha1.Condition
	waiting time.Time
}

func newAnnouncer(c *Controller) *announcer {
	client, statuses := c.o.Client, objects.Resource(v1alpha1.NodeStatusKind)
	return &announcer{
		c: c, pace: c.announce, wanted: map[model.Key]wanted{}, wrote: map[model.Key]wrote{}, had: map[model.Key]string{}, refused: map[model.Key]bool{},
		ours: services.Options{Class: c.o.Allocator.Class, Classless: c.o.Allocator.Classless},
		nodes: k8s.NewWatch(k8s.WatchOptions[sight]{
			Name: "nodestatuses", ListWatch: k8s.ListWatch(client.Dynamic, client.Dynamic.Resource(statuses)), Object: &unstructured.Unstructured{},
			Convert: convertSight, Changed: func([]model.Key) { wake.Up(c.changes.seen) },
			Lacks: func(ctx context.Context) (bool, error) {
				return client.Lacks(ctx, statuses.Group, []string{statuses.Version}, statuses.Resource)
			},
			Optional: true, // the roles of an earlier version do not let it be watched
		}),
	}
}

// run looks after each change until ctx ends. Only a leader watches the statuses of nodes.
func (a *announcer) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { a.nodes.Run(ctx) })
	for {
		pause, next := a.pace.look, a.pace.beat
		if a.nodes.Synced() && !a.nodes.State().Absent {
			waits, err := a.look(ctx, time.Now())
			switch {
			case err != nil && ctx.Err() == nil:
				a.c.o.Logger.Debug("conditions of services", "err", err)
				pause, next = a.pace.retry, 0
			case waits:
				next = 0
			}
		}
		if !wake.Sleep(ctx, pause) {
			return
		}
		if next == 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-a.c.changes.seen:
		case <-time.After(next):
		}
	}
}

// look compares all Services with what the nodes say, and writes some of what is due. It tells
// whether more waits.
func (a *announcer) look(ctx context.Context, now time.Time) (waits bool, err error) {
	due := a.due(now)
	waits = len(a.wanted) > 0
	for i, x := range due {
		if i == a.pace.most || !a.c.elector.Valid() || ctx.Err() != nil {
			return true, nil
		}
		if x.is.LastTransitionTime = x.before.LastTransitionTime; x.before.Status != x.is.Status || x.before.LastTransitionTime.IsZero() {
			x.is.LastTransitionTime = now
		}
		err := a.c.writeAnnounced(ctx, x)
		switch {
		case err == nil:
			a.wrote[x.key] = wrote{x.is, now}
			if x.is.Type != "" {
				a.had[x.key] = x.uid
			}
			a.tell(x)
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, or another one
			delete(a.had, x.key)
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			// Admission may refuse one Service, which keeps no other waiting.
			if len(a.refused) == 0 {
				a.c.o.Logger.Warn("the condition of a service is refused", "service", x.key.String(), "err", err)
			}
			a.refused[x.key], a.wrote[x.key] = true, wrote{x.before, now}
			continue
		default:
			return true, err
		}
		delete(a.refused, x.key)
		delete(a.wanted, x.key)
	}
	return waits, nil
}

// due returns what may be written now, first what has waited for longest.
func (a *announcer) due(now time.Time) []change {
	all, nodes := a.c.services.All(), newTellings(a.counting())
	var silent map[string]string
	if p := a.c.silent.Load(); p != nil {
		silent = *p
	}
	maps.DeleteFunc(a.wrote, func(_ model.Key, w wrote) bool { return now.Sub(w.at) > a.pace.beat })
	maps.DeleteFunc(a.wanted, func(k model.Key, w wanted) bool { _, is := all[k]; return !is && w.is.Type != "" })
	var list []change
	had := make(map[model.Key]string, len(all))
	for k, s := range all {
		before := s.announced
		if before.Type != "" || a.wrote[k].is.Type != "" {
			had[k] = s.UID
		}
		var is v1alpha1.Condition
		class := ""
		if s.Class != nil {
			class = *s.Class
		}
		if a.ours.Ours(class) {
			is = announcement(k.String(), s.Addresses(), nodes, silent[k.String()])
		}
		list = a.add(list, change{key: k, uid: s.UID, before: before, is: is}, now)
	}
	for k, uid := range a.had {
		if _, is := all[k]; !is {
			had[k] = uid // until it is removed there
			if w, ok := a.wrote[k]; ok && w.is.Type == "" {
				delete(had, k)
				continue
			}
			list = a.add(list, change{key: k, uid: uid, before: v1alpha1.Condition{Type: conditionAnnounced}}, now)
		}
	}
	a.had = had
	slices.SortFunc(list, func(x, y change) int {
		if c := x.waiting.Compare(y.waiting); c != 0 {
			return c
		}
		return strings.Compare(x.key.String(), y.key.String())
	})
	return list
}

// add adds a change to the list if it is one and due, and remembers since when it is wanted.
func (a *announcer) add(list []change, x change, now time.Time) []change {
	if w, ok := a.wrote[x.key]; ok {
		if x.before = w.is; now.Sub(w.at) < a.pace.again && !same(x.before, x.is) {
			a.want(x, now)
			return list
		}
	}
	if same(x.before, x.is) {
		delete(a.wanted, x.key)
		return list
	}
	x.waiting = a.want(x, now)
	// What is there, is there at once; so is what is not lbd's any more.
	moved := x.is.Status == v1alpha1.ConditionTrue && x.is.Reason == model.ReasonOwner.String()
	better := x.is.Status == v1alpha1.ConditionTrue && x.before.Status != x.is.Status
	if x.is.Type == "" || moved || better || now.Sub(x.waiting) >= a.pace.hold {
		list = append(list, x)
	}
	return list
}

// want notes what is wanted of a Service, and returns since when.
func (a *announcer) want(x change, now time.Time) time.Time {
	w, ok := a.wanted[x.key]
	if !ok || w.is.Type != x.is.Type || w.is.Status != x.is.Status {
		w.since = now
	}
	w.is = x.is
	a.wanted[x.key] = w
	return w.since
}

// same tells whether two conditions say the same.
func same(a, b v1alpha1.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// counting are the nodes whose word counts: those that are ready, by their Nodes. What others said last
// may be long over. If no Node at all is ready, the fault is with the control plane, and all count.
func (a *announcer) counting() map[string]sight {
	nodes, anyReady := a.c.nodes.All(), false
	for _, n := range nodes {
		anyReady = anyReady || n.ready()
	}
	out := map[string]sight{}
	for k, s := range a.nodes.All() {
		if n, ok := nodes[k]; ok && (n.ready() || !anyReady) {
			out[k.Name] = s
		}
	}
	return out
}

// tell sends an event about a Service that nobody announces any more, or that somebody does again.
func (a *announcer) tell(x change) {
	e := allocator.Event{Kind: services.KindService, Object: x.key, UID: x.uid, Message: x.is.Message}
	switch was, is := x.before.Status, x.is.Status; {
	case was == v1alpha1.ConditionFalse && is == v1alpha1.ConditionTrue:
		e.Reason = eventAnnounced
	case was == v1alpha1.ConditionTrue && is == v1alpha1.ConditionFalse && x.is.Reason != model.ReasonNotAnnounced.String():
		e.Reason, e.Warning = eventUnheard, true
	default:
		return
	}
	a.c.events.send(e)
}

// writeAnnounced writes the condition of one Service, or removes it. Others that write conditions
// keep theirs: a strategic merge patch changes one of the list. A UID that is not that of the Service
// makes it fail.
func (c *Controller) writeAnnounced(ctx context.Context, x change) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.RequestTimeout)
	defer cancel()
	condition := map[string]any{"type": conditionAnnounced, "$patch": "delete"}
	if x.is.Type != "" {
		condition = map[string]any{"type": conditionAnnounced, "status": x.is.Status, "reason": x.is.Reason, "message": x.is.Message,
			"lastTransitionTime": x.is.LastTransitionTime.UTC().Format(time.RFC3339)}
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": x.uid}, "status": map[string]any{"conditions": []any{condition}},
	})
	if err != nil {
		return fmt.Errorf("condition of %s: %w", x.key, err)
	}
	err = c.conditions.Core.Patch(types.StrategicMergePatchType).Namespace(x.key.Namespace).Resource("services").Name(x.key.Name).SubResource("status").
		Param("fieldManager", Manager).Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("condition of %s: %w", x.key, err)
	}
	return nil
}
