package lab

import (
	"context"
	"net/netip"
	"strings"
)

// Serving counts the connections to a VIP that a node has, those of the client's
// attempts included.
func (c *Cluster) Serving(ctx context.Context, n *Node, vip netip.Addr) (int, error) {
	src := vip.String()
	if vip.Is6() {
		src = "[" + src + "]" // as ss wants it
	}
	out, err := c.Exec(ctx, &n.Host, "ss", "-Htn", "state", "established", "src", src)
	return strings.Count(out, "\n"), err
}
