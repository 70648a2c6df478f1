package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

const (
	traefikModule = "github.com/traefik/traefik/v3"
	traefikAPI    = "http://127.0.0.1:8089/api/http/"
)

// BuildTraefik builds Traefik if it is not in the cache, and returns its program. It takes many minutes.
func BuildTraefik(ctx context.Context) (program string, built bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Minute)
	defer cancel()
	module, err := programsModule(ctx)
	if err != nil {
		return "", false, err
	}
	root, err := CacheRoot()
	if err != nil {
		return "", false, err
	}
	module = filepath.Join(module, "traefik")
	version, err := command(ctx, module, "go", "list", "-m", "-f", "{{.Version}}", traefikModule)
	if err != nil {
		return "", false, fmt.Errorf("traefik: %w", err)
	}
	version = strings.TrimPrefix(strings.TrimSpace(version), "v")
	f := foundry{
		module: module, cache: filepath.Join(root, "lbd", "controlplane"), name: "traefik-v" + version,
		ldflags: "-s -w -X " + traefikModule + "/pkg/version.Version=" + version,
		parts:   []part{{"traefik", traefikModule + "/cmd/traefik", []string{"version"}, "Version:      " + version + "\n"}},
	}
	dir, built, err := f.get(ctx)
	if err != nil {
		return "", false, fmt.Errorf("traefik: %w", err)
	}
	return filepath.Join(dir, "traefik"), built, nil
}

// traefik is Traefik as the engine of a cluster, with the rights of an administrator.
type traefik struct {
	*Engine
	cp      *ControlPlane
	program string
	server  *Server
}

// traefikObjects are the class, and a Service whose addresses Traefik writes into statuses. In its place there is the node.
const traefikObjects = `apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: %[1]s}
spec: {controller: traefik.io/ingress-controller}
---
apiVersion: v1
kind: Service
metadata: {name: traefik, namespace: default}
spec: {type: LoadBalancer, loadBalancerClass: example.com/none, ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}
`

// StartTraefik has Traefik on a node serve the Ingresses of a class.
func (c *ControlPlane) StartTraefik(ctx context.Context, on *Node, class string) (*Engine, error) {
	program, _, err := BuildTraefik(ctx)
	if err != nil {
		return nil, err
	}
	t := &traefik{Engine: &Engine{Class: class, Host: on.Node, lab: c.Lab}, cp: c, program: program}
	t.Resolve, t.ServeGateway = t.resolve, t.serveGateway
	if err := c.Apply(ctx, fmt.Sprintf(traefikObjects, class)); err != nil {
		return nil, err
	}
	status := fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q},{"ip":%q}]}}}`, on.IP4, on.IP6)
	if _, err := c.Kubectl(ctx, "patch", "service", "traefik", "--subresource=status", "--type=merge", "-p", status); err != nil {
		return nil, err
	}
	return t.Engine, t.start(ctx)
}

// start starts Traefik with more arguments.
func (t *traefik) start(ctx context.Context, more ...string) error {
	kubeconfig, err := t.cp.Kubeconfig(t.cp.address(t.cp.APIServers[0].Host), Admin)
	if err != nil {
		return err
	}
	t.server = &Server{
		Name: "traefik", Host: &t.Host.Host, lab: t.lab,
		ready: func(ctx context.Context) error {
			_, err := get(ctx, t.lab, &t.Host.Host, traefikAPI+"routers", nil)
			return err
		},
		argv: append([]string{
			"env", "KUBECONFIG=" + kubeconfig, t.program, "--global.checknewversion=false", "--log.level=INFO", "--accesslog=true",
			fmt.Sprintf("--entrypoints.web.address=:%d", EnginePort),
			fmt.Sprintf("--entrypoints.websecure.address=:%d", EngineTLSPort), "--entrypoints.websecure.http.tls=true",
			"--entrypoints.traefik.address=127.0.0.1:8089", "--api.insecure=true",
			"--serverstransport.maxidleconnsperhost=-1", // kube-proxy chooses a Pod for each connection
			"--providers.kubernetesingress.ingressclass=" + t.Class, "--providers.kubernetesingress.ingressendpoint.publishedservice=default/traefik",
		}, more...),
	}
	return t.server.Start(ctx)
}

// serveGateway starts Traefik anew, with the Gateway API. It serves nothing of it before it has all kinds of the standard
// channel.
func (t *traefik) serveGateway(ctx context.Context, namespace, name string) error {
	if err := t.cp.ApplyGatewayAPI(ctx, "grpcroutes", "referencegrants", "backendtlspolicies"); err != nil {
		return err
	}
	if err := t.cp.Apply(ctx, hubGateway(namespace, name, t.Class, "traefik.io/gateway-controller", EnginePort)); err != nil {
		return err
	}
	if err := t.server.Stop(20 * time.Second); err != nil {
		return err
	}
	return t.start(ctx, "--providers.kubernetesgateway.statusaddress.service.name=traefik", "--providers.kubernetesgateway.statusaddress.service.namespace=default")
}

// TraefikService is what a Service of Traefik is made of.
type TraefikService struct {
	LoadBalancer struct {
		Servers []struct {
			URL    string
			Fenced bool // it gets no new client
		}
	}
}

// resolve asks Traefik for the servers of the Ingress of a host, whatever the path.
func (t *traefik) resolve(ctx context.Context, host, _ string) (list []netip.AddrPort, err error) {
	var routers []struct{ Rule, Service, Provider string }
	if err := t.ask(ctx, "routers", &routers); err != nil {
		return nil, err
	}
	for _, r := range routers {
		if !strings.HasPrefix(r.Rule, fmt.Sprintf("Host(%q)", host)) || r.Provider != "kubernetes" {
			continue
		}
		var s TraefikService
		if err := t.ask(ctx, "services/"+r.Service+"@"+r.Provider, &s); err != nil {
			return nil, err
		}
		for _, x := range s.LoadBalancer.Servers {
			u, err := url.Parse(x.URL)
			if err != nil {
				return nil, fmt.Errorf("traefik: %w", err)
			}
			to, err := netip.ParseAddrPort(u.Host)
			if err != nil {
				return nil, fmt.Errorf("traefik: %w", err)
			}
			if !x.Fenced {
				list = append(list, to)
			}
		}
		return list, nil
	}
	return nil, errNoRule
}

// ask asks the API of Traefik.
func (t *traefik) ask(ctx context.Context, what string, answer any) error {
	body, err := get(ctx, t.lab, &t.Host.Host, traefikAPI+what, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(body), answer); err != nil {
		return fmt.Errorf("traefik: %s: %w: %s", what, err, short(body))
	}
	return nil
}
