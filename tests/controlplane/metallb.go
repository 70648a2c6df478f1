package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// MetalLBNamespace is where MetalLB and its objects are.
const MetalLBNamespace = "metallb-system"

const metallbModule = "go.universe.tf/metallb"

// MetalLB is MetalLB in a cluster: its controller on the host of the control plane and a speaker on each
// node.
type MetalLB struct {
	Controller *Server
	Speakers   []*Server
}

// BuildMetalLB builds MetalLB if it is not in the cache, and returns the folders of its programs and of
// its source.
func BuildMetalLB(ctx context.Context) (dir, source string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Minute)
	defer cancel()
	module, err := programsModule(ctx)
	if err != nil {
		return "", "", err
	}
	root, err := CacheRoot()
	if err != nil {
		return "", "", err
	}
	f := foundry{
		module: filepath.Join(module, "metallb"), cache: filepath.Join(root, "lbd", "controlplane"), name: "metallb", ldflags: "-s -w",
		parts: []part{
			{"controller", metallbModule + "/controller", []string{"--help"}, ""},
			{"speaker", metallbModule + "/speaker", []string{"--help"}, ""},
		},
	}
	if dir, _, err = f.get(ctx); err != nil {
		return "", "", fmt.Errorf("metallb: %w", err)
	}
	source, err = command(ctx, f.module, "go", "list", "-m", "-f", "{{.Dir}}", metallbModule)
	if err != nil {
		return "", "", fmt.Errorf("metallb: %w", err)
	}
	return dir, strings.TrimSpace(source), nil
}

// StartMetalLB applies the definitions of MetalLB and starts it, with the rights of an administrator
// and without the webhooks, which need a Service of the cluster.
func (c *ControlPlane) StartMetalLB(ctx context.Context) (*MetalLB, error) {
	dir, source, err := BuildMetalLB(ctx)
	if err != nil {
		return nil, err
	}
	definitions := filepath.Join(source, "config", "crd", "bases")
	if _, err := c.Kubectl(ctx, "apply", "--server-side", "-f", definitions); err != nil {
		return nil, err
	}
	if err := c.established(ctx); err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, c.metallbPods()); err != nil {
		return nil, err
	}
	kubeconfig, err := c.Kubeconfig(c.address(c.APIServers[0].Host), Admin)
	if err != nil {
		return nil, err
	}
	ready := func(context.Context) error { return nil } // who asks for its work waits for it
	m := &MetalLB{Controller: &Server{
		Name: "metallb-controller", Host: c.Host, lab: c.Lab, ready: ready,
		argv: []string{filepath.Join(dir, "controller"), "--kubeconfig=" + kubeconfig, "--namespace=" + MetalLBNamespace, "--webhook-mode=disabled", "--disable-cert-rotation"},
	}}
	for _, n := range c.nodes {
		m.Speakers = append(m.Speakers, &Server{
			Name: "metallb-speaker", Host: &n.Host, lab: c.Lab, ready: ready,
			argv: []string{filepath.Join(dir, "speaker"), "--kubeconfig=" + kubeconfig, "--namespace=" + MetalLBNamespace, "--node-name=" + n.Name, "--pod-name=speaker-" + n.Name},
		})
	}
	for _, s := range append(m.Speakers, m.Controller) {
		if err := s.Start(ctx); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// metallbPods are the namespace and, of the Pods of the speakers, the objects: a speaker asks for its own.
func (c *ControlPlane) metallbPods() string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %[1]s}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: %[1]s}\n", MetalLBNamespace)
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: speaker-%s, namespace: %s}\n"+
			"spec: {nodeName: %[1]s, automountServiceAccountToken: false, containers: [{name: speaker, image: metallb}]}\n", n.Name, MetalLBNamespace)
	}
	return b.String()
}
