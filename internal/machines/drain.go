package machines

import (
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// The reasons of a model.MachineDrain, in the order in which they are looked for.
const (
	DrainDeleting    = "Deleting"    // it has a deletionTimestamp
	DrainDisabled    = "Disabled"    // a user took it out of its load balancers
	DrainLabelled    = "Labelled"    // it has one of machines.drainLabels
	DrainRemediation = "Remediation" // a MachineHealthCheck is against it
)

// Drain returns why a Machine is to lose its traffic; ok is false if it is not.
// What only stands for one does not drain.
func (r *Rules) Drain(m *Machine) (reason, detail string, ok bool) {
	if m.Target != "" {
		return "", "", false
	}
	if !m.Deleted.IsZero() && r.OnDeletion && !m.Moved() {
		return DrainDeleting, "deletionTimestamp", true
	}
	for _, key := range r.Labels {
		for _, have := range []map[string]string{m.Labels, m.Annotations} {
			if value, has := have[key]; has && !off(value) {
				if key == v1alpha1.DisabledLabel {
					return DrainDisabled, key, true
				}
				return DrainLabelled, key, true
			}
		}
	}
	if m.Unhealthy != "" && r.Remediation {
		return DrainRemediation, m.Unhealthy, true
	}
	return "", "", false
}

// Drains returns the Machines that are to lose their traffic, sorted. cluster is that
// of the Machine of this node: if it is known, only its Machines count, since nodes
// of two clusters may have one name. n is this node, of which the same holds.
func (r *Rules) Drains(all []*Machine, cluster Key, n Node) []model.MachineDrain {
	var out []model.MachineDrain
	for _, m := range all {
		if !r.within(m) || cluster != (Key{}) && m.Cluster() != cluster {
			continue
		}
		if m.Node == string(n.Name) && m.strange(n.Addrs) && (n.ProviderID == "" || m.ProviderID != n.ProviderID) {
			continue // another node of this name
		}
		if reason, detail, ok := r.Drain(m); ok {
			out = append(out, model.MachineDrain{
				Machine: m.String(), Node: model.NodeName(m.Node), Addrs: m.Addresses, Reason: reason, Detail: detail,
			})
		}
	}
	slices.SortFunc(out, func(a, b model.MachineDrain) int { return strings.Compare(a.Machine, b.Machine) })
	return out
}
