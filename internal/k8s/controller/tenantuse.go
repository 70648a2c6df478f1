package controller

import (
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/tenants"
)

// TenantUse is what a Tenant has and what it may have.
type TenantUse struct {
	objects.TenantUse
	Limits v1alpha1.TenantLimits
	// Away tells of the clusters of the Tenant whose agents have given a sign of life, by name, whether they
	// give none any more. Only the controller that leads knows of any.
	Away map[string]bool
}

// TenantUse is that of each Tenant, by its name.
func (c *Controller) TenantUse() map[string]TenantUse {
	all := objects.Tenants{Tenants: c.objects.Tenants.All()}
	if len(all.Tenants) == 0 {
		return nil
	}
	all.Nodes, all.Services, all.Routes = c.objects.TenantNodes.All(), c.objects.TenantServices.All(), c.routes.Routes()
	out := make(map[string]TenantUse, len(all.Tenants))
	use, away := all.Use(), c.pulses.away()
	for k, t := range all.Tenants {
		u := TenantUse{use[k.Name], t.Value.Spec.Limits, map[string]bool{}}
		for _, x := range t.Value.Spec.Clusters {
			if gone, known := away[x.Namespace]; known {
				u.Away[x.Name] = gone
			}
		}
		out[k.Name] = u
	}
	return out
}

// RoutesStill tells whether nothing of the routes of tenants changes but the nodes behind them: this controller leads, and cannot
// read what the hub has for them.
func (c *Controller) RoutesStill() bool { return c.routes.Still() }

// listenEvery is the time between two looks at the signs of life of agents.
const listenEvery = time.Minute

// pulses follows the Leases by which the agents of tenants say that they are there. How old a sign is counts by
// the clock of this computer, as with a Lease by which a replica leads: clocks that differ make nobody seem away.
type pulses struct {
	c     *Controller
	every time.Duration

	mu   sync.Mutex
	last map[string]pulse // by namespace; empty while this controller does not lead
}

// pulse is the last change of a Lease, when it was seen first, and when the Lease was last read.
type pulse struct {
	renewed    string
	seen, read time.Time
}

// run looks until ctx ends.
func (p *pulses) run(ctx context.Context) {
	defer p.forget()
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	for {
		p.listen(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// listen reads the Lease of each cluster of each Tenant. What cannot be read is as it was, and grows no older. A cluster that
// is no more, or of which it may not be read any more, is forgotten. One whose Lease is gone gives no sign of life.
func (p *pulses) listen(ctx context.Context, now time.Time) {
	namespaces := map[string]bool{}
	for _, t := range p.c.objects.Tenants.All() {
		for _, x := range t.Value.Spec.Clusters {
			namespaces[x.Namespace] = true
		}
	}
	p.mu.Lock()
	maps.DeleteFunc(p.last, func(namespace string, _ pulse) bool { return !namespaces[namespace] })
	p.mu.Unlock()
	for namespace := range namespaces {
		renewed, err := p.read(ctx, namespace)
		denied := apierrors.IsForbidden(err)
		if err != nil && !denied && !apierrors.IsNotFound(err) {
			p.c.o.Logger.Debug("sign of life of an agent", "namespace", namespace, "err", err)
			continue
		}
		p.mu.Lock()
		switch before, known := p.last[namespace]; {
		case denied:
			delete(p.last, namespace)
		case renewed == "" && !known: // no agent has ever given one
		case renewed == "" || renewed == before.renewed:
			p.last[namespace] = pulse{before.renewed, before.seen, now}
		default:
			p.last[namespace] = pulse{renewed, now, now}
		}
		p.mu.Unlock()
	}
}

// read gives when the agent last renewed its Lease, as it says; empty: it never did.
func (p *pulses) read(ctx context.Context, namespace string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
	defer cancel()
	l, err := p.c.o.Client.Dynamic.Resource(lease.Resource).Namespace(namespace).Get(ctx, tenants.PulseName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	renewed, _, err := unstructured.NestedString(l.Object, "spec", "renewTime")
	return renewed, err
}

// away tells of each namespace whose agent has given signs of life whether the last is older than tenants.AwayAfter.
func (p *pulses) away() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]bool, len(p.last))
	for namespace, l := range p.last {
		out[namespace] = l.read.Sub(l.seen) > tenants.AwayAfter
	}
	return out
}

// forget is for a controller that leads no more.
func (p *pulses) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.last)
}
