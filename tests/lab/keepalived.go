package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Keepalived is keepalived with VRRPv3, nopreempt, and a TCP check of the local
// service each second; everything else is default.
type Keepalived struct {
	Advert string // advert_int in seconds
}

// Name is "keepalived", or "keepalived-fast" with advertisements each 0.1 s.
func (s *Keepalived) Name() string {
	if s.Advert == "1" {
		return "keepalived"
	}
	return "keepalived-fast"
}

// Configuration describes the system for reports.
func (s *Keepalived) Configuration() string {
	return "VRRPv3, advert_int " + s.Advert + ", state BACKUP with nopreempt on every node, priorities 250, 200, 150, multicast, " +
		"track_script: TCP connect to 127.0.0.1:6443 each 1 s, fall and rise 1; everything else default; IPv4 only"
}

// VIPs is the IPv4 one only.
func (s *Keepalived) VIPs() []netip.Addr { return []netip.Addr{VIP4()} }

// Election is VRRP.
func (s *Keepalived) Election() []string { return []string{"ip protocol 112"} }

// priorityStep lets the backups wait for times that differ by a fifth of an advertisement (the
// skew of RFC 9568, 6.1). With neighbouring priorities two of them take the VIP together, and
// until the winner announces it again, after 5 s, its clients may be led to the loser.
const priorityStep = 50

const keepalivedConfig = `global_defs {
    router_id %[1]s
    vrrp_version 3
    script_user root
    enable_script_security
}
vrrp_script service {
    script "%[2]s"
    interval 1
    fall 1
    rise 1
}
vrrp_instance vip {
    state BACKUP
    nopreempt
    interface eth0
    virtual_router_id 77
    priority %[3]d
    advert_int %[4]s
    virtual_ipaddress { %[5]s/24 }
    track_script { service }
}
`

// check connects by the shell's own means, without a program in between.
const check = "#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/6443\n"

// Start writes the configuration and starts keepalived in the foreground. Each
// start has pid files of its own: keepalived refuses to start while the file of a
// killed one names a process that nobody has reaped yet.
func (s *Keepalived) Start(_ context.Context, l *Lab, n *Node) error {
	script, conf := filepath.Join(l.Dir, "check.sh"), filepath.Join(n.Dir, "keepalived.conf")
	if err := os.WriteFile(script, []byte(check), 0o700); err != nil {
		return fmt.Errorf("keepalived: %w", err)
	}
	text := fmt.Sprintf(keepalivedConfig, n.Name, script, 250-priorityStep*slices.Index(l.Nodes, n), s.Advert, VIP4())
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return fmt.Errorf("keepalived: %w", err)
	}
	n.starts++
	pid := filepath.Join(n.Dir, fmt.Sprintf("keepalived.%d", n.starts))
	// One log a start: Ready reads what this process said.
	p, err := l.Start(&n.Host, fmt.Sprintf("keepalived.%d", n.starts), nil,
		"keepalived", "-n", "-l", "-D", "-P", "-G", "-f", conf, "-p", pid+".pid", "-r", pid+".vrrp")
	if err != nil {
		return err
	}
	n.Daemon = p
	return nil
}

// Ready waits until the instance has taken a state and its check passes.
func (s *Keepalived) Ready(_ context.Context, _ *Lab, n *Node) error {
	if !n.Daemon.Alive() {
		return fmt.Errorf("%s: keepalived has ended", n.Name)
	}
	said := n.Daemon.Tail(1000)
	last := max(strings.LastIndex(said, "Entering BACKUP STATE"), strings.LastIndex(said, "Entering MASTER STATE"))
	if last < 0 || last < strings.LastIndex(said, "Entering FAULT STATE") {
		return fmt.Errorf("%s: neither BACKUP nor MASTER yet", n.Name)
	}
	return nil
}

// Drain does not exist: keepalived is stopped instead.
func (s *Keepalived) Drain(context.Context, *Lab, *Node) error { return ErrUnsupported }

// Undrain does not exist either.
func (s *Keepalived) Undrain(context.Context, *Lab, *Node) error { return ErrUnsupported }
