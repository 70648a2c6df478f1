package machines

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/model"
)

// ported is a balancer whose Machines listen on another port.
const ported = `"spec":{"clusterName":"prod","address":"10.0.0.200","port":{"port":443,"machinePort":6443}},
	"status":{"observedGeneration":1,"address":"10.0.0.200","endpoint":{"host":"10.0.0.200","port":443}}`

// forwards is what is forwarded, in one text.
func (b *bed) forwards() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for i := range b.view.LoadBalancers {
		lb := &b.view.LoadBalancers[i]
		text := fmt.Sprintf("%s%v:%d>%d", lb.Name, lb.VIPs, lb.Ports[0].Port, lb.Ports[0].TargetPort)
		for _, x := range lb.Servers {
			text += fmt.Sprintf(" %s*%d", x.Addr, x.Weight)
			if h := b.checks[x.Check].HTTPS; h == nil || h.Host != x.Addr.String() || h.Port != 6443 {
				text += fmt.Sprintf(" with the check %+v", h)
			}
		}
		if at, is := model.FindVIP(b.view.VIPs, lb.VIPs[0]); !is || !b.view.VIPs[at].Forwarded() || b.view.VIPs[at].Check != "" {
			text += " without its VIP"
		} else if b.view.VIPs[at].FollowsOwner() {
			text += ", advertised by the owner"
		}
		if len(b.view.Machines.Checks) != len(lb.Servers) || len(b.view.Machines.Forwarded) != len(lb.VIPs) {
			text += fmt.Sprintf(" and reports %v, %v", b.view.Machines.Checks, b.view.Machines.Forwarded)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func (b *bed) wantsForwarded(want string) {
	b.t.Helper()
	last := ""
	defer func() {
		if last != want {
			b.t.Logf("it forwards %q, want %q", last, want)
		}
	}()
	eventually(b.t, "it forwards "+want, func() bool { last = b.forwards(); return last == want })
}

// TestForwards: a host that is no Machine forwards to all that are selected, while they come and
// go, and while the management cluster has nothing to say.
func TestForwards(t *testing.T) {
	t.Parallel()
	b := start(t, served(), func(s *v1alpha1.MachinesSpec) { s.Balancer = true })
	put := func(name, addr, more string) { b.api.Put(resMachines, aMachine("a/"+name, "", addr, more)) }
	b.api.Put(resBalancers, object("a/api", ported))
	put("m1", "10.0.0.21", "")
	put("m2", "10.0.0.22", "")
	b.decide(false)
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.21*10 10.0.0.22*10")
	put("m2", "10.0.0.22", deleted)
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.21*10 10.0.0.22*0")
	b.api.Delete(resMachines, "a", "m2")
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.21*10")
	// The API is lost and is back: what it says counts again, although this host is no Machine.
	b.api.Stop()
	b.wants("a/api@10.0.0.200 lost")
	put("m3", "10.0.0.23", "")
	b.api.Start()
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.21*10 10.0.0.23*10")
	// They are gone at once, which no Machine is that was deleted.
	b.api.Delete(resMachines, "a", "m3")
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.21*10")
	b.api.Delete(resMachines, "a", "m1")
	b.looked()
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.21*10")
	put("m4", "10.0.0.24", "")
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.24*10")
	put("m4", "10.0.0.24", deleted)
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.24*0")
	b.api.Delete(resMachines, "a", "m4")
	b.wantsForwarded("a/api[10.0.0.200]:443>6443")
	// What goes takes its rules along.
	b.api.Delete(resBalancers, "a", "api")
	b.wantsForwarded("")
	b.wants("manager")
}

// TestForwardsMoved: a balancer whose cluster is moved to another management cluster stays.
func TestForwardsMoved(t *testing.T) {
	t.Parallel()
	b := start(t, served(), func(s *v1alpha1.MachinesSpec) { s.Balancer = true })
	b.api.Put(resBalancers, object("a/api", ported))
	b.api.Put(resMachines, aMachine("a/m1", "", "10.0.0.21", ""))
	b.decide(false)
	const all = "a/api[10.0.0.200]:443>6443 10.0.0.21*10"
	b.wantsForwarded(all)
	b.api.Put(resMachines, aMachine("a/m1", "", "10.0.0.21", `"metadata":{"annotations":{"clusterctl.cluster.x-k8s.io/delete-for-move":""},"deletionTimestamp":"2026-01-02T03:04:05Z"}`))
	b.looked()
	b.wantsForwarded(all)
	b.api.Delete(resMachines, "a", "m1")
	b.api.Delete(resBalancers, "a", "api")
	for range int(2*farewell/lookEvery) + 2 {
		b.looked()
	}
	b.wantsForwarded(all)
	b.wants("a/api@10.0.0.200 manager")
}

// TestForwardsNoLongerWhatIsGone: an address is let go with its object whose Machines are still there,
// also if the object names no cluster and says that it is moved.
func TestForwardsNoLongerWhatIsGone(t *testing.T) {
	t.Parallel()
	b := start(t, served(), func(s *v1alpha1.MachinesSpec) { s.Balancer = true })
	o := object("a/api", ported)
	merge(o, object("a/api", `"spec":{"clusterName":null,"machineSelector":{},"healthCheck":{"https":{"port":6443}}}`))
	b.api.Put(resBalancers, o)
	b.api.Put(resMachines, aMachine("a/m1", "", "10.0.0.21", ""))
	b.decide(false)
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.21*10")
	merge(o, object("a/api", `"metadata":{"annotations":{"clusterctl.cluster.x-k8s.io/delete-for-move":""},"deletionTimestamp":"2026-01-02T03:04:05Z"}`))
	b.api.Put(resBalancers, o)
	b.looked()
	b.api.Delete(resBalancers, "a", "api")
	for range int(2*farewell/lookEvery) + 2 {
		b.looked()
	}
	b.wantsForwarded("")
}

// TestClustersOfBalancers: nobody remembers those of balancers that are not forwarded any more, however
// many names were used.
func TestClustersOfBalancers(t *testing.T) {
	p := &publisher{clusters: map[string]model.Key{"a/api": {}, "a/old": {}}}
	p.linger(&facts{vips: []model.VIP{{Name: "a/api"}}}, nil, time.Now())
	if _, is := p.clusters["a/api"]; !is || len(p.clusters) != 1 {
		t.Errorf("remembered: %v", p.clusters)
	}
}

// TestManyMachines: a balancer that asks for more than a host can check is left out, and no other.
func TestManyMachines(t *testing.T) {
	t.Parallel()
	b := &bed{t: t, api: apitest.New(t, served()), mostForwardings: 1}
	b.run(func(s *v1alpha1.MachinesSpec) { s.Balancer = true })
	b.api.Put(resBalancers, object("a/api", ported))
	b.api.Put(resMachines, aMachine("a/m1", "", "10.0.0.21", ""))
	b.decide(false)
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.21*10")
	b.api.Put(resMachines, aMachine("a/m2", "", "10.0.0.22", ""))
	for range int(2*farewell/lookEvery) + 2 {
		b.looked()
	}
	b.wantsForwarded("")
	b.api.Delete(resMachines, "a", "m2")
	b.looked()
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.21*10")
}

// TestForwardsNot: who is no member, and not asked to, forwards nothing; and nobody does what is
// refused.
func TestForwardsNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		balancer bool
		machine  map[string]any
		more     string
		want     string
	}{
		"no Machine":           {false, aMachine("a/m1", "", "10.0.0.21", ""), "", ""},
		"a member":             {false, aMachine("a/m1", "cp1", "10.0.0.11", ""), "", "a/api[10.0.0.200]:443>6443 10.0.0.11*10"},
		"an endpoint withheld": {true, aMachine("a/m1", "", "10.0.0.21", ""), `"status":{"endpoint":null}`, ""},
		"refused":              {true, aMachine("a/m1", "", "10.0.0.200", ""), "", ""},
		"beside bgp":           {true, aMachine("a/m1", "", "10.0.0.21", ""), `"spec":{"advertise":{"l2":{},"bgp":{}}}`, "a/api[10.0.0.200]:443>6443 10.0.0.21*10, advertised by the owner"},
		"bgp alone":            {true, aMachine("a/m1", "", "10.0.0.21", ""), `"spec":{"advertise":{"bgp":{}}}`, ""},
		"one port":             {true, aMachine("a/m1", "", "10.0.0.21", ""), `"spec":{"port":{"port":6443}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, served(), func(s *v1alpha1.MachinesSpec) { s.Balancer = c.balancer })
			o := object("a/api", ported)
			merge(o, object("a/api", c.more))
			b.api.Put(resBalancers, o)
			b.api.Put(resMachines, c.machine)
			b.decide(false)
			eventually(t, "it has looked", func() bool { return strings.HasSuffix(b.told(), "manager") })
			b.looked()
			b.wantsForwarded(c.want)
		})
	}
}

// TestReportsForwarded: the writer says how the Machines do, and who has the address.
func TestReportsForwarded(t *testing.T) {
	t.Parallel()
	b := start(t, served(), func(s *v1alpha1.MachinesSpec) { s.Balancer = true })
	b.api.Put(resBalancers, object("a/api", ported))
	b.api.Put(resMachines, aMachine("a/m1", "", "10.0.0.21", ""))
	b.api.Put(resMachines, aMachine("a/m2", "", "10.0.0.22", ""))
	b.decide(false)
	b.wantsForwarded("a/api[10.0.0.200]:443>6443 10.0.0.21*10 10.0.0.22*10")
	says := func(owner model.Reason, second model.Health, want string) {
		t.Helper()
		state := model.MachinesState{Writer: true, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.11")}, Health: map[string]model.Health{
			"MachineLoadBalancer/a/api/10.0.0.21": model.HealthUp, "MachineLoadBalancer/a/api/10.0.0.22": second,
		}, Members: []model.MachineMember{{Node: "cp1", Standing: map[netip.Addr]model.Reason{netip.MustParseAddr("10.0.0.200"): owner}}}}
		if _, err := b.drv.Apply(t.Context(), &model.Desired{Machines: state}); err != nil {
			t.Fatal(err)
		}
		last := ""
		defer func() { t.Log(last) }()
		eventually(t, "the status is "+want, func() bool {
			s := b.status("a/api")
			last = fmt.Sprintf("%s, ready %v, by %s", s.Status, s.Ready, s.ReportedBy)
			return last == want
		})
	}
	says(model.ReasonOwner, model.HealthUp, "2 of 2 members healthy, ready true, by cp1")
	says(model.ReasonOwner, model.HealthDown, "1 of 2 members healthy, ready true, by cp1")
	says(model.ReasonStandby, model.HealthDown, "1 of 2 members healthy, ready false, by cp1")
}
