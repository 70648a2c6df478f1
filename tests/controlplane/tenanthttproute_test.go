package controlplane_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"lbd.dev/lbd/tests/controlplane"
)

// tenantGateway is a Gateway of the hub, and an HTTPRoute of a tenant for the Service front.
const tenantGateway = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: hub, namespace: default}
spec:
  gatewayClassName: lbd
  listeners: [{name: http, port: 80, protocol: HTTP}]
`

const tenantHTTPRoute = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s, namespace: default}
spec:
  parentRefs: [{name: hub}]
  hostnames: [%s]
  rules:
    - backendRefs: [{name: %s, port: 80, weight: 3}]
      filters: [%s]
    - matches: [{path: {type: PathPrefix, value: /api}, headers: [{name: X-Version, value: "2"}]}]
      filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /some}}}]
      backendRefs: [{name: front, port: 80}]
    - matches: [{path: {type: Exact, value: /old}}]
      filters: [{type: RequestRedirect, requestRedirect: {scheme: https, hostname: new.example.com, statusCode: 301}}]
`

// httpRoutes has a Gateway of the hub serve HTTPRoutes of both tenants. Hostnames of bank's Ingress are not to be
// had by shop, nor anything else that is of another, and what the hub does not serve is refused with words.
func httpRoutes(t *testing.T, l *controlplane.TenantLab, engine *controlplane.Engine) {
	ctx := t.Context()
	if err := l.Hub.ApplyGatewayAPI(ctx); err != nil {
		t.Fatal(err)
	}
	if err := engine.ServeGateway(ctx, "edge", "public"); err != nil {
		t.Fatal(err)
	}
	shop, bank := l.Tenants[0], l.Tenants[1]
	join := func(x *controlplane.Tenant) error {
		return l.JoinIngress(ctx, x, engine.Class, "edge/public", "*."+x.Name+".example.com", "shared.example.com")
	}

	t.Log("bank has no Gateway API yet")
	if err := join(bank); err == nil || !strings.Contains(err.Error(), `no matches for kind "GatewayClass"`) {
		t.Fatalf("kubectl says %v", err)
	}
	if err := bank.StartAgent(ctx, "--ingress", "--gateway"); err != nil { // all else was applied
		t.Fatal(err)
	}
	applyFront(t, bank, "late", "late.bank.example.com")
	answeredBy(t, l, engine, "late.bank.example.com", bank.PodNames()...)

	for _, x := range l.Tenants {
		if err := x.ApplyGatewayAPI(ctx); err != nil {
			t.Fatal(err)
		}
		if err := join(x); err != nil {
			t.Fatal(err)
		}
		if err := x.Apply(ctx, tenantGateway); err != nil {
			t.Fatal(err)
		}
	}
	applyHTTPRoute(t, shop, "web", "web.shop.example.com", "front", "")
	answeredBy(t, l, engine, "web.shop.example.com", shop.PodNames()...)
	applyHTTPRoute(t, bank, "web", "web.bank.example.com", "front", "")
	answeredBy(t, l, engine, "web.bank.example.com", bank.PodNames()...)
	for _, x := range l.Tenants {
		says(t, x, "web", "Accepted=Accepted:True ResolvedRefs=ResolvedRefs:True lbd.dev/Programmed=Programmed:True ")
		said(t, x.ControlPlane, engine.Host.IP4.String(), "get", "gateway", "hub", "-o", "jsonpath={.status.addresses[*].value}")
		said(t, x.ControlPlane, engine.Host.IP6.String(), "get", "gateway", "hub", "-o", "jsonpath={.status.addresses[*].value}")
		said(t, x.ControlPlane, "True", "get", "gatewayclass", "lbd", "-o", `jsonpath={.status.conditions[?(@.type=="Accepted")].status}`)
	}

	t.Log("rules: a header, a path that is rewritten, and a redirect")
	eventually(t, "the rules hold", func() error {
		code, body, err := engine.GetWith(ctx, l.Client, "web.shop.example.com", "/api/path", http.Header{"X-Version": {"2"}})
		if err != nil || code != http.StatusOK || !strings.HasSuffix(body, " /some/path") {
			return fmt.Errorf("rewritten: %d %q: %w", code, body, err)
		}
		if code, body, err = engine.Get(ctx, l.Client, "web.shop.example.com", "/api/path"); err != nil || !strings.HasSuffix(body, " /api/path") {
			return fmt.Errorf("without the header: %d %q: %w", code, body, err)
		}
		if code, body, err = engine.Get(ctx, l.Client, "web.shop.example.com", "/old"); err != nil || code != http.StatusMovedPermanently {
			return fmt.Errorf("redirect: %d %q: %w", code, body, err)
		}
		return nil
	})

	t.Log("shop asks for what is of bank, and for what the hub does not serve")
	applyHTTPRoute(t, shop, "shared", "shared.example.com", "front", "") // that of bank's Ingress
	applyHTTPRoute(t, shop, "theirs", "app.bank.example.com", "front", "")
	applyHTTPRoute(t, shop, "across", "across.shop.example.com", "kubernetes, namespace: kube-system", "")
	applyHTTPRoute(t, shop, "extension", "ext.shop.example.com", "front", "{type: ExtensionRef, extensionRef: {group: traefik.io, kind: Middleware, name: x}}")
	says(t, shop, "shared", "Accepted=HostnameTaken:False ResolvedRefs=ResolvedRefs:True lbd.dev/Programmed=NotAccepted:False ")
	says(t, shop, "theirs", "Accepted=HostnameNotAllowed:False ResolvedRefs=ResolvedRefs:True lbd.dev/Programmed=NotAccepted:False ")
	says(t, shop, "across", "Accepted=RefNotPermitted:False ResolvedRefs=RefNotPermitted:False lbd.dev/Programmed=NotAccepted:False ")
	says(t, shop, "extension", "Accepted=UnsupportedValue:False ResolvedRefs=ResolvedRefs:True lbd.dev/Programmed=NotAccepted:False ")
	said(t, shop.ControlPlane, "the hub serves no filter of the type ExtensionRef", "get", "httproute", "extension", "-o", "jsonpath={.status.parents[*].conditions[*].message}")
	said(t, l.Hub, "", "-n", "lbd-shop-main", "get", "tenantroutes", "httproute.default.across", "httproute.default.extension", "--ignore-not-found", "-o", "name")
	answeredBy(t, l, engine, "shared.example.com", bank.PodNames()...)
	for _, args := range [][]string{{"get", "httproutes"}, {"delete", "httproute", "--all"}} {
		if out, err := l.AsAgent(ctx, shop, append([]string{"-n", "lbd-shop-main"}, args...)...); err == nil || !strings.Contains(err.Error(), "orbidden") {
			t.Errorf("%v: %q: %v, want that it is forbidden", args, out, err)
		}
	}

	grpcRoutes(t, l, engine)

	t.Log("the HTTPRoutes end")
	if _, err := shop.Kubectl(ctx, "delete", "httproutes,ingresses", "--all"); err != nil {
		t.Fatal(err)
	}
	said(t, l.Hub, "", "-n", "lbd-shop-main", "get", "services,endpointslices,httproutes,tenantroutes", "-o", "name")
	said(t, shop.ControlPlane, "", "get", "services", "-l", "app.kubernetes.io/managed-by=lbd-agent", "-o", "name")
	said(t, shop.ControlPlane, "", "get", "gateway", "hub", "-o", "jsonpath={.status.addresses[*].value}")
	answeredBy(t, l, engine, "web.bank.example.com", bank.PodNames()...)
}

