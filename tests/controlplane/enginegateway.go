package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// GatewayAPI is the Go module whose CustomResourceDefinitions tests apply.
const GatewayAPI = "sigs.k8s.io/gateway-api@v1.4.0"

// ApplyGatewayAPI applies the definitions of the Gateway API that lbd and an Engine need, as its authors
// generated them, and more kinds of it.
func (c *ControlPlane) ApplyGatewayAPI(ctx context.Context, more ...string) error {
	const dir = "config/crd/standard/gateway.networking.k8s.io_"
	files := []string{dir + "gatewayclasses.yaml", dir + "gateways.yaml", dir + "httproutes.yaml"}
	for _, kind := range more {
		files = append(files, dir+kind+".yaml")
	}
	return c.applyModule(ctx, GatewayAPI, files...)
}

var (
	httpRoutes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	grpcRoutes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"}
	gateways   = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
)

// engineGateway is the Gateway of an Engine.
type engineGateway struct {
	namespace, name string
	client          dynamic.Interface
}

// hubGateway is a Gateway that takes routes of the namespaces of tenants, at a port of the class of an engine.
func hubGateway(namespace, name, class, controller string, port int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: %[3]s}
spec: {controllerName: %[4]s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  gatewayClassName: %[3]s
  listeners:
    - name: http
      port: %[5]d
      protocol: HTTP
      allowedRoutes: {namespaces: {from: Selector, selector: {matchExpressions: [{key: lbd.dev/tenant, operator: Exists}]}}}
`, namespace, name, class, controller, port)
}

// serveGateway makes a Gateway, and has the engine serve its HTTPRoutes and GRPCRoutes until ctx ends.
func (e *standIn) serveGateway(ctx context.Context, namespace, name string) error {
	if err := e.cp.Apply(ctx, hubGateway(namespace, name, e.Class, "example.com/"+e.Class, 80)); err != nil {
		return err
	}
	client, err := e.cp.AdminDynamic()
	if err != nil {
		return err
	}
	g := &engineGateway{namespace: namespace, name: name, client: client}
	e.gateway = g
	address := fmt.Sprintf(`{"status":{"addresses":[{"type":"IPAddress","value":%q},{"type":"IPAddress","value":%q}]}}`, e.Host.IP4, e.Host.IP6)
	if err := Eventually(ctx, 10*time.Second, "the Gateway has addresses", func() error {
		_, err := client.Resource(gateways).Namespace(namespace).Patch(ctx, name, "application/merge-patch+json", []byte(address), metav1.PatchOptions{}, "status")
		return err
	}); err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			g.accept(ctx, e.Class)
			time.Sleep(200 * time.Millisecond)
		}
	}()
	return nil
}

// engineRoute is what is read of an HTTPRoute or a GRPCRoute.
type engineRoute struct {
	Kind     string
	Metadata struct{ Namespace, Name string }
	Spec     struct {
		ParentRefs []struct{ Namespace, Name string }
		Hostnames  []string
		Rules      []engineRule
	}
	Status struct{ Parents []json.RawMessage }
}

type engineRule struct {
	Matches []struct {
		Path    struct{ Type, Value string }
		Method  json.RawMessage // of a GRPCRoute: what is called
		Headers []struct{ Name, Value string }
	}
	Filters []struct {
		RequestRedirect *struct {
			Scheme     string
			StatusCode int
		}
		URLRewrite *struct {
			Path struct{ ReplacePrefixMatch string }
		}
	}
	BackendRefs []struct {
		Name   string
		Port   int32
		Weight int
	}
}

// routes are those of the Gateway.
func (g *engineGateway) routes(ctx context.Context) (list []engineRoute) {
	for _, resource := range []schema.GroupVersionResource{httpRoutes, grpcRoutes} {
		all, err := g.client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, u := range all.Items {
			var r engineRoute
			data, _ := json.Marshal(u.Object)
			if err := json.Unmarshal(data, &r); err == nil && len(r.Spec.ParentRefs) == 1 && r.Spec.ParentRefs[0].Namespace == g.namespace && r.Spec.ParentRefs[0].Name == g.name {
				r.calls()
				list = append(list, r)
			}
		}
	}
	return list
}

// calls has a GRPCRoute match by the paths of what is called, a service with its method.
func (r *engineRoute) calls() {
	if r.Kind != "GRPCRoute" {
		return
	}
	for i := range r.Spec.Rules {
		for j := range r.Spec.Rules[i].Matches {
			m := &r.Spec.Rules[i].Matches[j]
			var call struct{ Service, Method string }
			_ = json.Unmarshal(m.Method, &call) // of another form it matches nothing
			m.Path.Type, m.Path.Value = "Exact", "/"+call.Service+"/"+call.Method
		}
	}
}

// accept says of the routes that have no status that they are served.
func (g *engineGateway) accept(ctx context.Context, class string) {
	for _, r := range g.routes(ctx) {
		if len(r.Status.Parents) > 0 {
			continue
		}
		condition := map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}
		body, _ := json.Marshal(map[string]any{"status": map[string]any{"parents": []any{map[string]any{"controllerName": "example.com/" + class,
			"parentRef": map[string]any{"namespace": g.namespace, "name": g.name}, "conditions": []any{condition}}}}})
		resource := httpRoutes
		if r.Kind == "GRPCRoute" {
			resource = grpcRoutes
		}
		_, _ = g.client.Resource(resource).Namespace(r.Metadata.Namespace).Patch(ctx, r.Metadata.Name, "application/merge-patch+json", body, metav1.PatchOptions{}, "status") // it tries again
	}
}

// serveHTTPRoute answers a request as the rule says that matches it by the longest path and most headers.
func (e *standIn) serveHTTPRoute(w http.ResponseWriter, r *http.Request, host string) {
	var best *engineRule
	var namespace, prefix string
	most := -1
	for _, route := range e.gateway.routes(r.Context()) {
		_, below, _ := strings.Cut(host, ".")
		if !strings.Contains(" "+strings.Join(route.Spec.Hostnames, " ")+" ", " "+host+" ") && !strings.Contains(strings.Join(route.Spec.Hostnames, " "), "*."+below) {
			continue
		}
		for i := range route.Spec.Rules {
			for _, m := range route.Spec.Rules[i].Matches {
				fits := m.Path.Type == "Exact" && r.URL.Path == m.Path.Value || m.Path.Type == "PathPrefix" && strings.HasPrefix(r.URL.Path+"/", strings.TrimSuffix(m.Path.Value, "/")+"/")
				for _, h := range m.Headers {
					fits = fits && r.Header.Get(h.Name) == h.Value
				}
				if rank := 100*len(m.Path.Value) + len(m.Headers); fits && rank > most {
					most, best, namespace, prefix = rank, &route.Spec.Rules[i], route.Metadata.Namespace, m.Path.Value
				}
			}
		}
	}
	if best == nil {
		http.Error(w, "no HTTPRoute has a rule for it", http.StatusNotFound)
		return
	}
	path := r.URL.Path
	for _, f := range best.Filters {
		if f.RequestRedirect != nil {
			http.Redirect(w, r, f.RequestRedirect.Scheme+"://"+host+path, f.RequestRedirect.StatusCode)
			return
		}
		if f.URLRewrite != nil {
			path = "/" + strings.Trim(f.URLRewrite.Path.ReplacePrefixMatch+strings.TrimPrefix(path, strings.TrimSuffix(prefix, "/")), "/")
		}
	}
	for _, b := range best.BackendRefs {
		if b.Weight == 0 {
			continue
		}
		to, err := e.endpoints(r.Context(), namespace, &networkingv1.IngressServiceBackend{Name: b.Name, Port: networkingv1.ServiceBackendPort{Number: b.Port}})
		if err == nil {
			e.proxy(w, r, to, path, e.speaks(r.Context(), namespace, b.Name, b.Port) == "kubernetes.io/h2c")
			return
		}
	}
	http.Error(w, "no backend has an endpoint", http.StatusServiceUnavailable)
}

// speaks is what a port of a Service says that is spoken there.
func (e *standIn) speaks(ctx context.Context, namespace, name string, port int32) string {
	s, err := e.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	for _, p := range s.Spec.Ports {
		if p.Port == port && p.AppProtocol != nil {
			return *p.AppProtocol
		}
	}
	return ""
}
