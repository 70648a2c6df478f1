package machines

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

var (
	addr   = netip.MustParseAddr
	born   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	shared = addr("10.0.0.200")
)

// machine returns a Machine of a control plane: "ns/cluster/name", its node and
// addresses.
func machine(path, node string, addrs ...string) *Machine {
	parts := strings.Split(path, "/")
	m := &Machine{Key: model.Key{Namespace: parts[0], Name: parts[2]}, UID: path, Node: node,
		Labels: map[string]string{ClusterLabel: parts[1], ControlPlaneLabel: ""}, Annotations: map[string]string{}}
	for _, a := range addrs {
		m.Addresses = append(m.Addresses, addr(a))
	}
	return m
}

func with(m *Machine, change func(*Machine)) *Machine { change(m); return m }

func rules() *Rules {
	s := &v1alpha1.MachinesSpec{}
	s.Default()
	r := RulesOf(s)
	return &r
}

// balancer returns a balancer of cluster "prod" in namespace "a" with an endpoint.
func balancer(change func(*Balancer)) *Balancer {
	m := v1alpha1.MachineLoadBalancer{Spec: v1alpha1.MachineLoadBalancerSpec{ClusterName: "prod"}}
	b := &Balancer{Key: model.Key{Namespace: "a", Name: "api"}, Generation: 3, Spec: m.Spec}
	b.Status.Address = shared.String()
	b.Status.Endpoint = &v1alpha1.MachineEndpoint{Host: shared.String(), Port: 6443}
	if change != nil {
		change(b)
	}
	m.Spec = b.Spec
	m.Default()
	b.Spec = m.Spec
	return b
}

func names(all []*Machine) string {
	var out []string
	for _, m := range all {
		out = append(out, m.String())
	}
	return strings.Join(out, " ")
}

