package propagate

import (
	"cmp"
	"maps"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// gateways decides about the statuses of Gateways. They lose no address and no route while the hub has routes that
// are not known here, and which may be of them.
func (out *IngressOutput) gateways(in *IngressInput, used *attached) {
	hidden := slices.ContainsFunc(slices.Collect(maps.Keys(in.HubRoutes)), func(name string) bool { return in.hidden(KindOf(name)) })
	for _, key := range slices.SortedFunc(maps.Keys(in.HTTP.Gateways), model.Key.Compare) {
		if g := in.HTTP.Gateways[key]; g.Class == in.HTTP.Class {
			had := GatewayStatus{}
			if hidden {
				had = g.Status
			}
			addresses := once(used.addresses[key]) // which are known to lead somewhere
			addresses = slices.Concat(addresses, slices.DeleteFunc(once(had.Addresses), func(a string) bool { return slices.Contains(addresses, a) }))
			wanted := g.wanted(func(name string) int { return max(len(used.routes[listenerKey{key, name}]), had.attached(name)) }, once(addresses[:min(len(addresses), maxAddresses)]))
			if !wanted.like(&g.Status) {
				out.Gateways = append(out.Gateways, GatewayWrite{Gateway: key, UID: g.UID, Status: wanted})
			}
		}
	}
}

// attached is how many routes a listener has.
func (s *GatewayStatus) attached(listener string) int {
	for _, l := range s.Listeners {
		if l.Name == listener {
			return int(l.Attached)
		}
	}
	return 0
}

// maxAddresses is how many a Gateway may have.
const maxAddresses = 16

// once are the texts, sorted, each once.
func once(texts []string) []string { return slices.Compact(slices.Sorted(slices.Values(texts))) }

// wanted is what the status of a Gateway is to be.
func (g *Gateway) wanted(routes func(listener string) int, addresses []string) GatewayStatus {
	s := GatewayStatus{Addresses: addresses}
	state := func(kind string, why *v1alpha1.Condition, reason, message string) v1alpha1.Condition {
		if why != nil {
			return stated(kind, v1alpha1.ConditionFalse, why.Reason, why.Message, g.Generation)
		}
		return stated(kind, v1alpha1.ConditionTrue, reason, message, g.Generation)
	}
	var none, bad *v1alpha1.Condition
	if len(addresses) == 0 {
		none = new(no("AddressNotAssigned", "it has an address once the hub serves a route of it"))
	}
	if g.Bad != "" {
		bad = new(no("Invalid", g.Bad))
	}
	s.Conditions = []v1alpha1.Condition{
		state(v1alpha1.ConditionAccepted, bad, v1alpha1.ConditionAccepted, ""), state(conditionProgrammed, cmp.Or(bad, none), conditionProgrammed, "clients connect to the ports that the Gateway of the hub has"),
	}
	for i := range g.Listeners {
		l := &g.Listeners[i]
		why := l.refuses()
		kinds, resolved := []map[string]string{}, (*v1alpha1.Condition)(nil)
		if why == nil {
			for _, k := range l.kinds() {
				kinds = append(kinds, map[string]string{"group": GatewayGroup, "kind": string(k)})
			}
		} else if why.Reason == "InvalidRouteKinds" {
			resolved = why
		}
		s.Listeners = append(s.Listeners, ListenerStatus{Name: l.Name, Attached: int32(routes(l.Name)), Kinds: kinds, Conditions: []v1alpha1.Condition{
			state(v1alpha1.ConditionAccepted, why, v1alpha1.ConditionAccepted, ""), state(conditionResolved, resolved, conditionResolved, ""),
			state(conditionProgrammed, cmp.Or(why, none), conditionProgrammed, ""),
		}})
	}
	return s
}

func (s *GatewayStatus) like(has *GatewayStatus) bool {
	return slices.Equal(s.Addresses, has.Addresses) && sameConditions(s.Conditions, has.Conditions) &&
		slices.EqualFunc(s.Listeners, has.Listeners, func(a, b ListenerStatus) bool {
			return a.Name == b.Name && a.Attached == b.Attached && sameConditions(a.Conditions, b.Conditions) && slices.EqualFunc(a.Kinds, b.Kinds, maps.Equal)
		})
}
