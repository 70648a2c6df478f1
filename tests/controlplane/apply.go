package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"lbd.dev/lbd/packaging"
)

// ApplyCRDs applies what `lbd manifest crds` prints and waits until all is served.
func (c *ControlPlane) ApplyCRDs(ctx context.Context) error {
	crds, err := c.Lab.Exec(ctx, c.Host, c.Lab.Bin.LBD, "manifest", "crds")
	if err != nil {
		return err
	}
	return errors.Join(c.Apply(ctx, crds), c.established(ctx))
}

// ApplyRights applies the accounts and rights of a management cluster, and nothing
// that runs.
func (c *ControlPlane) ApplyRights(ctx context.Context) error {
	var all []string
	for _, file := range []string{"namespace.yaml", "controller-rbac.yaml"} {
		b, err := packaging.Kustomize.ReadFile("kustomize/" + file)
		if err != nil {
			return fmt.Errorf("rights: %w", err)
		}
		all = append(all, string(b))
	}
	return c.Apply(ctx, strings.Join(append(all, packaging.Machines), "\n---\n"))
}

// BindHosts makes a namespace, and gives the account of the hosts its rights there, as the
// documents say.
func (c *ControlPlane) BindHosts(ctx context.Context, namespace string) error {
	if err := c.Apply(ctx, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", namespace)); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "-n", namespace, "create", "rolebinding", "lbd-machines", "--clusterrole=lbd-machines",
		"--serviceaccount="+InstallNamespace+":lbd-machines")
	return err
}

func (c *ControlPlane) established(ctx context.Context) error {
	// kubectl does not wait for a definition that has no conditions yet: it fails.
	return Eventually(ctx, time.Minute, "the definitions are served", func() error {
		_, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
		return err
	})
}

// Apply applies objects, as YAML, by server-side apply; flags are of kubectl apply.
func (c *ControlPlane) Apply(ctx context.Context, yaml string, flags ...string) error {
	f, err := os.CreateTemp(c.Host.Dir, "*.yaml")
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	_, err = f.WriteString(yaml)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	_, err = c.Kubectl(ctx, append([]string{"apply", "--server-side", "-f", f.Name()}, flags...)...)
	return err
}
