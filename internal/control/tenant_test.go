package control

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

// TestTenantIsNamed: whose an address is, where it leads and why it does not, in the tables and on the page.
func TestTenantIsNamed(t *testing.T) {
	o := &v1alpha1.TenantOwner{Tenant: "shop", Cluster: "main", Namespace: "lbd-shop-main", Service: "default.web", Reason: "Accepted"}
	for i := range int32(6) {
		o.Ports = append(o.Ports, v1alpha1.BalancerPort{Protocol: "TCP", Port: 80 + i, TargetPort: 30080 + i})
	}
	e := v1alpha1.Explanation{Name: "lbd-shop-main/default.web", Address: "192.0.2.1", Node: "h1", Owner: "h1", Reason: "Owner", Tenant: o}
	text := func() string {
		var out bytes.Buffer
		if err := RenderExplain(&out, []v1alpha1.Explanation{e}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	const want = "Tenant: the TenantService default.web in the namespace lbd-shop-main, of the cluster main of the Tenant shop; it leads " +
		"80/TCP to NodePort 30080, 81/TCP to NodePort 30081, 82/TCP to NodePort 30082, 83/TCP to NodePort 30083, 2 more."
	if got := text(); !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if all := Reasons(e); len(all) != 2 || !strings.Contains(all[1], "of the Tenant shop") {
		t.Errorf("%q", all)
	}
	shared := *o
	shared.GlobalName, shared.Members = "web", []v1alpha1.TenantMember{
		{Cluster: "main", Service: "default.web", Weight: 100, Reason: "Accepted"},
		{Cluster: "second", Service: "default.web", Weight: 0, Reason: "Conflict", Message: "other ports"},
	}
	e.Tenant = &shared
	if got, want := text(), "Tenant: TenantServices of the Tenant shop with the global name web: default.web of the cluster main, with the weight 100; default.web of the cluster second, with the weight 0; "+
		"this node judges Conflict: other ports."; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	shared.Members, e.Tenant = nil, o
	if got := TenantText(&shared); !strings.HasSuffix(got, "; it has the global name shop/global/web") {
		t.Error(got)
	}
	o.Tenant, o.Reason, o.Message = "", "NoTenant", "no Tenant\x1b[2J that is accepted"
	if got := text(); !strings.Contains(got, "a namespace that no Tenant has;") || !strings.HasSuffix(got, "this node judges NoTenant: no Tenant [2J that is accepted.") {
		t.Errorf("got\n%s", got)
	}
	var out bytes.Buffer
	s := v1alpha1.NodeStatus{Node: "h1", VIPs: []v1alpha1.VIPStatus{{Name: e.Name, Address: e.Address, Owner: "h1", Reason: "Owner", Tenant: "shop"}}}
	if err := RenderStatus(&out, s, false); err != nil || !strings.Contains(out.String(), "Owner (tenant shop, lbd-shop-main/default.web)\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestOfTenant: a status of one tenant has what is of its addresses, and all that is of the node.
func TestOfTenant(t *testing.T) {
	name := func(of string) string { return "tenant/lbd-" + of + "-main/default.web" }
	s := v1alpha1.NodeStatus{Node: "h1", Members: []v1alpha1.MemberStatus{{Name: "h2"}}, VIPs: []v1alpha1.VIPStatus{{Name: "control-plane"}}}
	for _, of := range []string{"shop", "bank", "shop-main-two"} { // the namespace of the last begins like that of the first
		s.VIPs = append(s.VIPs, v1alpha1.VIPStatus{Name: name(of), Tenant: of})
		s.LoadBalancers = append(s.LoadBalancers, v1alpha1.BalancerStatus{Name: name(of)})
		for _, check := range []string{"tenant/lbd-" + of + "-main/10.1.0.1", name(of) + "/fd10::1"} { // of its nodes, and those of a Service with local
			s.Health = append(s.Health, v1alpha1.HealthStatus{Name: check})
		}
	}
	got, err := OfTenant(s, "shop")
	if err != nil || len(got.VIPs) != 1 || len(got.Health) != 2 || len(got.LoadBalancers) != 1 || len(got.Members) != 1 ||
		got.VIPs[0].Name != name("shop") || got.Health[0].Name != "tenant/lbd-shop-main/10.1.0.1" || got.LoadBalancers[0].Name != name("shop") {
		t.Errorf("%+v: %v", got, err)
	}
	if len(s.VIPs) != 4 || s.VIPs[0].Name != "control-plane" {
		t.Errorf("the status itself was changed: %+v", s.VIPs)
	}
	s.VIPs[1].Name, s.LoadBalancers[0].Name = "tenant/shop/global/web", "tenant/shop/global/web"
	s.LoadBalancers[0].Backends = []v1alpha1.BackendStatus{{Backend: "10.1.0.1:30080"}, {Backend: "[fd10::1]:30080"}}
	s.Health = append(s.Health, v1alpha1.HealthStatus{Name: "tenant/lbd-shop-second/10.1.0.7"}, v1alpha1.HealthStatus{Name: "tenant/lbd-bank-main/10.7.0.1"})
	if got, err := OfTenant(s, "shop"); err != nil || len(got.Health) != 6 || len(got.LoadBalancers) != 1 { // three tenants have a node of each address here
		t.Errorf("%+v: %v", got, err)
	}
	const db = "tenant/shop/default.db" // another tenant has a namespace of the name of this one
	s.VIPs, s.LoadBalancers = append(s.VIPs, v1alpha1.VIPStatus{Name: db, Tenant: "bank"}), append(s.LoadBalancers, v1alpha1.BalancerStatus{Name: db})
	if got, err := OfTenant(s, "shop"); err != nil || len(got.LoadBalancers) != 1 || got.LoadBalancers[0].Name != "tenant/shop/global/web" {
		t.Errorf("%+v: %v", got.LoadBalancers, err)
	}
	s.VIPs = append(s.VIPs, v1alpha1.VIPStatus{Name: "tenant/shop/default.web", Tenant: "bank"})
	if got, err := OfTenant(s, "bank"); err != nil || len(got.LoadBalancers) != 2 || slices.ContainsFunc(got.LoadBalancers, func(b v1alpha1.BalancerStatus) bool { return b.Name == "tenant/shop/global/web" }) {
		t.Errorf("%+v: %v", got.LoadBalancers, err)
	}
	if _, err := OfTenant(s, "shopp"); err == nil || err.Error() != `node h1 knows no address of a tenant "shopp"` {
		t.Error(err)
	}
}

func TestTableForPeople(t *testing.T) {
	var table Table
	table.Add("NAME", "WHY")
	table.Add("a-name-of-more-than-twenty-letters\n", "")
	var out bytes.Buffer
	if err := table.Write(&out, "  "); err != nil || out.String() != "  NAME                                 WHY\n  a-name-of-more-than-twenty-letters   -\n" {
		t.Errorf("%v %q", err, out.String())
	}
}
