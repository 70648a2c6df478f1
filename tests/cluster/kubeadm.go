package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"lbd.dev/lbd/tests/lab"
)

// kubernetes is what a cluster knows of Kubernetes, once there is one.
type kubernetes struct {
	key        []byte            // of gossip
	join       map[string]string // flags of `kubeadm join`
	kubeconfig string            // file with admin.conf, which leads to the VIP
	secrets    secrets           // behind a box
}

// What kubeadm is told here beyond the pages: the version, so that it does not ask the
// internet, and settings of kubelet for hosts with the control groups of today and of
// yesterday.
const (
	here     = " --patches /etc/kubeadm/patches --ignore-preflight-errors=SystemVerification"
	hereInit = here + " --skip-phases=addon/kube-proxy,addon/coredns --kubernetes-version "
)

// Init runs the `kubeadm init` of docs/control-plane.md on a machine, and gives the
// cluster a kube-proxy with nftables.
func (c *Cluster) Init(ctx context.Context, m *Machine) error {
	init, err := oneBlock(ctx, ControlPlanePage, "2. First node", "sh", "kubeadm init")
	if err != nil {
		return err
	}
	said, err := m.Shell(ctx, c.endpoint(strings.TrimSpace(init))+hereInit+c.Parts.Programs.Kubernetes)
	if err != nil {
		return err
	}
	c.join = map[string]string{}
	for _, flag := range []string{"--token", "--discovery-token-ca-cert-hash", "--certificate-key"} {
		found := regexp.MustCompile(flag + `\s+(\S+)`).FindStringSubmatch(said)
		if found == nil {
			return fmt.Errorf("kubeadm init: no %s in %s", flag, said)
		}
		c.join[flag] = found[1]
	}
	if err := c.keepAdmin(m); err != nil {
		return err
	}
	const settings = "/etc/kubeadm/kube-proxy.yaml"
	text, err := m.ReadFile(settings)
	if err != nil {
		return err
	}
	if err := m.WriteFile(settings, []byte(c.endpoint(string(text))), 0o644); err != nil {
		return err
	}
	_, err = m.Run(ctx, "kubeadm", "init", "phase", "addon", "kube-proxy", "--config", settings)
	return err
}

// keepAdmin keeps the kubeconfig that kubeadm has made on the first machine.
func (c *Cluster) keepAdmin(m *Machine) error {
	admin, err := m.ReadFile("/etc/kubernetes/admin.conf")
	if err != nil {
		return err
	}
	c.kubeconfig = filepath.Join(c.Dir, "admin.conf")
	if err := os.WriteFile(c.kubeconfig, admin, 0o600); err != nil {
		return fmt.Errorf("kubeadm init: %w", err)
	}
	return nil
}

// Join runs the `kubeadm join` of docs/control-plane.md on some machines at once.
func (c *Cluster) Join(ctx context.Context, machines ...*Machine) error {
	join, err := oneBlock(ctx, ControlPlanePage, "3. The others", "sh", "kubeadm join")
	if err != nil {
		return err
	}
	if join, err = fill(strings.TrimSpace(join), c.join); err != nil {
		return err
	}
	return atOnce(machines, func(m *Machine) error {
		_, err := m.Shell(ctx, c.endpoint(join)+here)
		return err
	})
}

// endpoint is a command of a page with the port of this cluster.
func (c *Cluster) endpoint(command string) string {
	if c.Port == 0 {
		return command
	}
	return strings.Replace(command, VIP().String()+":6443", fmt.Sprintf("%s:%d", VIP(), c.Port), 1)
}

// JoinWorker joins machines that have no control plane.
func (c *Cluster) JoinWorker(ctx context.Context, machines ...*Machine) error {
	line := fmt.Sprintf("kubeadm join %s:6443 --token %s --discovery-token-ca-cert-hash %s", VIP(), c.join["--token"], c.join["--discovery-token-ca-cert-hash"])
	return atOnce(machines, func(m *Machine) error {
		_, err := m.Shell(ctx, line+here)
		return err
	})
}

// Kubectl runs kubectl on the client, as administrator, through the VIP.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.Run(ctx, append([]string{
		c.Parts.Programs.Kubectl, "--kubeconfig", c.kubeconfig, "--cache-dir", filepath.Join(c.Dir, "kubectl"), "--request-timeout=10s",
	}, args...)...)
}

// Config is for a client of the API in this process, as administrator through the VIP,
// whose packets leave from the client machine.
func (c *Cluster) Config() (*rest.Config, error) { return c.configFrom(c.Client.NS) }

// ConfigOn is Config for a client on a node, as kube-proxy is one.
func (c *Cluster) ConfigOn(m *Machine) (*rest.Config, error) {
	return c.configFrom(c.namespace(m.Name))
}

func (c *Cluster) configFrom(namespace string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	config.QPS = -1 // no limit of its own
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return lab.DialFrom(ctx, namespace, network, address)
	}
	return config, nil
}

