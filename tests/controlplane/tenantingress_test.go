package controlplane_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/tests/controlplane"
)

// frontPort is where the Pods of the Service front serve HTTP.
const frontPort = 8090

// tenantFront is a Service without a NodePort, and an Ingress for it.
const tenantFront = `apiVersion: v1
kind: Service
metadata: {name: front, namespace: default}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: front}
  ports: [{name: http, port: 80, targetPort: 8090}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: %[2]s
  namespace: default
  annotations: {nginx.ingress.kubernetes.io/server-snippet: "return 200;", example.com/allowed: "yes"}
spec:
  ingressClassName: lbd
  rules:
    - host: %[3]s
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {name: http}}}}]}
`

// ingresses has the engine of the hub serve Ingresses of both tenants. A client outside reaches the Pods of
// each by its hostnames; what a tenant may not have is refused with words and has no effect.
func ingresses(t *testing.T, l *controlplane.TenantLab, engine *controlplane.Engine) {
	for _, x := range l.Tenants {
		if err := l.JoinIngress(t.Context(), x, engine.Class, "", "*."+x.Name+".example.com", "shared.example.com"); err != nil {
			t.Fatal(err)
		}
		for _, p := range x.Pods {
			serveHTTP(t, p)
		}
		applyFront(t, x, "app", "app."+x.Name+".example.com")
		publishFront(t, x)
		answeredBy(t, l, engine, "app."+x.Name+".example.com", x.PodNames()...)
		said(t, x.ControlPlane, engine.Host.IP4.String(), "get", "ingress", "app", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
	}
	shop, bank := l.Tenants[0], l.Tenants[1]

	t.Log("bank asks for what is of shop")
	applyFront(t, shop, "shared", "shared.example.com")
	answeredBy(t, l, engine, "shared.example.com", shop.PodNames()...)
	applyFront(t, bank, "shared", "shared.example.com")
	applyFront(t, bank, "theirs", "app.shop.example.com")
	for name, words := range map[string]string{
		"shared": "HostnameTaken: shared.example.com is taken: another tenant had a rule for shared.example.com first",
		"theirs": "HostnameNotAllowed: the Tenant bank may not have the hostname app.shop.example.com",
	} {
		said(t, bank.ControlPlane, words, "get", "events", "--field-selector=involvedObject.kind=Ingress,involvedObject.name="+name, "-o", "jsonpath={.items[*].message}")
	}
	answeredBy(t, l, engine, "shared.example.com", shop.PodNames()...)
	answeredBy(t, l, engine, "app.shop.example.com", shop.PodNames()...)
	said(t, l.Hub, "", "-n", "lbd-bank-main", "get", "ingress", "-o", `jsonpath={.items[*].metadata.annotations.nginx\.ingress\.kubernetes\.io/server-snippet}`)
	for _, args := range [][]string{
		{"get", "ingresses"}, {"get", "secrets"}, {"create", "service", "clusterip", "x", "--tcp=80"}, {"create", "ingress", "x", "--rule=app.shop.example.com/=x:80"},
		{"patch", "tenantroute", "ingress.default.app", "--subresource=status", "--type=merge", "-p", `{"status":{"hostnames":["shared.example.com"]}}`},
	} {
		if out, err := l.AsAgent(t.Context(), bank, append([]string{"-n", "lbd-bank-main"}, args...)...); err == nil || !strings.Contains(err.Error(), "orbidden") {
			t.Errorf("%v: %q: %v, want that it is forbidden", args, out, err)
		}
	}

	t.Log("a node of shop is drained")
	if _, err := shop.Kubectl(t.Context(), "label", "node", shop.Nodes[0].Name, "node.kubernetes.io/exclude-from-external-load-balancers="); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the engine has the other node alone", func() error {
		to, err := engine.Resolve(t.Context(), "app.shop.example.com", "/")
		for _, a := range to {
			if a.Addr() == shop.Nodes[0].IP4 || a.Addr() == shop.Nodes[0].IP6 {
				err = fmt.Errorf("it has %v", to)
			}
		}
		return err
	})
	answeredBy(t, l, engine, "app.shop.example.com", shop.PodNames()...)

	t.Log("the Ingresses end")
	if _, err := shop.Kubectl(t.Context(), "delete", "ingress", "app", "shared"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the engine knows nothing of shop", func() error {
		code, body, err := engine.Get(t.Context(), l.Client, "app.shop.example.com", "/")
		if err == nil && code != http.StatusNotFound {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	said(t, shop.ControlPlane, "", "get", "services", "-l", "app.kubernetes.io/managed-by=lbd-agent", "-o", "name")
	said(t, l.Hub, "", "-n", "lbd-shop-main", "get", "services,endpointslices,ingresses,tenantroutes", "-o", "name")
	answeredBy(t, l, engine, "shared.example.com", bank.PodNames()...)
}

func applyFront(t *testing.T, x *controlplane.Tenant, name, host string) {
	t.Helper()
	if err := x.Apply(t.Context(), fmt.Sprintf(tenantFront, x.Name, name, host)); err != nil {
		t.Fatal(err)
	}
}

// serveHTTP has a Pod say its name and the path, by HTTP/1.1 and by HTTP/2 without TLS.
func serveHTTP(t *testing.T, p *controlplane.Pod) {
	t.Helper()
	l, err := p.Listen(fmt.Sprintf("[::]:%d", frontPort))
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{ReadHeaderTimeout: time.Second, Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Asked-By", r.Proto)
		fmt.Fprintf(w, "%s %s", p.Name, r.URL.Path)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
}

// publishFront does what the controllers of Kubernetes do: the Pods become endpoints of the Service that the
// agent has made.
func publishFront(t *testing.T, x *controlplane.Tenant) {
	t.Helper()
	client, err := x.Client()
	if err != nil {
		t.Fatal(err)
	}
	var name, port string
	eventually(t, "the agent has made a Service of type NodePort", func() error {
		all, err := client.CoreV1().Services(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=lbd-agent"})
		if err == nil && (len(all.Items) != 1 || len(all.Items[0].Spec.Ports) != 1 || all.Items[0].Spec.Selector["app"] != "front" || all.Items[0].Spec.Type != corev1.ServiceTypeNodePort) {
			err = fmt.Errorf("there are %v", all.Items)
		}
		if err == nil {
			name, port = all.Items[0].Name, all.Items[0].Spec.Ports[0].Name
		}
		return err
	})
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: name + "-" + strings.ToLower(string(family)), Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: &port, Port: new(int32(frontPort)), Protocol: new(corev1.ProtocolTCP)}},
		}
		for _, p := range x.Pods {
			a := p.IP4
			if family == discoveryv1.AddressTypeIPv6 {
				a = p.IP6
			}
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.String()}, NodeName: new(p.Node.Name), Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
		}
		if _, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// answeredBy waits until the client is answered by exactly these Pods at a hostname.
