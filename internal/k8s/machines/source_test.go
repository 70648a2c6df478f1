package machines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

const (
	resMachines  = "cluster.x-k8s.io/v1beta2/machines"
	resOld       = "cluster.x-k8s.io/v1beta1/machines"
	resClusters  = "cluster.x-k8s.io/v1beta2/clusters"
	resBalancers = "lbd.dev/v1alpha1/machineloadbalancers"
	resEvents    = "v1/events"
)

func served() map[string]string {
	return map[string]string{resMachines: "Machine", resClusters: "Cluster", resBalancers: "MachineLoadBalancer", resEvents: "Event"}
}

// object is anything with a name in a namespace; more fields are merged in.
func object(path string, more string) map[string]any {
	ns, name, _ := strings.Cut(path, "/")
	o := map[string]any{"metadata": map[string]any{"namespace": ns, "name": name, "uid": "uid of " + path, "creationTimestamp": "2026-01-02T03:04:05Z"}}
	var in map[string]any
	if err := json.Unmarshal([]byte("{"+more+"}"), &in); err != nil {
		panic(fmt.Sprintf("%s: %v", more, err))
	}
	merge(o, in)
	return o
}

func merge(o, in map[string]any) {
	for k, v := range in {
		a, isMap := o[k].(map[string]any)
		if b, ok := v.(map[string]any); ok && isMap {
			merge(a, b)
		} else {
			o[k] = v
		}
	}
}

// aMachine is a Machine of the control plane of "prod".
func aMachine(path, node, addr, more string) map[string]any {
	o := object(path, `"metadata":{"labels":{"cluster.x-k8s.io/cluster-name":"prod","cluster.x-k8s.io/control-plane":""}},
		"status":{"addresses":[{"type":"Hostname","address":"h"},{"type":"InternalIP","address":"`+addr+`"}]}`)
	if node != "" {
		merge(o, object(path, `"status":{"nodeRef":{"name":"`+node+`"}}`))
	}
	merge(o, object(path, more))
	return o
}

const deleted = `"metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z"}`

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("after 30 s still not: %s", what)
}

// bed is a Source with a View that it publishes to.
type bed struct {
	mostForwardings int // 0: as shipped
	t               *testing.T
	api             *apitest.Server
	src             *Source
	drv             announce.Driver

	mu     sync.Mutex // guards all below
	view   model.View
	checks map[string]v1alpha1.HealthCheck
	peers  []netip.Addr
	// unconnected is why there is no client yet.
	unconnected error
}

func start(t *testing.T, kinds map[string]string, change func(*v1alpha1.MachinesSpec)) *bed {
	t.Helper()
	return startOn(t, apitest.New(t, kinds), change)
}

// startManaged starts with one balancer, one Machine and a manager that knows both.
func startManaged(t *testing.T) *bed {
	t.Helper()
	b := start(t, served(), nil)
	b.api.Put(resBalancers, object("a/api", mlb))
	b.api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", ``))
	b.decide(false)
	b.wants("a/api@10.0.0.200 manager")
	return b
}

// startOn is for an API that has something to say to the first request already.
func startOn(t *testing.T, api *apitest.Server, change func(*v1alpha1.MachinesSpec)) *bed {
	t.Helper()
	b := &bed{t: t, api: api}
	b.run(change)
	return b
}

// run starts the Source.
func (b *bed) run(change func(*v1alpha1.MachinesSpec)) {
	b.view.Synced = map[model.SourceName]bool{}
	spec := &v1alpha1.MachinesSpec{}
	spec.Default()
	if change != nil {
		change(spec)
	}
	b.src = New(Options{Spec: spec, Self: "cp1", Connect: func() (*k8s.Client, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.unconnected != nil {
			return nil, b.unconnected
		}
		return k8s.NewFor(b.api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	}, OnChecks: func(c map[string]v1alpha1.HealthCheck) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.checks = c
	}, OnPeers: func(peers []netip.Addr) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.peers = peers
	}})
	if b.mostForwardings > 0 {
		b.src.mostForwardings = b.mostForwardings
	}
	b.drv = b.src.Driver()
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.src.Run(ctx, func(change func(*model.View)) {
			b.mu.Lock()
			defer b.mu.Unlock()
			change(&b.view)
		})
	}()
	b.t.Cleanup(func() { cancel(); <-done })
}

