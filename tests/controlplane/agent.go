package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/tests/lab"
)

// Agent is the account of lbd's agent in the cluster of a tenant, with the rights that its manifest
// gives it.
var Agent = User{
	Name:   "system:serviceaccount:lbd-agent:lbd-agent",
	Groups: []string{"system:serviceaccounts", "system:serviceaccounts:lbd-agent"},
}

// AddTenant makes a tenant of the hub that has this name, with these nodes, by `lbd tenant create`. The
// flags are more of that command. It returns the namespace of the tenant's one cluster.
func (c *ControlPlane) AddTenant(ctx context.Context, name string, nodes []*lab.Node, flags ...string) (namespace string, err error) {
	args := []string{c.Lab.Bin.LBD, "tenant", "create", name, "--pool=lan"}
	for _, n := range nodes {
		args = append(args, fmt.Sprintf("--node-cidr=%s/32", n.IP4), fmt.Sprintf("--node-cidr=%s/128", n.IP6))
	}
	all, err := c.Lab.Exec(ctx, c.Host, append(args, flags...)...)
	if err != nil {
		return "", err
	}
	return "lbd-" + name + "-main", c.Apply(ctx, all)
}

// JoinHub does what docs/tenants-agent.md has the owner of a cluster do: `lbd tenant join` with a token
// of the hub. No kubelet runs the Deployment, so it starts the agent on the host of the control plane,
// with the files that the Secret has: StartAgent.
func (c *ControlPlane) JoinHub(ctx context.Context, hub *ControlPlane, tenant, namespace string) error {
	token, err := hub.Kubectl(ctx, "-n", namespace, "create", "token", "agent", "--duration=2160h")
	if err != nil {
		return err
	}
	tokenFile := filepath.Join(c.Host.Dir, "token")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		return err
	}
	all, err := c.Lab.Exec(ctx, c.Host, c.Lab.Bin.LBD, "tenant", "join", tenant, "--server="+URL(hub.address(hub.APIServers[0].Host)), "--ca="+hub.PKI.CA, "--token="+tokenFile)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, all); err != nil {
		return err
	}
	return c.StartAgent(ctx)
}

// hubDir is where an agent has the files of the Secret by which it reaches its hub.
func (c *ControlPlane) hubDir() string { return filepath.Join(c.Host.Dir, "hub") }

// StartAgent starts the agent of a cluster to which what `lbd tenant join` prints was applied, in place of
// one that runs.
func (c *ControlPlane) StartAgent(ctx context.Context, flags ...string) error {
	if c.agent != nil {
		if err := c.agent.Stop(10 * time.Second); err != nil {
			return err
		}
	}
	dir := c.hubDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	secret, err := client.CoreV1().Secrets("lbd-agent").Get(ctx, "lbd-hub", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for name, b := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	kubeconfig, err := c.Kubeconfig(c.address(c.APIServers[0].Host), Agent)
	if err != nil {
		return err
	}
	const http = "127.0.0.1:7478"
	c.agent = &Server{
		Name: "lbd-agent", Host: c.Host, lab: c.Lab,
		argv: append([]string{
			c.Lab.Bin.LBD, "agent", "--kubeconfig=" + kubeconfig, "--hub-kubeconfig=" + filepath.Join(dir, "kubeconfig"),
			"--hub-secret=lbd-hub", "--namespace=lbd-agent", "--http=" + http,
		}, flags...),
		ready: func(ctx context.Context) error {
			_, err := get(ctx, c.Lab, c.Host, "http://"+http+"/readyz", nil)
			return err
		},
	}
	return c.agent.Start(ctx)
}
