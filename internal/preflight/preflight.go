// Package preflight checks whether a node can do what its configuration asks for. It changes
// nothing, and may run beside the daemon.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/gossip"
	"lbd.dev/lbd/internal/layer2"
	"lbd.dev/lbd/internal/link"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// Run prints a line for each check of a valid configuration, which was read from path. status is
// what the daemon of this node says; nil: none runs. An error says how many checks failed.
func Run(ctx context.Context, out io.Writer, cfg *config.Config, path string, status *v1alpha1.NodeStatus) error {
	p := &preflight{out: out, cfg: cfg, running: status != nil}
	if p.running {
		p.status = *status
	}
	p.say(ok, "configuration", "%s is valid", path)
	p.capabilities()
	p.files(readers("/"))
	p.ports()
	p.vips(ctx)
	p.peers(ctx)
	return p.result()
}

// preflight prints a line for each check.
type preflight struct {
	out     io.Writer
	cfg     *config.Config
	running bool                // a daemon runs on this node
	status  v1alpha1.NodeStatus // what it says
	failed  int
}

type verdict string

const (
	ok   verdict = "ok"
	warn verdict = "warning"
	fail verdict = "FAILED"
)

func (p *preflight) say(v verdict, what, format string, args ...any) {
	if v == fail {
		p.failed++
	}
	fmt.Fprintf(p.out, "%-8s %-22s %s\n", v, what, fmt.Sprintf(format, args...))
}

// result is an error if a check failed; a warning is none.
func (p *preflight) result() error {
	switch p.failed {
	case 0:
		return nil
	case 1:
		return errors.New("a check failed")
	}
	return fmt.Errorf("%d checks failed", p.failed)
}

// capabilities looks at those of this process, so it must run as the daemon does.
func (p *preflight) capabilities() {
	if unable := MissingCapabilities(); unable != "" {
		p.say(fail, "capabilities", "%s", unable)
		return
	}
	p.say(ok, "capabilities", "CAP_NET_ADMIN and CAP_NET_RAW")
}

