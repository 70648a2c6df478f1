package main

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/machines"
	"lbd.dev/lbd/internal/k8s/speaker"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/source"
)

// joined is what files and the cluster say together, where that does not go
// through the View.
type joined struct {
	parts  *parts
	checks interface {
		SetChecks(map[string]v1alpha1.HealthCheck)
		SetClusterChecks(checks map[string]v1alpha1.HealthCheck, directory string)
	}
	log *slog.Logger

	mu      sync.Mutex // guards all below
	files   *config.Config
	cluster services.Result
	// machines are the checks of the balancers that this node is a member of.
	machines map[string]v1alpha1.HealthCheck
	// nodes are those of the cluster that run lbd, hosts the Machines of the control plane.
	nodes, hosts []netip.Addr
}

// change takes over what a source says, and hands on what follows from it.
func (j *joined) change(take func(), tell ...func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	take()
	for _, f := range tell {
		f()
	}
}

// apply hands both on. Of two checks with one name that of the files counts, as does
// the VirtualIP, and that of the cluster more than that of a management cluster.
func (j *joined) apply() {
	tuneProcs(len(j.files.Peers)+len(j.cluster.Peers) > 0, j.log)
	tuneMemory(len(j.files.VIPs), len(j.cluster.VIPs))
	j.checks.SetChecks(j.files.Checks)
	all := maps.Clone(j.machines)
	if all == nil {
		all = make(map[string]v1alpha1.HealthCheck)
	}
	maps.Copy(all, j.cluster.ChecksHere(j.files.Node.Labels))
	j.checks.SetClusterChecks(all, j.files.Node.CheckFiles)
}

func (j *joined) peers() { j.parts.gossip.SetPeers(j.peerList()) }

// peerList is the gossip peers of all that know some, each once.
func (j *joined) peerList() []string {
	list := j.files.PeerNames()
	known := make(map[string]bool)
	for _, p := range list {
		known[p] = true
	}
	port := strconv.Itoa(int(j.files.Node.Gossip.Port))
	for _, a := range slices.Concat(j.nodes, j.hosts) {
		if p := net.JoinHostPort(a.String(), port); !known[p] {
			known[p] = true
			list = append(list, p)
		}
	}
	return list
}

// newSpeaker returns the source of what the cluster says, nil if none is served.
func newSpeaker(cfg *config.Config, j *joined, log *slog.Logger) *speaker.Source {
	k := cfg.Node.Kubernetes
	if k == nil {
		return nil
	}
	return speaker.New(speaker.Options{
		Logger: log,
		Connect: func() (*k8s.Client, error) {
			return k8s.New(k8s.Options{Logger: log, Kubeconfig: k.Kubeconfig, UserAgent: "lbd-speaker/" + programVersion()})
		},
		Services: services.Options{
			Self: cfg.Node.Name, Class: k.LoadBalancerClass, Classless: k.Classless, CordonDrains: k.CordonDrains,
		},
		Namespace:    leaseNamespace(),
		PeerSelector: k.PeerSelector,
		OnChange:     func(r services.Result) { j.change(func() { j.cluster = r }, j.apply) },
		OnPeers:      func(addrs []netip.Addr) { j.change(func() { j.nodes = addrs }, j.peers) },
		NodeStatus:   j.parts.nodeStatus,
		VIPs:         func() []model.VIPStatus { return j.parts.daemon.VIPs() },
	})
}

// newMachines returns the source of what a management cluster says, nil if none is
// read. It is a driver too.
func newMachines(cfg *config.Config, j *joined, log *slog.Logger) *machines.Source {
	m := cfg.Node.Machines
	if m == nil {
		return nil
	}
	return machines.New(machines.Options{
		Logger: log, Spec: m, Self: cfg.Node.Name, Bind: cfg.Node.Gossip.BindAddress,
		OnChecks: func(checks map[string]v1alpha1.HealthCheck) { j.change(func() { j.machines = checks }, j.apply) },
		OnPeers:  func(addrs []netip.Addr) { j.change(func() { j.hosts = addrs }, j.peers) },
		Connect: func() (*k8s.Client, error) {
			return k8s.New(k8s.Options{Logger: log, Kubeconfig: m.Kubeconfig, UserAgent: "lbd-machines/" + programVersion()})
		},
	})
}

