package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/agent"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/k8s/hub"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/tenants"
)

// aTenant is a tenant with a Service that is served, one that is not, and two clusters.
func aTenant() hub.Tenant {
	no := objects.Verdict{Reason: "TenantLimit", Message: "with it the Tenant shop has 5 addresses of 4 that it may have"}
	return hub.Tenant{
		Name: "shop", Accepted: objects.Verdict{OK: true, Reason: "Accepted"}, Pools: []string{"public", "spare"},
		Limits: v1alpha1.TenantLimits{Services: 50, Addresses: 4, Ports: 200, Nodes: 100, Routes: 200}, Use: objects.TenantUse{Services: 1, Ports: 6, Addresses: 2, Nodes: 1, Routes: 1, Problems: 1},
		Clusters: []hub.Cluster{
			{
				Name: "main", Namespace: "lbd-shop-main", NodeCIDRs: []string{"10.1.0.0/22"}, NodePorts: "30000-32767", AgentWrote: time.Unix(0, 0),
				Services: []hub.Service{
					{Name: "default.web", Addresses: []v1alpha1.TenantAddress{{Address: "192.0.2.1"}, {Address: "2001:db8::1"}}, Verdict: objects.Verdict{OK: true},
						Ports: []v1alpha1.TenantPort{{Port: 80, NodePort: 30080, Protocol: "TCP"}, {Port: 443, NodePort: 30443, Protocol: "TCP"}, {Port: 53, NodePort: 30053, Protocol: "UDP"},
							{Port: 1, NodePort: 30001, Protocol: "TCP"}, {Port: 2, NodePort: 30002, Protocol: "TCP"}, {Port: 3, NodePort: 30003, Protocol: "TCP"}}},
					{Name: "a-long-namespace.with-a-long-name\x1b[2J", GlobalName: "web", Weight: new(int32(30)), Ports: []v1alpha1.TenantPort{{Port: 80, NodePort: 30081, Protocol: "TCP"}}, Verdict: no},
				},
				Routes: []hub.Route{{Name: "ingress.default.web", Hosts: []string{"a.com", "b.com", "c.com", "d.com", "e.com"}, Addresses: []string{"192.0.2.9"},
					Verdict: objects.Verdict{Reason: "HostnameTaken", Message: "a.com is taken"}}},
				Nodes: []hub.Nodes{
					{Name: "nodes-0", Nodes: []v1alpha1.TenantNode{{Name: "a1", Addresses: []string{"10.1.0.11"}, State: "Serving"}}, Verdict: objects.Verdict{OK: true}},
					{Name: "nodes-1", Nodes: []v1alpha1.TenantNode{{Name: "b1", Addresses: []string{"10.9.0.1"}, State: "Serving"}, {Name: "b2", Addresses: []string{"10.1.0.12", "fd10::12"}, State: "Out"}},
						Verdict: objects.Verdict{Reason: "RefusedNodes", Message: "b1: 10.9.0.1 is in none"}},
				},
			},
			{Name: "second", Namespace: "lbd-bank-main", NodeCIDRs: []string{"10.2.0.0/22"}, NodePorts: "30000-32767", Owner: "bank"},
		},
	}
}

