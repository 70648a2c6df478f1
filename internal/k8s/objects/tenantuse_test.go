package objects

import (
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// said makes conditions out of triples: type, reason, generation; a reason that begins with ! is that of
// a condition that is False.
func said(words ...any) (out []v1alpha1.Condition) {
	for i := 0; i < len(words); i += 3 {
		c := v1alpha1.Condition{Type: words[i].(string), Status: v1alpha1.ConditionTrue, Reason: words[i+1].(string), ObservedGeneration: int64(words[i+2].(int))}
		if c.Reason[0] == '!' {
			c.Status, c.Reason = v1alpha1.ConditionFalse, c.Reason[1:]
		}
		out = append(out, c)
	}
	return out
}

func TestVerdict(t *testing.T) {
	for want, conditions := range map[string][]v1alpha1.Condition{
		"false NotJudged":      nil,
		"false NotJudged ":     said("Accepted", "Accepted", 1, "AddressAssigned", "Assigned", 1), // of an earlier spec
		"true Accepted":        said("Accepted", "Accepted", 2),
		"true Accepted ":       said("AddressAssigned", "Assigned", 2, "Accepted", "Accepted", 2),
		"false TenantLimit":    said("Accepted", "!TenantLimit", 2, "AddressAssigned", "!NotAccepted", 2),
		"false AddressPending": said("AddressAssigned", "!AddressPending", 2, "Accepted", "Accepted", 2),
		"false NoRoom":         said("Accepted", "NoRoom", 2, "AddressAssigned", "Assigned", 2),
		"false NoNodeOfFamily": said("Accepted", "NoNodeOfFamily", 2, "AddressAssigned", "Assigned", 2),
	} {
		o := Object[*v1alpha1.TenantService]{Generation: 2, Conditions: conditions}
		v := o.Verdict()
		if got := fmt.Sprintf("%v %s", v.OK, v.Reason); got != want && got+" " != want {
			t.Errorf("%v: %s, want %s", conditions, got, want)
		}
	}
}

// TestTenantUse: each object counts for the one Tenant that has its namespace.
func TestTenantUse(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tenant := func(day time.Time, verdict string, namespaces ...string) Object[*v1alpha1.Tenant] {
		x := new(v1alpha1.Tenant)
		for _, n := range namespaces {
			x.Spec.Clusters = append(x.Spec.Clusters, v1alpha1.TenantCluster{Namespace: n})
		}
		return Object[*v1alpha1.Tenant]{Value: x, Created: day, Conditions: said("Accepted", verdict, 0)}
	}
	service := func(verdict string, ports int, addresses ...string) Object[*v1alpha1.TenantService] {
		x := &v1alpha1.TenantService{Status: new(v1alpha1.TenantServiceStatus)}
		x.Spec.Ports = make([]v1alpha1.TenantPort, ports)
		for _, a := range addresses {
			x.Status.Addresses = append(x.Status.Addresses, v1alpha1.TenantAddress{Address: a})
		}
		return Object[*v1alpha1.TenantService]{Value: x, Conditions: said("Accepted", verdict, 0)}
	}
	nodes := &v1alpha1.TenantNodes{Spec: v1alpha1.TenantNodesSpec{Nodes: make([]v1alpha1.TenantNode, 3)}}
	all := Tenants{
		Tenants: map[model.Key]Object[*v1alpha1.Tenant]{
			{Name: "old"}: tenant(day, "!Overlap", "a", "b"), {Name: "new"}: tenant(day.Add(time.Hour), "Accepted", "a"), {Name: "newer"}: tenant(day.Add(2*time.Hour), "!NamespaceTaken", "b"),
		},
		Nodes: map[model.Key]Object[*v1alpha1.TenantNodes]{{Namespace: "a", Name: "n"}: {Value: nodes, Conditions: said("Accepted", "!RefusedNodes", 0)}},
		Services: map[model.Key]Object[*v1alpha1.TenantService]{
			{Namespace: "a", Name: "x"}: service("Accepted", 2, "192.0.2.1", "2001:db8::1"), {Namespace: "a", Name: "y"}: service("!TenantLimit", 4),
			{Namespace: "b", Name: "x"}: service("!NoTenant", 1), {Namespace: "c", Name: "x"}: service("!NoTenant", 1),
		},
		Routes: map[model.Key]Object[*v1alpha1.TenantRoute]{
			{Namespace: "a", Name: "x"}: {Conditions: said("Accepted", "Accepted", 0)}, {Namespace: "a", Name: "y"}: {Conditions: said("Accepted", "!HostnameTaken", 0)},
		},
	}
	if got := fmt.Sprint(all.Owners()); got != "map[a:new b:old]" { // the one that is accepted, else the older one
		t.Error(got)
	}
	const want = "map[new:{1 2 2 3 1 3} newer:{0 0 0 0 0 1} old:{0 0 0 0 0 2}]"
	if got := fmt.Sprint(all.Use()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
