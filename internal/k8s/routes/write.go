package routes

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/routes"
)

const (
	// maxWrites bounds those that are under way.
	maxWrites = 8
	// seenWithin is how long a watch may take to tell what was written here, and failedMost bounds how long
	// what failed waits.
	seenWithin = 2 * time.Second
	failedMost = time.Minute
	// pause is between two writes of one object, whatever they say: agents of tenants cause them.
	pause = time.Second
)

// past is how the last write of an object went.
type past struct {
	body   string
	sent   time.Time
	until  time.Time // the same is not written again before
	wait   time.Duration
	failed bool
}

// writer writes for one term. One goroutine owns it.
type writer struct {
	k     *Keeper
	past  map[routes.ID]past
	fails bool // and the log says so
}

// attempt is one write.
type attempt struct {
	id   routes.ID
	body string
	run  func(context.Context) error
	err  error
}

// The order of writes: an Ingress or other route that is to go may have the hostname of one that is to come. Then comes what
// leads to another after it, and at last that goes to which nothing leads any more.
var (
	deleteAt = map[string]int{routes.KindIngress: 0, routes.KindHTTPRoute: 0, routes.KindGRPCRoute: 0, routes.KindSlice: 4, routes.KindService: 5, routes.KindSecret: 5}
	writeAt  = map[string]int{routes.KindService: 1, routes.KindSlice: 2, routes.KindIngress: 3, routes.KindHTTPRoute: 3, routes.KindGRPCRoute: 3}
)

// write carries out what was decided, and returns when to decide again at the latest.
func (w *writer) write(ctx context.Context, out *routes.Output) time.Duration {
	next := resyncEvery
	var stages [6][]*attempt
	now := time.Now()
	wanted := make(map[routes.ID]bool)
	add := func(stage int, a *attempt) {
		wanted[a.id] = true
		p := w.past[a.id]
		at := p.sent.Add(pause)
		if p.body == a.body && p.until.After(at) {
			at = p.until
		}
		if now.Before(at) {
			next = min(next, at.Sub(now))
			return
		}
		stages[stage] = append(stages[stage], a)
	}
	for _, o := range out.Deletes {
		add(deleteAt[o.Kind], w.delete(o))
	}
	for _, o := range out.Writes {
		add(writeAt[o.Kind], w.apply(o))
	}
	for id, p := range w.past {
		switch {
		case wanted[id]:
		case now.Before(p.sent.Add(pause)):
			w.past[id] = past{sent: p.sent} // it is as it is to be
		default:
			delete(w.past, id)
		}
	}
	for _, list := range stages {
		next = min(next, w.carryOut(ctx, list))
	}
	w.log()
	return next
}

func (w *writer) apply(o routes.Object) *attempt {
	data, err := json.Marshal(o.Body)
	return &attempt{id: o.ID, body: string(data), err: err, run: func(ctx context.Context) error {
		_, err := w.k.o.Client.Dynamic.Resource(resources[o.Kind]).Namespace(o.Namespace).
			Patch(ctx, o.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: w.k.o.Manager, Force: new(true)})
		return err
	}}
}

// delete deletes an object as it was seen, and no other that has its name by now.
func (w *writer) delete(o routes.Delete) *attempt {
	var options metav1.DeleteOptions
	if o.UID != "" {
		options.Preconditions = metav1.NewUIDPreconditions(o.UID)
	}
	return &attempt{id: o.ID, body: "delete", run: func(ctx context.Context) error {
		resource, ours := resources[o.Kind]
		if !ours {
			resource = secretsResource
		}
		err := w.k.o.Client.Dynamic.Resource(resource).Namespace(o.Namespace).Delete(ctx, o.Name, options)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}}
}

// carryOut makes several writes at a time, and returns when the first of those that failed is to be tried
// again.
func (w *writer) carryOut(ctx context.Context, list []*attempt) time.Duration {
	var wg sync.WaitGroup
	room := make(chan struct{}, maxWrites)
	for i, a := range list {
		if ctx.Err() != nil || !w.k.o.Valid() {
			list = list[:i]
			break
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			// It ends before others may lead, and is not cut off.
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.RequestTimeout)
			defer cancel()
			a.err = a.run(limited)
		})
	}
	wg.Wait()
	next, now := resyncEvery, time.Now()
	for _, a := range list {
		p := past{body: a.body, sent: now, wait: seenWithin, failed: a.err != nil}
		if before := w.past[a.id]; p.failed {
			p.wait = k8s.RetryFirst
			if before.failed {
				p.wait = min(2*before.wait, failedMost)
			}
			level := w.k.o.Logger.Debug
			if !w.fails {
				level, w.fails = w.k.o.Logger.Warn, true
			}
			level("an object for a route of a tenant is not written; it is tried again", "kind", a.id.Kind, "object", a.id.Key, "err", a.err)
		}
		if before := w.past[a.id]; !p.failed && !before.failed && before.body == a.body { // another writer has it otherwise
			p.wait = min(2*before.wait, resyncEvery)
		}
		p.until = now.Add(p.wait)
		w.past[a.id] = p
		next = min(next, p.wait)
	}
	return next
}

