package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lbd.dev/lbd/tests/lab"
)

// EnginePort is where an Engine serves HTTP.
const EnginePort = 8088

// Engine serves the Ingresses, HTTPRoutes and GRPCRoutes of a hub. It knows nothing of lbd.
type Engine struct {
	Class string
	Host  *lab.Node // both its addresses are in the status of what it serves

	// Resolve finds the endpoints that a new request for a host and a path may go to.
	Resolve func(ctx context.Context, host, path string) ([]netip.AddrPort, error)
	// ServeGateway makes a Gateway, and serves its routes until the context of the start ends.
	ServeGateway func(ctx context.Context, namespace, name string) error

	lab *lab.Lab
}

// standIn stands for the ingress controller of a cluster: for each request it finds in the API what the
// Ingresses of its class say of host and path, goes from there to a Service and to the ready endpoints of that,
// and proxies to one of them.
type standIn struct {
	*Engine
	cp      *ControlPlane
	client  kubernetes.Interface
	gateway *engineGateway // nil: it serves no HTTPRoutes
}

// StartEngine has a node serve the Ingresses of a class until ctx ends.
func (c *ControlPlane) StartEngine(ctx context.Context, on *Node, class string) (*Engine, error) {
	client, err := c.Client()
	if err != nil {
		return nil, err
	}
	e := &standIn{Engine: &Engine{Class: class, Host: on.Node, lab: c.Lab}, cp: c, client: client}
	e.Resolve = e.resolve
	e.ServeGateway = func(_ context.Context, namespace, name string) error { return e.serveGateway(ctx, namespace, name) }
	l, err := on.Listen(fmt.Sprintf("[::]:%d", EnginePort))
	if err != nil {
		return nil, err
	}
	s := &http.Server{Handler: e, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.Serve(l) }()
	if err := e.serveTLS(ctx, on, s); err != nil {
		return nil, err
	}
	go func() {
		for ctx.Err() == nil {
			e.publish(ctx)
			time.Sleep(200 * time.Millisecond)
		}
		_ = s.Close()
	}()
	return e.Engine, nil
}

// ingresses are those of the class.
func (e *standIn) ingresses(ctx context.Context) (list []networkingv1.Ingress) {
	all, err := e.client.NetworkingV1().Ingresses(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	for _, i := range all.Items {
		if i.Spec.IngressClassName != nil && *i.Spec.IngressClassName == e.Class {
			list = append(list, i)
		}
	}
	return list
}

// publish writes the address of the engine into the Ingresses that lack it.
func (e *standIn) publish(ctx context.Context) {
	for _, i := range e.ingresses(ctx) {
		if len(i.Status.LoadBalancer.Ingress) == 0 {
			i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: e.Host.IP4.String()}}
			_, _ = e.client.NetworkingV1().Ingresses(i.Namespace).UpdateStatus(ctx, &i, metav1.UpdateOptions{}) // it tries again
		}
	}
}

// ServeHTTP proxies one request.
func (e *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	to, err := e.resolve(r.Context(), host, r.URL.Path)
	if errors.Is(err, errNoRule) && e.gateway != nil {
		e.serveHTTPRoute(w, r, host)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	e.proxy(w, r, to, r.URL.Path, false)
}

// proxy asks one of the endpoints, with this path, by HTTP/1.1 or by HTTP/2 without TLS.
func (e *standIn) proxy(w http.ResponseWriter, r *http.Request, to []netip.AddrPort, path string, h2c bool) {
	target, protocols := to[rand.N(len(to))], new(http.Protocols)
	protocols.SetHTTP1(!h2c)
	protocols.SetUnencryptedHTTP2(h2c)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host, p.Out.URL.Path = "http", target.String(), p.In.Host, path
		},
		Transport: &http.Transport{DisableKeepAlives: true, Protocols: protocols, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return e.lab.Dial(ctx, &e.Host.Host, network, address)
		}},
	}
	proxy.ServeHTTP(w, r)
}

var errNoRule = errors.New("no Ingress has a rule for it")

// resolve finds the ready endpoints for a host and a path.
func (e *standIn) resolve(ctx context.Context, host, path string) ([]netip.AddrPort, error) {
	var namespace string
	var best *networkingv1.HTTPIngressPath
	for _, i := range e.ingresses(ctx) {
		for _, r := range i.Spec.Rules {
			_, below, _ := strings.Cut(host, ".")
			if r.HTTP == nil || r.Host != host && r.Host != "*."+below {
				continue
			}
			for _, p := range r.HTTP.Paths {
				under := strings.HasPrefix(path+"/", strings.TrimSuffix(p.Path, "/")+"/")
				if *p.PathType == networkingv1.PathTypeExact && p.Path == path || *p.PathType == networkingv1.PathTypePrefix && under {
					if best == nil || len(p.Path) > len(best.Path) {
						namespace, best = i.Namespace, &p
					}
				}
			}
		}
	}
	if best == nil {
		return nil, errNoRule
	}
	return e.endpoints(ctx, namespace, best.Backend.Service)
}

// endpoints are those of a port of a Service.
func (e *standIn) endpoints(ctx context.Context, namespace string, b *networkingv1.IngressServiceBackend) (list []netip.AddrPort, err error) {
	s, err := e.client.CoreV1().Services(namespace).Get(ctx, b.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var port corev1.ServicePort
	for _, p := range s.Spec.Ports {
		if p.Port == b.Port.Number || b.Port.Name != "" && p.Name == b.Port.Name {
			port = p
		}
	}
	all, err := e.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + b.Name})
	if err != nil {
		return nil, err
	}
	for _, slice := range all.Items {
		for _, p := range slice.Ports {
			if p.Name == nil || *p.Name != port.Name || p.Port == nil {
				continue
			}
			for _, x := range slice.Endpoints {
				a, err := netip.ParseAddr(x.Addresses[0])
				if err == nil && (x.Conditions.Ready == nil || *x.Conditions.Ready) {
					list = append(list, netip.AddrPortFrom(a, uint16(*p.Port)))
				}
			}
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the Service %s/%s has no ready endpoint", namespace, cmp.Or(b.Name, "?"))
	}
	return list, nil
}

// Get asks the engine as a client of the network does: the status and the body.
func (e *Engine) Get(ctx context.Context, from *lab.Host, host, path string) (int, string, error) {
	return e.GetWith(ctx, from, host, path, nil)
}

// GetWith is Get with headers.
func (e *Engine) GetWith(ctx context.Context, from *lab.Host, host, path string, headers http.Header) (int, string, error) {
	code, _, body, err := e.Do(ctx, from, http.MethodGet, host, path, headers)
	return code, body, err
}

// Do is GetWith of any method, with the headers of the answer.
func (e *Engine) Do(ctx context.Context, from *lab.Host, method, host, path string, headers http.Header) (code int, answered http.Header, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://%s%s", netip.AddrPortFrom(e.Host.IP4, EnginePort), path), nil)
	if err != nil {
		return 0, nil, "", fmt.Errorf("get: %w", err)
	}
	if req.Host = host; headers != nil {
		req.Header = headers
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return e.lab.Dial(ctx, from, network, address)
	}}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, "", fmt.Errorf("get: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 10000))
	return resp.StatusCode, resp.Header, string(data), err
}
