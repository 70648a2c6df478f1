//go:build traefik

package controlplane_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/controlplane"
)

// TestTraefik is TestTwoTenants with Traefik as the engine of the hub, and then all that the hub serves of HTTPRoutes.
func TestTraefik(t *testing.T) {
	l, engine := twoTenants(t, func(l *controlplane.TenantLab) (*controlplane.Engine, error) {
		return l.Hub.StartTraefik(t.Context(), l.HubNodes[0], "traefik")
	})
	shop := l.Tenants[0]
	serveEcho(t, shop)
	t.Run("Ingress", func(t *testing.T) { traefikIngress(t, l, engine, shop) })
	t.Run("Rules", func(t *testing.T) { traefikRules(t, l, engine, shop) })
	t.Run("Redirect", func(t *testing.T) { traefikRedirect(t, l, engine, shop) }) // of the route of Rules
}

const echoPort = 8091

// echoed is what a Pod was asked.
type echoed struct {
	Pod, Host, Path string
	Headers         http.Header
}

// tenantEcho is a Service of one family for one Pod.
const tenantEcho = `apiVersion: v1
kind: Service
metadata: {name: echo-%[1]d, namespace: default}
spec: {type: NodePort, ipFamilyPolicy: SingleStack, ipFamilies: [IPv4], ports: [{name: http, port: 80, targetPort: %[2]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-%[1]d, namespace: default, labels: {kubernetes.io/service-name: echo-%[1]d}}
addressType: IPv4
ports: [{name: http, port: %[2]d, protocol: TCP}]
endpoints: [{addresses: ["%[3]s"], nodeName: %[4]s, conditions: {ready: true}}]
`

// serveEcho has the Pods listen by IPv4 alone, as many programs do.
func serveEcho(t *testing.T, x *controlplane.Tenant) {
	t.Helper()
	for i, p := range x.Pods {
		listener, err := p.Listen(fmt.Sprintf("0.0.0.0:%d", echoPort))
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				time.Sleep(2 * time.Second)
			}
			_ = json.NewEncoder(w).Encode(echoed{Pod: p.Name, Host: r.Host, Path: r.URL.Path, Headers: r.Header})
		})}
		go func() { _ = s.Serve(listener) }()
		t.Cleanup(func() { _ = s.Close() })
		if err := x.Apply(t.Context(), fmt.Sprintf(tenantEcho, i, echoPort, p.IP4, p.Node.Name)); err != nil {
			t.Fatal(err)
		}
	}
}

const traefikRoute = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: rules, namespace: default}
spec:
  parentRefs: [{name: hub}]
  hostnames: [rules.shop.example.com, "*.any.shop.example.com"]
  rules:
    - matches: [{path: {type: Exact, value: /exact}}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Rule, value: exact}]}}]
      backendRefs: [{name: echo-0, port: 80}]
    - matches: [{path: {type: PathPrefix, value: /pre}}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Rule, value: prefix}]}}]
      backendRefs: [{name: echo-0, port: 80}]
    - matches: [{path: {type: PathPrefix, value: /pre/longer}}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Rule, value: longer}]}}]
      backendRefs: [{name: echo-0, port: 80}]
    - matches: [{method: POST}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Rule, value: method}]}}]
      backendRefs: [{name: echo-0, port: 80}]
    - matches: [{headers: [{name: X-A, value: "a b,c=d"}]}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Rule, value: header}]}}]
      backendRefs: [{name: echo-0, port: 80}]
    - matches: [{queryParams: [{name: q, value: "a/b?c*"}]}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Rule, value: query}]}}]
      backendRefs: [{name: echo-0, port: 80}]
    - matches: [{path: {type: PathPrefix, value: /modify}}]
      filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: s}], add: [{name: X-Add, value: "2"}], remove: [X-Remove]}}]
      backendRefs: [{name: echo-0, port: 80}]
    - matches: [{path: {type: PathPrefix, value: /full}}]
      filters: [{type: URLRewrite, urlRewrite: {hostname: inside.example.com, path: {type: ReplaceFullPath, replaceFullPath: /new}}}]
      backendRefs: [{name: echo-0, port: 80}]
    - matches: [{path: {type: PathPrefix, value: /strip}}]
      filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
      backendRefs: [{name: echo-0, port: 80}]
    - matches: [{path: {type: PathPrefix, value: /away}}]
      filters: [{type: RequestRedirect, requestRedirect: {hostname: new.example.com, port: 8443, path: {type: ReplaceFullPath, replaceFullPath: /there}}}]
    - matches: [{path: {type: PathPrefix, value: /moved}}]
      filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /to}, statusCode: 301}}]
    - matches: [{path: {type: PathPrefix, value: /weights}}]
      backendRefs: [{name: echo-0, port: 80, weight: 1}, {name: echo-1, port: 80, weight: 3}]
    - matches: [{path: {type: PathPrefix, value: /zero}}]
      backendRefs: [{name: echo-0, port: 80, weight: 0}, {name: echo-1, port: 80}]
    - matches: [{path: {type: PathPrefix, value: /slow}}]
      timeouts: {request: 500ms}
      backendRefs: [{name: echo-0, port: 80}]
    - matches: [{path: {type: PathPrefix, value: /secure}, headers: [{name: X-Forwarded-Proto, value: http}]}]
      filters: [{type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301}}]
    - backendRefs: [{name: echo-0, port: 80}]
