package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"lbd.dev/lbd/tests/lab"
)

// VIP is the address of the control plane in docs/control-plane.md.
func VIP() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, 200}) }

// The LAN of all pages, and that of the masters behind a box.
const (
	gateway      = 1  // 10.0.0.1
	firstMachine = 11 // 10.0.0.11 is m1
	clientNumber = 50
	boxNumber    = 2 // in both LANs
)

func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

func behindBox(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, 0, byte(n)}) }

// Cluster is some machines and a client on one LAN.
type Cluster struct {
	Parts    *Parts
	Machines []*Machine
	Client   *lab.Host // a machine on the LAN that is not in the cluster
	// Port is that of the VIP, set before Init. 0: 6443, that of the API servers.
	Port uint16

	Dir    string // of everything
	prefix string
	stop   func() error // of the supervisor
	close  sync.Once
	closed error

	kubernetes
}

// New makes n machines, called m1 and so on, that have no power yet, after sweeping
// what dead clusters left. The caller must Close it; should its process die first, a
// supervisor does.
func New(ctx context.Context, parts *Parts, n int) (*Cluster, error) {
	var machines []*Machine
	for i := range n {
		machines = append(machines, &Machine{Name: fmt.Sprintf("m%d", i+1), Address: address(firstMachine + i)})
	}
	return newCluster(ctx, parts, machines)
}

// NewBehindBox is New with the network of docs/box.md. The machines are in a LAN of their own, behind one
// more machine, the last one, which is called box1.
func NewBehindBox(ctx context.Context, parts *Parts, n int) (*Cluster, error) {
	var machines []*Machine
	for i := range n {
		machines = append(machines, &Machine{Name: fmt.Sprintf("m%d", i+1), Address: behindBox(firstMachine + i)})
	}
	return newCluster(ctx, parts, append(machines, &Machine{Name: "box1", Address: address(boxNumber), inner: behindBox(boxNumber)}))
}

func newCluster(ctx context.Context, parts *Parts, machines []*Machine) (*Cluster, error) {
	if err := errors.Join(Usable(), Sweep(ctx), allowWatches()); err != nil {
		return nil, err
	}
	prefix, err := lab.NewPrefix()
	if err != nil {
		return nil, err
	}
	folders, err := machineFolders()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Parts: parts, prefix: prefix, Dir: filepath.Join(folders[0], prefix), Machines: machines}
	if c.stop, err = supervise(prefix); err != nil {
		return nil, err
	}
	if err := c.build(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// allowWatches lets more watches of files be open than most computers do: kubelet and
// systemd need about 30 a machine, and all machines share what root has. It stays so.
func allowWatches() error {
	const file, enough = "/proc/sys/fs/inotify/max_user_instances", 1024
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n >= enough {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(enough)), 0); err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	return nil
}

func (c *Cluster) build(ctx context.Context) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	written := c.Dir
	if roomInMemory() {
		written = filepath.Join(memory, c.prefix)
		if err := os.Mkdir(written, 0o700); err != nil {
			return fmt.Errorf("cluster: %w", err)
		}
	}
	for i, m := range c.Machines {
		m.number, m.cluster, m.dir, m.written = i+1, c, filepath.Join(c.Dir, m.Name), filepath.Join(written, m.Name)
	}
	if err := c.buildSwitch(ctx); err != nil {
		return err
	}
	c.Client = &lab.Host{Name: "client", NS: c.namespace("client"), IP4: address(clientNumber)}
	if err := c.connect(ctx, c.Client.Name, c.Client.IP4, netip.Addr{}); err != nil {
		return err
	}
	for _, m := range c.Machines {
		if err := m.furnish(); err != nil {
			return err
		}
	}
	return nil
}

// Start powers all machines on and waits until systemd runs on each.
func (c *Cluster) Start(ctx context.Context) error {
	return atOnce(c.Machines, func(m *Machine) error { return m.Start(ctx) })
}

// atOnce does something with several machines, all at the same time.
func atOnce(machines []*Machine, do func(*Machine) error) error {
	errs := make([]error, len(machines))
	var wg sync.WaitGroup
	for i, m := range machines {
		wg.Go(func() { errs[i] = do(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Machine returns the machine of that name, or nil.
func (c *Cluster) Machine(name string) *Machine {
	for _, m := range c.Machines {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// Run runs a program of this computer on the client, to its end.
func (c *Cluster) Run(ctx context.Context, argv ...string) (string, error) {
	return command(ctx, nil, os.Environ(), append([]string{"ip", "netns", "exec", c.Client.NS}, argv...)...)
}

// Prefix begins the name of everything that the cluster makes.
func (c *Cluster) Prefix() string { return c.prefix }

// Close kills the machines and removes all of the cluster. It works without the
// cluster's context and may be called more than once.
func (c *Cluster) Close() error {
	c.close.Do(func() { c.closed = c.stop() })
	return c.closed
}

// KeepLogs copies what the machines have logged, whether they run or not, to a folder
// that outlives the cluster: the journal, the logs of containers and the console.
func (c *Cluster) KeepLogs(ctx context.Context, dir string) error {
	var errs []error
	for _, m := range c.Machines {
		to := filepath.Join(dir, m.Name)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return fmt.Errorf("logs: %w", err)
		}
		// The journal of a machine that lost its power can be read from outside only.
		journals := filepath.Join(m.written, "upper/var/log/journal")
		for name, unit := range map[string][]string{"journal.log": nil, "lbd.log": {"--unit=lbd"}, "kubelet.log": {"--unit=kubelet"}} {
			argv := append([]string{filepath.Join(c.Parts.debian, "usr/bin/journalctl"), "--directory=" + journals, "--output=short-precise", "--no-pager"}, unit...)
			out, err := command(ctx, nil, append(os.Environ(), libraries(c.Parts.debian)), argv...)
			errs = append(errs, err, os.WriteFile(filepath.Join(to, name), []byte(out), 0o644))
		}
		pods := filepath.Join(m.written, "upper/var/log/pods")
		if _, err := os.Stat(pods); err == nil {
			_, err = command(ctx, nil, os.Environ(), "cp", "-r", pods, to)
			errs = append(errs, err)
		}
		console, err := os.ReadFile(filepath.Join(m.dir, "console"))
		if err == nil {
			errs = append(errs, os.WriteFile(filepath.Join(to, "console.log"), console, 0o644))
		}
	}
	return errors.Join(errs...)
}

// names are the lines of /etc/hosts.
func (c *Cluster) names() string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n")
	for _, m := range c.Machines {
		fmt.Fprintf(&b, "%s %s\n", m.Address, m.Name)
	}
	return b.String()
}
