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
		with(rule("a.com", `{"path":"/","service":"web","nodePort":30080,"family":"ipv6"}`)):                                                                  "",
		with(rule("a.com", `{"path":"/","service":"web","nodePort":30080,"family":"IPv4"}`)):                                                                  ".family",
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

// TestTenantHTTPRules: of an HTTPRoute a hub takes what is listed, in bounds, and nothing that could have a
// meaning of its own in the configuration of an engine.
func TestTenantHTTPRules(t *testing.T) {
	const origin = `{"origin":{"kind":"HTTPRoute","namespace":"default","name":"web"}`
	const backends = `"backends":[{"service":"web","nodePort":30080}]`
	with := func(hostnames, rules string) string {
		return origin + `,"http":{"hostnames":[` + hostnames + `],"rules":[` + rules + `]}}`
	}
	rule := func(format string, a ...any) string { return with(`"a.example.com"`, fmt.Sprintf(format, a...)) }
	match := func(text string) string { return rule(`{"matches":[%s],%s}`, text, backends) }
	value := func(name, text string) string { return fmt.Sprintf(`{"name":"%s","value":"%s"}`, name, text) }
	redirect := func(text string) string { return rule(`{"redirect":{%s}}`, text) }
	rewrite := func(text string) string { return rule(`{"rewrite":{%s},%s}`, text, backends) }
	plain := `{` + backends + `}`
	for spec, want := range map[string]string{
		with(`"a.example.com","*.example.com"`, plain): "",
		with(``, plain):                                    "spec.http.hostnames: must have at least one hostname",
		with(`"*"`, plain):                                 "spec.http.hostnames[0]",
		with(`""`, plain):                                  "spec.http.hostnames[0]",
		with("\"a`) || Host(`b\"", plain):                  "spec.http.hostnames[0]",
		with(`"a.com","a.com"`, plain):                     "is listed twice",
		with(strings.Trim(list(17, `"a%d"`), "[]"), plain): "at most 16",
		with(`"a.com"`, ""):                                "spec.http.rules: must have at least one rule",
		with(`"a.com"`, strings.Trim(strings.Repeat(plain+",", 17), ",")): "at most 16",
		origin + `}`: "an HTTPRoute or a GRPCRoute must have http",
		origin + `,"rules":[{"host":"a.com","paths":[{"path":"/","service":"w","nodePort":1}]}],"http":{"hostnames":["a"],"rules":[` + plain + `]}}`: "an Ingress must have rules, and nothing else may",
		origin + `,"tls":[{}],"http":{"hostnames":["a"],"rules":[` + plain + `]}}`:                                                                   "only an Ingress may have tls",
		origin + `,"annotations":{"a":"b"},"http":{"hostnames":["a"],"rules":[` + plain + `]}}`:                                                      "only an Ingress may have tls",
		strings.Replace(with(`"a.com"`, plain), "HTTPRoute", "Ingress", 1):                                                                           "an HTTPRoute or a GRPCRoute must have http, and nothing else may",
		rule(`{}`):                           "must have either backends or a redirect",
		rule(`{"redirect":{},%s}`, backends): "must have either backends or a redirect",
		rule(`{"redirect":{},"rewrite":{}}`): "may not have both",
		rule(`{"matches":%s,%s}`, list(64, `{"path":"/%d"}`), backends):                                                      "",
		rule(`{"matches":%s,%s}`, list(65, `{"path":"/%d"}`), backends):                                                      "at most 64",
		rule(`{"matches":%[1]s,%[2]s},{"matches":%[1]s,%[2]s},{"matches":[{}],%[2]s}`, list(64, `{"path":"/%d"}`), backends): "more than 128 matches",
		match(`{}`): "",
		match(`{"path":"/a","type":"Exact","method":"GET","headers":[` + value("X-A", "b c") + `],"query":[` + value("q", "1") + `]}`): "",
		match(`{"path":"/a/../b"}`):                                                                                      "matches[0].path",
		match(`{"path":"a"}`):                                                                                            "matches[0].path",
		match(`{"type":"RegularExpression"}`):                                                                            "matches[0].type",
		match(`{"method":"get"}`):                                                                                        "matches[0].method",
		match(`{"headers":[` + value("", "b") + `]}`):                                                                    "headers[0].name",
		match(`{"headers":[` + value("a b", "b") + `]}`):                                                                 "headers[0].name",
		match(`{"headers":[` + value("a", "") + `]}`):                                                                    "headers[0].value",
		match(`{"headers":[` + value("a", "b`) || Host(`c") + `]}`):                                                      "headers[0].value",
		match(`{"headers":[` + value("a", "${b}") + `]}`):                                                                "headers[0].value",
		match(`{"query":[` + value("a", "b;}") + `]}`):                                                                   "query[0].value",
		match(`{"query":[` + value("a", strings.Repeat("b", 257)) + `]}`):                                                "query[0].value",
		match(`{"headers":[` + value(strings.Repeat("b", 65), "b") + `]}`):                                               "headers[0].name",
		match(`{"headers":` + list(17, value("a%d", "b")) + `}`):                                                         "at most 16",
		match(strings.Trim(strings.Repeat(`{"query":`+list(16, value("a%d", "b"))+`},`, 4), ",")):                        "",
		match(strings.Repeat(`{"query":`+list(16, value("a%d", "b"))+`},`, 4) + `{"headers":[` + value("a", "b") + `]}`): "more than 64 headers and parameters",
		rule(`{"headers":{"set":[%[1]s],"add":[%[1]s],"remove":["b"]},%[2]s}`, value("a", "b"), backends):                "",
		rule(`{"headers":{"set":[%s]},%s}`, value("a", `\n`), backends):                                                  "headers.set[0].value",
		rule(`{"headers":{"remove":["a:"]},%s}`, backends):                                                               "headers.remove[0]",
		rule(`{"headers":{"remove":%s},%s}`, list(17, `"a%d"`), backends):                                                "at most 16",
		redirect(``): "",
		redirect(`"scheme":"https","hostname":"other.com","path":{"type":"ReplaceFullPath","path":"/x"},"port":443,"statusCode":301`): "",
		redirect(`"scheme":"ftp"`):                               "redirect.scheme",
		redirect(`"hostname":"*.a"`):                             "redirect.hostname",
		redirect(`"port":70000`):                                 "redirect.port",
		redirect(`"statusCode":303`):                             "redirect.statusCode",
		redirect(`"path":{"type":"ReplaceFullPath","path":"x"}`): "redirect.path.path",
		rewrite(`"hostname":"a.internal","path":{"type":"ReplacePrefixMatch","path":"/"}`): "",
		rewrite(`"path":{"type":"Regex","path":"/"}`):                                      "rewrite.path.type",
		rule(`{"backends":[]}`): "must have at least one backend",
		rule(`{"backends":%s}`, list(17, `{"service":"w%d","nodePort":1}`)):            "at most 16",
		rule(`{"backends":[{"service":"a.b","nodePort":1}]}`):                          "backends[0].service",
		rule(`{"backends":[{"service":"a","nodePort":0}]}`):                            "backends[0].nodePort",
		rule(`{"backends":[{"service":"a","nodePort":1,"weight":0}]}`):                 "",
		rule(`{"backends":[{"service":"a","nodePort":1,"weight":1000001}]}`):           "backends[0].weight",
		rule(`{"timeouts":{"request":"1m30s","backendRequest":"500ms"},%s}`, backends): "",
		rule(`{"timeouts":{"backendRequest":"s"},%s}`, backends):                       "timeouts.backendRequest",
		origin + `,"http":{"rules":[` + plain + `]}}`:                                  "spec.http.hostnames: must have at least one hostname",
		origin + `,"http":{"hostnames":["a.com"]}}`:                                    "spec.http.rules: must have at least one rule",
		match(`{"headers":[{"name":"a"}]}`):                                            "headers[0].value",
		match(`{"headers":[{"value":"a"}]}`):                                           "headers[0].name",
		match(`{"query":[{"name":"a"}]}`):                                              "query[0].value",
		match(`{"query":[{"value":"a"}]}`):                                             "query[0].name",
		match(`{"query":[` + value("a b", "b") + `]}`):                                 "query[0].name",
		match(`{"query":` + list(17, value("a%d", "b")) + `}`):                         "at most 16",
		rule(`{"headers":{"set":[{"name":"a"}]},%s}`, backends):                        "headers.set[0].value",
		rule(`{"headers":{"set":[{"value":"a"}]},%s}`, backends):                       "headers.set[0].name",
		rule(`{"headers":{"set":[%s]},%s}`, value("a b", "b"), backends):               "headers.set[0].name",
		rule(`{"headers":{"set":%s},%s}`, list(17, value("a%d", "b")), backends):       "at most 16",
		rule(`{"headers":{"add":[{"name":"a"}]},%s}`, backends):                        "headers.add[0].value",
		rule(`{"headers":{"add":[{"value":"a"}]},%s}`, backends):                       "headers.add[0].name",
		rule(`{"headers":{"add":[%s]},%s}`, value("a b", "b"), backends):               "headers.add[0].name",
		rule(`{"headers":{"add":[%s]},%s}`, value("a", "$"), backends):                 "headers.add[0].value",
		rule(`{"headers":{"add":%s},%s}`, list(17, value("a%d", "b")), backends):       "at most 16",
		redirect(`"port":-1`):                                                   "redirect.port",
		redirect(`"path":{"path":"/x"}`):                                        "redirect.path.type",
		redirect(`"path":{"type":"Regex","path":"/x"}`):                         "redirect.path.type",
		redirect(`"path":{"type":"ReplaceFullPath"}`):                           "redirect.path.path",
		rewrite(`"hostname":"A"`):                                               "rewrite.hostname",
		rewrite(`"path":{"path":"/x"}`):                                         "rewrite.path.type",
		rewrite(`"path":{"type":"ReplaceFullPath"}`):                            "rewrite.path.path",
		rewrite(`"path":{"type":"ReplaceFullPath","path":"x"}`):                 "rewrite.path.path",
		rule(`{"backends":[{"namespace":"other","service":"a","nodePort":1}]}`): "",
		rule(`{"backends":[{"namespace":"a/b","service":"a","nodePort":1}]}`):   "backends[0].namespace",
		rule(`{"backends":[{"nodePort":1}]}`):                                   "backends[0].service",
		rule(`{"backends":[{"service":"a"}]}`):                                  "backends[0].nodePort",
		rule(`{"backends":[{"service":"a","nodePort":1,"family":"ipv4"}]}`):     "",
		rule(`{"backends":[{"service":"a","nodePort":1,"family":"x"}]}`):        "backends[0].family",
		rule(`{"backends":[{"service":"a","nodePort":65536}]}`):                 "backends[0].nodePort",
		rule(`{"backends":[{"service":"a","nodePort":1,"weight":-1}]}`):         "backends[0].weight",
		rule(`{"timeouts":{"request":"1.5s"},%s}`, backends):                    "timeouts.request",
	} {
		if got := brokenTenant[TenantRoute](t, KindTenantRoute, spec); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

// TestTenantGRPCRules: a GRPCRoute matches by what is called, and has nothing that is of HTTPRoutes alone.
func TestTenantGRPCRules(t *testing.T) {
	const origin = `{"origin":{"kind":"GRPCRoute","namespace":"default","name":"web"}`
	const backends = `"backends":[{"service":"web","nodePort":30080,"appProtocol":"kubernetes.io/h2c"}]`
	rule := func(format string, a ...any) string {
		return origin + `,"http":{"hostnames":["a.example.com"],"rules":[` + fmt.Sprintf(format, a...) + `]}}`
	}
	match := func(text string) string { return rule(`{"matches":[%s],%s}`, text, backends) }
	method := func(text string) string { return match(`{"grpc":{` + text + `}}`) }
	long := strings.Repeat("a", 254)
	for spec, want := range map[string]string{
		rule(`{%s}`, backends): "",
		rule(`{"headers":{"set":[{"name":"a","value":"b"}]},%s}`, backends): "",
		match(`{}`):                                "",
		match(`{"path":"/","type":"Prefix"}`):      "",
		match(`{"query":[]}`):                      "",
		rule(`{"timeouts":{},%s}`, backends):       "",
		method(`"service":"shop.v1.Cart_2"`):       "",
		method(`"method":"Add"`):                   "",
		method(`"service":"Cart","method":"Add_"`): "",
		match(`{"grpc":{"service":"Cart"},"headers":[{"name":"a","value":"b"}]}`): "",
		origin + `}`: "an HTTPRoute or a GRPCRoute must have http",
		origin + `,"rules":[{"host":"a.com","paths":[{"path":"/","service":"w","nodePort":1}]}],"http":{"hostnames":["a"],"rules":[{` + backends + `}]}}`: "an Ingress must have rules",
		origin + `,"tls":[{}],"http":{"hostnames":["a"],"rules":[{` + backends + `}]}}`:                                                                   "only an Ingress may have tls",
		strings.Replace(rule(`{%s}`, backends), "GRPCRoute", "TLSRoute", 1):                                                                               "spec.origin.kind",
		strings.Replace(method(`"service":"Cart"`), "GRPCRoute", "HTTPRoute", 1):                                                                          "only a GRPCRoute may match by grpc",
		match(`{"path":"/a"}`):                             "a GRPCRoute may not match by path",
		match(`{"type":"Exact"}`):                          "a GRPCRoute may not match by path",
		match(`{"method":"POST"}`):                         "a GRPCRoute may not match by path",
		match(`{"query":[{"name":"a","value":"b"}]}`):      "a GRPCRoute may not match by path",
		rule(`{"redirect":{}}`):                            "a GRPCRoute may not have redirect",
		rule(`{"rewrite":{},%s}`, backends):                "a GRPCRoute may not have redirect",
		rule(`{"timeouts":{"request":"1s"},%s}`, backends): "a GRPCRoute may not have redirect",
		method(``):                                              "must have a service or a method",
		method(`"service":"a/b"`):                               "grpc.service",
		method(`"service":"a..b"`):                              "grpc.service",
		method(`"service":"1a"`):                                "grpc.service",
		method("\"service\":\"a`) || PathPrefix(`/\""):          "grpc.service",
		method(`"service":"a\n"`):                               "grpc.service",
		method(`"service":".*"`):                                "grpc.service",
		method(`"service":"` + long + `"`):                      "grpc.service",
		method(`"method":"a.b"`):                                "grpc.method",
		method(`"method":"a|b"`):                                "grpc.method",
		method(`"method":"` + long + `"`):                       "grpc.method",
		strings.Replace(rule(`{%s}`, backends), "h2c", "ws", 1): "",
		strings.Replace(rule(`{%s}`, backends), "kubernetes.io/h2c", "https", 1): "appProtocol",
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
		with(`"gateway":"edge/public"`):                             "",
		with(`"gateway":"edge/a.b"`):                                "",
		with(`"gateway":"public"`):                                  "spec.gateway",
		with(`"gateway":"edge/"`):                                   "spec.gateway",
		with(`"gateway":"a.b/public"`):                              "spec.gateway",
		with(`"gateway":"edge/public/x"`):                           "spec.gateway",
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
