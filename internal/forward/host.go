package forward

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// lacks is why the kernel forwards nothing, in words; empty if it does.
func (f *family) lacks() string {
	switch is, err := sysctl(f.forwards); {
	case err != nil:
		return "forward: " + err.Error()
	case is == "0":
		return f.forwards + " is 0; set it to 1"
	}
	return ""
}

// tracking are the switches of connection tracking that a VIP needs when it moves with its
// connections, and what is lost without. By the first one a connection is taken up in its
// midst. The other one lets go on what a node has tracked before, that meanwhile went by
// another one: what it has missed counts as out of the window, and would be dropped.
var tracking = []struct{ name, without string }{
	{"net.netfilter.nf_conntrack_tcp_loose", "open connections end when a VIP moves to this node"},
	{"net.netfilter.nf_conntrack_tcp_be_liberal", "open connections stall when a VIP comes back to this node after its owner has died"},
}

// warn says once what open connections lack if a VIP moves.
func (d *Driver) warn(wanted bool) {
	if !wanted {
		return
	}
	for _, s := range tracking {
		if is, err := sysctl(s.name); err == nil && is == "0" && !d.warned[s.name] {
			d.warned[s.name] = true
			d.log.Warn("a switch of the kernel is off", "name", s.name, "reason", s.without+"; set it to 1")
		}
	}
}

// sysctl reads a switch of the kernel.
func sysctl(name string) (string, error) {
	// As with sysctl(8), a dot of the name of an interface is written as a slash.
	path := strings.NewReplacer(".", "/", "/", ".").Replace(name)
	is, err := os.ReadFile(filepath.Join("/proc/sys", path))
	return strings.TrimSpace(string(is)), err
}

// Switch is a switch of the kernel (sysctl) that has another value than forwarding needs.
type Switch struct {
	Name, Want string
	// Without is what happens, in words. Required: nothing is forwarded.
	Without  string
	Required bool
}

// Unset lists the switches that are to be set on this host for a VIP that comes in by the
// interface. One that cannot be read is passed over.
func Unset(vip netip.Addr, iface string) (out []Switch) {
	look := func(name, bad string, s Switch) {
		if is, err := sysctl(name); err == nil && is == bad {
			s.Name = name
			out = append(out, s)
		}
	}
	look(families[familyOf(vip)].forwards, "0", Switch{Want: "1", Without: "nothing is forwarded", Required: true})
	for _, s := range tracking {
		look(s.name, "0", Switch{Want: "1", Without: s.without})
	}
	if vip.Is4() { // either of the two is enough
		for _, conf := range []string{"all", iface} {
			look("net.ipv4.conf."+strings.ReplaceAll(conf, ".", "/")+".send_redirects", "1", Switch{Want: "0", Without: "clients on the LAN of the servers are told of a way past this node"})
		}
	}
	return out
}