// nodeStatus is what the NodeStatus object of this node is made of.
func (p *parts) nodeStatus() (v1alpha1.NodeStatus, bool) {
	last := p.daemon.ClusterStatus()
	if last == nil {
		return v1alpha1.NodeStatus{}, false
	}
	s, sum := *last, *last.Summary
	sum.Problem = control.Problem(s)
	s.Summary = &sum
	return s, true
}

// optional adds the sources that may be nil.
func optional(all []source.Source, s *speaker.Source, m *machines.Source) []source.Source {
	if s != nil {
		all = append(all, s)
	}
	if m != nil {
		all = append(all, m)
	}
	return all
}

// machinesStatus adds why a management cluster is not read.
func machinesStatus(src *machines.Source) func(*v1alpha1.NodeStatus) {
	return func(s *v1alpha1.NodeStatus) {
		if src == nil || s.Machines == nil {
			return
		}
		if err := src.Err(); err != nil {
			s.Machines.LastError = err.Error()
		}
	}
}

func clusterStatus(src *speaker.Source) func(*v1alpha1.NodeStatus) {
	return func(s *v1alpha1.NodeStatus) {
		if src == nil {
			return
		}
		st := src.Status()
		k := &v1alpha1.KubernetesStatus{
			Connected: st.Connected, Synced: st.Synced, Since: st.Since, LastError: st.Err, ProblemCount: len(st.Problems),
		}
		lines := func(list []services.Problem) (out []string) {
			for _, p := range list[:min(len(list), v1alpha1.MaxKubernetesProblems)] {
				out = append(out, p.Kind+" "+p.Name+": "+p.Text)
			}
			return out
		}
		k.Problems, k.Warnings = lines(st.Problems), lines(st.Warnings)
		s.Kubernetes = k
	}
}

// tenantsOf is what is known of the tenants of a cluster.
type tenantsOf interface {
	TenantNames() map[string]string
	TenantOf(vip string) *v1alpha1.TenantOwner
}

// tenantsIn is nil without a cluster.
func tenantsIn(src *speaker.Source) tenantsOf {
	if src == nil {
		return nil
	}
	return src
}

// tenantStatus adds whose an address is that leads to the nodes of a tenant.
func tenantStatus(src tenantsOf) func(*v1alpha1.NodeStatus) {
	return func(s *v1alpha1.NodeStatus) {
		var names map[string]string
		own := false // the statuses of one decision share their VIPs
		for i := range s.VIPs {
			v := s.VIPs[i]
			if v.Kind != model.KindTenantService || src == nil {
				continue
			}
			if names == nil {
				names = src.TenantNames()
			}
			key, _ := model.TenantKey(v.Name)
			tenant := names[key.Namespace]
			if of, _, is := model.GlobalOf(v.Name); is {
				tenant = of
			}
			if v.Tenant == tenant {
				continue
			}
			if !own {
				s.VIPs, own = slices.Clone(s.VIPs), true
			}
			s.VIPs[i].Tenant = tenant
		}
	}
}

// explainTenants adds whose the addresses are, and how this node judges what asks for them.
func explainTenants(list []v1alpha1.Explanation, src tenantsOf) {
	for i := range list {
		key, is := model.TenantKey(list[i].Name)
		if src == nil || !is {
			continue
		}
		if _, _, is := model.GlobalOf(list[i].Name); is {
			list[i].Tenant = src.TenantOf(list[i].Name)
		} else if o := src.TenantOf(list[i].Address); o != nil && key == (model.Key{Namespace: o.Namespace, Name: o.Service}) {
			list[i].Tenant = o
		}
	}
}

// unknownVIP adds why a TenantService that is asked for has no address here.
func unknownVIP(err error, vip string, src tenantsOf) error {
	if src == nil {
		return err
	}
	if at, bad := netip.ParseAddrPort(vip); bad == nil {
		vip = at.Addr().String()
	}
	if o := src.TenantOf(vip); o != nil {
		return fmt.Errorf("%w; it is of %s", err, control.TenantText(o))
	}
	return err
}
