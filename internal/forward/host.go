package forward

import (
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
	is, err := os.ReadFile(filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/")))
	return strings.TrimSpace(string(is)), err
}
