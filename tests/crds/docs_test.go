package crds

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// page is the document about the definitions.
func page(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "docs", "custom-resources.md"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var refusal = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| `(\\{.*\\})` \\| (.*) \\|$")

// TestRefusals has each spec of the table refused, with the error of the table.
func TestRefusals(t *testing.T) {
	rows := refusal.FindAllSubmatch(page(t), -1)
	if len(rows) < 15 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		kind, text, want := string(row[1]), row[2], string(row[3])
		var spec map[string]any
		if err := yaml.Unmarshal(text, &spec); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		_, errs := load(t)[kind].Create(t.Context(), map[string]any{
			"apiVersion": "lbd.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "a"}, "spec": integers(spec),
		})
		if got := said(errs); got != want {
			t.Errorf("%s %s\nsays  %s\nwants %s", kind, text, got, want)
		}
	}
}

// said is what errors say but for the value, which versions of Kubernetes print
// each in its own way.
func said(errs field.ErrorList) string {
	var all []string
	for _, e := range errs {
		rule := strings.TrimPrefix(e.Detail, e.Field+" in body ")
		if rule == "" {
			rule = e.Type.String()
		}
		all = append(all, "`"+e.Field+"`: "+rule)
	}
	return strings.Join(all, "; ")
}

var example = regexp.MustCompile("(?s)```json\n(.*?)```")

// TestNodeStatus creates the object of the page, and one that is too large.
func TestNodeStatus(t *testing.T) {
	found := example.FindSubmatch(page(t))
	if found == nil {
		t.Fatal("no example")
	}
	var status map[string]any
	if err := json.Unmarshal(found[1], &status); err != nil {
		t.Fatal(err)
	}
	integers(status)
	d := load(t)["NodeStatus"]
	if _, errs := d.Create(t.Context(), status); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
	vips := status["vips"].([]any)
	for len(vips) < 500 {
		vips = append(vips, vips[0])
	}
	status["vips"] = vips
	if _, errs := d.Create(t.Context(), status); len(errs) > 0 {
		t.Errorf("500 addresses: %v", errs.ToAggregate())
	}
	status["vips"] = append(vips, vips[0])
	if _, errs := d.Create(t.Context(), status); len(errs) != 1 {
		t.Errorf("501 addresses: %v", errs)
	}
}

