package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/nft"
	"lbd.dev/lbd/internal/sockdiag"
)

// mostLines bounds a table of the kernel: a host may have the routes of the whole Internet.
const mostLines = 5000

// Kernel are the parts with facts about this host. Each has limit for itself.
func Kernel(limit time.Duration) []Part {
	table := func(name string, write func(l *lines) error) Part {
		return Part{Names: []string{name}, Limit: limit, Collect: func(_ context.Context, to *Sink) error {
			l := &lines{to: to.Writer(name)}
			err := write(l)
			if l.more > 0 {
				fmt.Fprintf(l.to, "and %d more\n", l.more)
			}
			return err
		}}
	}
	return []Part{
		table("kernel/host.txt", host),
		table("kernel/links.txt", links),
		table("kernel/addresses.txt", addresses),
		table("kernel/routes.txt", routes),
		table("kernel/rules.txt", rules),
		table("kernel/neighbours.txt", neighbours),
		table("kernel/sysctls.txt", sysctls),
		table("kernel/conntrack.txt", conntrack),
		table("kernel/nftables.txt", func(l *lines) error {
			s := nft.New(limit)
			return errors.Join(s.Describe(l.to, "lbd"), s.Close())
		}),
	}
}

// lines writes the first of many lines and counts the others.
type lines struct {
	to      io.Writer
	n, more int
}

func (l *lines) add(format string, args ...any) {
	if l.n++; l.n > mostLines {
		l.more++
		return
	}
	fmt.Fprintf(l.to, format+"\n", args...)
}

// host tells what runs this node.
func host(l *lines) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	text := func(field [65]byte) string { return unix.ByteSliceToString(field[:]) }
	l.add("%s %s %s %s %s", text(u.Sysname), text(u.Nodename), text(u.Release), text(u.Version), text(u.Machine))
	l.add("time %s, user %d", time.Now().UTC().Format(time.RFC3339Nano), os.Geteuid())
	for _, file := range []string{"/etc/os-release", "/proc/uptime", "/proc/loadavg", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/meminfo", "/proc/self/cgroup"} {
		data, err := os.ReadFile(file)
		if err != nil {
			l.add("\n%s: %s", file, why(err))
			continue
		}
		l.add("\n%s:\n%s", file, strings.TrimSpace(string(data)))
	}
	return nil
}

func links(l *lines) error {
	all, err := netlink.LinkList()
	for _, k := range all {
		a := k.Attrs()
		l.add("%d: %s type %s state %s flags %s mtu %d mac %s master %d parent %d %s", a.Index, a.Name, k.Type(), a.OperState,
			strings.ReplaceAll(a.Flags.String(), "|", ","), a.MTU, a.HardwareAddr, a.MasterIndex, a.ParentIndex, traffic(a.Statistics))
	}
	return err
}

func traffic(s *netlink.LinkStatistics) string {
	if s == nil {
		return "not known"
	}
	return fmt.Sprintf("rx %d packets %d errors %d dropped, tx %d packets %d errors %d dropped", s.RxPackets, s.RxErrors, s.RxDropped, s.TxPackets, s.TxErrors, s.TxDropped)
}

// addresses have their lifetimes: those of lbd are finite.
func addresses(l *lines) error {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for _, a := range all {
		l.add("link %d: %s scope %s flags %#x valid %d s preferred %d s label %q", a.LinkIndex, a.IPNet, netlink.Scope(a.Scope), a.Flags, a.ValidLft, a.PreferedLft, a.Label)
	}
	return err
}

func routes(l *lines) error {
	return netlink.RouteListFilteredIter(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
		l.add("table %d %s", r.Table, r)
		return l.n < 100*mostLines
	})
}

func rules(l *lines) error {
	all, err := netlink.RuleList(netlink.FAMILY_ALL)
	for _, r := range all {
		l.add("%s", r)
	}
	return err
}

func neighbours(l *lines) error {
	all, err := netlink.NeighList(0, netlink.FAMILY_ALL)
	for _, n := range all {
		l.add("link %d: %s mac %s state %#x flags %#x", n.LinkIndex, n.IP, n.HardwareAddr, n.State, n.Flags)
	}
	return err
}

// switches are those that preflight and the drivers look at, as patterns below /proc/sys/net.
var switches = []string{
	"ipv4/ip_forward", "ipv4/ip_nonlocal_bind", "ipv4/ip_local_port_range", "ipv4/fib_multipath_hash_policy", "ipv4/tcp_mtu_probing",
	"ipv4/conf/*/arp_ignore", "ipv4/conf/*/arp_announce", "ipv4/conf/*/arp_filter", "ipv4/conf/*/rp_filter", "ipv4/conf/*/forwarding",
	"ipv4/conf/*/send_redirects", "ipv4/conf/*/accept_local", "ipv4/conf/*/src_valid_mark", "ipv4/conf/*/drop_gratuitous_arp",
	"ipv6/conf/*/disable_ipv6", "ipv6/conf/*/forwarding", "ipv6/conf/*/accept_ra", "ipv6/conf/*/accept_dad",
	"netfilter/nf_conntrack_tcp_loose", "netfilter/nf_conntrack_tcp_be_liberal", "netfilter/nf_conntrack_tcp_timeout_established",
	"netfilter/nf_conntrack_buckets", "netfilter/nf_conntrack_acct", "ipv4/vs/conntrack",
}

func sysctls(l *lines) error {
	const root = "/proc/sys"
	for _, pattern := range switches {
		files, err := filepath.Glob(filepath.Join(root, "net", pattern))
		if err != nil {
			return err
		}
		slices.Sort(files)
		for _, file := range files {
			value := ""
			data, err := os.ReadFile(file)
			if value = strings.TrimSpace(string(data)); err != nil {
				value = "cannot be read: " + why(err)
			}
			l.add("%s = %s", strings.TrimPrefix(file, root+"/"), value)
		}
	}
	return nil
}

func conntrack(l *lines) error {
	entries, limit, ok := sockdiag.Table()
	if !ok {
		l.add("this network namespace tracks no connections")
		return nil
	}
	l.add("%d connections of at most %d", entries, limit)
	return nil
}
