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

// buildSwitch makes both LANs: bridges in a namespace of their own, one with the address of
// the router, which leads nowhere. The router behind a box is the box.
func (c *Cluster) buildSwitch(ctx context.Context) error {
	if _, err := command(ctx, nil, os.Environ(), "ip", "netns", "add", c.namespace("switch")); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	batch := "link set lo up\n"
	for _, a := range []netip.Addr{address(gateway), behindBox(gateway)} {
		batch += fmt.Sprintf("link add %[1]s type bridge stp_state 0 forward_delay 0 mcast_snooping 0\nlink set %[1]s up\n", bridge(a))
	}
	batch += fmt.Sprintf("addr add %s/24 dev %s\n", address(gateway), bridge(address(gateway)))
	if err := c.ip(ctx, "switch", batch); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	return nil
}

// bridge is the LAN of an address.
func bridge(a netip.Addr) string { return fmt.Sprintf("br%d", a.As4()[1]) }

// router is the default gateway of a machine with an address.
func router(a netip.Addr) netip.Addr {
	b := a.As4()
	b[3] = gateway
	return netip.AddrFrom4(b)
}

// connect makes the network namespace of a machine, as new as that of a machine which
// is switched on, and plugs its cable in, and one for the inner address unless that is zero.
func (c *Cluster) connect(ctx context.Context, name string, a, inner netip.Addr) error {
	if err := c.disconnect(ctx, name); err != nil {
		return err
	}
	if _, err := command(ctx, nil, os.Environ(), "ip", "netns", "add", c.namespace(name)); err != nil {
		return fmt.Errorf("%s: network: %w", name, err)
	}
	own := "link set lo up\n"
	for i, at := range []netip.Addr{a, inner} {
		if !at.IsValid() {
			continue
		}
		port := "p-" + name + strings.Repeat("-in", i)
		err := c.ip(ctx, "switch", fmt.Sprintf("link add %[1]s type veth peer name eth%[2]d address %[3]s netns %[4]s\nlink set %[1]s master %[5]s up\n",
			port, i, hardware(at), c.namespace(name), bridge(at)))
		if err != nil {
			return fmt.Errorf("%s: network: %w", name, err)
		}
		own += fmt.Sprintf("addr add %s/24 dev eth%[2]d\nlink set eth%[2]d up\n", at, i)
	}
	own += fmt.Sprintf("route add default via %s\n", router(a))
	for _, m := range c.Machines { // the network of Pods, without an overlay
		if m.Address != a && bridge(m.Address) == bridge(a) {
			own += fmt.Sprintf("route add 10.244.%d.0/24 via %s\n", m.number, m.Address)
		}
	}
	if err := c.ip(ctx, name, own); err != nil {
		return fmt.Errorf("%s: network: %w", name, err)
	}
	return nil
}

// disconnect removes a machine's network namespace with all that is in it; none is no
// error. The cables go first: the namespace lives on while a process is in it.
func (c *Cluster) disconnect(ctx context.Context, name string) error {
	if _, err := os.Stat("/run/netns/" + c.namespace(name)); err != nil {
		return nil
	}
	for _, port := range []string{name, name + "-in"} {
		_ = c.ip(ctx, "switch", "link del p-"+port+"\n") // it may be gone already
	}
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
func hardware(a netip.Addr) string {
	b := a.As4()
	return fmt.Sprintf("02:0a:00:00:%02x:%02x", b[1], b[3])
}
