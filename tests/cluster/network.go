package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

func (c *Cluster) namespace(name string) string { return c.prefix + "-" + name }

// ip runs a batch of commands of iproute2 in a network namespace.
func (c *Cluster) ip(ctx context.Context, name, batch string) error {
	_, err := command(ctx, strings.NewReader(batch), os.Environ(), "ip", "-n", c.namespace(name), "-batch", "-")
	return err
}

// buildSwitch makes the LAN: a bridge in a namespace of its own, with the address of
// the router, which leads nowhere.
func (c *Cluster) buildSwitch(ctx context.Context) error {
	if _, err := command(ctx, nil, os.Environ(), "ip", "netns", "add", c.namespace("switch")); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	err := c.ip(ctx, "switch", fmt.Sprintf(`link set lo up
link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
link set br0 up
addr add %s/24 dev br0
`, address(gateway)))
	if err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	return nil
}

// connect makes the network namespace of a machine, as new as that of a machine which
// is switched on, and plugs its cable in.
func (c *Cluster) connect(ctx context.Context, name string, a netip.Addr) error {
	if err := c.disconnect(ctx, name); err != nil {
		return err
	}
	if _, err := command(ctx, nil, os.Environ(), "ip", "netns", "add", c.namespace(name)); err != nil {
		return fmt.Errorf("%s: network: %w", name, err)
	}
	err := c.ip(ctx, "switch", fmt.Sprintf("link add p-%[1]s type veth peer name eth0 address %[2]s netns %[3]s\nlink set p-%[1]s master br0 up\n",
		name, hardware(a), c.namespace(name)))
	if err != nil {
		return fmt.Errorf("%s: network: %w", name, err)
	}
	own := fmt.Sprintf("link set lo up\naddr add %s/24 dev eth0\nlink set eth0 up\nroute add default via %s\n", a, address(gateway))
	for _, m := range c.Machines { // the network of Pods, without an overlay
		if m.Address != a {
			own += fmt.Sprintf("route add 10.244.%d.0/24 via %s\n", m.number, m.Address)
		}
	}
	if err := c.ip(ctx, name, own); err != nil {
		return fmt.Errorf("%s: network: %w", name, err)
	}
	return nil
}

// disconnect removes a machine's network namespace with all that is in it; none is no
// error. The cable goes first: the namespace lives on while a process is in it.
func (c *Cluster) disconnect(ctx context.Context, name string) error {
	if _, err := os.Stat("/run/netns/" + c.namespace(name)); err != nil {
		return nil
	}
	_ = c.ip(ctx, "switch", "link del p-"+name+"\n") // it may be gone already
	if _, err := command(ctx, nil, os.Environ(), "ip", "netns", "del", c.namespace(name)); err != nil {
		return fmt.Errorf("%s: network: %w", name, err)
	}
	return nil
}

// CutLink pulls the cable of a machine: it loses its carrier.
func (m *Machine) CutLink(ctx context.Context) error {
	return m.cluster.ip(ctx, "switch", "link set p-"+m.Name+" down\n")
}

// RestoreLink plugs the cable in again.
func (m *Machine) RestoreLink(ctx context.Context) error {
	return m.cluster.ip(ctx, "switch", "link set p-"+m.Name+" up\n")
}

// Neighbor is the name of the machine to which an address leads the client by its ARP
// table, "" if to none.
func (c *Cluster) Neighbor(ctx context.Context, address netip.Addr) string {
	out, err := c.Run(ctx, "ip", "neigh", "show", address.String())
	if err != nil {
		return ""
	}
	for _, m := range c.Machines {
		if strings.Contains(out, "lladdr "+hardware(m.Address)+" ") {
			return m.Name
		}
	}
	return ""
}

// hardware is the hardware address of the machine with an address.
func hardware(a netip.Addr) string { return fmt.Sprintf("02:0a:00:00:00:%02x", a.As4()[3]) }