const tenantGRPCRoute = `apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: %s, namespace: default}
spec:
  parentRefs: [{name: hub}]
  hostnames: [%s]
  rules:
    - matches: [{method: {service: shop.v1.Cart, method: Add}}]
      backendRefs: [{name: front, port: 80}]
`

// grpcRoutes has the Gateway serve a GRPCRoute of shop, as soon as both clusters have the kind. Its Service is asked by HTTP/2.
func grpcRoutes(t *testing.T, l *controlplane.TenantLab, engine *controlplane.Engine) {
	ctx, shop := t.Context(), l.Tenants[0]
	t.Log("shop has a GRPCRoute")
	const kind = "grpcroutes.gateway.networking.k8s.io"
	has, err := l.Hub.Kubectl(ctx, "get", "crd", kind, "--ignore-not-found", "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	if err := shop.ApplyGatewayAPI(ctx, "grpcroutes"); err != nil {
		t.Fatal(err)
	}
	for name, host := range map[string]string{"cart": "grpc.shop.example.com", "grpc-shared": "shared.example.com"} {
		if err := shop.Apply(ctx, fmt.Sprintf(tenantGRPCRoute, name, host)); err != nil {
			t.Fatal(err)
		}
	}
	if has == "" {
		says(t, shop, "grpcroute/cart", "Accepted=Accepted:True ResolvedRefs=ResolvedRefs:True lbd.dev/Programmed=AddressPending:False ")
		said(t, shop.ControlPlane, "the hub has no GRPCRoutes that its controller can read: it needs them in v1 of the Gateway API, and the roles of this version", "get", "grpcroute", "cart", "-o", "jsonpath={.status.parents[*].conditions[*].message}")
		answeredBy(t, l, engine, "web.shop.example.com", shop.PodNames()...)
		if err := l.Hub.ApplyGatewayAPI(ctx, "grpcroutes"); err != nil {
			t.Fatal(err)
		}
	}
	says(t, shop, "grpcroute/cart", "Accepted=Accepted:True ResolvedRefs=ResolvedRefs:True lbd.dev/Programmed=Programmed:True ")
	says(t, shop, "grpcroute/grpc-shared", "Accepted=HostnameTaken:False ResolvedRefs=ResolvedRefs:True lbd.dev/Programmed=NotAccepted:False ") // that of bank's Ingress
	eventually(t, "what is called is asked by HTTP/2", func() error {
		code, answered, body, err := engine.Do(ctx, l.Client, http.MethodPost, "grpc.shop.example.com", "/shop.v1.Cart/Add", nil)
		if err == nil && (code != http.StatusOK || answered.Get("X-Asked-By") != "HTTP/2.0" || !strings.HasSuffix(body, " /shop.v1.Cart/Add")) {
			err = fmt.Errorf("%d %q by %q", code, body, answered.Get("X-Asked-By"))
		}
		if err != nil {
			return err
		}
		if code, _, body, err = engine.Do(ctx, l.Client, http.MethodPost, "grpc.shop.example.com", "/shop.v1.Cart/Clear", nil); err == nil && code != http.StatusNotFound {
			err = fmt.Errorf("another method: %d %q", code, body)
		}
		return err
	})
	if out, err := l.AsAgent(ctx, shop, "-n", "lbd-shop-main", "get", "grpcroutes"); err == nil || !strings.Contains(err.Error(), "orbidden") {
		t.Errorf("%q: %v, want that it is forbidden", out, err)
	}
	if _, err := shop.Kubectl(ctx, "delete", "grpcroutes", "--all"); err != nil {
		t.Fatal(err)
	}
	said(t, l.Hub, "", "-n", "lbd-shop-main", "get", "grpcroutes", "-o", "name")
}

func applyHTTPRoute(t *testing.T, x *controlplane.Tenant, name, host, service, filter string) {
	t.Helper()
	if err := x.Apply(t.Context(), fmt.Sprintf(tenantHTTPRoute, name, host, service, filter)); err != nil {
		t.Fatal(err)
	}
}

// says waits until the conditions of an HTTPRoute, or another route of a kind and a name, are these.
func says(t *testing.T, x *controlplane.Tenant, name, conditions string) {
	t.Helper()
	if !strings.Contains(name, "/") {
		name = "httproute/" + name
	}
	eventually(t, name+" says "+conditions, func() error {
		out, err := x.Kubectl(t.Context(), "get", name, "-o", `jsonpath={range .status.parents[?(@.controllerName=="lbd.dev/hub")].conditions[*]}{.type}={.reason}:{.status} {end}`)
		if err == nil && out != conditions {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
}