// decide hands a decision to the driver.
func (b *bed) decide(writer bool, members ...model.MachineMember) {
	b.t.Helper()
	want := &model.Desired{Machines: model.MachinesState{Writer: writer, Members: members, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.11")}}}
	if _, err := b.drv.Apply(b.t.Context(), want); err != nil {
		b.t.Fatal(err)
	}
}

// told is what was published, in one text.
func (b *bed) told() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, d := range b.view.Machines.Drains {
		text := fmt.Sprintf("%s(%s)=%s", d.Machine, d.Node, d.Reason)
		if len(d.Only) > 0 {
			text += fmt.Sprint(d.Only)
		}
		out = append(out, text)
	}
	for _, v := range b.view.VIPs {
		out = append(out, fmt.Sprintf("%s@%s", v.Name, v.Addr))
	}
	switch {
	case b.view.Machines.Manager:
		out = append(out, "manager")
	case b.view.Synced[model.SourceMachines]:
		out = append(out, "lost")
	default:
		out = append(out, "nothing")
	}
	return strings.Join(out, " ")
}

func (b *bed) wants(text string) {
	b.t.Helper()
	last := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if last = b.told(); last == text {
			return
		}
	}
	b.t.Fatalf("it tells %q, want %q", last, text)
}

// looked waits until the Source has looked at everything once more. Each look begins by
// saying what is not read, so the second one that begins follows a whole one.
func (b *bed) looked() {
	b.t.Helper()
	for range 2 {
		b.src.setErr(errors.New("not looked yet"))
		eventually(b.t, "it looks", func() bool { return b.src.Err() == nil })
	}
}

// status is the status of a balancer as the API has it.
func (b *bed) status(path string) v1alpha1.MachineLoadBalancerStatus {
	return statusOf(b.api, path)
}

func statusOf(api *apitest.Server, path string) (s v1alpha1.MachineLoadBalancerStatus) {
	ns, name, _ := strings.Cut(path, "/")
	if o := api.Get(resBalancers, ns, name); o != nil {
		data, _ := json.Marshal(o["status"])
		_ = json.Unmarshal(data, &s)
	}
	return s
}

const mlb = `"spec":{"clusterName":"prod","healthCheck":{"tcp":{"port":6443}}},"status":{"address":"10.0.0.200","endpoint":{"host":"10.0.0.200","port":6443}}`

// TestSource follows a Machine from its birth, through a label and the loss of the
// API, to its end.
func TestSource(t *testing.T) {
	t.Parallel()
	b := start(t, served(), nil)
	b.api.Put(resBalancers, object("a/api", mlb))
	b.api.Put(resMachines, aMachine("a/m1", "", "10.0.0.11", ``))
	b.api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", ``))
	b.api.Put(resMachines, aMachine("b/m1", "cp1", "10.9.0.11", deleted)) // another cluster of this name
	b.decide(false)
	b.wants("a/api@10.0.0.200 manager")
	b.mu.Lock()
	if c := b.checks["MachineLoadBalancer/a/api"]; c.TCP == nil || b.view.VIPs[0].Check != "MachineLoadBalancer/a/api" || !b.view.VIPs[0].L2 {
		t.Errorf("check %+v of %+v", b.checks, b.view.VIPs)
	}
	if got := b.view.Machines.Balanced; len(got) != 1 || got[0].String() != "10.0.0.200" {
		t.Errorf("balanced %v", got)
	}
	b.mu.Unlock()
	b.api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", `"metadata":{"labels":{"lbd.dev/drain":""}}`))
	b.wants("a/m2(cp2)=Labelled a/api@10.0.0.200 manager")
	// Taken out of its balancer, the host keeps its other addresses.
	b.api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", `"metadata":{"annotations":{"loadbalancer.cluster.x-k8s.io/disabled":""}}`))
	b.wants("a/m2(cp2)=Disabled[10.0.0.200] a/api@10.0.0.200 manager")
	b.api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", `"metadata":{"annotations":{"disabled.loadbalancer.cluster.x-k8s.io/other":""}}`))
	b.wants("a/api@10.0.0.200 manager")
	b.api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", `"metadata":{"labels":{"lbd.dev/drain":""}}`))
	b.wants("a/m2(cp2)=Labelled a/api@10.0.0.200 manager")
	b.api.Stop()
	b.wants("a/m2(cp2)=Labelled a/api@10.0.0.200 lost")
	b.api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", ``)) // while nobody looks
	b.api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", deleted))
	b.api.Start()
	b.wants("a/m1(cp1)=Deleting a/api@10.0.0.200 manager")
	b.api.Delete(resMachines, "a", "m1")
	b.wants("manager")
}

