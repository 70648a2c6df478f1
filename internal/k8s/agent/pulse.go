package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/tenants"
)

// whose is what an agent knows of its namespace in the hub.
type whose int32

const (
	unknown whose = iota // nothing is written
	ours
	foreign // another cluster has it: nothing is written to the hub
)

const (
	// askEvery is the time between two questions whose the namespace is, until there is an answer. One that leads asks as often
	// while the hub takes no sign of life from it, so that it is the first to have a Lease that is made anew.
	askEvery = time.Second
	// claimAfter is how long a namespace with objects must have been nobody's, until an agent takes it that does not know that it
	// made them. One that does has taken it by then.
	claimAfter = tenants.PulseEvery * 3 / 2
)

// pulse tells the hub now and then that the agent is there and sees both clusters, and which cluster it is of. The hub
// keeps the first one that says so: a second one with the same credentials would take its Services for those that are gone.
type pulse struct {
	a     *Agent
	every time.Duration
	uid   string // what tells this cluster from others; empty: not known yet
	said  string // the error that was logged last
	// denied: the hub took no sign of life, for want of the Lease or the right to it. vacant is since when each answer was that
	// the namespace is nobody's though there are objects in it.
	denied bool
	vacant time.Time
}

// run tells it until ctx ends.
func (p *pulse) run(ctx context.Context) {
	for {
		p.beat(ctx, time.Now())
		wait := p.every
		if whose(p.a.whose.Load()) == unknown || p.denied {
			wait = min(wait, askEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// beat tells it once, if it is true.
func (p *pulse) beat(ctx context.Context, now time.Time) {
	if p.a.lost(SideHub, lostAfter) != nil || p.a.lost(SideTenant, lostAfter) != nil || !p.a.elector.Valid() {
		p.vacant = time.Time{}
		return
	}
	text, was := "", whose(p.a.whose.Load())
	is := was // who gets no answer knows no more than before
	err := p.send(ctx, now)
	p.denied = false
	if !errors.Is(err, errVacant) {
		p.vacant = time.Time{}
	}
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		is = ours
	case errors.Is(err, errVacant):
		text = "the hub has objects here and does not know of which cluster: nothing is written before the one that made them could have said so"
	case errors.Is(err, errForeign):
		text, is = "the hub has another cluster for this one: nothing is written there", foreign
	case errors.Is(err, errUnnamed):
		text, is = "the hub cannot tell this cluster from another one with its credentials: apply here what `lbd tenant join` of this version prints", max(ours, was)
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		p.denied = true
		text = "the hub takes no sign of life: apply there what `lbd tenant create` of this version prints"
	default:
		text = "the hub has no sign of life of this agent"
	}
	if text != "" && text != p.said {
		p.a.o.Logger.Warn(text, "lease", tenants.PulseName, "namespace", p.a.o.HubNamespace, "err", err)
		if p.denied {
			p.a.sendDenied(text + ": " + err.Error())
		}
	}
	p.said = text
	if p.a.whose.Swap(int32(is)) != int32(is) {
		p.a.wake()
	}
}

var (
	// errForeign is wrapped by the error for a namespace in the hub that is another cluster's.
	errForeign = errors.New("the namespace is another cluster's")
	// errUnnamed is wrapped by the error for a cluster that does not tell which it is, as with the rights of an earlier
	// version. It gives signs of life, and writes.
	errUnnamed = errors.New("it cannot be seen which cluster this is")
	// errVacant is wrapped by the error for a namespace that is nobody's, with objects that may be another cluster's.
	errVacant = errors.New("the namespace is nobody's, and has objects")
)

// ManagerRefused writes that a cluster is refused: it gives no sign of life of the one that is not.
const ManagerRefused = Manager + "-refused"

// send writes the sign of life, or that this cluster is refused.
func (p *pulse) send(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
	defer cancel()
	unnamed := p.name(ctx)
	if unnamed != nil && !errors.Is(unnamed, errUnnamed) {
		return unnamed
	}
	l, err := p.patch(ctx, Manager, map[string]any{}) // which may be patched, and not read
	if err != nil {
		return err
	}
	of := l.GetAnnotations()[tenants.AnnotationCluster]
	refused := of != "" || whose(p.a.whose.Load()) == foreign // a Lease that was made anew is left to the one that was served
	if unnamed == nil && of != p.uid && refused {
		_, err := p.patch(ctx, ManagerRefused, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			tenants.AnnotationRefused: p.uid + " " + now.UTC().Format(time.RFC3339)}}})
		what := "that with the UID " + of
		if of == "" {
			what = "one that was served, and has not said so since the Lease was made anew"
		}
		return errors.Join(fmt.Errorf("%w: %s; this one has the UID %s", errForeign, what, p.uid), err)
	}
	if unnamed == nil && of == "" && whose(p.a.whose.Load()) == unknown && len(p.a.hubNodes.All())+len(p.a.hubServices.All()) > 0 {
		if p.vacant.IsZero() {
			p.vacant = now
		}
		if now.Sub(p.vacant) < claimAfter {
			return fmt.Errorf("%w; it is taken in %v", errVacant, claimAfter-now.Sub(p.vacant).Round(time.Second))
		}
	}
	change := map[string]any{"spec": map[string]any{"holderIdentity": p.a.o.Identity, "renewTime": now.UTC().Format(metav1.RFC3339Micro)}}
	if unnamed == nil && of == "" { // of two that say so at once the hub takes one
		change["metadata"] = map[string]any{"resourceVersion": l.GetResourceVersion(), "annotations": map[string]any{tenants.AnnotationCluster: p.uid}}
	}
	if _, err := p.patch(ctx, Manager, change); err != nil {
		return err
	}
	return unnamed
}

// name reads once what tells this cluster from others: the UID of a namespace that each has.
func (p *pulse) name(ctx context.Context) error {
	if p.uid != "" {
		return nil
	}
	var n corev1.Namespace
	err := p.a.o.Tenant.Core.Get().Resource("namespaces").Name(metav1.NamespaceSystem).Do(ctx).Into(&n)
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", errUnnamed, err)
	case err != nil:
		return fmt.Errorf("namespace %s of this cluster: %w", metav1.NamespaceSystem, err)
	}
	p.uid = string(n.UID)
	return nil
}

func (p *pulse) patch(ctx context.Context, manager string, change map[string]any) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	l, err := p.a.o.Hub.Dynamic.Resource(lease.Resource).Namespace(p.a.o.HubNamespace).
		Patch(ctx, tenants.PulseName, types.MergePatchType, body, metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", tenants.PulseName, err)
	}
	return l, nil
}
