package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tenantsPage is the page whose first chapter Join follows.
const tenantsPage = "docs/tenants.md"

// tenantPool and tenantWeb are the files that its commands apply, with addresses of the lab, both families
// and UDP. All tenants ask for the same NodePorts: where one led to another, its Pods would answer.
const (
	tenantPool = `apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: public}
spec: {addresses: [10.77.0.101-10.77.0.199, "fd77::1:1-fd77::1:ff"]}
---
apiVersion: lbd.dev/v1alpha1
kind: L2Advertisement
metadata: {name: public}
`
	tenantWeb = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: LoadBalancer
  loadBalancerClass: lbd.dev/hub
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  externalTrafficPolicy: Local
  ports:
    - {name: echo, port: 7000, targetPort: 8080, nodePort: 30080}
    - {name: datagrams, protocol: UDP, port: 7102, targetPort: 7102, nodePort: 30081}
`
)

// tenantShell is where the commands run: on the host of the hub's control plane, in a folder with the files
// that they name, with a kubeconfig that has a context for each cluster.
type tenantShell struct {
	dir string
	env []string
}

func (l *TenantLab) newShell() (*tenantShell, error) {
	s := &tenantShell{dir: filepath.Join(l.Dir, "shell")}
	bin := filepath.Join(s.dir, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return nil, fmt.Errorf("shell: %w", err)
	}
	config := filepath.Join(s.dir, "kubeconfig")
	err := errors.Join(
		os.Symlink(l.Bin.LBD, filepath.Join(bin, "lbd")), os.Symlink(l.Hub.Programs.Kubectl, filepath.Join(bin, "kubectl")),
		os.WriteFile(filepath.Join(s.dir, "pool.yaml"), []byte(tenantPool), 0o600), os.WriteFile(filepath.Join(s.dir, "service.yaml"), []byte(tenantWeb), 0o600),
		l.writeContexts(config),
	)
	s.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+config, "HOME="+s.dir)
	return s, err
}

// writeContexts writes a kubeconfig of an administrator of all clusters.
func (l *TenantLab) writeContexts(file string) error {
	all := clientcmdapi.NewConfig()
	for name, c := range l.clusters() {
		one, err := c.Kubeconfig(c.address(c.APIServers[0].Host), Admin)
		if err != nil {
			return err
		}
		cfg, err := clientcmd.LoadFromFile(one)
		if err != nil {
			return fmt.Errorf("kubeconfig: %w", err)
		}
		all.Clusters[name], all.AuthInfos[name] = cfg.Clusters["lab"], cfg.AuthInfos[Admin.Name]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	return clientcmd.WriteToFile(*all, file)
}

// clusters are all, by the names of their contexts.
func (l *TenantLab) clusters() map[string]*ControlPlane {
	all := map[string]*ControlPlane{"hub": l.Hub}
	for _, t := range l.Tenants {
		all[t.Name] = t.ControlPlane
	}
	return all
}

// Shell runs a line of bash as the documents have it.
func (l *TenantLab) Shell(ctx context.Context, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, kubectlLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", l.Hub.Host.NS, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = l.shell.dir, l.shell.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, short(strings.TrimSpace(errs.String()+"\n"+out.String())))
	}
	return out.String(), nil
}

// tenantCommands are the commands of the first chapter of the page, one a line.
func tenantCommands(ctx context.Context) ([]string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "lbd.dev/lbd").Output()
	if err != nil {
		return nil, fmt.Errorf("%s: run this inside the module of tests/controlplane: %w", tenantsPage, err)
	}
	page, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), tenantsPage))
	if err != nil {
		return nil, err
	}
	_, rest, found := strings.Cut(string(page), "<!-- run by tests/controlplane: TestTwoTenants -->\n```sh\n")
	block, _, _ := strings.Cut(rest, "```")
	if !found {
		return nil, fmt.Errorf("%s has no commands that TestTwoTenants runs", tenantsPage)
	}
	return strings.Split(strings.TrimSpace(block), "\n"), nil
}

// What the page calls things.
const (
	pageTenant = "shop"
	pageCIDR   = "10.1.0.0/22"
	pageURL    = "https://hub.example.com:6443"
)

// filling puts the things of the lab in place of those of the page.
func (l *TenantLab) filling(t *Tenant) *strings.Replacer {
	var cidrs []string
	for _, n := range t.Nodes {
		for _, a := range []netip.Addr{n.IP4, n.IP6} {
			cidrs = append(cidrs, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	return strings.NewReplacer(pageCIDR, strings.Join(cidrs, ","), pageURL, URL(l.Hub.address(l.Hub.APIServers[0].Host)), pageTenant, t.Name)
}
