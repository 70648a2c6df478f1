package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// nodeIf is the name of the only interface in a node, the client and the observer.
const nodeIf = "eth0"

// VIP4 and VIP6 are the addresses that the daemons keep reachable.
func VIP4() netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, 200}) }

// VIP6 is the IPv6 one.
func VIP6() netip.Addr { return host6(0x200) }

func host4(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(n)}) }

// host6 puts n into the last two bytes of fd77::/64.
func host6(n int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 14: byte(n >> 8), 15: byte(n)})
}

// Host is one machine on the LAN: a namespace with eth0, whose other end is a
// port of the switch.
type Host struct {
	Name string
	NS   string
	MAC  string
	IP4  netip.Addr
	IP6  netip.Addr
	Dir  string // for configuration, sockets and logs
	port string // its port on the switch
}

// Node is a host that runs a daemon under test and the service behind the VIP.
type Node struct {
	Host
	Daemon  *Proc
	Service *Proc
	log     *logPipe
	// LBD is the program of this node, for its daemon and for commands; empty is that
	// of Bin.
	LBD    string
	starts int // of the daemon, so that each start can have its own pid file
}

// Lab is the network. It is not safe for concurrent use, apart from Close.
type Lab struct {
	Bin   *Bin
	Dir   string
	Nodes []*Node
	// Backends are machines without lbd, with the service of the nodes; see AddBackends.
	Backends []*Node
	Client   *Host
	Watch    *Host // the observer

	prefix  string
	pki     *pki
	janitor *Proc
	pipe    io.WriteCloser // to the janitor; it cleans up when this closes
	close   sync.Once
	closed  error
}

// Usable tells whether a lab can be built here, and if not, why.
func Usable() error {
	if os.Geteuid() != 0 {
		return errors.New("lab: needs root: it makes network namespaces")
	}
	for _, tool := range []string{"ip", "bridge", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("lab: %q is missing: apt-get install iproute2 nftables", tool)
		}
	}
	return nil
}

// New builds the network for n nodes, after sweeping what dead labs left. The
// caller must Close it; should it die first, a janitor process does.
func New(ctx context.Context, bin *Bin, n int) (*Lab, error) {
	if err := errors.Join(Usable(), Sweep(ctx)); err != nil {
		return nil, err
	}
	prefix, err := NewPrefix()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", prefix+"-")
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	l := &Lab{Bin: bin, Dir: dir, prefix: prefix}
	if err := l.build(ctx, n); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) build(ctx context.Context, n int) error {
	if err := l.startJanitor(); err != nil {
		return err
	}
	if err := l.buildSwitch(ctx); err != nil {
		return err
	}
	var names []string
	for i := range n {
		h, err := l.AddHost(ctx, fmt.Sprintf("m%d", i+1), 11+i)
		if err != nil {
			return err
		}
		l.Nodes = append(l.Nodes, &Node{Host: *h})
		names = append(names, h.Name)
	}
	var err error
	if l.Client, err = l.AddHost(ctx, "client", 100); err != nil {
		return err
	}
	if l.Watch, err = l.AddHost(ctx, "watch", 250); err != nil {
		return err
	}
	l.pki, err = newPKI(l.Dir, names)
	return err
}

func (l *Lab) startJanitor() error {
	// The janitor reads from this pipe until every copy of the writing end is
	// closed; Go opens it close-on-exec, so only this process has one.
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("lab: janitor: %w", err)
	}
	defer r.Close()
	l.pipe = w
	p := &Proc{Name: "janitor", Log: filepath.Join(l.Dir, "janitor.log"), done: make(chan struct{})}
	p.cmd = exec.Command(l.Bin.Agent, "janitor", "-prefix", l.prefix)
	p.cmd.Stdin = r
	p.cmd.SysProcAttr = ownGroup()
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("lab: janitor: %w", err)
	}
	go func() { // ends with the janitor
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	l.janitor = p
	return nil
}

func (l *Lab) ns(name string) string { return l.prefix + "-" + name }

// Two bridges: br0 is the LAN; br1 is the far side of a LAN that fell apart.
func (l *Lab) buildSwitch(ctx context.Context) error {
	sw := l.ns("switch")
	if _, err := run(ctx, "", "ip", "netns", "add", sw); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	// No switch shows its frames to a firewall, as the kernel's bridge does.
	values := map[string]string{
		"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1",
		"bridge/bridge-nf-call-iptables": "0", "bridge/bridge-nf-call-ip6tables": "0", "bridge/bridge-nf-call-arptables": "0",
	}
	if err := sysctl(sw, values); err != nil {
		return err
	}
	script := `link set lo up
link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
link add br1 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
link set br0 up
link set br1 up
`
	if _, err := run(ctx, script, "ip", "-n", sw, "-batch", "-"); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	return nil
}