// MissingCapabilities says what this process must be given; "" if nothing.
func MissingCapabilities() string {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "" // no procfs: let the kernel speak
	}
	var have uint64
	for line := range strings.Lines(string(data)) {
		if hex, found := strings.CutPrefix(line, "CapEff:"); found {
			have, _ = strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	var missing []string
	for _, c := range []struct {
		bit  uint // linux/capability.h
		name string
	}{{12, "CAP_NET_ADMIN"}, {13, "CAP_NET_RAW"}} {
		if have&(1<<c.bit) == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return "missing " + strings.Join(missing, " and ") + "; run as root, or as the unit of `lbd manifest systemd` does"
}

// ports tries what the daemon will bind, unless it runs already.
func (p *preflight) ports() {
	if p.running {
		p.say(ok, "ports", "not tried: the daemon runs and has them")
		return
	}
	bind, err := p.bindAddress()
	if err != nil {
		p.say(fail, "gossip address", "%v", err)
		return
	}
	at := netip.AddrPortFrom(bind, p.cfg.Node.Gossip.Port).String()
	if err := bindable("udp", at); err != nil {
		p.say(fail, "gossip port", "udp %s: %v", at, err)
	} else if err := bindable("tcp", at); err != nil {
		p.say(fail, "gossip port", "tcp %s: %v", at, err)
	} else {
		p.say(ok, "gossip port", "%s is free, UDP and TCP", at)
	}
	for _, l := range []struct{ what, at string }{{"http port", p.cfg.Node.HTTPAddress}, {"metrics port", p.cfg.Node.Metrics.Address}} {
		if l.at == "" {
			continue
		}
		if err := bindable("tcp", l.at); err != nil {
			p.say(warn, l.what, "%s: %v; the daemon runs without /metrics until it is free", l.at, err)
		} else {
			p.say(ok, l.what, "%s is free", l.at)
		}
	}
}

// bindAddress is the address that gossip speaks from.
func (p *preflight) bindAddress() (netip.Addr, error) {
	if g := p.cfg.Node.Gossip; !g.BindAddress.IsValid() {
		return config.DefaultAddress(g.Peers)
	}
	return p.cfg.Node.Gossip.BindAddress, nil
}

func bindable(network, at string) error {
	if network == "udp" {
		c, err := net.ListenPacket(network, at)
		if err != nil {
			return err
		}
		return c.Close()
	}
	l, err := net.Listen(network, at)
	if err != nil {
		return err
	}
	return l.Close()
}

// vips looks at the place of each VIP and asks the wire for it.
func (p *preflight) vips(ctx context.Context) {
	links, err := link.Snapshot()
	if err != nil {
		p.say(fail, "interfaces", "%v", err)
		return
	}
	p.listeners(links)
	seen := map[string]bool{}
	rings := p.rings(links)
	all := place.LinksOf(links)
	for _, v := range p.cfg.VIPs {
		if len(v.BGP) > 0 {
			p.routers(&v)
		}
		if !v.L2 {
			if !v.Learned() {
				rings(&v, "")
			}
			continue // it is bound on lo, whatever the subnets
		}
		l, where := all.Find(&v, "")
		if !where.Reason.Eligible() {
			p.say(fail, v.Addr.String(), "%s: %s", where.Reason, where.Detail)
			continue
		}
		p.say(ok, v.Addr.String(), "goes to %s", l.Name)
		p.wire(ctx, l.Name, v.Addr)
		if !v.Learned() { // masters have the connections
			rings(&v, l.Name)
		}
		if v.Forwarded() {
			p.forwards(&v, l.Name)
		}
		if !seen[l.Name] {
			seen[l.Name] = true
			p.sysctls(l.Name, place.Beside(links, l.Name))
		}
	}
	if len(p.cfg.VIPs) == 0 {
		p.say(warn, "VIPs", "none is configured")
	}
}

// routers tells which BGP peers of this node would have the VIP, and whether one
// of them listens.
func (p *preflight) routers(v *model.VIP) {
	peers := audience.PeersOf(p.cfg.Peers, p.cfg.Node.Labels, v)
	if len(peers) == 0 {
		p.say(fail, v.Addr.String(), "no BGP peer of this node is told: add a BGPPeer, or see spec.advertise.bgp.peers and nodeSelectors")
		return
	}
	for _, r := range peers {
		if r.Passive {
			p.say(ok, v.Addr.String(), "goes to BGP peer %s, which connects to this node", r.Name)
			continue
		}
		to := net.JoinHostPort(r.Address.String(), strconv.Itoa(int(r.Port)))
		c, err := net.DialTimeout("tcp", to, time.Second)
		switch {
		case r.Password != "":
			p.say(ok, v.Addr.String(), "goes to BGP peer %s at %s, which with a password cannot be tried from here", r.Name, to)
		case err != nil:
			p.say(warn, v.Addr.String(), "goes to BGP peer %s, but nobody answers: %v", r.Name, err)
		default:
			p.say(ok, v.Addr.String(), "goes to BGP peer %s, which listens at %s", r.Name, to)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}

func (p *preflight) wire(ctx context.Context, iface string, a netip.Addr) {
	r, err := layer2.Probe(ctx, slog.New(slog.DiscardHandler), iface, a)
	if err != nil {
		p.say(fail, a.String(), "cannot be asked for on %s: %v", iface, err)
		return
	}
	p.answered(iface, a, &r)
}

// answered judges what the wire said, by what the daemon knows. This node does not answer
// its own question.
func (p *preflight) answered(iface string, a netip.Addr, r *model.ProbeResult) {
	owner, duplicate := "", ""
	for _, v := range p.status.VIPs {
		if v.Address == a.String() && v.Mode == "l2" {
			owner, duplicate = v.Owner, v.Duplicate
		}
	}
	switch {
	case r.Answered && owner != "" && owner == p.status.Node:
		p.say(fail, a.String(), "%s answers for it, although this node owns it: remove the address from that host", r.By)
	case duplicate != "":
		p.say(fail, a.String(), "%s answers for it beside its owner, %s: remove the address from that host", duplicate, owner)
	case !r.Answered:
		p.say(ok, a.String(), "nobody on %s answers for it", iface)
	case owner != "":
		p.say(ok, a.String(), "%s answers for it; its owner is %s", r.By, owner)
	default:
		p.say(warn, a.String(), "%s answers for it: an lbd node that owns it already, or a host that must not", r.By)
	}
}

// sysctls that keep an address from being reached. The greater value of all and
// the interface counts (Documentation/networking/ip-sysctl.rst).
func (p *preflight) sysctls(iface string, beside []string) {
	ignore := effective("arp_ignore", iface)
	switch {
	case ignore < 0:
		p.say(warn, "arp_ignore", "cannot be read")
	case ignore == 2:
		p.say(ok, "arp_ignore", "2 on %s: hosts and routers of its subnets are answered, nobody else is", iface)
	case len(beside) > 0:
		p.say(warn, "arp_ignore", "%d on %s: %s on the same LAN answers for its addresses, too; set net.ipv4.conf.all.arp_ignore=1", ignore, iface, strings.Join(beside, ", "))
	default:
		p.say(ok, "arp_ignore", "%d on %s", ignore, iface)
	}
	switch announce := effective("arp_announce", iface); {
	case announce < 0:
		p.say(warn, "arp_announce", "cannot be read")
	default:
		p.say(ok, "arp_announce", "%d on %s; lbd keeps VIPs it has handed over out of ARP with any value", announce, iface)
	}
	switch filter := effective("rp_filter", iface); filter {
	case 1:
		p.say(ok, "rp_filter", "1 (strict) on %s: clients must be routed through the interface that they come in by", iface)
	default:
		p.say(ok, "rp_filter", "%d on %s", filter, iface)
	}
}

// effective is the greater of conf/all and conf/IFACE; -1 if it cannot be read.
func effective(name, iface string) int {
	best := -1
	for _, conf := range []string{"all", iface} {
		b, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv4/conf", conf, name))
		if err != nil {
			return -1
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			return -1
		}
		best = max(best, n)
	}
	return best
}

// peers asks each peer for an answer that only the same key and label give.
func (p *preflight) peers(ctx context.Context) {
	g := p.cfg.Node.Gossip
	if len(g.Peers) == 0 {
		p.say(warn, "peers", "none is configured: this node is alone")
		return
	}
	bind, err := p.bindAddress()
	if err != nil {
		p.say(fail, "peers", "%v", err)
		return
	}
	results, err := gossip.Reach(ctx, gossip.Options{
		Logger: slog.New(slog.DiscardHandler), Name: "preflight", BindAddr: bind, Peers: p.cfg.PeerNames(),
		Label: g.Label, Keys: g.Keys, Insecure: g.Insecure, Detection: gossip.Detection(g.Detection),
	})
	if err != nil {
		p.say(fail, "peers", "%v", err)
		return
	}
	for _, r := range results {
		switch {
		case r.Self:
		case r.Err == nil:
			p.say(ok, "peer "+r.Peer, "answers in %s with the same key", r.RTT)
		case errors.Is(r.Err, gossip.ErrNotListening):
			p.say(warn, "peer "+r.Peer, "%v; it may not run yet", r.Err)
		default:
			p.say(fail, "peer "+r.Peer, "%v", r.Err)
		}
	}
}
