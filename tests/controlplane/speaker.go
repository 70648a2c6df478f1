package controlplane

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"lbd.dev/lbd/tests/lab"
)

// speakerConfig is that of the ConfigMap, with what a namespace does not have: an
// environment, a service account and a /run of its own.
const speakerConfig = `apiVersion: lbd.dev/v1alpha1
kind: NodeConfiguration
nodeName: %s
gossip: {bindAddress: %q, keyFile: %s}
socket: %s
kubernetes: {kubeconfig: %s, classless: %v}
`

// StartLBD installs lbd, starts a controller and a daemon on every node, and waits
// until the controller is ready.
func (c *ControlPlane) StartLBD(ctx context.Context) (*LBD, error) {
	s, err := c.Install(ctx)
	if err != nil {
		return nil, err
	}
	return s, s.startAll(ctx)
}

// startAll starts a daemon on every node, and a controller.
func (s *LBD) startAll(ctx context.Context) error {
	for _, n := range s.cp.nodes {
		if err := s.StartSpeaker(ctx, n); err != nil {
			return err
		}
	}
	return s.StartController(ctx)
}

// StartSpeaker starts the daemon of a node, for which it writes a configuration.
func (s *LBD) StartSpeaker(ctx context.Context, n *Node) error {
	kubeconfig, err := s.cp.Kubeconfig(s.cp.address(s.cp.APIServers[0].Host), Speaker)
	if err != nil {
		return err
	}
	config := fmt.Sprintf(speakerConfig, n.Name, s.cp.address(&n.Host), s.keyFile, s.Socket(n.Node), kubeconfig, s.Classless) + s.cp.daemon
	if err := os.WriteFile(s.Config(n.Node), []byte(config), 0o600); err != nil {
		return fmt.Errorf("speaker: %w", err)
	}
	return s.Start(ctx, s.cp.Lab, n.Node)
}

// Settled wants every daemon to be settled, to see the daemons of all nodes, and
// all of them to agree who owns each address that one knows; that node announces
// it. Each must know the addresses.
func (s *LBD) Settled(ctx context.Context, addresses ...netip.Addr) error {
	owners := map[netip.Addr]string{}
	for _, n := range s.cp.nodes {
		if !n.Daemon.Alive() {
			return fmt.Errorf("%s: the daemon has ended: %s", n.Name, n.Daemon.Tail(5))
		}
		st, err := s.Status(ctx, s.cp.Lab, n.Node)
		if err != nil {
			return err
		}
		alive := 1 // itself
		for _, m := range st.Members {
			if m.Name != n.Name && m.State == "alive" {
				alive++
			}
		}
		if !st.Settled || alive != len(s.cp.nodes) {
			return fmt.Errorf("%s: settled %v, sees %d of %d nodes", n.Name, st.Settled, alive, len(s.cp.nodes))
		}
		if err := agreed(st, owners, addresses); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// agreed compares what a node says of owners with what others have said, to which
// it adds.
func agreed(st *lab.Status, owners map[netip.Addr]string, addresses []netip.Addr) error {
	known := map[netip.Addr]bool{}
	for _, v := range st.VIPs {
		known[v.Address] = true
		if v.Mode == "bgp" { // has no owner
			continue
		}
		if other, ok := owners[v.Address]; v.Owner == "" || ok && other != v.Owner {
			return fmt.Errorf("%s is owned by %q, others say %q: %s %s", v.Address, v.Owner, other, v.Reason, v.Detail)
		}
		owners[v.Address] = v.Owner
		if v.Owner == st.Node && !v.Announced {
			return fmt.Errorf("it owns %s and does not announce it: %s %s", v.Address, v.Reason, v.Detail)
		}
	}
	for _, a := range addresses {
		if !known[a] {
			return fmt.Errorf("it does not know %s, but %d others", a, len(known))
		}
	}
	return nil
}

// Owners are the names of the nodes that a daemon calls owners, by address.
func (s *LBD) Owners(ctx context.Context, asked *Node) (map[netip.Addr]string, error) {
	st, err := s.Status(ctx, s.cp.Lab, asked.Node)
	if err != nil {
		return nil, err
	}
	owners := map[netip.Addr]string{}
	for _, v := range st.VIPs {
		owners[v.Address] = v.Owner
	}
	return owners, nil
}

// Owner is the node that a daemon calls the owner of the address.
func (s *LBD) Owner(ctx context.Context, asked *Node, address netip.Addr) (*Node, error) {
	owners, err := s.Owners(ctx, asked)
	if err != nil {
		return nil, err
	}
	for _, n := range s.cp.nodes {
		if n.Name == owners[address] {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%s: %s has the owner %q", asked.Name, address, owners[address])
}

// Metrics are those of the daemon of a node.
func (c *ControlPlane) Metrics(ctx context.Context, n *Node) (string, error) {
	return get(ctx, c.Lab, &n.Host, "http://127.0.0.1:7477/metrics", nil)
}
