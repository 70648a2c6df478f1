package v1alpha1

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// broken are the rules that the spec of an object breaks, by field.
func brokenTenant[T any, P interface {
	*T
	Default()
	Validate() []FieldError
}](t *testing.T, kind, spec string) string {
	t.Helper()
	o := P(new(T))
	text := `{"apiVersion":"lbd.dev/v1alpha1","kind":"` + kind + `","metadata":{"name":"x"},"spec":` + spec + `}`
	label := spec
	if len(label) > 200 {
		label = fmt.Sprintf("%s... (%d bytes)", label[:150], len(label))
	}
	recordText(t, label, reflect.TypeFor[T](), []byte(text))
	if err := json.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(text, err)
	}
	o.Default()
	var all []string
	for _, e := range o.Validate() {
		all = append(all, e.Error())
	}
	return strings.Join(all, "\n")
}

func TestTenantRules(t *testing.T) {
	const good = `{"name":"main","namespace":"shop-main","nodeCIDRs":["10.1.0.0/24"]}`
	clusters := func(rest string) string {
		return `{"clusters":[{"name":"a","namespace":"n",` + rest + `}],"pools":["p"]}`
	}
	others := func(rest string) string { return `{"clusters":[` + good + `],` + rest + `}` }
	limit := func(name string, n int) string {
		return others(fmt.Sprintf(`"pools":["p"],"limits":{"%s":%d}`, name, n))
	}
	for spec, want := range map[string]string{
		`{"clusters":[` + good + `],"pools":["public"]}`:                                                                        "",
		`{"clusters":[` + good + `,{"name":"b","namespace":"shop-main","nodeCIDRs":["10.2.0.0/24"]}],"pools":["p"]}`:            "is that of another cluster",
		`{"clusters":[` + good + `,{"name":"main","namespace":"b","nodeCIDRs":["10.2.0.0/24"]}],"pools":["p"]}`:                 "is listed twice",
		`{"clusters":` + list(17, `{"name":"c%[1]d","namespace":"n%[1]d","nodeCIDRs":["10.%[1]d.0.0/16"]}`) + `,"pools":["p"]}`: "at most 16",
		`{"clusters":[],"pools":["p"]}`:                                                           "must have at least one cluster",
		`{"clusters":[{"namespace":"n","nodeCIDRs":["10.1.0.0/24"]}],"pools":["p"]}`:              "spec.clusters[0].name",
		`{"clusters":[{"name":"A","namespace":"n","nodeCIDRs":["10.1.0.0/24"]}],"pools":["p"]}`:   "spec.clusters[0].name",
		`{"clusters":[{"name":"a","nodeCIDRs":["10.1.0.0/24"]}],"pools":["p"]}`:                   "spec.clusters[0].namespace",
		`{"clusters":[{"name":"a","namespace":"a.b","nodeCIDRs":["10.1.0.0/24"]}],"pools":["p"]}`: "spec.clusters[0].namespace",
		`{"clusters":[{"name":"a","namespace":"n"}],"pools":["p"]}`:                               "must have at least one prefix",
		clusters(`"nodeCIDRs":[]`):                                          "must have at least one prefix",
		clusters(`"nodeCIDRs":["10.1.0.0/24","10.1.0.0/24"]`):               "is listed twice",
		clusters(`"nodeCIDRs":["10.1.0.0/24","10.1.0.128/25"]`):             "overlaps 10.1.0.0/24, spec.clusters[0].nodeCIDRs[0]",
		clusters(`"nodeCIDRs":` + list(65, `"10.%d.0.0/16"`)):               "at most 64",
		clusters(`"nodeCIDRs":["10.1.0.1"]`):                                "has no prefix length",
		clusters(`"nodeCIDRs":["fe80::/64"]`):                               "has addresses of fe80::/10",
		clusters(`"nodeCIDRs":["fd10::/64"],"nodePorts":"30000"`):           "is not a range of ports",
		clusters(`"nodeCIDRs":["fd10::/64"],"nodePorts":"31000-30000"`):     "the lower port first",
		clusters(`"nodeCIDRs":["fd10::/64"],"nodePorts":"20000-20000"`):     "",
		others(`"pools":[]`):                                                "must name at least one IPAddressPool",
		others(`"pools":["A"]`):                                             "spec.pools[0]",
		others(`"pools":["a","a"]`):                                         "is listed twice",
		others(`"pools":` + list(17, `"p%d"`)):                              "at most 16",
		others(`"pools":["a"],"sources":["node"]`):                          "spec.sources[0]",
		others(`"pools":["a"],"sources":["vip","client"],"suspended":true`): "",
		others(`"pools":["a"],"sources":["vip","client","vip"]`):            "is listed twice",
		limit("services", -1):                                               "must be from 1 to 5000", limit("addresses", -1): "must be from 1 to 5000", limit("addresses", 5001): "must be from 1 to 5000",
		limit("ports", -1): "must be from 1 to 20000", limit("ports", 20001): "must be from 1 to 20000",
		limit("nodes", -1): "must be from 1 to 2000", limit("nodes", 2001): "must be from 1 to 2000", limit("nodes", 2000): "",
		`{"pools":["public"]}`:                                        "spec.clusters: must have at least one cluster",
		`{"clusters":[` + good + `]}`:                                 "spec.pools: must name at least one IPAddressPool",
		`{"clusters":[` + good + `,` + good + `],"pools":["public"]}`: "overlaps 10.1.0.0/24, spec.clusters[0].nodeCIDRs[0], of another cluster",
		`{"clusters":[{"name":"a","namespace":"n","nodeCIDRs":["10.1.0.1/24"]}],"pools":["p"]}`:                         "has bits behind its length; write 10.1.0.0/24",
		`{"clusters":[{"name":"a","namespace":"n","nodeCIDRs":["0.0.0.0/0"]}],"pools":["p"]}`:                           "is the default route",
		`{"clusters":[{"name":"a","namespace":"n","nodeCIDRs":["127.0.0.0/16"]}],"pools":["p"]}`:                        "has addresses of 127.0.0.0/8",
		`{"clusters":[{"name":"a","namespace":"n","nodeCIDRs":["10.1.0.0/24"],"nodePorts":"6000-7000"}],"pools":["p"]}`: "contains 6443, which a node has for itself",
		`{"clusters":[{"name":"a","namespace":"n","nodeCIDRs":["10.1.0.0/24"],"nodePorts":"22-80"}],"pools":["p"]}`:     "must be from 1024 to 65535",
		`{"clusters":[{"name":"a","namespace":"n","nodeCIDRs":["10.1.0.0/24"],"nodePorts":"3-70000"}],"pools":["p"]}`:   "is not a range of ports",
		`{"clusters":[` + good + `],"pools":["public"],"sources":["vip","vip"]}`:                                        "is listed twice",
		`{"clusters":[` + good + `],"pools":["public"],"limits":{"services":9999}}`:                                     "must be from 1 to 5000",
	} {
		if got := brokenTenant[Tenant](t, KindTenant, spec); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

func TestTenantNodesRules(t *testing.T) {
	for spec, want := range map[string]string{
		`{"nodes":[{"name":"a","addresses":["10.1.0.1"]}]}`:                                       "",
		`{"nodes":[{"name":"a","addresses":["127.0.0.1"]}]}`:                                      "spec.nodes[0].addresses[0]",
		`{"nodes":[{"name":"a","addresses":[]}]}`:                                                 "must have at least one address",
		`{"nodes":[{"name":"a","addresses":["10.1.0.1"]},{"name":"a","addresses":["10.1.0.2"]}]}`: "is listed twice",
		`{"nodes":[{"name":"a","addresses":["10.1.0.1"],"state":"Gone"}]}`:                        "spec.nodes[0].state",
		`{"nodes":[{"name":"a","addresses":["10.1.0.1"],"weight":101}]}`:                          "must be from 0 to 100",
		`{}`:                                     "",
		`{"nodes":[{"addresses":["10.1.0.1"]}]}`: "spec.nodes[0].name",
		`{"nodes":[{"name":"A","addresses":["10.1.0.1"]}]}`:                                         "spec.nodes[0].name",
		`{"nodes":[{"name":"a"}]}`:                                                                  "must have at least one address",
		`{"nodes":[{"name":"a","addresses":` + list(5, `"10.1.0.%d"`) + `}]}`:                       "at most 4",
		`{"nodes":[{"name":"a","addresses":["10.1.0.1","fd10::1"],"state":"Draining","weight":0}]}`: "",
		`{"nodes":[{"name":"a","addresses":["10.1.0.1"],"weight":-1}]}`:                             "must be from 0 to 100",
		`{"nodes":` + list(101, `{"name":"n%[1]d","addresses":["10.1.0.%[1]d"]}`) + `}`:             "at most 100",
	} {
		if got := brokenTenant[TenantNodes](t, KindTenantNodes, spec); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

func TestTenantServiceRules(t *testing.T) {
	with := func(rest string) string { return `{"ports":[{"port":80,"nodePort":30080}],` + rest + `}` }
	local := func(rest string) string { return with(`"local":{"healthCheckNodePort":31999,"nodes":` + rest + `}`) }
	for spec, want := range map[string]string{
		`{"ports":[{"port":80,"nodePort":30080}]}`: "",
		`{}`:                             "must have at least one port",
		`{"ports":[{"nodePort":30080}]}`: "spec.ports[0].port",
		`{"ports":[{"port":80}]}`:        "spec.ports[0].nodePort",
		`{"ports":[{"port":0,"nodePort":30080}]}`:                                                                                        "spec.ports[0].port",
		`{"ports":[{"port":65536,"nodePort":30080}]}`:                                                                                    "spec.ports[0].port",
		`{"ports":[{"port":80,"nodePort":65536}]}`:                                                                                       "spec.ports[0].nodePort",
		`{"ports":[{"port":80,"nodePort":30080,"protocol":"SCTP"}]}`:                                                                     "spec.ports[0].protocol",
		`{"ports":` + list(101, `{"port":1%[1]d,"nodePort":30080}`) + `}`:                                                                "at most 100",
		`{"ports":[{"port":53,"nodePort":30053},{"port":53,"nodePort":30054,"protocol":"UDP"}]}`:                                         "",
		with(`"families":["ipv4","ipv6"],"addresses":["192.0.2.1","2001:db8::1"],"pool":"public","affinity":"client","source":"client"`): "",
		with(`"families":["ipv5"]`):                                                                                                      "spec.families[0]",
		with(`"families":["ipv4","ipv6","ipv4"]`):                                                                                        "is listed twice",
		with(`"addresses":["127.0.0.1"]`):                                                                                                "is a loopback address",
		with(`"addresses":` + list(3, `"192.0.2.%d"`)):                                                                                   "is the second of its family",
		with(`"pool":"A"`):                                                               "spec.pool",
		with(`"affinity":"none"`):                                                        "spec.affinity",
		with(`"source":"node"`):                                                          "spec.source",
		with(`"allowedSources":["10.0.0.0/8","10.0.0.0/8"]`):                             "is listed twice",
		with(`"allowedSources":` + list(201, `"10.%d.0.0/32"`)):                          "at most 200",
		with(`"globalName":"web"`):                                                       "",
		with(`"globalName":"web","weight":0`):                                            "",
		with(`"globalName":"web","weight":100`):                                          "",
		with(`"globalName":"web","weight":-1`):                                           "must be from 0 to 100",
		with(`"globalName":"web","weight":101`):                                          "must be from 0 to 100",
		with(`"globalName":"a.b"`):                                                       "spec.globalName",
		with(`"globalName":"a/b"`):                                                       "spec.globalName",
		with(`"weight":0`):                                                               "spec.weight: 0 needs the globalName",
		with(`"local":{}`):                                                               "spec.local.healthCheckNodePort",
		with(`"local":{"healthCheckNodePort":65536}`):                                    "spec.local.healthCheckNodePort",
		local(`[{"name":"a1","endpoints":2}]`):                                           "",
		local(`[{"name":"a1"}]`):                                                         "spec.local.nodes[0].endpoints",
		local(`[{"name":"a1","endpoints":0}]`):                                           "spec.local.nodes[0].endpoints",
		local(`[{"name":"a1","endpoints":101}]`):                                         "spec.local.nodes[0].endpoints",
		local(`[{"endpoints":1}]`):                                                       "spec.local.nodes[0].name",
		local(`[{"name":"A","endpoints":1}]`):                                            "spec.local.nodes[0].name",
		local(`[{"name":"a","endpoints":1},{"name":"a","endpoints":2}]`):                 "is listed twice",
		local(list(1001, `{"name":"n%d","endpoints":1}`)):                                "at most 1000",
		`{"ports":[]}`:                                                                   "must have at least one port",
		`{"ports":[{"port":80,"nodePort":0}]}`:                                           "spec.ports[0].nodePort",
		`{"ports":[{"port":80,"nodePort":30080},{"port":80,"nodePort":30081}]}`:          "is listed twice with the protocol TCP",
		`{"ports":[{"port":80,"nodePort":30080}],"addresses":["192.0.2.1","192.0.2.2"]}`: "is the second of its family",
		`{"ports":[{"port":80,"nodePort":30080}],"local":{"healthCheckNodePort":0}}`:     "spec.local.healthCheckNodePort",
		`{"ports":[{"port":80,"nodePort":30080}],"allowedSources":["10.0.0.1/8"]}`:       "has bits behind its length",
	} {
		if got := brokenTenant[TenantService](t, KindTenantService, spec); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}
