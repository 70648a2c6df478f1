package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// StandIn is bare gobgpd on the nodes, with the VIPs on lo for ever and a path for
// each: no health check, no BFD, and a drain that only withdraws. It shows that
// the lab works without lbd, and what lbd adds.
type StandIn struct{}

// Name is "gobgpd".
func (StandIn) Name() string { return "gobgpd" }

// Configuration describes it for reports.
func (StandIn) Configuration() string {
	return "gobgpd of Debian, hold 9 s, connect-retry 1 s, listening too; VIPs on lo, paths added by its CLI; no BFD, no health check"
}

// VIPs are both families.
func (StandIn) VIPs() []netip.Addr { return []netip.Addr{VIP4(), VIP6()} }

// BFD is false: gobgpd 3 has none.
func (StandIn) BFD() bool { return false }

// Start starts gobgpd, waits for its CLI and adds the paths.
func (s StandIn) Start(ctx context.Context, n *Net, m *lab.Node) error {
	var b strings.Builder
	fmt.Fprintf(&b, "[global.config]\n as = %d\n router-id = %q\n", NodeASN, m.IP4)
	for i, tor := range n.ToRs {
		for _, peer := range []netip.Addr{tor.IP4, tor.IP6} {
			family := "ipv4-unicast"
			if peer.Is6() {
				family = "ipv6-unicast"
			}
			fmt.Fprintf(&b, `[[neighbors]]
 [neighbors.config]
  neighbor-address = %q
  peer-as = %d
 [neighbors.timers.config]
  connect-retry = 1
  hold-time = 9
  keepalive-interval = 3
 [[neighbors.afi-safis]]
  [neighbors.afi-safis.config]
   afi-safi-name = %q
`, peer, ToRASN+i, family)
		}
	}
	file := filepath.Join(m.Dir, "gobgp.toml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("gobgpd: %w", err)
	}
	var err error
	m.Daemon, err = n.Start(&m.Host, "gobgpd", nil, "gobgpd", "-f", file, "-p", "--pprof-disable", "--api-hosts", "127.0.0.1:50051")
	if err != nil {
		return err
	}
	err = Eventually(ctx, 10*time.Second, "gobgpd", func() error {
		_, err := s.cli(ctx, n, m, "global")
		return err
	})
	return errors.Join(err, s.Undrain(ctx, n, m))
}

func (s StandIn) cli(ctx context.Context, n *Net, m *lab.Node, args ...string) (string, error) {
	return n.Exec(ctx, &m.Host, append([]string{"gobgp"}, args...)...)
}

// Drain deletes the paths.
func (s StandIn) Drain(ctx context.Context, n *Net, m *lab.Node) error {
	return s.rib(ctx, n, m, "del")
}

// Undrain binds the VIPs and adds the paths.
func (s StandIn) Undrain(ctx context.Context, n *Net, m *lab.Node) error {
	for _, v := range s.VIPs() {
		if err := n.IP(ctx, &m.Host, fmt.Sprintf("addr replace %s dev lo", netip.PrefixFrom(v, v.BitLen()))); err != nil {
			return err
		}
	}
	return s.rib(ctx, n, m, "add")
}

func (s StandIn) rib(ctx context.Context, n *Net, m *lab.Node, verb string) error {
	for _, v := range s.VIPs() {
		family := "ipv4"
		if v.Is6() {
			family = "ipv6"
		}
		if _, err := s.cli(ctx, n, m, "global", "rib", verb, netip.PrefixFrom(v, v.BitLen()).String(), "-a", family); err != nil {
			return err
		}
	}
	return nil
}

// Clean has nothing to do: the VIPs stay.
func (s StandIn) Clean(context.Context, *Net, *lab.Node) error { return nil }