`

// traefikRules tries each match and each filter.
func traefikRules(t *testing.T, l *controlplane.TenantLab, engine *controlplane.Engine, shop *controlplane.Tenant) {
	began := time.Now()
	if err := shop.Apply(t.Context(), traefikRoute); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the route is served", func() error {
		code, body, err := engine.Get(t.Context(), l.Client, "rules.shop.example.com", "/exact")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	t.Logf("an HTTPRoute is served after %v", time.Since(began).Round(10*time.Millisecond))
	says(t, shop, "rules", "Accepted=Accepted:True ResolvedRefs=ResolvedRefs:True lbd.dev/Programmed=Programmed:True ")
	ask := func(method, host, path string, headers http.Header) string {
		code, answered, body, err := engine.Do(t.Context(), l.Client, method, host, path, headers)
		if err != nil {
			return err.Error()
		}
		var e echoed
		if code != http.StatusOK || json.Unmarshal([]byte(body), &e) != nil {
			return fmt.Sprintf("%d %s", code, answered.Get("Location"))
		}
		all := []string{e.Path, e.Headers.Get("X-Rule"), e.Headers.Get("X-Set"), strings.Join(e.Headers.Values("X-Add"), "+"), e.Headers.Get("X-Remove")}
		if e.Host != host {
			all = append(all, e.Host)
		}
		return strings.Join(strings.Fields(strings.Join(all, " ")), " ")
	}
	for _, c := range traefikCases {
		if got := ask(c.method, "rules.shop.example.com", c.path, c.headers); got != c.want {
			t.Errorf("%s %s %v: %q, want %q", c.method, c.path, c.headers, got, c.want)
		}
	}
	for _, host := range []string{"a.any.shop.example.com", "b.a.any.shop.example.com"} {
		if got := ask(http.MethodGet, host, "/exact", nil); got != "/exact exact" {
			t.Errorf("%s: %q", host, got)
		}
	}
	if got := ask(http.MethodGet, "rules.shop.example.com", "/slow", nil); got != "/slow" { // it has no timeouts of HTTPRoutes: docs/tenants.md
		t.Errorf("/slow: %q", got)
	}
	traefikWeights(t, l, engine, shop)
}

// traefikCases are requests, and what is answered.
var traefikCases = []struct {
	method, path string
	headers      http.Header
	want         string
}{
	{http.MethodGet, "/exact", nil, "/exact exact"},
	{http.MethodGet, "/exact/not", nil, "/exact/not"},
	{http.MethodGet, "/pre/fix", nil, "/pre/fix prefix"},
	{http.MethodGet, "/prefix", nil, "/prefix"},
	{http.MethodGet, "/pre/longer/x", nil, "/pre/longer/x longer"},
	{http.MethodPost, "/pre/x", nil, "/pre/x prefix"}, // a path goes before a method
	{http.MethodPost, "/x", nil, "/x method"},
	{http.MethodGet, "/x", http.Header{"X-A": {"a b,c=d"}}, "/x header"},
	{http.MethodGet, "/x", http.Header{"X-A": {"a"}}, "/x"},
	{http.MethodPost, "/x", http.Header{"X-A": {"a b,c=d"}}, "/x method"},
	{http.MethodGet, "/x?q=a/b%3Fc*", nil, "/x query"},
	{http.MethodGet, "/x?q=a/b?c*&r=1", nil, "/x query"},
	{http.MethodGet, "/x?q=a", nil, "/x"},
	{http.MethodGet, "/modify", http.Header{"X-Set": {"c"}, "X-Add": {"1"}, "X-Remove": {"c"}}, "/modify s 1+2"},
	{http.MethodGet, "/full/of", nil, "/new inside.example.com"},
	{http.MethodGet, "/strip/this", nil, "/this"},
	{http.MethodGet, "/strip", nil, "/"},
	{http.MethodGet, "/away/x", nil, "302 //new.example.com:8443/there"},
	{http.MethodGet, "/moved/x", nil, "301 //rules.shop.example.com/to/x"},
	{http.MethodGet, "/secure", nil, "301 https://rules.shop.example.com/secure"},
}

// traefikWeights counts who answers.
func traefikWeights(t *testing.T, l *controlplane.TenantLab, engine *controlplane.Engine, shop *controlplane.Tenant) {
	for path, want := range map[string]string{"/weights": "10 30", "/zero": "0 40"} {
		got := map[string]int{}
		for range 40 {
			_, body, err := engine.Get(t.Context(), l.Client, "rules.shop.example.com", path)
			var e echoed
			if err != nil || json.Unmarshal([]byte(body), &e) != nil {
				t.Fatalf("%s: %q: %v", path, body, err)
			}
			got[e.Pod]++
		}
		if text := fmt.Sprint(got[shop.Pods[0].Name], " ", got[shop.Pods[1].Name]); text != want {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}
}

const traefikIngresses = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: paths, namespace: default}
spec:
  ingressClassName: lbd
  rules:
    - host: paths.shop.example.com
      http:
        paths:
          - {path: /api, pathType: Prefix, backend: {service: {name: echo-1, port: {name: http}}}}
          - {path: /api/exact, pathType: Exact, backend: {service: {name: echo-0, port: {number: 80}}}}
    - host: "*.wild.shop.example.com"
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: echo-0, port: {number: 80}}}}]}
    - host: one.wild.shop.example.com
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: echo-1, port: {number: 80}}}}]}
  tls:
    - {hosts: [one.wild.shop.example.com], secretName: lacking}
    - {hosts: [paths.shop.example.com], secretName: good}
`

