package packaging

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/tenants"
)

// TestTenantTLSRights: for certificates the agent may make Secrets in the hub, and look for some in the namespaces
// that are named, and nobody may do more than that with any.
func TestTenantTLSRights(t *testing.T) {
	hub, cluster := joined(t, true, false, "--tls-secrets", "--tls-namespace=default,web")
	checkTypes(t, slices.DeleteFunc(slices.Clone(hub), func(o Object) bool { return o.Text("kind") == "Tenant" }))
	checkTypes(t, cluster)
	before := map[string]bool{}
	oldHub, oldCluster := joined(t, true, false)
	for _, o := range slices.Concat(oldHub, oldCluster) {
		before[o.Key()] = true
	}
	got := map[string]string{}
	for _, o := range slices.Concat(hub, cluster) {
		if kind := o.Text("kind"); !before[o.Key()] && strings.HasSuffix(kind, "Role") {
			got[o.Key()] = strings.Join(rights(o), ", ")
		}
	}
	want := map[string]string{
		"Role/lbd-shop-main/lbd-agent-tls": "create secrets.", "Role/lbd-shop-main/lbd-tenant-tls": "list secrets., watch secrets., delete secrets.",
		"Role/default/lbd-agent-tls": "list secrets., watch secrets.", "Role/web/lbd-agent-tls": "list secrets., watch secrets.",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the rights are\n%v\nand should be\n%v", got, want)
	}
	policy := slices.IndexFunc(hub, func(o Object) bool { return o.Text("kind") == "ValidatingAdmissionPolicy" })
	role := slices.IndexFunc(hub, func(o Object) bool { return o.Key() == "Role/lbd-shop-main/lbd-agent-tls" })
	if policy < 0 || role < policy {
		t.Fatalf("the policy is object %d, the role that it bounds %d", policy, role)
	}
	// The policy has the bounds of the program.
	bounds := fmt.Sprintf(`size(object.data["tls.crt"]) <= %d && size(object.data["tls.key"]) <= %d`,
		base64.StdEncoding.EncodedLen(tenants.MaxCertificate), base64.StdEncoding.EncodedLen(tenants.MaxKey))
	if text := fmt.Sprint(hub[policy]); !strings.Contains(text, bounds) || !strings.Contains(text, tenants.SecretLabelValue) {
		t.Errorf("it lacks %s:\n%s", bounds, text)
	}
}