// log tells once that all is written again.
func (w *writer) log() {
	for _, p := range w.past {
		if p.failed {
			return
		}
	}
	if w.fails {
		w.k.o.Logger.Info("all objects for routes of tenants are written again")
	}
	w.fails = false
}

// tell writes the statuses of TenantRoutes that are not as they are to be, and returns when to look again.
func (w *writer) tell(ctx context.Context, all map[model.Key]objects.Object[*v1alpha1.TenantRoute], out *routes.Output) time.Duration {
	next := resyncEvery
	for key, o := range all {
		if ctx.Err() != nil || !w.k.o.Valid() {
			return next
		}
		if _, judged := out.Verdicts[key]; out.Still && !judged && len(o.Errors) == 0 { // what it says stays
			continue
		}
		wanted, fields := w.status(key, &o, out)
		conditions, changed := objects.Transition(o.Conditions, wanted, time.Now())
		if !changed && len(fields) == 0 {
			continue
		}
		fields["conditions"] = conditions
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.Version}, "status": fields})
		if err == nil {
			limited, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
			_, err = w.k.o.Client.Dynamic.Resource(objects.Resource(v1alpha1.KindTenantRoute)).Namespace(key.Namespace).
				Patch(limited, key.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: w.k.o.Manager}, "status")
			cancel()
		}
		if err != nil { // of one that has changed the watch tells
			w.k.o.Logger.Debug("status of a TenantRoute", "object", key, "err", err)
			next = seenWithin
		}
	}
	return next
}

// status is what the status of a TenantRoute is to say, of fields those that are others than it has.
func (w *writer) status(key model.Key, o *objects.Object[*v1alpha1.TenantRoute], out *routes.Output) ([]v1alpha1.Condition, map[string]any) {
	v, addresses, hostnames := out.Verdicts[key], out.Addresses[key], out.Hostnames[key]
	if len(o.Errors) > 0 {
		var words []string
		for _, err := range o.Errors {
			words = append(words, err.Error())
		}
		v = tenants.Verdict{Reason: "Invalid", Message: strings.Join(words, "; ") + ": the object is not used"}
	}
	condition := func(kind string, is bool, reason, message string) v1alpha1.Condition {
		c := v1alpha1.Condition{Type: kind, Status: v1alpha1.ConditionFalse, ObservedGeneration: o.Generation, Reason: reason, Message: clip(message)}
		if is {
			c.Status = v1alpha1.ConditionTrue
		}
		return c
	}
	good := v.Reason == tenants.ReasonAccepted
	accepted := condition(v1alpha1.ConditionAccepted, good, string(v.Reason), v.Message)
	assigned := condition(v1alpha1.ConditionAddressAssigned, false, v1alpha1.ReasonNotAccepted, "see the condition Accepted")
	switch {
	case good && w.refused(key, o.Value):
		// What the API server says may name objects of others.
		assigned = condition(v1alpha1.ConditionAddressAssigned, false, string(tenants.ReasonNoAddress), "the hub could not make all objects for it; the log of its controller says why")
	case good && out.Pending[key] != "":
		assigned = condition(v1alpha1.ConditionAddressAssigned, false, string(tenants.ReasonNoAddress), out.Pending[key])
	case good && len(addresses) == 0:
		assigned = condition(v1alpha1.ConditionAddressAssigned, false, string(tenants.ReasonNoAddress), "the engine of the hub has not given it an address yet")
	case good:
		assigned = condition(v1alpha1.ConditionAddressAssigned, true, v1alpha1.ReasonAssigned, strings.Join(addresses, ", "))
	}
	fields, has := map[string]any{}, v1alpha1.TenantRouteStatus{}
	if o.Value.Status != nil {
		has = *o.Value.Status
	}
	if out.Still && len(o.Errors) > 0 { // what it had is served still
		addresses, hostnames = has.Addresses, has.Hostnames
	}
	if !slices.Equal(has.Addresses, addresses) {
		fields["addresses"] = addresses
	}
	if !slices.Equal(has.Hostnames, hostnames) {
		fields["hostnames"] = hostnames
	}
	conditions := []v1alpha1.Condition{accepted, assigned}
	if v, has := out.Certificates[key]; has {
		conditions = append(conditions, condition(v1alpha1.ConditionCertificates, v.Reason == tenants.ReasonAccepted, string(v.Reason), v.Message))
	}
	return conditions, fields
}

// clip bounds a message: a tenant can cause long ones.
func clip(text string) string {
	const most, more = 1024, " ..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

// refused tells whether an object for a route could not be written.
func (w *writer) refused(key model.Key, r *v1alpha1.TenantRoute) bool {
	return slices.ContainsFunc(routes.IDs(key.Namespace, r), func(id routes.ID) bool { return w.past[id].failed })
}