func TestRenderTenant(t *testing.T) {
	x := aTenant()
	var out strings.Builder
	if err := renderTenant(&out, &x, time.Unix(90, 0)); err != nil {
		t.Fatal(err)
	}
	const want = `Tenant shop: accepted
Has 1 of 50 services, 2 of 4 addresses, 6 of 200 ports, 1 of 100 nodes, 1 of 200 routes; pools: public, spare

Cluster main, namespace lbd-shop-main, nodes in 10.1.0.0/22 with NodePorts 30000-32767
  The agent wrote last: 90s ago; it gives no signs of life.

  SERVICE                                ADDRESSES              PORTS                                                            SERVED       WHY
  default.web                            192.0.2.1 2001:db8::1  80/TCP:30080 443/TCP:30443 53/UDP:30053 1/TCP:30001 and 2 more  yes          -
  a-long-namespace.with-a-long-name [2J  as web, weight 30      80/TCP:30081                                                     TenantLimit  with it the Tenant shop has 5
                                                                                                                                               addresses of 4 that it may
                                                                                                                                               have

  ROUTE                HOSTS                       ADDRESSES  SERVED         WHY
  ingress.default.web  a.com b.com c.com d.com and 1 more  192.0.2.9  HostnameTaken  a.com is taken

  NODE  STATE    ADDRESSES           OBJECT   ACCEPTED      WHY
  a1    Serving  10.1.0.11           nodes-0  yes           -
  b1    Serving  10.9.0.1            nodes-1  RefusedNodes  b1: 10.9.0.1 is in none
  b2    Out      10.1.0.12 fd10::12  nodes-1  RefusedNodes  -

Cluster second, namespace lbd-bank-main, nodes in 10.2.0.0/22 with NodePorts 30000-32767
  The namespace is that of the Tenant bank.
`
	if strings.Join(strings.Fields(out.String()), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	x.Suspended = true
	refused := hub.Tenant{Name: "bank", Accepted: objects.Verdict{Reason: "Overlap", Message: "10.1.0.0/22 overlaps"}}
	out.Reset()
	if err := renderTenants(&out, []hub.Tenant{refused, x}, time.Unix(7200, 0)); err != nil {
		t.Fatal(err)
	}
	const list = `TENANT  ACCEPTED   SERVICES  ADDRESSES  PORTS  NODES  PROBLEMS  AGENT HEARD  POOLS         NAMESPACES
bank    Overlap    0/0       0/0        0/0    0/0    0         never        -             -
shop    suspended  1/50      2/4        6/200  1/100  1         2h ago       public,spare  lbd-shop-main lbd-bank-main
`
	if out.String() != list {
		t.Errorf("got\n%s\nwant\n%s", out.String(), list)
	}
}

// TestAgentHeard: an agent that gave signs of life and gives none any more is away. One that never did may be
// of an earlier version: of it nothing is said.
func TestAgentHeard(t *testing.T) {
	for name, c := range map[string]struct {
		heard, wrote, now int64
		show, list        string
	}{
		"heard":                   {1000, 0, 1060, "was last heard 60s ago.", " 60s ago  "},
		"wrote since":             {1000, 1200, 1210, "was last heard 10s ago.", " 10s ago  "},
		"away":                    {1000, 500, 1300, "is away: it was last heard 5m ago.", " 5m ago; away: main  "},
		"of an earlier version":   {0, 1000, 1300, "wrote last: 5m ago; it gives no signs of life.", " 5m ago  "},
		"neither heard nor wrote": {0, 0, 1300, "wrote last: never; it gives no signs of life.", " never  "},
	} {
		x := aTenant()
		at := func(s int64) time.Time {
			if s == 0 {
				return time.Time{}
			}
			return time.Unix(s, 0)
		}
		x.Clusters[0].AgentHeard, x.Clusters[0].AgentWrote = at(c.heard), at(c.wrote)
		var show, list strings.Builder
		err := errors.Join(renderTenant(&show, &x, time.Unix(c.now, 0)), renderTenants(&list, []hub.Tenant{x}, time.Unix(c.now, 0)))
		if err != nil || !strings.Contains(show.String(), "  The agent "+c.show+"\n") || !strings.Contains(list.String(), c.list) {
			t.Errorf("%s: %v\n%s\n%s", name, err, show.String(), list.String())
		}
	}
}

// TestClusterMismatchShown: a second cluster with the same credentials is shown while it asks.
func TestClusterMismatchShown(t *testing.T) {
	x := aTenant()
	x.Clusters[0].Refused = hub.Refused{UID: "u\x1b2", Seen: time.Unix(1000, 0)}
	for now, want := range map[int64]bool{1060: true, 1200: false} {
		var show strings.Builder
		if err := renderTenant(&show, &x, time.Unix(now, 0)); err != nil || strings.Contains(show.String(), "  ClusterMismatch: another cluster, with the UID u") != want ||
			strings.Contains(show.String(), "\x1b") {
			t.Errorf("at %d: %v\n%s", now, err, show.String())
		}
	}
}

// TestTenantCommands: against an API server, by a kubeconfig file.
func TestTenantCommands(t *testing.T) {
	api := apitest.New(t, map[string]string{"lbd.dev/v1alpha1/tenants": "Tenant", "lbd.dev/v1alpha1/tenantnodes": "TenantNodes", "lbd.dev/v1alpha1/tenantservices": "TenantService",
		"v1/namespaces": "Namespace", "v1/pods": "Pod", "v1/serviceaccounts": "ServiceAccount", "rbac.authorization.k8s.io/v1/rolebindings": "RoleBinding", "coordination.k8s.io/v1/leases": "Lease"})
	api.Put("coordination.k8s.io/v1/leases", map[string]any{"metadata": map[string]any{"namespace": "lbd-shop-main", "name": "agent", "annotations": map[string]any{
		tenants.AnnotationRefused: "second 2026-01-03T12:44:00Z"}, "managedFields": []any{map[string]any{"manager": agent.ManagerRefused, "time": time.Now().UTC().Format(time.RFC3339)}}}})
	hubFile := "--kubeconfig=" + kubeconfigOf(t, api.Config().Host, "")
	if out, _, err := call(t, "tenant", "list", hubFile); err != nil || out != "The hub has no tenant.\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, _, err := call(t, "tenant", "list", "-o", "json", hubFile); err != nil || out != "[]\n" {
		t.Errorf("%q, %v", out, err)
	}
	api.Put("lbd.dev/v1alpha1/tenants", map[string]any{"metadata": map[string]any{"name": "shop", "uid": "u"}, "spec": map[string]any{"pools": []any{"public"},
		"clusters": []any{map[string]any{"name": "main", "namespace": "lbd-shop-main", "nodeCIDRs": []any{"10.1.0.0/24"}}}}})
	api.Put("lbd.dev/v1alpha1/tenantservices", map[string]any{"metadata": map[string]any{"namespace": "lbd-shop-main", "name": "default.web"},
		"spec": map[string]any{"ports": []any{map[string]any{"port": 80, "nodePort": 30080}}}})
	api.Put("v1/namespaces", map[string]any{"metadata": map[string]any{"name": "lbd-shop-main", "labels": map[string]any{"lbd.dev/tenant": "shop"}}})
	for _, c := range []struct {
		args  string
		usage bool
		want  string // of the output, or of the error
	}{
		{"show shop", false, "Tenant shop: not accepted: NotJudged:"},
		{"show shop", false, "default.web  -          80/TCP:30080  NotJudged"},
		{"show shoe", false, `there is no Tenant "shoe"; the tenants are ["shop"]`},
		{"show", true, "it wants the name of one tenant"},
		{"show shop -o text", true, "it is table, json or yaml"},
		{"list --context=other", false, `context "other" does not exist`},
		{"rotate shop --cluster=second", false, `the Tenant shop has no cluster "second"`},
		{"rotate shop --duration=1m", true, "--duration must be at least 10m0s"},
		{"rebind shop --cluster=second", false, `the Tenant shop has no cluster "second"`},
		{"rebind shop", false, "The cluster with the UID second is main of the tenant shop from now on"},
		{"rebind shop", false, "no other cluster with the credentials of this one has been seen"},
		{"delete shop --timeout=-1s", true, "--timeout must not be negative"},
		{"delete shop", false, "nothing is deleted yet: --yes does it"},
		{"delete none --yes", false, "There is no Tenant none, and no namespace of it.\n"},
	} {
		out, _, err := call(t, append(append([]string{"tenant"}, strings.Fields(c.args)...), hubFile)...)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, c.want) || errors.As(err, new(usageError)) != c.usage {
			t.Errorf("%s: %q, want %q", c.args, out, c.want)
		}
	}
	var shown hub.Tenant
	out, _, err := call(t, "tenant", "show", "shop", "-o", "json", hubFile)
	if err := errors.Join(err, json.Unmarshal([]byte(out), &shown)); err != nil || shown.Clusters[0].Services[0].Name != "default.web" || !strings.Contains(out, `"problems": 2`) {
		t.Errorf("%v: %s", err, out)
	}
	if out, _, _ := call(t, "tenant", "list", "-o", "json", hubFile); strings.Contains(out, "default.web") {
		t.Error("the list has Services")
	}
	if got, _, _ := call(t, "__completeNoDesc", "tenant", "show", hubFile, ""); !strings.HasPrefix(got, "shop\n:4") {
		t.Errorf("completion %q", got)
	}
	out, _, err = call(t, "tenant", "delete", "shop", "--yes", "--timeout=0s", hubFile)
	const want = "What ends with the tenant shop:\n- the Tenant: its nodes get no connection any more\n- the namespace lbd-shop-main with all that is in it: 1 TenantServices with no address\n" +
		"Tenant shop: deleted\nnamespace lbd-shop-main: deleted, and ends once all in it has\n"
	if err != nil || out != want || api.Get("lbd.dev/v1alpha1/tenants", "", "shop") != nil || api.Get("v1/namespaces", "", "lbd-shop-main") != nil {
		t.Errorf("%v, got\n%s\nwant\n%s", err, out, want)
	}
}

// TestPrintSecret: what is printed has the token and nothing that the rest of the Secret could lose.
func TestPrintSecret(t *testing.T) {
	var out, note strings.Builder
	cmd := newTenantRotate()
	cmd.SetOut(&out)
	cmd.SetErr(&note)
	if err := printSecret(cmd, "a token"); err != nil {
		t.Fatal(err)
	}
	const want = "apiVersion: v1\ndata:\n  token: YSB0b2tlbg==\nkind: Secret\nmetadata:\n  name: lbd-hub\n  namespace: lbd-agent\n"
	if out.String() != want || !strings.Contains(note.String(), "--field-manager=lbd-rotate --force-conflicts") {
		t.Errorf("%s%s", out.String(), note.String())
	}
}