func TestSelf(t *testing.T) {
	me := Node{Name: "cp1", ProviderID: "x://1", Addrs: []netip.Addr{addr("10.0.0.11"), addr("fd00::11")}}
	byID := with(machine("a/prod/m2", ""), func(m *Machine) { m.ProviderID = "x://1" })
	for name, c := range map[string]struct {
		all     []*Machine
		cluster string
		want    string
	}{
		"by the name of its Node":       {[]*Machine{machine("a/prod/m1", "cp1"), machine("a/prod/m2", "cp2")}, "", "a/m1"},
		"by provider ID, before a Node": {[]*Machine{machine("a/prod/m1", "cp2"), byID}, "", "a/m2"},
		"by address, before a Node":     {[]*Machine{machine("a/prod/m1", "", "10.0.0.12"), machine("a/prod/m2", "", "192.0.2.1", "fd00::11")}, "", "a/m2"},
		"none":                          {[]*Machine{machine("a/prod/m1", "cp2", "10.0.0.12")}, "", ""},
		"a Machine without a Node is not that of a node without a name": {[]*Machine{machine("a/prod/m1", "")}, "", ""},
		"two clusters whose nodes have one name": {[]*Machine{
			machine("a/prod/m1", "cp1", "10.9.0.11"), machine("b/prod/m1", "cp1", "10.0.0.11")}, "", "b/m1"},
		"a strange node of our name before ours has one": {[]*Machine{
			machine("a/prod/m1", "cp1", "10.9.0.11"), machine("b/prod/m1", "", "10.0.0.11")}, "", "b/m1"},
		"a strange node of our name":             {[]*Machine{machine("a/prod/m1", "cp1", "10.9.0.11")}, "", ""},
		"a strange node of our name with our ID": {[]*Machine{with(machine("a/prod/m1", "cp1", "10.9.0.11"), func(m *Machine) { m.ProviderID = "x://1" })}, "", "a/m1"},
		"two that cannot be told apart":          {[]*Machine{machine("a/prod/m1", "cp1"), machine("b/prod/m1", "cp1")}, "", ""},
		"only our cluster":                       {[]*Machine{machine("a/dev/m1", "cp1"), machine("b/prod/m1", "cp1")}, "prod", "b/m1"},
		"what stands for a Machine is none":      {[]*Machine{with(machine("a/prod/m1", "cp1"), func(m *Machine) { m.Target = "x/v1/hosts" })}, "", ""},
	} {
		r := rules()
		r.ClusterName = c.cluster
		got := ""
		if m := Self(c.all, me, r, ""); m != nil {
			got = m.String()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDrain(t *testing.T) {
	const upgrade, own = "controlplane.cluster.x-k8s.io/selected-for-upgrade", "lbd.dev/drain"
	deleted := func(m *Machine) { m.Deleted = born }
	label := func(k, v string) func(*Machine) { return func(m *Machine) { m.Labels[k] = v } }
	note := func(k, v string) func(*Machine) { return func(m *Machine) { m.Annotations[k] = v } }
	sick := func(m *Machine) { m.Unhealthy = "UnhealthyNode: not ready" }
	for name, c := range map[string]struct {
		change func(*Machine)
		rules  func(*Rules)
		want   string
	}{
		"nothing":                    {func(*Machine) {}, nil, ""},
		"deleted":                    {deleted, nil, "Deleting deletionTimestamp"},
		"deleted since it has moved": {func(m *Machine) { deleted(m); note(MovedAnnotation, "")(m) }, nil, ""},
		"deleted, which is off":      {deleted, func(r *Rules) { r.OnDeletion = false }, ""},
		"a label":                    {label(upgrade, "true"), nil, "Labelled " + upgrade},
		"a label without a value":    {label(own, ""), nil, "Labelled " + own},
		"a label that says false":    {label(own, "False"), nil, ""},
		"an annotation":              {note(own, "yes"), nil, "Labelled " + own},
		"label false, note true":     {func(m *Machine) { label(own, "false")(m); note(own, "true")(m) }, nil, "Labelled " + own},
		"disabled drains no host":    {note(v1alpha1.DisabledLabel, ""), nil, ""},
		"unless the operator says so": {note(v1alpha1.DisabledLabel, ""), func(r *Rules) { r.Labels = []string{v1alpha1.DisabledLabel} },
			"Labelled " + v1alpha1.DisabledLabel},
		"a label of nobody":         {label("x/y", "true"), nil, ""},
		"another label":             {label("x/y", "true"), func(r *Rules) { r.Labels = []string{"x/y"} }, "Labelled x/y"},
		"deletion before the label": {func(m *Machine) { deleted(m); label(own, "")(m) }, nil, "Deleting deletionTimestamp"},
		"unhealthy":                 {sick, nil, ""},
		"unhealthy, when it counts": {sick, func(r *Rules) { r.Remediation = true }, "Remediation UnhealthyNode: not ready"},
	} {
		r := rules()
		if c.rules != nil {
			c.rules(r)
		}
		m := with(machine("a/prod/m1", "cp1", "10.0.0.11"), c.change)
		got := ""
		for _, d := range r.Drains([]*Machine{m}, model.Key{}, Node{}, nil) {
			got += d.Reason + " " + d.Detail
			if d.Machine != "a/m1" || d.Node != "cp1" || len(d.Addrs) != 1 {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestDrainsOfTwoClusters: nodes of two clusters may have one name, and a Machine of
// one must not drain the node of the other.
func TestDrainsOfTwoClusters(t *testing.T) {
	deleted := func(m *Machine) { m.Deleted = born }
	all := []*Machine{
		with(machine("b/prod/m1", "cp1"), deleted), with(machine("a/prod/m2", "cp2"), deleted),
		with(machine("a/dev/m3", "cp1"), deleted), machine("a/prod/m1", "cp1", "10.0.0.11"),
	}
	list := func(d []model.MachineDrain) string {
		out := ""
		for _, x := range d {
			out += x.Machine + " "
		}
		return out
	}
	r := rules()
	if got := list(r.Drains(all, all[3].Cluster(), Node{}, nil)); got != "a/m2 " {
		t.Errorf("of the own cluster: %s", got)
	}
	if got := list(r.Drains(all, model.Key{}, Node{}, nil)); got != "a/m2 a/m3 b/m1 " {
		t.Errorf("of whoever is in no cluster: %s", got)
	}
	all[2].Addresses = []netip.Addr{addr("10.9.0.9")}
	if got := list(r.Drains(all, model.Key{}, Node{Name: "cp1", Addrs: []netip.Addr{addr("10.0.0.11")}}, nil)); got != "a/m2 b/m1 " {
		t.Errorf("with a strange node of our name: %s", got)
	}
	r.ClusterName = "dev"
	if got := list(r.Drains(all, model.Key{}, Node{}, nil)); got != "a/m3 " {
		t.Errorf("of one cluster: %s", got)
	}
}

func TestMembers(t *testing.T) {
	zone := func(z string) func(*Machine) { return func(m *Machine) { m.FailureDomain = z } }
	all := []*Machine{
		with(machine("a/prod/m2", ""), zone("z2")), with(machine("a/prod/m1", ""), zone("z1")),
		machine("b/prod/m1", ""), machine("a/dev/m3", ""),
		with(machine("a/prod/w1", ""), func(m *Machine) { delete(m.Labels, ControlPlaneLabel) }),
		with(machine("a/prod/odd", ""), func(m *Machine) { m.Labels[ControlPlaneLabel] = "true" }),
		with(machine("a/prod/host", ""), func(m *Machine) { m.Target = "metal/v1/hosts" }),
	}
	for name, c := range map[string]struct {
		change func(*Balancer)
		want   string
	}{
		"the control plane of one cluster": {nil, "a/m1 a/m2 a/odd"},
		"the same cluster name elsewhere":  {func(b *Balancer) { b.Namespace = "b" }, "b/m1"},
		"two namespaces":                   {func(b *Balancer) { b.Spec.Namespaces = []string{"b", "a"} }, "a/m1 a/m2 a/odd b/m1"},
		"only others' namespace":           {func(b *Balancer) { b.Spec.Namespaces = []string{"b"} }, "b/m1"},
		"by clusterRef":                    {func(b *Balancer) { b.Spec.ClusterName, b.Spec.ClusterRef = "", &v1alpha1.ClusterReference{Name: "dev"} }, "a/m3"},
		"another selector": {func(b *Balancer) {
			b.Spec.MachineSelector = &v1alpha1.Selector{MatchLabels: map[string]string{ControlPlaneLabel: "true"}}
		}, "a/odd"},
		"all of a cluster": {func(b *Balancer) { b.Spec.MachineSelector = &v1alpha1.Selector{} }, "a/m1 a/m2 a/odd a/w1"},
		"across clusters": {func(b *Balancer) {
			b.Spec.ClusterName = ""
			b.Spec.MachineSelector = &v1alpha1.Selector{MatchExpressions: []v1alpha1.SelectorRequirement{{Key: ControlPlaneLabel, Operator: v1alpha1.SelectorExists}}}
		}, "a/m1 a/m2 a/m3 a/odd"},
		"one failure domain": {func(b *Balancer) { b.Spec.FailureDomains = []string{"z1"} }, "a/m1"},
		"another kind": {func(b *Balancer) {
			b.Spec.TargetKind = &v1alpha1.TargetKind{Group: "metal", Version: "v1", Kind: "Host"}
		}, "a/host"},
	} {
		if got := names(balancer(c.change).Members(all)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestControlPlaneIsNotHealthyBeforeItListens: who says nothing about the health of a
// control plane gets a check of the API server of each node, on the port that counts.
func TestControlPlaneIsNotHealthyBeforeItListens(t *testing.T) {
	selector := func(s v1alpha1.Selector) func(*Balancer) {
		return func(b *Balancer) { b.Spec.MachineSelector = &s }
	}
	for name, c := range map[string]struct {
		change func(*Balancer)
		port   int32 // 0: no check
	}{
		"nothing said": {nil, 6443},
		"a port of its own": {func(b *Balancer) {
			b.Spec.Port.Port = 443
			b.Status.Endpoint = nil
		}, 443},
		"the port of a Cluster":    {func(b *Balancer) { b.Status.Endpoint.Port = 443 }, 443},
		"the port of the Machines": {func(b *Balancer) { b.Spec.Port = v1alpha1.MachinePort{Port: 443, MachinePort: 6444} }, 6444},
		"the label":                {selector(v1alpha1.Selector{MatchLabels: map[string]string{ControlPlaneLabel: ""}}), 6443},
		"the label exists": {selector(v1alpha1.Selector{MatchExpressions: []v1alpha1.SelectorRequirement{{Key: ControlPlaneLabel,
			Operator: v1alpha1.SelectorExists}}}), 6443},
		"no label": {selector(v1alpha1.Selector{MatchExpressions: []v1alpha1.SelectorRequirement{{Key: ControlPlaneLabel,
			Operator: v1alpha1.SelectorDoesNotExist}}}), 0},
		"workers":      {selector(v1alpha1.Selector{MatchLabels: map[string]string{"role": "ingress"}}), 0},
		"UDP":          {func(b *Balancer) { b.Spec.Port.Protocol = v1alpha1.MachineUDP }, 0},
		"other things": {func(b *Balancer) { b.Spec.TargetKind = &v1alpha1.TargetKind{Version: "v1", Kind: "Host"} }, 0},
	} {
		h := balancer(c.change).Check()
		switch {
		case c.port == 0 && h != nil:
			t.Errorf("%s: check %+v", name, h.HTTPS)
		case c.port == 0:
		case h == nil || h.HTTPS == nil || h.HTTPS.Port != c.port || h.HTTPS.Path != v1alpha1.DefaultHTTPSPath || h.HTTPS.Host != "127.0.0.1":
			t.Errorf("%s: check %+v, want https on port %d", name, h, c.port)
		case len(h.Validate()) > 0:
			t.Errorf("%s: the check breaks %v", name, h.Validate())
		}
	}
	own := &v1alpha1.HealthCheck{TCP: &v1alpha1.TCPCheck{Port: 1}}
	if h := balancer(func(b *Balancer) { b.Spec.HealthCheck = own }).Check(); h.TCP == nil || h.HTTPS != nil {
		t.Errorf("the check that the object has does not count: %+v", h)
	}
}

func TestEndpoint(t *testing.T) {
	bgp := func(b *Balancer) { b.Spec.Advertise = &v1alpha1.Advertise{BGP: &v1alpha1.BGPAdvertise{}} }
	ref := func(b *Balancer) { b.Spec.ClusterRef = &v1alpha1.ClusterReference{Name: "prod"} }
	cluster := func(host string, port int32) *Cluster {
		c := &Cluster{Key: model.Key{Namespace: "a", Name: "prod"}}
		if host != "" {
			c.Endpoint = &v1alpha1.MachineEndpoint{Host: host, Port: port}
		}
		return c
	}
	gone := func(b *Balancer) { // what the Cluster had
		ref(b)
		b.Status.Endpoint = &v1alpha1.MachineEndpoint{Host: "10.0.0.7", Port: 443}
		b.Status.Conditions = []v1alpha1.Condition{{Type: v1alpha1.ConditionEndpointAssigned, Reason: EndpointAdopted}}
	}
	for name, c := range map[string]struct {
		change  func(*Balancer)
		addr    netip.Addr
		cluster *Cluster
		want    string
	}{
		"no address yet":                             {nil, netip.Addr{}, nil, "none False NoAddress"},
		"no member is needed":                        {nil, shared, nil, "10.0.0.200:6443 True Assigned"},
		"a port of its own":                          {func(b *Balancer) { b.Spec.Port.Port = 443 }, shared, nil, "10.0.0.200:443 True Assigned"},
		"a Cluster that comes later":                 {ref, shared, nil, "10.0.0.200:6443 True Assigned"},
		"a Cluster without an endpoint":              {ref, shared, cluster("", 0), "10.0.0.200:6443 tell True Assigned"},
		"a Cluster before the address":               {ref, netip.Addr{}, cluster("", 0), "none False NoAddress"},
		"a Cluster that has an endpoint":             {ref, addr("10.0.0.7"), cluster("10.0.0.7", 443), "10.0.0.7:443 True ClusterDecides"},
		"a Cluster that has a name":                  {ref, shared, cluster("api.example.net", 6443), "api.example.net:6443 True ClusterDecides"},
		"a Cluster that is not there now":            {gone, addr("10.0.0.7"), nil, "10.0.0.7:443 True ClusterDecides"},
		"a Cluster that came back bare":              {gone, shared, cluster("", 0), "10.0.0.200:6443 tell True Assigned"},
		"no Cluster any more":                        {func(b *Balancer) { gone(b); b.Spec.ClusterRef = nil }, shared, nil, "10.0.0.200:6443 True Assigned"},
		"a port to which the Machines do not listen": {ports, shared, nil, "10.0.0.200:443 True Assigned"},
		"one that a Cluster is told":                 {func(b *Balancer) { ref(b); ports(b) }, shared, cluster("", 0), "10.0.0.200:443 tell True Assigned"},
		"a Cluster with the port of the Machines":    {func(b *Balancer) { ref(b); ports(b) }, addr("10.0.0.7"), cluster("10.0.0.7", 6443), "10.0.0.7:6443 True ClusterDecides"},
		"a Cluster with the port of clients":         {func(b *Balancer) { ref(b); ports(b) }, addr("10.0.0.7"), cluster("10.0.0.7", 443), "10.0.0.7:443 True ClusterDecides"},
		"a Cluster with a third port":                {func(b *Balancer) { ref(b); ports(b) }, addr("10.0.0.7"), cluster("10.0.0.7", 8443), "10.0.0.7:8443 True ClusterDecides"},
		"what cannot be forwarded":                   {func(b *Balancer) { ref(b); ports(b); bgp(b) }, shared, cluster("", 0), "none False PortTranslation"},
		"what cannot be, and need not":               {func(b *Balancer) { ref(b); ports(b); bgp(b) }, shared, cluster("10.0.0.7", 6443), "10.0.0.7:6443 True ClusterDecides"},
		"a Cluster that is being deleted":            {ref, shared, &Cluster{Deleting: true}, "10.0.0.200:6443 True Assigned"},
	} {
		e, tell, cond := balancer(c.change).Endpoint(c.addr, c.cluster, nil, nil)
		got := "none"
		if e != nil {
			got = fmt.Sprintf("%s:%d", e.Host, e.Port)
		}
		if tell {
			got += " tell"
		}
		if got += fmt.Sprintf(" %s %s", cond.Status, cond.Reason); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	b := balancer(func(b *Balancer) { ref(b); b.Spec.Address = "10.0.0.5" })
	_, _, cond := b.Endpoint(addr("10.0.0.7"), cluster("10.0.0.7", 443), nil, nil)
	for _, want := range []string{"its address counts, not 10.0.0.5", "its port counts, not 6443"} {
		if !strings.Contains(cond.Message, want) {
			t.Errorf("who wrote another endpoint is not told that %s: %s", want, cond.Message)
		}
	}
	b = balancer(ref)
	for c, want := range map[*Cluster]string{nil: "does not exist yet", cluster("", 0): "is told"} {
		if _, _, cond := b.Endpoint(shared, c, nil, nil); !strings.HasSuffix(cond.Message, "; Cluster a/prod "+want) {
			t.Errorf("who waits for a Cluster is not told that it %s: %s", want, cond.Message)
		}
	}
	b.Spec.Address = "10.0.0.5"
	if _, _, cond := b.Endpoint(addr("10.0.0.5"), cluster("10.0.0.5", 6443), nil, nil); strings.Contains(cond.Message, "counts") {
		t.Errorf("who wrote the same endpoint is told: %s", cond.Message)
	}
}

func TestAcceptance(t *testing.T) {
	for want, change := range map[string]func(*Balancer){
		"True Accepted":         nil,
		"False Invalid":         func(b *Balancer) { b.Errors = []v1alpha1.FieldError{{Path: "spec", Rule: "is bad"}} },
		"False UnknownProvider": func(b *Balancer) { b.Spec.ProviderRef = &v1alpha1.ProviderReference{Kind: "BigIP", Name: "edge"} },
		"False PortTranslation": func(b *Balancer) {
			ports(b)
			b.Spec.Advertise = &v1alpha1.Advertise{L2: &v1alpha1.L2Advertise{Mode: v1alpha1.L2Balanced}}
		},
	} {
		b := balancer(change)
		c := b.Acceptance(nil, nil)
		if got := string(c.Status) + " " + c.Reason; got != want || c.Message == "" {
			t.Errorf("%s, want %s: %s", got, want, c.Message)
		}
		if usable := want == "True Accepted" || want == "False PortTranslation"; b.Usable() != usable {
			t.Errorf("%s: usable %v", want, b.Usable())
		}
	}
}

func TestRelease(t *testing.T) {
	held := func(m *Machine) { m.Deleted = born; m.Annotations[HookKey] = "" }
	says := func(state v1alpha1.MemberState, reason string) []v1alpha1.MachineMemberStatus {
		return []v1alpha1.MachineMemberStatus{{Machine: "m2", Namespace: "a", State: v1alpha1.MemberDrained, Reason: DrainDeleting},
			{Machine: "m1", Namespace: "a", Node: "cp1", State: state, Reason: reason}}
	}
	drained, draining := says(v1alpha1.MemberDrained, MemberServesNothing), says(v1alpha1.MemberDraining, DrainDeleting)
	for name, c := range map[string]struct {
		change  func(*Machine)
		said    []v1alpha1.MachineMemberStatus
		after   time.Duration
		balance func(*Balancer)
		rules   func(*Rules)
		want    string // the reason, or until when it is held
	}{
		"drained":                           {held, drained, time.Second, nil, nil, ReleaseDrained},
		"not drained":                       {held, draining, time.Second, nil, nil, "1m0s"},
		"not drained in time":               {held, draining, time.Minute, nil, nil, ReleaseTimeout},
		"nobody reports":                    {held, nil, time.Second, nil, nil, "1m0s"},
		"nobody reports in time":            {held, nil, time.Minute, nil, nil, ReleaseTimeout},
		"not heard":                         {held, says(v1alpha1.MemberDrained, MemberNotHeard), time.Second, nil, nil, "1m0s"},
		"the word of an older daemon":       {held, says(v1alpha1.MemberDrained, DrainDeleting), time.Second, nil, nil, "1m0s"},
		"not heard in time":                 {held, says(v1alpha1.MemberDrained, MemberNotHeard), time.Minute, nil, nil, ReleaseTimeout},
		"a word of others about it":         {held, drained, time.Second, func(b *Balancer) { b.Spec.ClusterName = "dev" }, nil, "1m0s"},
		"the word of somebody else":         {held, drained, time.Second, func(b *Balancer) { b.Spec.ProviderRef = &v1alpha1.ProviderReference{Kind: "X", Name: "x"} }, nil, "1m0s"},
		"not deleted":                       {func(m *Machine) { m.Annotations[HookKey] = "" }, drained, time.Hour, nil, nil, "0s"},
		"no hook":                           {func(m *Machine) { m.Deleted = born }, drained, time.Hour, nil, nil, "0s"},
		"the hook of somebody else":         {func(m *Machine) { m.Deleted = born; m.Annotations[HookPrefix+"other"] = "" }, drained, time.Hour, nil, nil, "0s"},
		"a bound of the balancer":           {held, draining, time.Second, func(b *Balancer) { b.Spec.Drain.Timeout.Duration = 5 * time.Second }, nil, "5s"},
		"the bound of the balancer is over": {held, draining, 5 * time.Second, func(b *Balancer) { b.Spec.Drain.Timeout.Duration = 5 * time.Second }, nil, ReleaseTimeout},
		"a balancer of other Machines":      {held, draining, 5 * time.Second, func(b *Balancer) { b.Namespace, b.Spec.Drain.Timeout.Duration = "b", time.Second }, nil, "1m0s"},
		"a balancer that does not hold":     {held, draining, 0, func(b *Balancer) { b.Spec.Drain.Hook = new(false) }, nil, ReleaseNotHeld},
		"a configuration that does not":     {held, draining, 0, nil, func(r *Rules) { r.OnDeletion = false }, ReleaseNotHeld},
	} {
		m, r := with(machine("a/prod/m1", "cp1"), c.change), rules()
		if c.rules != nil {
			c.rules(r)
		}
		b := balancer(c.balance)
		b.Status.Members = c.said
		out, next := r.Releases([]*Machine{m}, []*Balancer{b}, born.Add(c.after))
		got := ""
		for _, x := range out {
			got += x.Reason
		}
		if got == "" {
			got = "0s"
			if !next.IsZero() {
				got = next.Sub(born).String()
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestTargetIsNotHeld: what stands for a Machine neither drains nor is held, whatever
// labels and annotations it has.
func TestTargetIsNotHeld(t *testing.T) {
	m := with(machine("a/prod/h1", "cp1"), func(m *Machine) {
		m.Target, m.Deleted, m.Labels["lbd.dev/drain"], m.Annotations[HookKey] = "infra/v1/hosts", born, "", ""
	})
	if out, next := rules().Releases([]*Machine{m}, nil, born.Add(time.Hour)); len(out) > 0 || !next.IsZero() || m.Held() {
		t.Errorf("released %v, again at %v, held %v", out, next, m.Held())
	}
	report := &Report{Members: []model.MachineMember{{Node: "cp1", Standing: map[netip.Addr]model.Reason{shared: model.ReasonOwner}}}}
	s := balancer(nil).Summary([]*Machine{m}, report, rules(), born)
	if x := s.Members[0]; x.State != v1alpha1.MemberActive {
		t.Errorf("the member is %s, %s", x.State, x.Reason)
	}
}

// TestDisabledMachineKeepsWhatItsBalancersDoNotHave: a user takes a Machine out of its
// balancers, or of one of them, and the host keeps every other address.
func TestDisabledMachineKeepsWhatItsBalancersDoNotHave(t *testing.T) {
	given := func(name, selected string, addrs ...string) Balanced {
		b := balancer(func(b *Balancer) { b.Name, b.Spec.ClusterName = name, selected })
		out := Balanced{Balancer: b}
		for _, a := range addrs {
			out.Addrs = append(out.Addrs, addr(a))
		}
		return out
	}
	all := []Balanced{given("api", "prod", "192.0.2.9", "2001:db8::9"), given("people", "prod", "192.0.2.8"), given("other", "dev", "192.0.2.7")}
	one := v1alpha1.DisabledPrefix + "people"
	for name, c := range map[string]struct {
		notes map[string]string
		want  string
	}{
		"nothing":            {nil, ""},
		"all":                {map[string]string{v1alpha1.DisabledLabel: ""}, "Disabled [192.0.2.8 192.0.2.9 2001:db8::9]"},
		"false":              {map[string]string{v1alpha1.DisabledLabel: "false", one: "False"}, ""},
		"one":                {map[string]string{one: "true"}, "Disabled [192.0.2.8]"},
		"one that it is not": {map[string]string{v1alpha1.DisabledPrefix + "other": ""}, ""},
	} {
		m := with(machine("a/prod/m1", "cp1", "10.0.0.11"), func(m *Machine) { m.Annotations = c.notes })
		got := ""
		for _, d := range rules().Drains([]*Machine{m}, model.Key{}, Node{}, all) {
			got += fmt.Sprint(d.Reason, " ", d.Only)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	m := with(machine("a/prod/m1", "cp1"), func(m *Machine) { m.Deleted, m.Labels[v1alpha1.DisabledLabel] = born, "" })
	if d := rules().Drains([]*Machine{m}, model.Key{}, Node{}, all); len(d) != 2 || d[0].Reason != DrainDeleting || len(d[0].Only) > 0 {
		t.Errorf("deleted too: %+v", d)
	}
}

func TestRelevant(t *testing.T) {
	r := rules()
	for key, want := range map[string]bool{HookKey: true, NameAnnotation: true, StatusAnnotation: true, v1alpha1.DisabledLabel: true, v1alpha1.DisabledPrefix + "x": true,
		"lbd.dev/drain": true, "kubectl.kubernetes.io/last-applied-configuration": false, HookPrefix + "other": false} {
		if r.Relevant(key) != want {
			t.Errorf("%s: %v", key, !want)
		}
	}
	if got := RulesOf(&v1alpha1.MachinesSpec{DrainOnDeletion: new(false)}); got.OnDeletion || !reflect.DeepEqual(got.Labels, []string(nil)) {
		t.Errorf("%+v", got)
	}
}

// A daemon that is limited to one cluster leaves the Machines of all others alone, also when
// nothing holds them any more: their own daemons may still drain.
func TestHooksOfAnotherClusterStay(t *testing.T) {
	for cluster, want := range map[string]int{"": 1, "prod": 1, "test": 0} {
		m := with(machine("a/prod/m1", "cp1"), func(m *Machine) { m.Deleted = born; m.Annotations[HookKey] = "" })
		r := rules()
		r.ClusterName = cluster
		if out, next := r.Releases([]*Machine{m}, nil, born.Add(time.Hour)); len(out) != want || !next.IsZero() {
			t.Errorf("limited to %q: %d released, want %d; again at %v", cluster, len(out), want, next)
		}
	}
}