func answeredBy(t *testing.T, l *controlplane.TenantLab, e *controlplane.Engine, host string, pods ...string) {
	t.Helper()
	eventually(t, host+" is answered by "+strings.Join(pods, " "), func() error {
		got := map[string]bool{}
		for range 20 {
			code, body, err := e.Get(t.Context(), l.Client, host, "/some/path")
			name, path, _ := strings.Cut(body, " ")
			if err != nil || code != http.StatusOK || path != "/some/path" {
				return fmt.Errorf("%d %q: %w", code, body, err)
			}
			if got[name] = true; !slices.Contains(pods, name) {
				return fmt.Errorf("%s answers", name)
			}
		}
		if len(got) != len(pods) {
			return fmt.Errorf("only %v answer", got)
		}
		return nil
	})
}

// said waits until kubectl says words; of none: nothing.
func said(t *testing.T, c *controlplane.ControlPlane, words string, args ...string) {
	t.Helper()
	eventually(t, strings.Join(args, " "), func() error {
		out, err := c.Kubectl(t.Context(), args...)
		if err == nil && (!strings.Contains(out, words) || words == "" && strings.TrimSpace(out) != "") {
			err = fmt.Errorf("it says %q, want %q", out, words)
		}
		return err
	})
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	if err := controlplane.Eventually(context.WithoutCancel(t.Context()), 20*time.Second, what, check); err != nil {
		t.Fatal(err)
	}
}