// AddHost adds a machine to the LAN with 10.77.0.n and fd77::n.
func (l *Lab) AddHost(ctx context.Context, name string, n int) (*Host, error) {
	h := &Host{
		Name: name, NS: l.ns(name), port: "p-" + name, IP4: host4(n), IP6: host6(n),
		MAC: fmt.Sprintf("02:77:00:00:00:%02x", n), Dir: filepath.Join(l.Dir, name),
	}
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("host %q: %w", name, err)
	}
	if _, err := run(ctx, "", "ip", "netns", "add", h.NS); err != nil {
		return nil, fmt.Errorf("host %q: %w", name, err)
	}
	// As on a real node: no forwarding. The rest is left at the kernel's defaults.
	// Over veth a packet keeps the hash of its socket, and routers that hash would send
	// it elsewhere after each time-out: no real network card does. A router that sends
	// advertisements, as FRR with extended next hops, would give a node a second address,
	// which the kernel prefers once it is probed, and which is no neighbor of any router.
	if err := sysctl(h.NS, map[string]string{"ipv4/ip_forward": "0", "core/txrehash": "0", "ipv6/conf/default/autoconf": "0"}); err != nil {
		return nil, fmt.Errorf("host %q: %w", name, err)
	}
	port := fmt.Sprintf(`link add %s type veth peer name %s address %s netns %s
link set %s master br0 up
`, h.port, nodeIf, h.MAC, h.NS, h.port)
	if _, err := run(ctx, port, "ip", "-n", l.ns("switch"), "-batch", "-"); err != nil {
		return nil, fmt.Errorf("host %q: %w", name, err)
	}
	own := fmt.Sprintf(`link set lo up
link set %[1]s up
addr add %[2]s/24 dev %[1]s
addr add %[3]s/64 dev %[1]s nodad
`, nodeIf, h.IP4, h.IP6)
	if _, err := run(ctx, own, "ip", "-n", h.NS, "-batch", "-"); err != nil {
		return nil, fmt.Errorf("host %q: %w", name, err)
	}
	return h, nil
}

// NodeByMAC names the host with the hardware address; the address itself if it
// is nobody's.
func (l *Lab) NodeByMAC(mac string) string {
	for _, n := range l.Nodes {
		if n.MAC == mac {
			return n.Name
		}
	}
	return mac
}

// Node returns the node of that name, or nil.
func (l *Lab) Node(name string) *Node {
	for _, n := range l.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Start starts a program on a host; its output goes to a log in the host's
// directory.
func (l *Lab) Start(h *Host, name string, out io.Writer, argv ...string) (*Proc, error) {
	return startProc(h.NS, h.Name+" "+name, filepath.Join(h.Dir, name+".log"), out, argv...)
}

// Exec runs a program on a host to its end.
func (l *Lab) Exec(ctx context.Context, h *Host, argv ...string) (string, error) {
	return run(ctx, "", append([]string{"ip", "netns", "exec", h.NS}, argv...)...)
}

// KeepLogs copies the whole log of every daemon to a directory, which outlives
// the lab.
func (l *Lab) KeepLogs(dir string) error {
	var errs []error
	for _, n := range l.Nodes {
		if n.Daemon == nil {
			continue
		}
		b, err := n.said()
		name := strings.ReplaceAll(n.Daemon.Name, " ", "-") + ".log"
		errs = append(errs, err, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	return errors.Join(errs...)
}

// Logs returns the last lines of every daemon, for a test that failed.
func (l *Lab) Logs(lines int) string {
	var b strings.Builder
	for _, n := range l.Nodes {
		if n.Daemon != nil {
			text, err := n.said()
			fmt.Fprintf(&b, "--- %s\n%s\n", n.Daemon.Name, tail(text, err, lines))
		}
	}
	return b.String()
}

// Close stops everything that the lab started and removes it. It is bounded in
// time, works without the lab's context and may be called more than once.
func (l *Lab) Close() error {
	l.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		l.closed = Remove(ctx, l.prefix)
		if l.pipe != nil {
			_ = l.pipe.Close()
		}
		if l.janitor != nil && l.janitor.Wait(10*time.Second) != nil {
			l.closed = errors.Join(l.closed, l.janitor.Kill())
		}
	})
	return l.closed
}