// traefikIngress tries paths, a wildcard, and a certificate after one that is not there.
func traefikIngress(t *testing.T, l *controlplane.TenantLab, engine *controlplane.Engine, shop *controlplane.Tenant) {
	good := newPair(t, "paths.shop.example.com")
	putCertificate(t, shop, "good", good)
	began := time.Now()
	if err := shop.Apply(t.Context(), traefikIngresses); err != nil {
		t.Fatal(err)
	}
	pod := func(host, path string) string {
		code, body, err := engine.Get(t.Context(), l.Client, host, path)
		if err != nil {
			return err.Error()
		}
		var e echoed
		if code != http.StatusOK || json.Unmarshal([]byte(body), &e) != nil {
			return fmt.Sprint(code)
		}
		return e.Pod
	}
	eventually(t, "the Ingress is served", func() error {
		if got := pod("paths.shop.example.com", "/api"); got != shop.Pods[1].Name {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	t.Logf("an Ingress is served after %v", time.Since(began).Round(10*time.Millisecond))
	for _, c := range []struct{ host, path, want string }{
		{"paths.shop.example.com", "/api/x", shop.Pods[1].Name},
		{"paths.shop.example.com", "/api/exact", shop.Pods[0].Name},
		{"paths.shop.example.com", "/apis", shop.Pods[1].Name}, // not as Kubernetes has it: docs/tenants.md
		{"paths.shop.example.com", "/other", "404"},
		{"a.wild.shop.example.com", "/x", shop.Pods[0].Name},
		{"b.a.wild.shop.example.com", "/x", "404"},
		{"one.wild.shop.example.com", "/x", shop.Pods[0].Name}, // that of the wildcard: docs/tenants.md
	} {
		for range 6 { // there are servers of more than one node
			if got := pod(c.host, c.path); got != c.want {
				t.Errorf("%s%s: %s, want %s", c.host, c.path, got, c.want)
			}
		}
	}
	eventually(t, "the certificate is shown", func() error {
		leaf, _, _, err := engine.GetTLS(t.Context(), l.Client, "paths.shop.example.com", "/api")
		if err == nil && leaf.SerialNumber.Cmp(good.serial) != 0 {
			err = fmt.Errorf("it is one for %v", leaf.DNSNames)
		}
		return err
	})
}

// traefikGateway has HTTP redirected for all, as docs/tenants.md says.
const traefikGateway = `apiVersion: v1
kind: Secret
metadata: {name: cert, namespace: edge}
type: kubernetes.io/tls
data: %[1]s
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: edge}
spec:
  gatewayClassName: traefik
  listeners:
    - {name: http, port: %[2]d, protocol: HTTP, allowedRoutes: {namespaces: {from: %[4]s}}}
    - name: https
      port: %[3]d
      protocol: HTTPS
      tls: {certificateRefs: [{name: cert}]}
      allowedRoutes: {namespaces: {from: Selector, selector: {matchExpressions: [{key: lbd.dev/tenant, operator: Exists}]}}}
`

const traefikRedirects = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: redirect, namespace: edge}
spec:
  parentRefs: [{name: public, sectionName: http}]
  rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301}}]}]
