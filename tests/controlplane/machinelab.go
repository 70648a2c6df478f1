package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// MachineLab is a lab whose nodes are the control plane of a workload cluster: each
// runs lbd and a stand-in of its API server, and is a Machine of a management cluster
// that runs beside them. What Cluster API's controllers do is played by MachineCluster.
type MachineLab struct {
	*lab.Cluster
	System   *lab.LBD
	CP       *ControlPlane
	Machines *MachineCluster
	// Kubeconfig is that of the daemons that read the management cluster.
	Kubeconfig string
}

// MachineOptions say what a MachineLab is like.
type MachineOptions struct {
	Nodes int // hosts, of which Started are Machines at the beginning; 0: all
	// Managers is how many of them, from the first on, have credentials.
	Started, Managers int
	// Section is what more the section machines of their configuration has.
	Section string
	Hook    bool // Machines are held by the hook of lbd
	// Late: the kubeconfig is not there yet, see WriteKubeconfig.
	Late bool
	// Strangers: the hosts are no Machines.
	Strangers bool
}

// machineNamespaces are those in which the account of the hosts has its rights.
var machineNamespaces = []string{"default", "empty", "orders", "others", "twin"}

// NewMachineLab starts it, and waits until clients are served. Close ends it.
func NewMachineLab(ctx context.Context, bin *lab.Bin, p *Programs, o MachineOptions) (*MachineLab, error) {
	m := &MachineLab{System: &lab.LBD{}}
	if o.Started == 0 {
		o.Started = o.Nodes
	}
	var err error
	if m.Cluster, err = lab.NewIdle(ctx, bin, m.System, o.Nodes); err != nil {
		return nil, err
	}
	if err := m.start(ctx, p, o); err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, m.Logs(15)), m.Close())
	}
	return m, nil
}

func (m *MachineLab) start(ctx context.Context, p *Programs, o MachineOptions) (err error) {
	if m.CP, err = Start(ctx, m.Lab, p, Options{Families: []Family{IPv4}}); err != nil {
		return err
	}
	if err := errors.Join(m.CP.ApplyClusterAPI(ctx), m.CP.ApplyCRDs(ctx), m.CP.ApplyRights(ctx)); err != nil {
		return err
	}
	for _, ns := range machineNamespaces {
		if err := m.CP.BindHosts(ctx, ns); err != nil {
			return err
		}
	}
	if m.Machines, err = m.CP.NewMachineCluster(ctx, "default", "prod"); err != nil {
		return err
	}
	m.Kubeconfig = filepath.Join(m.Dir, "management.kubeconfig")
	if !o.Late {
		if err := m.WriteKubeconfig(); err != nil {
			return err
		}
	}
	for i, n := range m.Nodes {
		if err := m.configure(n, i < o.Managers, o.Section); err != nil {
			return err
		}
		if i >= o.Started {
			if err := n.Service.Kill(); err != nil {
				return err
			}
			continue
		}
		if !o.Strangers {
			if err := m.Machines.Create(ctx, OfNode(n, o.Hook)); err != nil {
				return err
			}
		}
		if err := m.System.Start(ctx, m.Lab, n); err != nil {
			return err
		}
	}
	return m.Stable(ctx)
}

// WriteKubeconfig gives the daemons their credentials, with the rights that the
// manifests give to them and no others.
func (m *MachineLab) WriteKubeconfig() error {
	made, err := m.CP.Kubeconfig(m.CP.address(m.CP.Host), Hosts)
	if err != nil {
		return err
	}
	return os.Rename(made, m.Kubeconfig)
}

// configure writes the configuration of a node, with the section machines if it reads
// the management cluster.
func (m *MachineLab) configure(n *lab.Node, manager bool, section string) error {
	if err := m.System.WriteConfig(m.Lab, n); err != nil || !manager {
		return err
	}
	file := m.System.Config(n)
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if section != "" {
		section = ", " + section
	}
	more := fmt.Sprintf("\nmachines: {kubeconfig: %s, namespaces: [%s]%s}\nsocket:", m.Kubeconfig, strings.Join(machineNamespaces, ", "), section)
	return os.WriteFile(file, []byte(strings.Replace(string(data), "\nsocket:", more, 1)), 0o600)
}

// MachineOf is the name of the Machine of a node.
func MachineOf(n *lab.Node) string { return OfNode(n, false).Name }

