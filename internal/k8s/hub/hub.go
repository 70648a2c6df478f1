// Package hub is what the admin of a hub sees and does of its tenants: which there are, what each has and
// why it lacks the rest, a new token for an agent, and the end of a tenant. It reads once and watches
// nothing.
package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/agent"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// Tenant is a Tenant with what its clusters have.
type Tenant struct {
	Name      string                `json:"name"`
	Suspended bool                  `json:"suspended"`
	Accepted  objects.Verdict       `json:"accepted"`
	Pools     []string              `json:"pools"`
	Limits    v1alpha1.TenantLimits `json:"limits"`
	Use       objects.TenantUse     `json:"use"`
	Clusters  []Cluster             `json:"clusters"`
}

// Cluster is one cluster of a tenant.
type Cluster struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	NodeCIDRs []string `json:"nodeCIDRs"`
	NodePorts string   `json:"nodePorts"`
	// Owner is the other Tenant that has the namespace; empty: it is of this one.
	Owner string `json:"namespaceOf,omitempty"`
	// AgentWrote is when the agent last wrote an object that is there. It writes what changes and
	// nothing else, so an old time need not mean that it is gone.
	AgentWrote time.Time `json:"agentWrote,omitzero"`
	// AgentHeard is when the agent last said that it is there and sees both clusters, which it does each
	// minute, by the clock of the hub. Zero: it never did, as those of earlier versions, or the Leases may not
	// be read.
	AgentHeard time.Time `json:"agentHeard,omitzero"`
	// Refused is another cluster whose agent has the credentials of this one.
	Refused Refused `json:"refused,omitzero"`
	// Services, Nodes and Routes are by name.
	Services []Service `json:"services,omitempty"`
	Nodes    []Nodes   `json:"nodes,omitempty"`
	Routes   []Route   `json:"routes,omitempty"`
}

// Refused is a cluster that the hub does not know by the credentials that it has: its agent writes nothing.
type Refused struct {
	// UID is that of its namespace kube-system.
	UID string `json:"uid"`
	// Seen is when its agent last said so, which it does each minute, by the clock of the hub.
	Seen time.Time `json:"seen"`
}

// Last is when the agent was last heard, and away tells whether it has given no sign of life for long although
// it gave some before.
func (c *Cluster) Last(now time.Time) (at time.Time, away bool) {
	at = c.AgentHeard
	if c.AgentWrote.After(at) {
		at = c.AgentWrote
	}
	return at, !c.AgentHeard.IsZero() && now.Sub(at) > tenants.AwayAfter
}

// Service is a TenantService.
type Service struct {
	Name      string                   `json:"name"`
	Addresses []v1alpha1.TenantAddress `json:"addresses"`
	Ports     []v1alpha1.TenantPort    `json:"ports"`
	// GlobalName is the one under which it shares addresses, and Weight its share beside the others.
	GlobalName string          `json:"globalName,omitempty"`
	Weight     *int32          `json:"weight,omitempty"`
	Verdict    objects.Verdict `json:"verdict"`
}

// Route is a TenantRoute.
type Route struct {
	Name      string          `json:"name"`
	Hosts     []string        `json:"hosts"`
	Addresses []string        `json:"addresses"`
	Verdict   objects.Verdict `json:"verdict"`
}

// Nodes is a TenantNodes object.
type Nodes struct {
	Name    string                `json:"name"`
	Nodes   []v1alpha1.TenantNode `json:"nodes"`
	Verdict objects.Verdict       `json:"verdict"`
}

// read is all that is read of a hub.
type read struct {
	objects.Tenants
	// Of the agent, by namespace: when it wrote an object, and when it gave a sign of life.
	wrote, heard map[string]time.Time
	refused      map[string]Refused
}

// Read returns the tenants of a hub, by name.
func Read(ctx context.Context, c *k8s.Client) ([]Tenant, error) {
	r, err := readAll(ctx, c)
	if err != nil {
		return nil, err
	}
	owners, use := r.Owners(), r.Use()
	out := []Tenant{}
	for _, k := range sorted(r.Tenants.Tenants) {
		o := r.Tenants.Tenants[k]
		s := &o.Value.Spec
		t := Tenant{Name: k.Name, Suspended: s.Suspended, Accepted: o.Verdict(), Pools: s.Pools, Limits: s.Limits, Use: use[k.Name], Clusters: []Cluster{}}
		for _, x := range s.Clusters {
			cluster := Cluster{Name: x.Name, Namespace: x.Namespace, NodeCIDRs: x.NodeCIDRs, NodePorts: x.NodePorts}
			if owner := owners[x.Namespace]; owner != k.Name {
				cluster.Owner = owner
			} else {
				cluster.AgentWrote, cluster.AgentHeard, cluster.Refused = r.wrote[x.Namespace], r.heard[x.Namespace], r.refused[x.Namespace]
				cluster.Services, cluster.Nodes, cluster.Routes = r.services(x.Namespace), r.nodes(x.Namespace), r.routes(x.Namespace)
			}
			t.Clusters = append(t.Clusters, cluster)
		}
		out = append(out, t)
	}
	return out, nil
}

// ErrNoTenant is wrapped by the error for a name that no Tenant has.
var ErrNoTenant = errors.New("there is no Tenant")