`

func traefikRedirect(t *testing.T, l *controlplane.TenantLab, engine *controlplane.Engine, shop *controlplane.Tenant) {
	const host = "rules.shop.example.com"
	hub := newPair(t, "*.shop.example.com")
	gateway := func(from string) string {
		return fmt.Sprintf(traefikGateway, hub.data(), controlplane.EnginePort, controlplane.EngineTLSPort, from)
	}
	if err := l.Hub.Apply(t.Context(), gateway("All"), "--force-conflicts"); err != nil {
		t.Fatal(err)
	}
	https := func(path string) error {
		leaf, code, body, err := engine.GetTLS(t.Context(), l.Client, host, path)
		if err == nil && (code != http.StatusOK || leaf.SerialNumber.Cmp(hub.serial) != 0) {
			err = fmt.Errorf("%d %s, by the certificate of %v", code, body, leaf.DNSNames)
		}
		return err
	}
	eventually(t, "HTTPS is served by the certificate of the Gateway", func() error { return https("/x") })
	// A redirect of a tenant by the header that Traefik sets does not lead to itself.
	if err := https("/secure"); err != nil {
		t.Error(err)
	}
	if err := l.Hub.Apply(t.Context(), gateway("Same")+"---\n"+traefikRedirects, "--force-conflicts"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "HTTP is redirected", func() error {
		code, answered, _, err := engine.Do(t.Context(), l.Client, http.MethodGet, host, "/x", nil)
		if err == nil && (code != http.StatusMovedPermanently || answered.Get("Location") != "https://"+host+"/x") {
			err = fmt.Errorf("%d %s", code, answered.Get("Location"))
		}
		return err
	})
	eventually(t, "and HTTPS is served", func() error { return https("/x") })
	says(t, shop, "rules", "Accepted=Accepted:True ResolvedRefs=ResolvedRefs:True lbd.dev/Programmed=Programmed:True ")
	if _, err := shop.Kubectl(t.Context(), "delete", "httproutes,ingresses", "--all"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Traefik has nothing of shop", func() error {
		if err := https("/x"); err == nil || !strings.HasPrefix(err.Error(), "404") {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	})
}
