package preflight

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lbd.dev/lbd/internal/model"
)

// hashFields are the addresses, the protocol and the ports of a packet, by which connections are
// spread (FIB_MULTIPATH_HASH_FIELD_*).
const hashFields = 0x37

// spreads tells of a BGPListener what keeps this machine from sending packets on to masters, and
// from spreading connections as other machines do. root is where /proc is; near are the interfaces
// on which masters are, and clients those on which VIPs of masters are answered for.
func (p *preflight) spreads(l *model.BGPListener, root string, near, clients []string) {
	part := "BGPListener " + l.Name
	bad := false
	look := func(name, without string, how verdict, good func(int64) bool, want string) {
		is, err := os.ReadFile(filepath.Join(root, "proc/sys", name))
		n, perr := strconv.ParseInt(strings.TrimSpace(string(is)), 0, 64)
		if err == nil && perr == nil && good(n) {
			return
		}
		bad = true
		name = strings.ReplaceAll(strings.ReplaceAll(name, ".", "\x00"), "/", ".")
		name = strings.ReplaceAll(name, "\x00", "/") // sysctl writes an interface with a dot like that
		if err != nil {
			p.say(warn, part, "%s is not there: %s", name, without)
			return
		}
		p.say(how, part, "%s is %s: %s; set %s=%s", name, strings.TrimSpace(string(is)), without, name, want)
	}
	is := func(want int64) func(int64) bool { return func(n int64) bool { return n == want } }
	no := func(bad int64) func(int64) bool { return func(n int64) bool { return n != bad } }
	for _, family := range []string{"ipv4", "ipv6"} {
		if !slices.ContainsFunc(l.Accept, prefixOf(family)) {
			continue
		}
		forwarding := "net/ipv4/ip_forward"
		if family == "ipv6" {
			forwarding = "net/ipv6/conf/all/forwarding"
		}
		look(forwarding, "packets for masters are dropped", fail, no(0), "1")
		look("net/"+family+"/fib_multipath_hash_policy", "all connections of a client may go to one master, and another machine may choose another one", warn, is(3), "3")
		look("net/"+family+"/fib_multipath_hash_fields", "connections are spread by other fields than addresses, protocol and ports", warn, is(hashFields), "55")
		if family == "ipv4" {
			for _, iface := range near {
				if slices.Contains(clients, iface) {
					for _, conf := range []string{"all", iface} {
						look("net/ipv4/conf/"+conf+"/send_redirects", "clients on the LAN of the masters are told of a way past this machine", warn, is(0), "0")
					}
				}
			}
		}
	}
	if l.HashSeed != 0 {
		seed := strconv.FormatUint(uint64(l.HashSeed), 10)
		look("net/ipv4/fib_multipath_hash_seed", "it is not that of hashSeed, so after a move to another machine most connections land on another master", warn, is(int64(l.HashSeed)), seed)
	}
	if !bad {
		p.say(ok, part, "the kernel sends packets on to masters, and spreads them as other machines do")
	}
}

func prefixOf(family string) func(netip.Prefix) bool {
	return func(p netip.Prefix) bool { return p.Addr().Is4() == (family == "ipv4") }
}

// listeners looks at what the BGPListeners need.
func (p *preflight) listeners(links map[string]model.Link) {
	for i := range p.cfg.Listeners {
		l := &p.cfg.Listeners[i]
		var near, clients []string
		for name, x := range links {
			for _, own := range x.Prefixes {
				if slices.ContainsFunc(l.PeerPrefixes, own.Overlaps) && !own.Addr().IsLoopback() {
					near = append(near, name)
				}
				if slices.ContainsFunc(l.Accept, func(a netip.Prefix) bool { return own.Contains(a.Addr()) }) {
					clients = append(clients, name)
				}
			}
		}
		slices.Sort(near)
		slices.Sort(clients)
		p.spreads(l, "/", slices.Compact(near), slices.Compact(clients))
	}
}
