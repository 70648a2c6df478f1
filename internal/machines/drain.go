package machines

import (
	"net/netip"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// The reasons of a model.MachineDrain. A Machine that is disabled loses the addresses of
// its balancers only; the others are looked for in this order.
const (
	DrainDeleting    = "Deleting"    // it has a deletionTimestamp
	DrainLabelled    = "Labelled"    // it has one of machines.drainLabels
	DrainRemediation = "Remediation" // a MachineHealthCheck is against it
	DrainDisabled    = "Disabled"    // a user took it out of load balancers
)

// Balanced is a balancer that is in use, and the addresses that its members have.
type Balanced struct {
	*Balancer
	Addrs []netip.Addr
}

// marked tells whether the Machine has the key as a label or an annotation that is meant.
func (m *Machine) marked(key string) bool {
	for _, have := range []map[string]string{m.Labels, m.Annotations} {
		if value, has := have[key]; has && !strings.EqualFold(value, "false") {
			return true
		}
	}
	return false
}

// Disabled returns the key by which a user took a Machine out of the balancer; false if
// nobody did. What only stands for a Machine cannot be.
func (b *Balancer) Disabled(m *Machine) (string, bool) {
	for _, key := range []string{v1alpha1.DisabledLabel, v1alpha1.DisabledPrefix + b.Name} {
		if m.Target == "" && m.marked(key) {
			return key, true
		}
	}
	return "", false
}

// disabled returns the addresses that a Machine is to lose since it was taken out of
// their balancers, and one of the keys that say so.
func disabled(m *Machine, balanced []Balanced) (only []netip.Addr, detail string) {
	for _, b := range balanced {
		if key, out := b.Disabled(m); out && b.Has(m) {
			only, detail = append(only, b.Addrs...), key
		}
	}
	slices.SortFunc(only, netip.Addr.Compare)
	return slices.Compact(only), detail
}

// Drain returns why a Machine is to lose all its traffic; ok is false if it is not.
// What only stands for one does not drain.
func (r *Rules) Drain(m *Machine) (reason, detail string, ok bool) {
	if m.Target != "" {
		return "", "", false
	}
	if !m.Deleted.IsZero() && r.OnDeletion && !m.Moved() {
		return DrainDeleting, "deletionTimestamp", true
	}
	for _, key := range r.Labels {
		if m.marked(key) {
			return DrainLabelled, key, true
		}
	}
	if m.Unhealthy != "" && r.Remediation {
		return DrainRemediation, m.Unhealthy, true
	}
	return "", "", false
}

// Drains returns the Machines that are to lose their traffic, or the addresses of
// balancers that they were taken out of, sorted. cluster is that
// of the Machine of this node: if it is known, only its Machines count, since nodes
// of two clusters may have one name. n is this node, of which the same holds.
func (r *Rules) Drains(all []*Machine, cluster model.Key, n Node, balanced []Balanced) []model.MachineDrain {
	var out []model.MachineDrain
	for _, m := range all {
		if !r.within(m) || cluster != (model.Key{}) && m.Cluster() != cluster {
			continue
		}
		if m.Node == string(n.Name) && m.strange(n.Addrs) && (n.ProviderID == "" || m.ProviderID != n.ProviderID) {
			continue // another node of this name
		}
		x := model.MachineDrain{Machine: m.String(), Node: model.NodeName(m.Node), Addrs: m.Addresses}
		ok := false
		if x.Reason, x.Detail, ok = r.Drain(m); ok {
			out = append(out, x)
		}
		if x.Only, x.Detail = disabled(m, balanced); len(x.Only) > 0 {
			x.Reason = DrainDisabled
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(a, b model.MachineDrain) int { return strings.Compare(a.Machine, b.Machine) })
	return out
}