// TestStatus: what a controller writes fits, all of it or a part.
func TestStatus(t *testing.T) {
	const condition = `{"type":"Accepted","status":"True","observedGeneration":3,"lastTransitionTime":"2026-11-21T11:08:53Z","reason":"Accepted","message":""}`
	const full = `{"conditions":[` + condition + `,{"type":"Exhausted","status":"False","lastTransitionTime":"2026-11-21T11:08:53Z","reason":"Free","message":"b"}],` +
		`"assignedIPv4":1,"availableIPv4":255,"assignedIPv6":0,"availableIPv6":9223372036854775807}`
	for kind, spec := range map[string]string{
		"IPAddressPool": `{"addresses":["10.0.0.0/24"]}`, "L2Advertisement": `{}`, "BGPAdvertisement": `{}`,
		"BGPPeer": `{"myASN":1,"peerASN":2,"peerAddress":"10.0.0.1"}`, "BFDProfile": `{}`, "VirtualIP": `{"addresses":["10.0.0.1"]}`,
		"Community": `{"communities":[{"name":"a","value":"1:1"}]}`, "LoadBalancer": `{"addresses":["10.0.0.1"],"ports":[{"port":1}],"backends":[{"address":"10.0.0.2"}]}`, "MachineLoadBalancer": `{"clusterName":"a"}`,
		"Tenant": `{"clusters":[{"name":"a","namespace":"a","nodeCIDRs":["10.1.0.0/24"]}],"pools":["a"]}`, "TenantNodes": `{}`,
		"TenantService": `{"ports":[{"port":80,"nodePort":30080}]}`, "TenantRoute": tenantRoute,
	} {
		pool := kind == "IPAddressPool"
		for status, fits := range map[string]bool{
			`{}`: true, `{"conditions":[` + condition + `]}`: true, full: pool,
			`{"conditions":[` + condition + `,` + condition + `]}`: false, `{"conditions":[{"type":"Accepted","status":"Yes"}]}`: false,
			`{"assignedIPv4":-1}`: false,
		} {
			var object map[string]any
			text := `{"apiVersion":"lbd.dev/v1alpha1","kind":"` + kind + `","metadata":{"name":"a"},"spec":` + spec + `,"status":` + status + `}`
			if err := utiljson.Unmarshal([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			if _, errs := load(t)[kind].Create(t.Context(), object); (len(errs) == 0) != fits {
				t.Errorf("%s: %s: %v", kind, status, errs)
			}
		}
	}
}

const tenantRoute = `{"origin":{"kind":"Ingress","namespace":"a","name":"a"},"rules":[{"host":"a.example.com","paths":[{"path":"/","service":"a","nodePort":30080}]}]}`

// TestTenantServiceStatus: what lbd writes of the addresses of a TenantService fits, and no more.
func TestTenantServiceStatus(t *testing.T) {
	const one = `{"address":"192.0.2.1","pool":"public"}`
	for status, fits := range map[string]bool{
		`{"addresses":[` + one + `,{"address":"2001:db8::1","pool":"public"}]}`: true,
		`{"addresses":[` + one + `,` + one + `,` + one + `]}`:                   false,
		`{"addresses":[{"address":"192.0.2.1"}]}`:                               false, `{"addresses":[{"pool":"public"}]}`: false,
	} {
		var object map[string]any
		text := `{"apiVersion":"lbd.dev/v1alpha1","kind":"TenantService","metadata":{"name":"a"},"spec":{"ports":[{"port":80,"nodePort":30080}]},"status":` + status + `}`
		if err := utiljson.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if _, errs := load(t)["TenantService"].Create(t.Context(), object); (len(errs) == 0) != fits {
			t.Errorf("%s: %v", status, errs)
		}
	}
}

// TestBalancerStatus: what lbd writes of a MachineLoadBalancer fits, and no more.
func TestBalancerStatus(t *testing.T) {
	const since = `"since":"2026-11-21T11:08:53Z"`
	const member = `{"machine":"m1","namespace":"a","node":"cp1","address":"10.0.0.11","failureDomain":"z1","state":"Active","reason":"Serving",` + since + `}`
	const ready = `{"type":"Ready","status":"True","observedGeneration":3,"lastTransitionTime":"2026-11-21T11:08:53Z","reason":"MembersHealthy","message":"1 of 1 members healthy"}`
	for status, fits := range map[string]bool{
		`{}`: true, `{"memberCount":0,"healthyCount":0,"ready":false}`: true,
		`{"observedGeneration":3,"endpoint":{"host":"10.0.0.200","port":6443},"address":"10.0.0.200","addressPool":"edge","url":"https://10.0.0.200:6443",` +
			`"reportedBy":"cp1","members":[` + member + `],"memberCount":1,"healthyCount":1,"status":"1 of 1 members healthy","ready":true,"conditions":[` + ready + `]}`: true,
		`{"endpoint":{"host":"10.0.0.200"}}`:                                false,
		`{"endpoint":{"host":"a","port":65536}}`:                            false,
		`{"members":[{"machine":"m1","state":"Active"}]}`:                   false,
		`{"members":[{"machine":"m1","namespace":"a","state":"Sleeping"}]}`: false,
		`{"memberCount":-1}`:                                                false, `{"conditions":[` + ready + `,` + ready + `]}`: false, `{"x":1}`: false,
	} {
		var object map[string]any
		text := `{"apiVersion":"lbd.dev/v1alpha1","kind":"MachineLoadBalancer","metadata":{"name":"a"},"spec":{"clusterName":"prod"},"status":` + status + `}`
		if err := utiljson.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if _, errs := load(t)["MachineLoadBalancer"].Create(t.Context(), object); (len(errs) == 0) != fits {
			t.Errorf("%s: %v", status, errs)
		}
	}
}
