package daemon

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// backendKey is a server of a LoadBalancer.
type backendKey struct {
	balancer string
	server   netip.AddrPort
}

// backendNotes are the states of the backends, as last noted.
type backendNotes struct {
	balancers []model.LoadBalancer
	health    map[string]model.HealthState
	states    map[backendKey]string
}

// noteBackends adds events of backends that count as up or down now and did not before, or were
// taken out of service. A backend is not noted before it is known how it does.
func (d *Daemon) noteBackends() {
	n, v := &d.noted.backends, &d.view
	if sameMap(n.health, v.Health) && len(n.balancers) == len(v.LoadBalancers) && (len(n.balancers) == 0 || &n.balancers[0] == &v.LoadBalancers[0]) {
		return
	}
	n.balancers, n.health = v.LoadBalancers, v.Health
	was := n.states
	n.states = make(map[backendKey]string, len(was))
	for i := range v.LoadBalancers {
		lb := &v.LoadBalancers[i]
		for j := range lb.Servers {
			x := &lb.Servers[j]
			k := backendKey{lb.Name, netip.AddrPortFrom(x.Addr, x.Port)}
			is, detail := backendState(x, v.Health)
			if is == "" {
				is = was[k] // it is checked anew
			}
			if n.states[k] = is; is == was[k] {
				continue
			}
			d.events.addVIP(v1alpha1.Event{
				Kind: v1alpha1.EventBackend, Time: v.Now, Node: string(d.opts.Node), VIP: lb.Name, Address: backend(x), From: was[k], To: is, Detail: detail,
			}, v.Now)
		}
	}
	var gone []backendKey
	for k := range was {
		if _, is := n.states[k]; !is && was[k] != "" {
			gone = append(gone, k)
		}
	}
	slices.SortFunc(gone, func(a, b backendKey) int { return a.server.Compare(b.server) })
	for _, k := range gone {
		x := model.Server{Addr: k.server.Addr(), Port: k.server.Port()}
		d.events.addVIP(v1alpha1.Event{
			Kind: v1alpha1.EventBackend, Time: v.Now, Node: string(d.opts.Node), VIP: k.balancer, Address: backend(&x), From: was[k],
		}, v.Now)
	}
}

// backendState is how a server counts: "" while it is not known.
func backendState(x *model.Server, health map[string]model.HealthState) (state, detail string) {
	if x.Weight == 0 {
		return "out of service", "its weight is 0"
	}
	if x.Check == "" {
		return model.HealthUp.String(), ""
	}
	switch h := health[x.Check]; h.State {
	case model.HealthUnknown:
		return "", ""
	case model.HealthDown:
		return h.State.String(), h.Detail
	}
	return model.HealthUp.String(), ""
}
