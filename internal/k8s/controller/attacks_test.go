package controller

import (
	"fmt"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/k8s/hub"
	"lbd.dev/lbd/internal/k8s/objects"
)

// TestAttacksAreShown: of whatever an agent writes a condition names the rule that it breaks, and so does what
// `lbd tenant show` has. The other tenant has its address, and no problem.
func TestAttacksAreShown(t *testing.T) {
	api := hubAPI(t)
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"]}`)
	putTenant(api, "evil", young, `{"clusters":[{"name":"main","namespace":"evil","nodeCIDRs":["10.2.0.0/24"]}],"pools":["public"]}`)
	putTenant(api, "wide", young, `{"clusters":[{"name":"main","namespace":"wide","nodeCIDRs":["10.1.0.0/16"]}],"pools":["public"]}`)
	putWeb(api, "shop", "default.web", old, 30080)
	putWeb(api, "wide", "default.web", old, 30080)
	nodes := map[string]string{ // by address, with the words of the condition
		"10.1.0.1": "RefusedNodes: x: 10.1.0.1 is in none of the nodeCIDRs", "127.0.0.1": "Invalid: spec.nodes[0].addresses[0]", "fe80::1": "Invalid: spec.nodes[0].addresses[0]",
		"169.254.169.254": "RefusedNodes: x: 169.254.169.254 is in none of the nodeCIDRs", "192.0.2.0": "RefusedNodes: x: 192.0.2.0 is in none of the nodeCIDRs",
	}
	for a := range nodes {
		putSpec(api, tenantNodes, "evil", "n-"+strings.ReplaceAll(a, ":", "-"), young, fmt.Sprintf(`{"nodes":[{"name":"x","addresses":[%q]}]}`, a))
	}
	services := map[string]string{
		`{"ports":[{"port":80,"nodePort":22}]}`:   "NodePortNotAllowed: 22 is in no range",
		`{"ports":[{"port":80,"nodePort":6443}]}`: "NodePortNotAllowed: 6443 is in no range",
		`{"ports":[{"port":80,"nodePort":30083}],"local":{"healthCheckNodePort":30084,"nodes":[{"name":"x","endpoints":10000000}]}}`: "Invalid: spec.local.nodes[0].endpoints",
		`{"ports":[{"port":80,"nodePort":30085}],"pool":"other"}`:                                                                    "PoolNotAllowed: the Tenant evil may not",
		`{"ports":[{"port":80,"nodePort":30086}],"source":"client"}`:                                                                 "SourceNotAllowed: the Tenant evil may not",
	}
	names := map[string]string{}
	for spec := range services {
		names[spec] = fmt.Sprintf("default.s%d", len(names))
		putSpec(api, tenantServes, "evil", names[spec], young, spec)
	}
	c := build(t, api, "a")
	run(t, c)
	shown := map[string]objects.Verdict{} // what `lbd tenant show` has, by kind and name
	look := func() {
		all, err := hub.Read(t.Context(), c.o.Client)
		if err != nil {
			t.Fatal(err)
		}
		clear(shown)
		for _, x := range all {
			shown["Tenant "+x.Name] = x.Accepted
			for _, k := range x.Clusters {
				for _, n := range k.Nodes {
					shown["nodes "+x.Name+" "+n.Name] = n.Verdict
				}
				for _, s := range k.Services {
					shown["service "+x.Name+" "+s.Name] = s.Verdict
				}
			}
		}
	}
	wants := func(object, condition, words string) {
		t.Helper()
		if !strings.HasPrefix(condition, "False "+words) {
			t.Errorf("%s: the condition is %q, want %q", object, condition, words)
		}
		if v := shown[object]; v.OK || !strings.HasPrefix(v.Reason+": "+v.Message, words) {
			t.Errorf("%s: shown is %+v, want %q", object, v, words)
		}
	}
	eventually(t, "all is judged, and shop has its address", func() bool {
		look()
		for _, v := range shown {
			if v.Reason == "NotJudged" {
				return false
			}
		}
		return len(shown) >= 4+len(nodes)+len(services) && tenantSays(api, "shop", "default.web") == "192.0.2.0=public"+served
	})
	look()
	wants("Tenant wide", acceptedOf(api, tenantsOf, "", "wide"), "Overlap: 10.1.0.0/16 of the cluster main overlaps 10.1.0.0/24")
	for a, words := range nodes {
		name := "n-" + strings.ReplaceAll(a, ":", "-")
		wants("nodes evil "+name, acceptedOf(api, tenantNodes, "evil", name), words)
	}
	for spec, words := range services {
		wants("service evil "+names[spec], acceptedOf(api, tenantServes, "evil", names[spec]), words)
	}
	for _, object := range []string{"Tenant shop", "nodes shop n-0", "service shop default.web"} {
		if v := shown[object]; !v.OK {
			t.Errorf("%s: %+v", object, v)
		}
	}
}
