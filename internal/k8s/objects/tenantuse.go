package objects

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// Verdict is what the controller has said of an object, in short.
type Verdict struct {
	// OK: the object is in use as it is written, and has what it asks for.
	OK bool `json:"ok"`
	// Reason is one word, and Message a sentence that may be empty.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// notJudged is said of an object about which the controller has not said anything as it is now.
const notJudged = "NotJudged"

// Verdict is what the controller has said of an object of a tenant: first whether it is accepted, then
// whether it has its addresses.
func (o *Object[T]) Verdict() Verdict {
	out := Verdict{Reason: notJudged, Message: "the controller has not said anything about the object as it is now"}
	var assigned Verdict
	for _, c := range o.Conditions {
		if c.ObservedGeneration != o.Generation {
			continue
		}
		switch v := (Verdict{c.Status == v1alpha1.ConditionTrue, c.Reason, c.Message}); c.Type {
		case v1alpha1.ConditionAccepted:
			out = v
		case v1alpha1.ConditionAddressAssigned:
			assigned = v
		}
	}
	if out.OK && assigned.Reason != "" && !assigned.OK {
		return assigned
	}
	out.OK = out.OK && !tenants.Reason(out.Reason).LeadsNowhere()
	return out
}

// accepted tells whether the limits of a Tenant count an object.
func (o *Object[T]) accepted() bool {
	return slices.ContainsFunc(o.Conditions, func(c v1alpha1.Condition) bool {
		return c.Type == v1alpha1.ConditionAccepted && c.Status == v1alpha1.ConditionTrue
	})
}

// Tenants are the objects of the tenants of a hub, those that break a rule included.
type Tenants struct {
	Tenants  map[model.Key]Object[*v1alpha1.Tenant]
	Nodes    map[model.Key]Object[*v1alpha1.TenantNodes]
	Services map[model.Key]Object[*v1alpha1.TenantService]
	Routes   map[model.Key]Object[*v1alpha1.TenantRoute]
}

// TenantUse is what the clusters of a Tenant have together.
type TenantUse struct {
	// Services are those that are accepted, and Ports theirs.
	Services int `json:"services"`
	Ports    int `json:"ports"`
	// Addresses are those that statuses name.
	Addresses int `json:"addresses"`
	// Nodes are those that agents name, and that may be refused.
	Nodes int `json:"nodes"`
	// Routes are those that are accepted.
	Routes int `json:"routes"`
	// Problems are objects that are not in use as they are written, or lack an address, the Tenant itself
	// included.
	Problems int `json:"problems"`
}

// Owners are the Tenants that have namespaces, by namespace: of two that name the same the one that is
// accepted, else the older one.
func (t *Tenants) Owners() map[string]string {
	rank := func(k model.Key) int {
		if o := t.Tenants[k]; o.accepted() {
			return 0
		}
		return 1
	}
	keys := slices.SortedFunc(maps.Keys(t.Tenants), func(a, b model.Key) int {
		return cmp.Or(rank(a)-rank(b), t.Tenants[a].Created.Compare(t.Tenants[b].Created), a.Compare(b))
	})
	out := make(map[string]string)
	for _, k := range keys {
		for _, c := range t.Tenants[k].Value.Spec.Clusters {
			if _, taken := out[c.Namespace]; !taken {
				out[c.Namespace] = k.Name
			}
		}
	}
	return out
}

// Use is what each Tenant has, by its name.
func (t *Tenants) Use() map[string]TenantUse {
	owners, all := t.Owners(), make(map[string]TenantUse, len(t.Tenants))
	add := func(name string, more TenantUse, v Verdict) {
		u, ok := all[name]
		if !ok {
			return
		}
		u.Services, u.Ports, u.Addresses, u.Nodes = u.Services+more.Services, u.Ports+more.Ports, u.Addresses+more.Addresses, u.Nodes+more.Nodes
		u.Routes += more.Routes
		if !v.OK {
			u.Problems++
		}
		all[name] = u
	}
	for k, o := range t.Tenants {
		all[k.Name] = TenantUse{}
		add(k.Name, TenantUse{}, o.Verdict())
	}
	for k, o := range t.Nodes {
		add(owners[k.Namespace], TenantUse{Nodes: len(o.Value.Spec.Nodes)}, o.Verdict())
	}
	type address struct {
		tenant string
		netip.Addr
	}
	counted := make(map[address]bool) // several Services may share one
	for k, o := range t.Services {
		u := TenantUse{}
		for _, a := range Given(o.Value) {
			if x := (address{owners[k.Namespace], a}); !counted[x] {
				counted[x] = true
				u.Addresses++
			}
		}
		if o.accepted() {
			u.Services, u.Ports = 1, len(o.Value.Spec.Ports)
		}
		add(owners[k.Namespace], u, o.Verdict())
	}
	for k, o := range t.Routes {
		u := TenantUse{}
		if o.accepted() {
			u.Routes = 1
		}
		add(owners[k.Namespace], u, o.Verdict())
	}
	return all
}