// TestVersions: an older API is read too, kinds may come later, and without Machines
// nobody is a manager.
func TestVersions(t *testing.T) {
	t.Parallel()
	b := start(t, map[string]string{resBalancers: "MachineLoadBalancer"}, nil)
	b.decide(false)
	b.wants("lost")
	b.api.Put(resOld, aMachine("a/m1", "cp1", "10.0.0.11", `"metadata":{"annotations":{"lbd.dev/drain":"true"}}`))
	b.api.Serve(resOld, "Machine")
	b.wants("a/m1(cp1)=Labelled manager")
}

// TestMoved: objects that clusterctl deletes since it has moved them to another
// management cluster leave everything as it is.
func TestMoved(t *testing.T) {
	t.Parallel()
	b := startManaged(t)
	const moved = `"metadata":{"annotations":{"clusterctl.cluster.x-k8s.io/delete-for-move":""}`
	b.api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", moved+`}`))
	b.api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", moved+`,"deletionTimestamp":"2026-01-02T03:04:05Z"}`))
	b.api.Delete(resMachines, "a", "m1")
	b.api.Delete(resBalancers, "a", "api")
	b.wants("a/api@10.0.0.200 lost")
	time.Sleep(farewell + lookEvery) // it stays
	b.wants("a/api@10.0.0.200 lost")
	b.looked()
	// Moved back, it counts again.
	b.api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", `"metadata":{"labels":{"lbd.dev/drain":""}}`))
	time.Sleep(farewell + lookEvery)
	b.wants("a/api@10.0.0.200 lost")
	b.api.Put(resBalancers, object("a/api", mlb))
	b.api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", ``))
	b.wants("a/m2(cp2)=Labelled a/api@10.0.0.200 manager")
}

// TestBalancerMovedFirst: it is no matter which watch tells first of objects that are
// being moved.
func TestBalancerMovedFirst(t *testing.T) {
	t.Parallel()
	b := startManaged(t)
	o := b.api.Get(resBalancers, "a", "api")
	merge(o, object("a/api", `"metadata":{"annotations":{"clusterctl.cluster.x-k8s.io/delete-for-move":""}}`))
	b.api.Put(resBalancers, o)
	b.api.Delete(resBalancers, "a", "api")
	b.wants("a/api@10.0.0.200 lost")
	time.Sleep(farewell + lookEvery)
	b.wants("a/api@10.0.0.200 lost")
}

// TestFarewell: the address of a balancer that is gone goes too, after a while, for the
// reason may be still to come by another watch.
func TestFarewell(t *testing.T) {
	t.Parallel()
	b := startManaged(t)
	from := time.Now()
	b.api.Delete(resBalancers, "a", "api")
	b.wants("manager")
	if took := time.Since(from); took < farewell {
		t.Errorf("it goes after %v", took)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.checks) > 0 {
		t.Errorf("checks %v stay", b.checks)
	}
}

func TestTargetKind(t *testing.T) {
	t.Parallel()
	kinds := served()
	kinds["infra.example.com/v1/hosts"] = "Host"
	b := start(t, kinds, nil)
	b.api.Put(resBalancers, object("a/api", `"spec":{"clusterName":"prod","targetKind":{"group":"infra.example.com","version":"v1","kind":"Host","addressesPath":"status.ip","nodeNamePath":"spec.node"}},
		"status":{"address":"10.0.0.200"}`))
	b.api.Put("infra.example.com/v1/hosts", object("a/h1", `"metadata":{"labels":{"cluster.x-k8s.io/cluster-name":"prod","cluster.x-k8s.io/control-plane":""}},
		"spec":{"node":"cp1"},"status":{"ip":"10.0.0.11"}`))
	b.decide(false)
	b.wants("a/api@10.0.0.200 manager")
}

