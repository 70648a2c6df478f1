package daemon

import (
	"fmt"
	"slices"
	"sync/atomic"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// maxAdvertised bounds the prefixes of all sessions together in a status for a
// cluster.
const maxAdvertised = 4000

// summaryStatus is the status for a cluster, and whether somebody has asked for it.
type summaryStatus struct {
	asked  atomic.Bool
	status atomic.Pointer[v1alpha1.NodeStatus] // the newest; never changed
	vips   atomic.Pointer[[]model.VIPStatus]   // all of the same decision
	gen    uint64                              // of that decision; of the loop
}

// ClusterStatus is what the object of this node in a cluster is made of: a status
// with a summary, at most MaxNodeStatusVIPs VIPs, and of BGP no attributes. It is
// of the last turn of the loop after the call before, so nobody waits for the loop
// and no decision is made for it; nil before the first. The caller must not change
// it.
func (d *Daemon) ClusterStatus() *v1alpha1.NodeStatus {
	d.brief.asked.Store(true)
	return d.brief.status.Load()
}

// VIPs are those of the decision that ClusterStatus tells of, all of them; nil before the first.
// The caller must not change them. It is the same list for as long as they are the same.
func (d *Daemon) VIPs() []model.VIPStatus {
	all := d.brief.vips.Load()
	if all == nil {
		return nil
	}
	return *all
}

// answer makes the status if somebody has asked for it.
func (d *Daemon) answer() {
	if !d.brief.asked.Swap(false) {
		return
	}
	old := d.brief.status.Load()
	if d.brief.gen != d.last.Gen {
		d.brief.gen, old = d.last.Gen, nil
		all := d.last.Status
		d.brief.vips.Store(&all)
	}
	s := clusterStatus(&d.view, &d.last, old)
	s.Version = d.opts.Version
	for _, f := range d.opts.Extras {
		f(&s)
	}
	d.brief.status.Store(&s)
}

// clusterStatus makes a status; old, unless nil, is one of the same decision, which has
// the same VIPs and LoadBalancers.
func clusterStatus(v *model.View, d *model.Desired, old *v1alpha1.NodeStatus) v1alpha1.NodeStatus {
	few := *d
	few.Status = nil
	if old == nil {
		few.Status = pick(d.Status, v1alpha1.MaxNodeStatusVIPs)
	}
	paths := min(v1alpha1.MaxNodeStatusVIPs, maxAdvertised/max(1, len(d.BGP.Peers)))
	few.BGP.Paths = d.BGP.Paths[:min(len(d.BGP.Paths), paths)]
	s := status(v, &few)
	for i := range s.BGP {
		s.BGP[i].Paths = nil
	}
	if old != nil {
		s.VIPs, s.LoadBalancers = old.VIPs, old.LoadBalancers
	} else {
		s.LoadBalancers = pickBackends(balancerStatus(v, d), v1alpha1.MaxNodeStatusBackends)
	}
	s.Summary = summary(d.Status, &s)
	s.Health = withoutBackends(s.Health, v.LoadBalancers)
	return s
}

// withoutBackends leaves out the checks of backends: there may be many thousands, and the
// LoadBalancers of the status tell how they end.
func withoutBackends(all []v1alpha1.HealthStatus, balancers []model.LoadBalancer) []v1alpha1.HealthStatus {
	of := make(map[string]bool)
	for i := range balancers {
		for _, server := range balancers[i].Servers {
			of[server.Check] = true
		}
	}
	return slices.DeleteFunc(all, func(h v1alpha1.HealthStatus) bool { return of[h.Name] })
}

// pick returns as many statuses in their order: those first that this node
// announces, then those of addresses that nobody does, and then such of tenants.
func pick(all []model.VIPStatus, most int) []model.VIPStatus {
	if len(all) <= most {
		return all
	}
	var room [5]int
	for i := range all {
		room[rank(&all[i])]++
	}
	left := most
	for r := range room {
		room[r] = min(room[r], left)
		left -= room[r]
	}
	out := make([]model.VIPStatus, 0, most)
	for i := range all {
		if r := rank(&all[i]); room[r] > 0 {
			room[r]--
			out = append(out, all[i])
		}
	}
	return out
}

// pickBackends leaves the first LoadBalancers that have at most so many addresses and ports
// together, and of all together as many backends: those of tenants last, and of others and of
// them those first that get no new connections.
func pickBackends(all []v1alpha1.BalancerStatus, most int) []v1alpha1.BalancerStatus {
	lines := 0
	for i := range all {
		if lines += len(all[i].Addresses) + len(all[i].Ports); lines > most {
			all = all[:i]
			break
		}
	}
	tenants := slices.IndexFunc(all, func(b v1alpha1.BalancerStatus) bool { return model.OfTenant(b.Name) })
	if tenants < 0 {
		tenants = len(all)
	}
	trimBackends(all[tenants:], most-trimBackends(all[:tenants], most))
	return all
}

// trimBackends leaves as many backends, and tells how many.
func trimBackends(all []v1alpha1.BalancerStatus, most int) (left int) {
	out, in := most, most // how many of each there is room for
	for i := range all {
		for j := range all[i].Backends {
			if all[i].Backends[j].State != model.ServerIn.String() {
				in = max(in-1, 0)
			}
		}
	}
	for i := range all {
		all[i].Backends = slices.DeleteFunc(all[i].Backends, func(b v1alpha1.BackendStatus) bool {
			room := &out
			if b.State == model.ServerIn.String() {
				room = &in
			}
			*room--
			return *room < 0
		})
		left += len(all[i].Backends)
	}
	return left
}

// rank is 0 for what counts most.
func rank(s *model.VIPStatus) int {
	of := 0
	if s.VIP.Kind == model.KindTenantService {
		of = 2
	}
	switch {
	case s.Announced:
		return of
	case s.Owner == "":
		return of + 1
	}
	return 4
}

// summary counts all VIPs, each address once, and what else the status has.
func summary(all []model.VIPStatus, s *v1alpha1.NodeStatus) *v1alpha1.NodeSummary {
	sum := &v1alpha1.NodeSummary{}
	counted := false // the address of the one before is among those announced
	for i := range all {
		if i == 0 || all[i].VIP.Addr != all[i-1].VIP.Addr {
			sum.VIPs++
			counted = false
		}
		if all[i].Announced && !counted {
			sum.Announced++
			counted = true
		}
	}
	alive := 0
	for _, m := range s.Members {
		if m.State == model.MemberAlive.String() {
			alive++
		}
	}
	sum.Members = fmt.Sprintf("%d/%d", alive, len(s.Members))
	var up, bfd, bfdUp int
	for _, b := range s.BGP {
		if b.State == established {
			up++
		}
		if b.BFD != "" {
			bfd++
		}
		if b.BFD == "Up" {
			bfdUp++
		}
	}
	if len(s.BGP) > 0 {
		sum.BGP = fmt.Sprintf("%d/%d", up, len(s.BGP))
	}
	if bfd > 0 {
		sum.BFD = fmt.Sprintf("%d/%d", bfdUp, bfd)
	}
	return sum
}