// Find returns one tenant.
func Find(ctx context.Context, c *k8s.Client, name string) (Tenant, error) {
	all, err := Read(ctx, c)
	if err != nil {
		return Tenant{}, err
	}
	var names []string
	for _, t := range all {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return Tenant{}, fmt.Errorf("%w %q; the tenants are %q", ErrNoTenant, name, names)
}

func (r *read) services(namespace string) (out []Service) {
	for _, k := range sorted(r.Services) {
		if o := r.Services[k]; k.Namespace == namespace {
			s := Service{Name: k.Name, Ports: o.Value.Spec.Ports, Verdict: o.Verdict(), Addresses: []v1alpha1.TenantAddress{}}
			if s.GlobalName = o.Value.Spec.GlobalName; s.GlobalName != "" {
				s.Weight = new(o.Value.Spec.Share())
			}
			if o.Value.Status != nil {
				s.Addresses = append(s.Addresses, o.Value.Status.Addresses...)
			}
			out = append(out, s)
		}
	}
	return out
}

func (r *read) routes(namespace string) (out []Route) {
	for _, k := range sorted(r.Routes) {
		if o := r.Routes[k]; k.Namespace == namespace {
			x := Route{Name: k.Name, Hosts: o.Value.Spec.Hosts(), Verdict: o.Verdict(), Addresses: []string{}}
			if o.Value.Status != nil {
				x.Addresses = append(x.Addresses, o.Value.Status.Addresses...)
			}
			out = append(out, x)
		}
	}
	return out
}

func (r *read) nodes(namespace string) (out []Nodes) {
	for _, k := range sorted(r.Nodes) {
		if o := r.Nodes[k]; k.Namespace == namespace {
			out = append(out, Nodes{Name: k.Name, Nodes: o.Value.Spec.Nodes, Verdict: o.Verdict()})
		}
	}
	return out
}

func sorted[T any](all map[model.Key]T) []model.Key {
	return slices.SortedFunc(maps.Keys(all), model.Key.Compare)
}

func readAll(ctx context.Context, c *k8s.Client) (*read, error) {
	r := &read{wrote: make(map[string]time.Time), heard: make(map[string]time.Time), refused: make(map[string]Refused)}
	r.Tenants.Tenants, r.Nodes, r.Services = make(map[model.Key]objects.Object[*v1alpha1.Tenant]), make(map[model.Key]objects.Object[*v1alpha1.TenantNodes]), make(map[model.Key]objects.Object[*v1alpha1.TenantService])
	err := each(ctx, c, v1alpha1.KindTenant, "", func(k model.Key, u *unstructured.Unstructured) {
		r.Tenants.Tenants[k] = objects.Read[v1alpha1.Tenant](u, v1alpha1.KindTenant)
	})
	if err != nil {
		return nil, err
	}
	err = each(ctx, c, v1alpha1.KindTenantNodes, "", func(k model.Key, u *unstructured.Unstructured) {
		r.Nodes[k] = objects.Read[v1alpha1.TenantNodes](u, v1alpha1.KindTenantNodes)
		note(r.wrote, u)
	})
	if err != nil {
		return nil, err
	}
	if err := r.listen(ctx, c); err != nil {
		return nil, err
	}
	r.Routes = make(map[model.Key]objects.Object[*v1alpha1.TenantRoute])
	err = each(ctx, c, v1alpha1.KindTenantRoute, "", func(k model.Key, u *unstructured.Unstructured) {
		r.Routes[k] = objects.Read[v1alpha1.TenantRoute](u, v1alpha1.KindTenantRoute)
		note(r.wrote, u)
	})
	if err != nil && !errors.Is(err, errNoKind) { // a hub of an earlier version
		return nil, err
	}
	return r, each(ctx, c, v1alpha1.KindTenantService, "", func(k model.Key, u *unstructured.Unstructured) {
		r.Services[k] = objects.Read[v1alpha1.TenantService](u, v1alpha1.KindTenantService)
		note(r.wrote, u)
	})
}

// note notes when the agent wrote an object, by the clock of the hub.
func note(last map[string]time.Time, u *unstructured.Unstructured) {
	if at := wrote(u, agent.Manager); at.After(last[u.GetNamespace()]) {
		last[u.GetNamespace()] = at
	}
}

// wrote is when somebody last wrote an object; zero: never.
func wrote(u *unstructured.Unstructured, manager string) (at time.Time) {
	for _, m := range u.GetManagedFields() {
		if m.Manager == manager && m.Subresource == "" && m.Time != nil && m.Time.After(at) {
			at = m.Time.UTC()
		}
	}
	return at
}

// listen reads the signs of life of the agents. Who may not read them knows of none.
func (r *read) listen(ctx context.Context, c *k8s.Client) error {
	o := metav1.ListOptions{LabelSelector: labelComponent + "=" + component, Limit: pageSize}
	for {
		list, err := c.Dynamic.Resource(lease.Resource).List(ctx, o)
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("leases: %w", err)
		}
		for i := range list.Items {
			if u := &list.Items[i]; u.GetName() == tenants.PulseName && has(u, labelComponent, component) {
				note(r.heard, u)
				r.refused[u.GetNamespace()] = refusedIn(u)
			}
		}
		if o.Continue = list.GetContinue(); o.Continue == "" {
			return nil
		}
	}
}

var errNoKind = errors.New("the cluster does not know the kind")

// pageSize bounds the objects of one answer.
const pageSize = 500

// each reads the objects of a kind of lbd.dev, of one namespace or of all.
func each(ctx context.Context, c *k8s.Client, kind, namespace string, do func(model.Key, *unstructured.Unstructured)) error {
	for next := ""; ; {
		list, err := c.Dynamic.Resource(objects.Resource(kind)).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%w %s: it is no hub, or lacks what `lbd manifest crds` prints", errNoKind, kind)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			do(model.Key{Namespace: u.GetNamespace(), Name: u.GetName()}, u)
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