// TestReport: the writer says how members are doing, on change only, and others say
// nothing.
func TestReport(t *testing.T) {
	b := start(t, served(), nil)
	b.api.Put(resBalancers, object("a/api", mlb))
	b.api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", ``))
	b.api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", ``))
	vip := netip.MustParseAddr("10.0.0.200")
	node := func(name string, r model.Reason, drained bool) model.MachineMember {
		addrs := []netip.Addr{netip.MustParseAddr("10.0.0.1" + strings.TrimPrefix(name, "cp"))}
		return model.MachineMember{Node: model.NodeName(name), Addrs: addrs, Draining: drained, Drained: drained, Standing: map[netip.Addr]model.Reason{vip: r}}
	}
	// The balancer of another group, whose nodes have the same names.
	b.api.Put(resBalancers, object("b/api", mlb))
	b.api.Put(resMachines, aMachine("b/m1", "cp1", "10.9.0.11", ``))
	b.decide(false)
	b.wants("a/api@10.0.0.200 manager")
	if s := b.status("a/api"); len(s.Members) > 0 {
		t.Errorf("who is not the writer wrote %+v", s)
	}
	both := []model.MachineMember{node("cp1", model.ReasonOwner, false), node("cp2", model.ReasonStandby, false)}
	b.decide(true, both...)
	eventually(t, "2 of 2", func() bool { s := b.status("a/api"); return s.Status == "2 of 2 members healthy" && s.Ready })
	before := b.api.Versions(resBalancers, "a", "api")
	for range 20 {
		b.decide(true, both...)
		b.api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", `"metadata":{"annotations":{"x":"y"}}`))
		time.Sleep(5 * time.Millisecond)
	}
	b.decide(true, both[0], node("cp2", model.ReasonUnhealthy, false))
	eventually(t, "1 of 2", func() bool { return b.status("a/api").Status == "1 of 2 members healthy" })
	if n := b.api.Versions(resBalancers, "a", "api") - before; n != 1 {
		t.Errorf("%d writes for one change", n)
	}
	b.api.Put(resMachines, aMachine("a/m2", "cp2", "10.0.0.12", deleted))
	b.decide(true, both[0], node("cp2", model.ReasonStandby, true))
	eventually(t, "drained", func() bool {
		s := b.status("a/api")
		return s.Status == "1 of 1 members healthy" && len(s.Members) == 2 && s.Members[1].State == v1alpha1.MemberDrained && s.Endpoint != nil
	})
	if s := b.status("b/api"); len(s.Members) > 0 || s.ReportedBy != "" {
		t.Errorf("the members of another group were judged: %+v", s)
	}
}