// Moved waits until another node than this one serves the VIP, and nothing else, and
// tells when this one last claimed it on the wire.
func (m *MachineLab) Moved(ctx context.Context, from *lab.Node, vip netip.Addr, since measure.Time) (withdrawn time.Duration, err error) {
	err = Eventually(ctx, waitLimit, vip.String()+" has moved", func() error {
		if _, ok := measure.Takeover(m.Eyes.Frames(), vip.String(), from.MAC, since); !ok {
			return errors.New("no other node has claimed it")
		}
		names := m.Eyes.Claimants(vip, 400*time.Millisecond)
		if len(names) != 1 || names[0] == from.Name {
			return fmt.Errorf("it is claimed by %v", names)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	last, ok := measure.LastClaim(m.Eyes.Frames(), vip.String(), from.MAC, since, measure.Now())
	if !ok {
		return 0, nil // it had gone before anybody could ask
	}
	return last.Sub(since), nil
}

// waitLimit is for a machine that does much else.
const waitLimit = 60 * time.Second

// Serves waits until the node alone serves the VIP.
func (m *MachineLab) Serves(ctx context.Context, n *lab.Node, vip netip.Addr) error {
	return Eventually(ctx, waitLimit, n.Name+" serves "+vip.String(), func() error {
		if names := m.Eyes.Claimants(vip, 400*time.Millisecond); len(names) != 1 || names[0] != n.Name {
			return fmt.Errorf("it is claimed by %v", names)
		}
		return nil
	})
}

// Draining waits until the daemon of a node says that it drains, or does not.
func (m *MachineLab) Draining(ctx context.Context, n *lab.Node, want bool) error {
	return Eventually(ctx, waitLimit, fmt.Sprintf("%s says draining: %v", n.Name, want), func() error {
		st, err := m.System.Status(ctx, m.Lab, n)
		if err == nil && st.Draining != want {
			err = fmt.Errorf("it says %v", st.Draining)
		}
		return err
	})
}

// Unfit waits until the daemon of a node says that its service fails.
func (m *MachineLab) Unfit(ctx context.Context, n *lab.Node, vip netip.Addr) error {
	return Eventually(ctx, waitLimit, n.Name+" is not healthy", func() error {
		st, err := m.System.Status(ctx, m.Lab, n)
		if err != nil {
			return err
		}
		for _, v := range st.VIPs {
			if v.Address == vip && v.Healthy {
				return errors.New("its check passes")
			}
		}
		return nil
	})
}

// Unserved are the attempts of clients that failed since a moment, of both families.
func (m *MachineLab) Unserved(since measure.Time) (attempts, failed int, causes map[string]int) {
	causes = map[string]int{}
	for _, v := range m.Eyes.VIPs {
		r := m.Eyes.Reach(v, since, measure.Now().Add(-probeLimit))
		attempts, failed = attempts+r.Attempts, failed+r.Failed
		for c, n := range r.Errors {
			causes[c] += n
		}
	}
	return attempts, failed, causes
}

// probeLimit is after how long an attempt has ended one way or the other.
const probeLimit = 500 * time.Millisecond

// Replace plays one step of a rollout with surge: the new host joins and is ready, then
// the Machine of the old one is retired and the host ends.
func (m *MachineLab) Replace(ctx context.Context, old, next *lab.Node) error {
	if err := m.Join(ctx, next); err != nil {
		return err
	}
	return m.Retire(ctx, old)
}

// Join has a host become a Machine that is held by the hook of lbd.
func (m *MachineLab) Join(ctx context.Context, n *lab.Node) error {
	if err := m.Boot(ctx, n); err != nil {
		return err
	}
	return errors.Join(m.Machines.Create(ctx, OfNode(n, true)), m.Stable(ctx))
}

// Boot starts what runs on a host.
func (m *MachineLab) Boot(ctx context.Context, n *lab.Node) error {
	if !n.Service.Alive() {
		if err := m.StartService(ctx, n); err != nil {
			return err
		}
	}
	return m.System.Start(ctx, m.Lab, n)
}

// Retire has the Machine of a host be deleted and its API server die when nothing holds
// that any more; then the host ends.
func (m *MachineLab) Retire(ctx context.Context, old *lab.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 2*waitLimit)
	defer cancel()
	return errors.Join(m.Machines.Retire(ctx, MachineOf(old), old.Service.Kill), old.Daemon.Kill())
}

// Balance starts a controller and has it serve a balancer whose members are the hosts. Its
// address is the one that these have by their files. hold bounds how long a deletion is
// held; 0: the default.
func (m *MachineLab) Balance(ctx context.Context, hold time.Duration) error {
	drain := ""
	if hold > 0 {
		drain = fmt.Sprintf("  drain: {timeout: %s}\n", hold)
	}
	err := errors.Join(m.StartSteward(ctx), m.CP.Apply(ctx, fmt.Sprintf(`apiVersion: lbd.dev/v1alpha1
kind: MachineLoadBalancer
metadata: {name: hosts, namespace: %s}
spec:
  clusterName: %s
  address: %s
%s`, m.Machines.Namespace, m.Machines.Name, lab.VIP4(), drain)))
	if err != nil {
		return err
	}
	return Eventually(ctx, waitLimit, "daemons report about the balancer", func() error {
		by, err := m.CP.Kubectl(ctx, "-n", m.Machines.Namespace, "get", "mlb", "hosts", "-o", "jsonpath={.status.reportedBy}")
		if err == nil && by == "" {
			err = errors.New("none does")
		}
		return err
	})
}

// StartSteward starts the controller that serves the MachineLoadBalancers of the
// management cluster.
func (m *MachineLab) StartSteward(ctx context.Context) error {
	kubeconfig, err := m.CP.Kubeconfig(m.CP.address(m.CP.Host), Controller)
	if err != nil {
		return err
	}
	const http = "127.0.0.1:7478"
	s := &Server{
		Name: "lbd-controller", Host: m.CP.Host, lab: m.Lab,
		argv: []string{m.Bin.LBD, "controller", "--machines", "--kubeconfig=" + kubeconfig, "--namespace=" + InstallNamespace, "--http=" + http},
		ready: func(ctx context.Context) error {
			_, err := get(ctx, m.Lab, m.CP.Host, "http://"+http+"/readyz", nil)
			return err
		},
	}
	return s.Start(ctx)
}
