package packaging

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rights returns each right that a role gives: "verb resource.group [name]".
func rights(o Object) []string {
	var all []string
	rules, _ := o.At("rules").([]any)
	for _, r := range rules {
		rule := Object(r.(map[string]any))
		names, _ := rule["resourceNames"].([]any)
		if len(names) == 0 {
			names = []any{""}
		}
		for _, g := range rule["apiGroups"].([]any) {
			for _, res := range rule["resources"].([]any) {
				for _, v := range rule["verbs"].([]any) {
					for _, n := range names {
						all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s.%s %s", v, res, g, n)))
					}
				}
			}
		}
	}
	return all
}

// writes are the rights that change something, all of them. A new one has to be
// written down here.
var writes = map[string][]string{
	"ClusterRole/lbd": {"create nodestatuses.lbd.dev", "patch nodestatuses.lbd.dev", "create events."},
	"ClusterRole/lbd-controller": {
		"patch services/status.", "create events.", "patch events.",
		"patch loadbalancers/status.lbd.dev", "patch virtualips/status.lbd.dev",
		"patch ipaddresspools/status.lbd.dev",
		"patch l2advertisements/status.lbd.dev",
		"patch bgpadvertisements/status.lbd.dev",
		"patch bgppeers/status.lbd.dev",
		"patch bfdprofiles/status.lbd.dev",
		"patch communities/status.lbd.dev",
		"patch tenants/status.lbd.dev", "patch tenantnodes/status.lbd.dev", "patch tenantservices/status.lbd.dev", "patch tenantroutes/status.lbd.dev",
		"delete nodestatuses.lbd.dev",
	},
	// It is bound in the namespaces of tenants alone.
	"ClusterRole/lbd-tenant-ingress": {
		"create services.", "patch services.", "delete services.",
		"create endpointslices.discovery.k8s.io", "patch endpointslices.discovery.k8s.io", "delete endpointslices.discovery.k8s.io",
		"create ingresses.networking.k8s.io", "patch ingresses.networking.k8s.io", "delete ingresses.networking.k8s.io",
	},
	"ClusterRole/lbd-tenant-gateway": {
		"create httproutes.gateway.networking.k8s.io", "patch httproutes.gateway.networking.k8s.io", "delete httproutes.gateway.networking.k8s.io",
		"create grpcroutes.gateway.networking.k8s.io", "patch grpcroutes.gateway.networking.k8s.io", "delete grpcroutes.gateway.networking.k8s.io",
	},
	"ClusterRole/lbd-gateway-reader": nil,
	"Role/lbd-system/lbd-controller": {
		"create leases.coordination.k8s.io", "update leases.coordination.k8s.io lbd-controller", "create secrets.",
	},
}

func TestRights(t *testing.T) {
	all := index(t, kustomized(t))
	roles := 0
	for key, o := range all {
		if !strings.HasSuffix(o.Text("kind"), "Role") {
			continue
		}
		roles++
		var got []string
		for _, r := range rights(o) {
			verb, what, _ := strings.Cut(r, " ")
			switch {
			case strings.Contains(r, "*"):
				t.Errorf("%s: %s", key, r)
			case verb == "get" || verb == "list" || verb == "watch":
				if strings.HasPrefix(what, "secrets") {
					t.Errorf("%s may read Secrets: %s", key, r)
				}
			default:
				got = append(got, r)
			}
		}
		want := slices.Clone(writes[key])
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s may\n%s\nand should\n%s", key, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if roles != len(writes) {
		t.Errorf("%d roles", roles)
	}
	// Every account has its roles, and every role an account.
	for key, o := range all {
		if !strings.HasSuffix(o.Text("kind"), "RoleBinding") {
			continue
		}
		role := o.Text("roleRef", "kind") + "/" + o.Text("roleRef", "name")
		if o.Text("roleRef", "kind") == "Role" {
			role = "Role/" + Namespace + "/" + o.Text("roleRef", "name")
		}
		subject := Object(o.At("subjects").([]any)[0].(map[string]any))
		if _, ok := all[role]; !ok {
			t.Errorf("%s: there is no %s", key, role)
		}
		if _, ok := all["ServiceAccount/"+subject.Text("namespace")+"/"+subject.Text("name")]; !ok {
			t.Errorf("%s: there is no account %v", key, subject)
		}
	}
}