// TestTwoGroupsThatSeeTwoNamespaces: the rights of each group end at its namespaces, and a
// balancer has members in both. Each speaks for its own, the controller says the rest, and
// nobody writes when nothing changes.
func TestTwoGroupsThatSeeTwoNamespaces(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, served())
	api.Put(resBalancers, object("a/api", `"spec":{"clusterName":"prod","namespaces":["a","b"],"address":"10.0.0.200"}`))
	api.Put(resBalancers, object("b/api", `"spec":{"clusterName":"prod","namespaces":["a","b"],"address":"10.0.0.201"}`))
	api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", `"metadata":{"annotations":{"`+machines.HookKey+`":""},"deletionTimestamp":"`+time.Now().UTC().Format(time.RFC3339)+`"}`))
	api.Put(resMachines, aMachine("b/m2", "cp2", "10.0.0.12", ``))
	steward(t, api)
	only := func(ns, addr string, node model.MachineMember) *bed {
		node.Addrs = []netip.Addr{netip.MustParseAddr(addr)}
		node.Standing = map[netip.Addr]model.Reason{netip.MustParseAddr("10.0.0.200"): model.ReasonStandby, netip.MustParseAddr("10.0.0.201"): model.ReasonOwner}
		b := startOn(t, api, func(s *v1alpha1.MachinesSpec) { s.Namespaces = []string{ns} })
		b.decide(true, node)
		return b
	}
	only("a", "10.0.0.11", model.MachineMember{Node: "cp1", Draining: true})
	only("b", "10.0.0.12", model.MachineMember{Node: "cp2"})
	told := func(path string) (out string) {
		s := statusOf(api, path)
		for _, m := range s.Members {
			out += fmt.Sprintf("%s/%s=%s/%s ", m.Namespace, m.Machine, m.State, m.Reason)
		}
		for _, c := range s.Conditions {
			if c.Type == v1alpha1.ConditionDeletionHeld {
				out += string(c.Status) + " "
			}
		}
		return out + s.Status
	}
	// Each balancer is seen by the group of its own namespace, and by the controller.
	eventually(t, "both statuses", func() bool {
		return told("a/api") == "a/m1=Draining/Deleting b/m2=Pending/NotReported True 0 of 2 members healthy" &&
			told("b/api") == "a/m1=Draining/Deleting b/m2=Active/Serving True 1 of 2 members healthy"
	})
	time.Sleep(time.Second)
	before := api.Versions(resBalancers, "a", "api") + api.Versions(resBalancers, "b", "api")
	time.Sleep(2 * time.Second)
	if n := api.Versions(resBalancers, "a", "api") + api.Versions(resBalancers, "b", "api") - before; n != 0 {
		t.Errorf("%d writes although nothing changes: %s; %s", n, told("a/api"), told("b/api"))
	}
}

// TestHook: a daemon says when its node has drained, and the controller removes the hook,
// then or when the bound is over, and no hook of others. No daemon writes to a Machine.
func TestHook(t *testing.T) {
	t.Parallel()
	const hooks = `"annotations":{"` + machines.HookKey + `":"","` + machines.HookPrefix + `other":""}`
	b := start(t, served(), nil)
	dying := func(age time.Duration) map[string]any {
		at := time.Now().Add(-age).UTC().Format(time.RFC3339)
		return aMachine("a/m2", "cp2", "10.0.0.12", `"metadata":{"deletionTimestamp":"`+at+`",`+hooks+`}`)
	}
	held := func() (ours, others bool) {
		meta := b.api.Get(resMachines, "a", "m2")["metadata"].(map[string]any)
		notes, _ := meta["annotations"].(map[string]any)
		_, ours = notes[machines.HookKey]
		_, others = notes[machines.HookPrefix+"other"]
		return ours, others
	}
	state := func(want v1alpha1.MemberState) {
		t.Helper()
		eventually(t, "the member is "+string(want), func() bool {
			list := statusOf(b.api, "a/api").Members
			return len(list) == 1 && list[0].State == want
		})
	}
	b.api.Put(resBalancers, object("a/api", mlb))
	b.api.Put(resMachines, dying(0))
	b.decide(true, model.MachineMember{Node: "cp2", Draining: true})
	state(v1alpha1.MemberDraining)
	b.decide(true, model.MachineMember{Node: "cp2", Draining: true, Drained: true})
	state(v1alpha1.MemberDrained)
	time.Sleep(100 * time.Millisecond)
	if ours, _ := held(); !ours || b.api.Versions(resMachines, "a", "m2") != 1 {
		t.Fatal("a daemon has written to a Machine")
	}
	steward(t, b.api)
	eventually(t, "removed", func() bool { ours, _ := held(); return !ours })
	if _, others := held(); !others {
		t.Error("the hook of somebody else was removed")
	}
	event := func(reason string) func() bool {
		return func() bool {
			return slices.ContainsFunc(b.api.All(resEvents), func(e map[string]any) bool {
				return e["reason"] == reason && e["involvedObject"].(map[string]any)["name"] == "m2"
			})
		}
	}
	eventually(t, "an event", event(machines.ReleaseDrained))
	b.decide(true, model.MachineMember{Node: "cp2", Draining: true})
	state(v1alpha1.MemberDraining)
	b.api.Put(resMachines, dying(2*time.Minute))
	eventually(t, "removed after the bound", func() bool { ours, _ := held(); return !ours })
	eventually(t, "an event of that", event(machines.ReleaseTimeout))
}
