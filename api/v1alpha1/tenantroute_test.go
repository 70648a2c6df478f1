package v1alpha1

import (
	"fmt"
	"strings"
	"testing"
)

func TestTenantRouteRules(t *testing.T) {
	const origin = `"origin":{"kind":"Ingress","namespace":"default","name":"web","generation":1}`
	const path = `{"path":"/","service":"web","nodePort":30080}`
	rule := func(host, paths string) string { return `{"host":"` + host + `","paths":[` + paths + `]}` }
	with := func(rules string, rest ...string) string {
		return `{` + origin + `,"rules":[` + rules + `]` + strings.Join(rest, "") + `}`
	}
	at := func(path string) string {
		return with(rule("a.example.com", `{"path":"`+path+`","service":"web","nodePort":30080}`))
	}
	for spec, want := range map[string]string{
		with(rule("a.example.com", path)):    "",
		with(rule("*.example.com", path)):    "",
		with(rule("", path)):                 "spec.rules[0].host",
		with(rule("*", path)):                "spec.rules[0].host",
		with(rule("a.*.example.com", path)):  "spec.rules[0].host",
		with(rule("A.example.com", path)):    "spec.rules[0].host",
		with(rule("a.example.com:80", path)): "spec.rules[0].host",
		with(rule("a`) || Host(`b", path)):   "spec.rules[0].host",
		with(rule("a.example.com", "")):      "must have at least one path",
		with(""):                             "must have at least one rule",
		`{` + origin + `,"rules":` + list(51, rule("a%d.com", path)) + `}`:  "at most 50",
		`{"rules":[` + rule("a.example.com", path) + `]}`:                   "spec.origin.kind",
		strings.Replace(with(rule("a.com", path)), "Ingress", "Gateway", 1): "spec.origin.kind",
		strings.Replace(with(rule("a.com", path)), "default", "a.b", 1):     "spec.origin.namespace",
		strings.Replace(with(rule("a.com", path)), `"web","g`, `"W","g`, 1): "spec.origin.name",
		strings.Replace(with(rule("a.com", path)), `ion":1`, `ion":-1`, 1):  "spec.origin.generation",
		`{` + origin + `}`: "must have at least one rule",
		`{"origin":{},"rules":[{"host":"a.com","paths":[` + path + `]}]}`: "spec.origin.namespace",
		with(`{"paths":[` + path + `]}`):                                  "spec.rules[0].host",
		with(`{"host":"a.com"}`):                                          "must have at least one path",
		with(rule("a.com", `{}`)):                                         "spec.rules[0].paths[0].service",
		at("/a/b.c/~d_e+f,g=h:i@j-k/"):                                    "",
		at("/.well-known/x"):                                              "",
		at(""):                                                            ".path",
		at("a"):                                                           ".path",
		at("/a//b"):                                                       ".path",
		at("/a/../b"):                                                     ".path",
		at("/a/./b"):                                                      ".path",
		at("/a/.."):                                                       ".path",
		at("/a%2fb"):                                                      ".path",
		at("/a b"):                                                        ".path",
		at("/a`) || Host(`b"):                                             ".path",
		at("/a;}b"):                                                       ".path",
		at("/" + strings.Repeat("a", 256)):                                ".path",
		with(rule("a.com", `{"path":"/","type":"Regex","service":"w","nodePort":1}`)):                                                                         ".type",
		with(rule("a.com", `{"path":"/","type":"Exact","service":"w","nodePort":1}`)):                                                                         "",
		with(rule("a.com", `{"path":"/","service":"other/web","nodePort":1}`)):                                                                                ".service",
		with(rule("a.com", `{"path":"/","service":"web.other","nodePort":1}`)):                                                                                ".service",
		with(rule("a.com", `{"path":"/","service":"web","nodePort":0}`)):                                                                                      ".nodePort",
		with(rule("a.com", `{"path":"/","service":"web","nodePort":65536}`)):                                                                                  ".nodePort",
		with(`{"host":"a.com","paths":` + list(51, `{"path":"/%d","service":"w","nodePort":1}`) + `}`):                                                        "at most 50",
		with(rule("a.com", path), `,"tls":[{"hosts":["a.com","*.b.com"],"secret":"c.d"}]`):                                                                    "",
		with(rule("a.com", path), `,"tls":[{}]`):                                                                                                              "",
		with(rule("a.com", path), `,"tls":[{"hosts":["*"]}]`):                                                                                                 "spec.tls[0].hosts[0]",
		with(rule("a.com", path), `,"tls":[{"hosts":`+list(51, `"a%d.com"`)+`}]`):                                                                             "at most 50",
		with(rule("a.com", path), `,"tls":[`+strings.TrimSuffix(strings.Repeat(`{"hosts":`+list(50, `"a%d.com"`)+`},`, 5), ",")+`]`):                          "",
		with(rule("a.com", path), `,"tls":[`+strings.Repeat(`{"hosts":`+list(50, `"a%d.com"`)+`},`, 5)+`{"hosts":["b.com"]}]`):                                "have more than 250 hostnames in all",
		with(rule("a.com", path), `,"tls":[{"secret":"other/c"}]`):                                                                                            "spec.tls[0].secret",
		with(rule("d.com", path), `,"tls":[{"hubSecret":"lbd-tls-0123456789abcdef0123"}]`):                                                                    "",
		with(rule("b.com", path), `,"tls":[{"hubSecret":"lbd-tls-0123456789abcdef012"}]`):                                                                     "spec.tls[0].hubSecret",
		with(rule("c.com", path), `,"tls":[{"hubSecret":"agent-token"}]`):                                                                                     "spec.tls[0].hubSecret",
		with(rule("a.com", path), `,"tls":`+list(51, `{"secret":"c%d"}`)):                                                                                     "at most 50",
		with(rule("a.com", path), `,"annotations":{"a":"b"}`):                                                                                                 "",
		at("/" + strings.Repeat("a", 255)):                                                                                                                    "",
		with(strings.Trim(list(5, `{"host":"a%d.com","paths":`+list(50, `{"path":"/%d","service":"w","nodePort":1}`)+`}`), "[]")):                             "",
		with(strings.Trim(list(5, `{"host":"a%d.com","paths":`+list(50, `{"path":"/%d","service":"w","nodePort":1}`)+`}`), "[]") + "," + rule("b.com", path)): "have more than 250 paths in all",
		with(rule("a.com", path), `,"annotations":{`+strings.Trim(list(64, `"k%d":"v"`), "[]")+`}`):                                                           "",
		with(rule("a.com", path), `,"annotations":{`+strings.Trim(list(65, `"k%d":"v"`), "[]")+`}`):                                                           "at most 64",
		with(rule("a.com", path), `,"annotations":{"a b":"v"}`):                                                                                               "",
		with(rule("a.com", path), `,"annotations":{"Example.com/Key":"v"}`):                                                                                   "",
		with(rule("a.com", path), `,"annotations":{"a":"`+strings.Repeat("v", 16<<10-1)+`"}`):                                                                 "",
		with(rule("a.com", path), `,"annotations":{"a":"`+strings.Repeat("v", 16<<10)+`"}`):                                                                   "more than 16384 characters",
	} {
		if got := brokenTenant[TenantRoute](t, KindTenantRoute, spec); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

func TestTenantIngressRules(t *testing.T) {
	with := func(format string, a ...any) string {
		return `{"clusters":[{"name":"main","namespace":"n","nodeCIDRs":["10.1.0.0/24"]}],"pools":["p"],` + fmt.Sprintf(format, a...) + `}`
	}
	for spec, want := range map[string]string{
		with(`"hostnames":["*.shop.example.com","www.example.com"],"ingressClass":"traefik"`): "",
		with(`"hostnames":["*"]`):                                   "spec.hostnames[0]",
		with(`"hostnames":["a","a"]`):                               "is listed twice",
		with(`"hostnames":%s`, list(65, `"a%d"`)):                   "at most 64",
		with(`"ingressClass":"A"`):                                  "spec.ingressClass",
		with(`"annotations":{"allow":["a.example.com/b","c.d/*"]}`): "",
		with(`"annotations":{"allow":["a*b"]}`):                     "spec.annotations.allow[0]",
		with(`"annotations":{"allow":["*"]}`):                       "spec.annotations.allow[0]",
		with(`"annotations":{"allow":["a/server-snippet"]}`):        "would let a tenant write",
		with(`"annotations":{"allow":["a","a"]}`):                   "is listed twice",
		with(`"annotations":{"allow":%s}`, list(65, `"a%d"`)):       "at most 64",
		with(`"limits":{"routes":-1}`):                              "must be from 1 to 5000",
		with(`"limits":{"routes":5001}`):                            "must be from 1 to 5000",
		with(`"limits":{"tlsSecrets":1000}`):                        "",
		with(`"limits":{"tlsSecrets":-1}`):                          "must be from 0 to 1000",
		with(`"limits":{"tlsSecrets":1001}`):                        "must be from 0 to 1000",
	} {
		if got := brokenTenant[Tenant](t, KindTenant, spec); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}