// Clientset is a client of the API from outside, through the VIP.
func (c *Cluster) Clientset() (*kube.Clientset, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	return kube.NewForConfig(config)
}

// settleLimit is how long a cluster may take to become whole, on a busy computer.
const settleLimit = 3 * time.Minute

// WaitWhole waits until the VIP serves, the API server of every control-plane machine
// that is on is whole, etcd included, and every one is a Ready Node whose kubelet is heard.
func (c *Cluster) WaitWhole(ctx context.Context) error {
	config, err := c.Config()
	if err != nil {
		return err
	}
	client, end, err := freshClient(config)
	if err != nil {
		return err
	}
	defer end() // a node keeps the VIP for a connection that is still open
	return lab.Wait(ctx, settleLimit, 500*time.Millisecond, "the control plane is whole", func() error {
		ask, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		ready, err := readyNodes(ask, client)
		if err != nil {
			return err
		}
		var errs []error
		for _, m := range c.Machines {
			if !m.On() {
				continue
			}
			if !ready[m.Name] {
				errs = append(errs, fmt.Errorf("%s is not ready", m.Name))
			} else if m.hasAPIServer() {
				errs = append(errs, c.Livez(ask, m))
			}
		}
		return errors.Join(errs...)
	})
}

// heard is how long ago the kubelet of a Node that is called ready may have said so last.
// It says so every 10 s; a Node not heard for 50 s is called ready until then.
const heard = 20 * time.Second

// readyNodes are the Nodes that are ready, by name.
func readyNodes(ctx context.Context, client kube.Interface) (map[string]bool, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	alive := map[string]bool{}
	for _, l := range leases.Items {
		alive[l.Name] = l.Spec.RenewTime != nil && time.Since(l.Spec.RenewTime.Time) < heard
	}
	ready := map[string]bool{}
	for _, n := range nodes.Items {
		for _, condition := range n.Status.Conditions {
			ready[n.Name] = ready[n.Name] || alive[n.Name] && condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}
	}
	return ready, nil
}

func (m *Machine) hasAPIServer() bool {
	_, err := m.ReadFile("/etc/kubernetes/pki/apiserver.crt")
	return err == nil
}

// Livez asks the API server of a machine, not of the VIP, whether it is whole.
func (c *Cluster) Livez(ctx context.Context, m *Machine) error {
	_, err := c.Run(ctx, "curl", "--silent", "--show-error", "--fail", "--insecure", "--max-time", "3", fmt.Sprintf("https://%s:6443/livez", m.Address))
	if err != nil {
		return fmt.Errorf("%s: API server: %w", m.Name, err)
	}
	return nil
}

// Owner is the machine that has the VIP on the wire, as its own daemon says; an error
// if it is none, or more than one.
func (c *Cluster) Owner(ctx context.Context) (*Machine, error) {
	var owners []*Machine
	said := ""
	for _, m := range c.Machines {
		if !m.On() {
			continue
		}
		status, err := m.Status(ctx)
		if err != nil {
			said += fmt.Sprintf("; %s: %v", m.Name, err)
			continue
		}
		for _, v := range status.VIPs {
			if v.Address == VIP().String() && v.Announced {
				owners = append(owners, m)
			}
			said += fmt.Sprintf("; %s: owner %q, announced %v, %s", m.Name, v.Owner, v.Announced, v.Reason)
		}
	}
	if len(owners) != 1 {
		return nil, fmt.Errorf("%d owners of %s%s", len(owners), VIP(), said)
	}
	return owners[0], nil
}

// WaitOwner waits until one of the machines given has the VIP.
func (c *Cluster) WaitOwner(ctx context.Context, limit time.Duration, among ...*Machine) (owner *Machine, err error) {
	err = lab.Wait(ctx, limit, 50*time.Millisecond, "one owner", func() error {
		if owner, err = c.Owner(ctx); err != nil {
			return err
		}
		for _, m := range among {
			if m == owner {
				return nil
			}
		}
		return fmt.Errorf("the owner is %s", owner.Name)
	})
	return owner, err
}

// Others are the machines but one.
func (c *Cluster) Others(but *Machine) []*Machine {
	var all []*Machine
	for _, m := range c.Machines {
		if m != but {
			all = append(all, m)
		}
	}
	return all
}

// RemoveNode takes a control-plane machine out of the cluster as docs/control-plane.md
// says, with kubectl on another one. The machine stays on.
func (c *Cluster) RemoveNode(ctx context.Context, m, other *Machine) error {
	const chapter = "Remove a node"
	reset, err := oneBlock(ctx, ControlPlanePage, chapter, "sh", "kubeadm reset")
	if err != nil {
		return err
	}
	forget, err := oneBlock(ctx, ControlPlanePage, chapter, "sh", "kubectl delete node m3")
	if err != nil {
		return err
	}
	if _, err := m.Shell(ctx, reset); err != nil {
		return err
	}
	_, err = other.Shell(ctx, strings.ReplaceAll(forget, " m3", " "+m.Name))
	return err
}
