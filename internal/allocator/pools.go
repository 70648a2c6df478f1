package allocator

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/ipam"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/shortlist"
)

// Pool is an IPAddressPool.
type Pool struct {
	Name, UID  string
	Created    time.Time
	Generation int64
	// Spec has its defaults.
	Spec v1alpha1.IPAddressPoolSpec
	// Invalid are the rules that the object breaks by itself; with any the pool is not
	// used, but known by name.
	Invalid []string
	// Closed is why no Service gets an address of it that it has not yet; empty: the pool is open.
	Closed string
}

// The types of the conditions of pools. Accepted is always there, the others only
// while they are true.
const (
	// ConditionAccepted: the pool is in use as it is written.
	ConditionAccepted = v1alpha1.ConditionAccepted
	// ConditionHoldsNode: addresses of nodes are in the pool; they are not given out.
	ConditionHoldsNode = "HoldsNodeAddress"
	// ConditionOutside: Services keep addresses that the pool no longer has.
	ConditionOutside = "InUseOutside"
)

// The reasons of conditions of pools.
const (
	ReasonAccepted    = "Accepted"
	ReasonInvalid     = "Invalid"
	ReasonOverlap     = "Overlap"
	ReasonNodeAddress = "NodeAddress"
	ReasonShrunk      = "AddressesInUse"
)

// Condition is an aspect of a pool.
type Condition struct {
	Type    string
	True    bool
	Reason  string
	Message string
}

// PoolStatus is what the status of a pool is to say.
type PoolStatus struct {
	Name, UID  string
	Generation int64
	Conditions []Condition // by type
	// Counts of addresses that Services have, and of those that can be given out now.
	AssignedIPv4, AssignedIPv6, AvailableIPv4, AvailableIPv6 uint64
}

// report is what the status of pools says.
type report struct {
	stale    bool                   // something that it depends on has changed
	problems map[string][]Condition // by pool
	told     map[string]PoolStatus
}

// loadPools hands the pools to ipam and keeps what it says about them.
func (a *Allocator) loadPools() {
	c := ipam.Config{NodeAddresses: a.nodes, Quarantine: a.opts.Quarantine}
	a.report.problems = map[string][]Condition{}
	for _, p := range a.pools {
		x := ipam.Pool{
			Name: p.Name, Created: p.Created, AvoidBuggyIPs: p.Spec.AvoidBuggyIPs,
			AutoAssign: p.Spec.AutoAssign == nil || *p.Spec.AutoAssign, Allocation: p.Spec.ServiceAllocation, Closed: p.Closed,
		}
		if len(p.Invalid) == 0 {
			x.Addresses = p.Spec.Addresses
		} else {
			a.problem(p.Name, Condition{ConditionAccepted, false, ReasonInvalid, strings.Join(p.Invalid, "; ")})
		}
		c.Pools = append(c.Pools, x)
	}
	for _, err := range a.ipam.Update(c) {
		switch {
		case err.Rule == ipam.PoolHoldsNode:
			a.problem(err.Pool, Condition{ConditionHoldsNode, true, ReasonNodeAddress, err.Error()})
		case len(a.report.problems[err.Pool]) > 0:
			// One that is invalid has no addresses for ipam, which says so too; of several
			// overlaps the first is told.
		case err.Rule == ipam.PoolOverlap:
			a.problem(err.Pool, Condition{ConditionAccepted, false, ReasonOverlap, err.Error()})
		default:
			a.problem(err.Pool, Condition{ConditionAccepted, false, ReasonInvalid, err.Error()})
		}
	}
}

func (a *Allocator) problem(pool string, c Condition) {
	a.report.problems[pool] = append(a.report.problems[pool], c)
}

// reportPools adds the pools whose status is not what was told last.
func (a *Allocator) reportPools(r *Result) {
	if !a.report.stale {
		return
	}
	a.report.stale = false
	usage := map[string]ipam.PoolUsage{}
	for _, u := range a.ipam.Usage() {
		usage[u.Pool] = u
	}
	outside := a.outsiders()
	exists := map[string]bool{}
	for _, p := range a.pools {
		u := usage[p.Name]
		st := PoolStatus{
			Name: p.Name, UID: p.UID, Generation: p.Generation, Conditions: slices.Clone(a.report.problems[p.Name]),
			AssignedIPv4: u.IPv4.Assigned, AssignedIPv6: u.IPv6.Assigned, AvailableIPv4: u.IPv4.Available, AvailableIPv6: u.IPv6.Available,
		}
		if !slices.ContainsFunc(st.Conditions, func(c Condition) bool { return c.Type == ConditionAccepted }) {
			st.Conditions = append(st.Conditions, Condition{ConditionAccepted, true, ReasonAccepted, "the pool is in use"})
		}
		if list := outside[p.Name]; len(list) > 0 {
			st.Conditions = append(st.Conditions, Condition{ConditionOutside, true, ReasonShrunk,
				"Services keep addresses that this pool does not give out: " + shortlist.Join(list, 5)})
		}
		slices.SortFunc(st.Conditions, func(x, y Condition) int { return strings.Compare(x.Type, y.Type) })
		exists[p.Name] = true
		old, known := a.report.told[p.Name]
		if known && reflect.DeepEqual(old, st) {
			continue
		}
		a.report.told[p.Name] = st
		r.Pools = append(r.Pools, st)
		r.Events = append(r.Events, poolEvents(&old, &st, known)...)
	}
	maps.DeleteFunc(a.report.told, func(name string, _ PoolStatus) bool { return !exists[name] })
	slices.SortFunc(r.Pools, func(x, y PoolStatus) int { return strings.Compare(x.Name, y.Name) })
}

// outsiders are the addresses that stay outside the pools they came from, by pool.
func (a *Allocator) outsiders() map[string][]string {
	list := map[string][]string{}
	for key, s := range a.services {
		if s.stray == "" {
			continue
		}
		x, _ := a.ipam.Get(key)
		for _, at := range x.Addresses {
			if home := s.homes[at.Addr]; a.ipam.Stray(at.Addr) != nil && home != "" {
				list[home] = append(list[home], fmt.Sprintf("%s (%s)", at.Addr, key))
			}
		}
	}
	for _, l := range list {
		slices.Sort(l)
	}
	return list
}

// poolEvents are about conditions that have changed.
func poolEvents(old, now *PoolStatus, known bool) []Event {
	event := func(warning bool, reason, message string) Event {
		return Event{Kind: v1alpha1.KindIPAddressPool, Object: model.Key{Name: now.Name}, UID: now.UID, Warning: warning, Reason: reason, Message: message}
	}
	var list []Event
	for _, c := range now.Conditions {
		bad := c.True != (c.Type == ConditionAccepted)
		i := slices.IndexFunc(old.Conditions, func(o Condition) bool { return o.Type == c.Type })
		switch {
		case i >= 0 && old.Conditions[i] == c:
		case bad:
			list = append(list, event(true, EventPool, c.Message))
		case known && i >= 0:
			list = append(list, event(false, EventPoolAccepted, c.Message))
		}
	}
	return list
}
