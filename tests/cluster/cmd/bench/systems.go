package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

// system keeps the VIP of a cluster reachable.
type system interface {
	name() string
	describe() string
	// port of the VIP.
	port() uint16
	// install is done on every machine before kubeadm.
	install(context.Context, *cluster.Cluster) error
	// owner has the VIP.
	owner(context.Context, *cluster.Cluster) (*cluster.Machine, error)
	// leave takes the VIP from a machine before planned work, join lets it have it again.
	leave(context.Context, *cluster.Machine) error
	join(context.Context, *cluster.Machine) error
	// restart is an upgrade of the daemon itself.
	restart(context.Context, *cluster.Machine) error
}

// lbd is a unit with the configuration of docs/control-plane.md.
type lbd struct{}

func (lbd) name() string     { return "lbd" }
func (lbd) describe() string { return "the unit and the configuration of docs/control-plane.md" }
func (lbd) port() uint16     { return 6443 }

func (lbd) install(ctx context.Context, c *cluster.Cluster) error {
	return c.InstallUnit(ctx, c.Machines...)
}

func (lbd) owner(ctx context.Context, c *cluster.Cluster) (*cluster.Machine, error) {
	return c.Owner(ctx)
}

func (lbd) leave(ctx context.Context, m *cluster.Machine) error {
	_, err := m.Run(ctx, "lbd", "drain")
	return err
}

func (lbd) join(ctx context.Context, m *cluster.Machine) error {
	_, err := m.Run(ctx, "lbd", "undrain")
	return err
}

func (lbd) restart(ctx context.Context, m *cluster.Machine) error {
	_, err := m.Run(ctx, "systemctl", "restart", "lbd")
	return err
}

// keepalived is keepalived and HAProxy as kubeadm's own guide sets them up.
type keepalived struct{}

//go:embed keepalived
var files embed.FS

// proxyPort is that of HAProxy, in front of the API servers with 6443.
const proxyPort = 8443

func (keepalived) name() string { return "keepalived" }
func (keepalived) describe() string {
	return "keepalived and HAProxy of Debian 12 on the same machines, as in kubeadm's guide to high availability: " +
		"a script that asks for /healthz every 3 s (fall 10, rise 2), HAProxy asks each API server for /healthz every 2 s (fall 3)"
}
func (keepalived) port() uint16 { return proxyPort }

func (keepalived) install(ctx context.Context, c *cluster.Cluster) error {
	var servers strings.Builder
	for _, m := range c.Machines {
		fmt.Fprintf(&servers, "    server %s %s:6443 check verify none\n", m.Name, m.Address)
	}
	for i, m := range c.Machines {
		state, priority := "BACKUP", 100
		if i == 0 {
			state, priority = "MASTER", 101
		}
		values := strings.NewReplacer("@STATE@", state, "@PRIORITY@", fmt.Sprint(priority), "@VIP@", cluster.VIP().String(),
			"@PORT@", fmt.Sprint(proxyPort), "@SERVERS@", servers.String())
		for name, to := range map[string]string{
			"keepalived.conf": "/etc/keepalived/", "check_apiserver.sh": "/etc/keepalived/", "haproxy.cfg": "/etc/haproxy/",
		} {
			text, err := files.ReadFile("keepalived/" + name)
			if err != nil {
				return err
			}
			if err := m.WriteFile(to+name, []byte(values.Replace(string(text))), 0o755); err != nil {
				return err
			}
		}
		if _, err := m.Shell(ctx, "chmod 0644 /etc/keepalived/keepalived.conf\nsystemctl enable keepalived haproxy\nsystemctl restart keepalived haproxy"); err != nil {
			return err
		}
	}
	return nil
}

func (keepalived) owner(ctx context.Context, c *cluster.Cluster) (*cluster.Machine, error) {
	var owners []*cluster.Machine
	for _, m := range c.Machines {
		if !m.On() {
			continue
		}
		out, err := m.Run(ctx, "ip", "-o", "addr", "show", "to", cluster.VIP().String())
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(out) != "" {
			owners = append(owners, m)
		}
	}
	if len(owners) != 1 {
		return nil, fmt.Errorf("%d machines have the VIP", len(owners))
	}
	return owners[0], nil
}

// leave ends keepalived, which has no drain.
func (keepalived) leave(ctx context.Context, m *cluster.Machine) error {
	_, err := m.Run(ctx, "systemctl", "stop", "keepalived")
	return err
}

func (keepalived) join(ctx context.Context, m *cluster.Machine) error {
	_, err := m.Run(ctx, "systemctl", "start", "keepalived")
	return err
}

func (keepalived) restart(ctx context.Context, m *cluster.Machine) error {
	_, err := m.Run(ctx, "systemctl", "restart", "keepalived")
	return err
}

// waitOwner waits until one machine has the VIP.
func waitOwner(ctx context.Context, s system, c *cluster.Cluster) (*cluster.Machine, error) {
	var last error
	for range 600 {
		m, err := s.owner(ctx, c)
		if err == nil {
			return m, nil
		}
		last = err
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, errors.Join(errors.New("no owner within a minute"), last)
}