// TestPasswordRights: a speaker may read the Secrets that are named, in its own namespace,
// and nothing more; without a name it has no right at all.
func TestPasswordRights(t *testing.T) {
	const role = "Role/lbd-system/lbd-passwords"
	base := index(t, charted(t, nil))
	if _, ok := base[role]; ok {
		t.Error("there is a Role although no Secret is named")
	}
	want := func(names ...string) []string {
		var all []string
		for _, verb := range []string{"get", "list", "watch"} {
			for _, n := range names {
				all = append(all, verb+" secrets. "+n)
			}
		}
		return all
	}
	for name, tt := range map[string]struct {
		all   map[string]Object
		names []string
		more  int // than the base
	}{
		"kustomize": {index(t, overlaid(t, "passwords")), []string{"lbd-bgp-password"}, len(index(t, kustomized(t))) + 2},
		"chart": {
			index(t, charted(t, map[string]any{"bgp": map[string]any{"passwordSecrets": []any{"tor1", "yes", "1"}}})),
			[]string{"tor1", "yes", "1"}, len(base) + 2,
		},
	} {
		got := rights(tt.all[role])
		if !slices.Equal(got, want(tt.names...)) || len(tt.all) != tt.more {
			t.Errorf("%s: %d objects; the Role may\n%s", name, len(tt.all), strings.Join(got, "\n"))
		}
		b := tt.all["RoleBinding/lbd-system/lbd-passwords"]
		subjects, _ := b.At("subjects").([]any)
		if len(subjects) != 1 || fmt.Sprint(subjects[0]) != "map[kind:ServiceAccount name:lbd namespace:lbd-system]" ||
			b.Text("roleRef", "kind") != "Role" || b.Text("roleRef", "name") != "lbd-passwords" {
			t.Errorf("%s: %v", name, b)
		}
		for key, o := range tt.all {
			for _, r := range rights(o) {
				if verb, what, _ := strings.Cut(r, " "); key != role && verb != "create" && strings.HasPrefix(what, "secrets") {
					t.Errorf("%s: %s may %s", name, key, r)
				}
			}
		}
	}
	same := index(t, charted(t, map[string]any{"bgp": map[string]any{"passwordSecrets": []any{"lbd-bgp-password"}}}))
	for _, key := range []string{role, "RoleBinding/lbd-system/lbd-passwords"} {
		if diff := cmp.Diff(plain(t, index(t, overlaid(t, "passwords"))[key]), plain(t, same[key])); diff != "" {
			t.Errorf("%s: kustomize (-) and Helm (+):\n%s", key, diff)
		}
	}
	for _, bad := range []any{"", "*", "a/b", "A"} {
		if _, err := Chart(chart, map[string]any{"bgp": map[string]any{"passwordSecrets": []any{bad}}}); err == nil {
			t.Errorf("the chart takes the name %q", bad)
		}
	}
}

// TestConfined: what a container may do on its node, word for word.
func TestConfined(t *testing.T) {
	all := index(t, kustomized(t))
	speaker := containers(all["DaemonSet/lbd-system/lbd"])[0]
	want := "map[allowPrivilegeEscalation:false capabilities:map[add:[NET_ADMIN NET_RAW NET_BIND_SERVICE] drop:[ALL]] " +
		"readOnlyRootFilesystem:true runAsUser:0 seccompProfile:map[type:RuntimeDefault]]"
	if got := fmt.Sprint(speaker["securityContext"]); got != want {
		t.Errorf("the speaker: %s", got)
	}
	controller := all["Deployment/lbd-system/lbd-controller"]
	for _, c := range containers(controller) {
		want := "map[allowPrivilegeEscalation:false capabilities:map[drop:[ALL]] readOnlyRootFilesystem:true]"
		if got := fmt.Sprint(c["securityContext"]); got != want {
			t.Errorf("%s: %s", c.Text("name"), got)
		}
	}
	want = "map[runAsGroup:65532 runAsNonRoot:true runAsUser:65532 seccompProfile:map[type:RuntimeDefault]]"
	if got := fmt.Sprint(controller.At("spec", "template", "spec", "securityContext")); got != want {
		t.Errorf("the pod of the controller: %s", got)
	}
	if controller.At("spec", "template", "spec", "hostNetwork") != nil {
		t.Error("the controller is on the network of its node")
	}
}
