package control

import (
	"bytes"
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

func TestTableForPeople(t *testing.T) {
	var table Table
	table.Add("NAME", "WHY")
	table.Add("a-name-of-more-than-twenty-letters\n", "")
	var out bytes.Buffer
	if err := table.Write(&out, "  "); err != nil || out.String() != "  NAME                                 WHY\n  a-name-of-more-than-twenty-letters   -\n" {
		t.Errorf("%v %q", err, out.String())
	}
}
