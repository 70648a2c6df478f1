package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ServeServices has the cluster announce its Services by the commands of
// docs/kubernetes.md: from the units of some machines, see InstallUnit, and from the
// DaemonSet on all others. A controller in the cluster gives out addresses.
func (c *Cluster) ServeServices(ctx context.Context, units ...*Machine) error {
	for _, m := range c.Machines {
		if err := c.LoadImage(ctx, m); err != nil {
			return err
		}
	}
	if err := c.serveFromUnits(ctx, units); err != nil {
		return err
	}
	install, err := oneBlock(ctx, kubernetesPage, "Install", "sh", "lbd manifest daemonset")
	if err != nil {
		return err
	}
	pool, err := oneBlock(ctx, kubernetesPage, "The first Service", "yaml", "kind: IPAddressPool")
	if err != nil {
		return err
	}
	if len(units) == len(c.Machines) { // there is nothing else to run the controller, and no DaemonSet to ask
		apply, _, _ := strings.Cut(install, "\n")
		install = apply + "\n" + schedulable + "kubectl -n lbd-system rollout status deployment/lbd-controller\n"
	}
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	first := c.Machines[0]
	if _, err := first.Shell(ctx, install); err != nil {
		return err
	}
	if err := first.WriteFile(workFolder+"/pool.yaml", []byte(pool), 0o644); err != nil {
		return err
	}
	_, err = first.Shell(ctx, "kubectl apply -f pool.yaml")
	return err
}

// serveFromUnits has units serve Services, by the commands of the page.
func (c *Cluster) serveFromUnits(ctx context.Context, units []*Machine) error {
	blocks, err := Blocks(ctx, kubernetesPage, "Nodes with a daemon of their own", "sh")
	if err != nil {
		return err
	}
	var once, each []string
	for _, block := range blocks {
		switch {
		case strings.Contains(block, "install "):
			each = append(each, block)
		case strings.Contains(block, "kubectl label node m1 "):
			for _, m := range units {
				once = append(once, strings.Replace(block, " m1 ", " "+m.Name+" ", 1))
			}
		default:
			once = append(once, block)
		}
	}
	first := c.Machines[0]
	if _, err := first.Shell(ctx, strings.Join(once, "\n")); err != nil {
		return err
	}
	kubeconfig, err := first.ReadFile(workFolder + "/kubeconfig")
	if err != nil {
		return err
	}
	for _, m := range units {
		if err := m.WriteFile(workFolder+"/kubeconfig", kubeconfig, 0o600); err != nil {
			return err
		}
		if _, err := m.Shell(ctx, strings.Join(each, "\n")); err != nil {
			return err
		}
		if err := m.configureServices(ctx, "kind: NodeConfiguration\n", "kind: NodeConfiguration\nkubernetes: {kubeconfig: /etc/lbd/kubeconfig}\n"); err != nil {
			return err
		}
	}
	return nil
}

// ServeClassless has the controller and the units, see ServeServices, serve Services
// without a class too.
func (c *Cluster) ServeClassless(ctx context.Context, units ...*Machine) error {
	for _, m := range units {
		if err := m.configureServices(ctx, "kubernetes: {kubeconfig", "kubernetes: {classless: true, kubeconfig"); err != nil {
			return err
		}
	}
	_, err := c.Machines[0].Shell(ctx, classless+"kubectl -n lbd-system rollout status --timeout=180s deployment/lbd-controller")
	return err
}

// What the page leaves to its readers: Services without a class, and nodes of a control
// plane that serve them too.
const (
	classless = `kubectl -n lbd-system patch deployment lbd-controller --type=json --patch='[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--classless"}]'
`
	schedulable = `kubectl taint node --all node-role.kubernetes.io/control-plane-
kubectl label node --all node-role.kubernetes.io/control-plane- node.kubernetes.io/exclude-from-external-load-balancers-
`
)

// configureServices replaces a part of the configuration of a unit, and restarts it.
func (m *Machine) configureServices(ctx context.Context, old, new string) error {
	config, err := m.ReadFile(configFile)
	if err != nil {
		return err
	}
	with := strings.Replace(string(config), old, new, 1)
	if with == string(config) {
		return fmt.Errorf("%s: %s has no %q", m.Name, configFile, old)
	}
	if err := m.WriteFile(configFile, []byte(with), 0o644); err != nil {
		return err
	}
	_, err = m.Run(ctx, "lbd", "restart")
	return err
}

// LoadWeb imports an image, called Web, whose program answers every request by HTTP on
// port 80 with the name of its Pod.
func (c *Cluster) LoadWeb(ctx context.Context) error {
	program := filepath.Join(c.Dir, "web")
	if _, err := command(ctx, nil, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off"), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "lbd.dev/lbd/tests/cluster/cmd/web"); err != nil {
		return err
	}
	return c.loadEverywhere(ctx, Image{Name: Web, Entrypoint: []string{"/web"}, Files: []ImageFile{{Path: "/web", From: program}}})
}

// Web is the image of LoadWeb.
const Web = "registry.example.net/web:v1"
