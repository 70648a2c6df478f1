package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
)

// hopTable counts what comes in for a VIP, by the relays that it has behind it.
const hopTable = "labhops"

// firstHop is the DSCP of a packet that was relayed once.
const firstHop = 0x31

// Hops is how many packets came in after 1, 2 and 3 relays.
type Hops [3]int

// CountHops counts the relayed packets for an IPv4 VIP that come in on a host, until
// the end of the lab.
func (c *Cluster) CountHops(ctx context.Context, h *Host, vip netip.Addr) error {
	var counters, rules string
	for i := range len(Hops{}) {
		counters += fmt.Sprintf("counter hop%d { }\n", i+1)
		rules += fmt.Sprintf("ip daddr %s ip dscp %#x counter name hop%d\n", vip, firstHop+i, i+1)
	}
	script := fmt.Sprintf("table ip %s {\n%schain in { type filter hook prerouting priority -400;\n%s}\n}\n", hopTable, counters, rules)
	_, err := run(ctx, script, "ip", "netns", "exec", h.NS, "nft", "-f", "-")
	return err
}

// Hops reads what CountHops has counted so far.
func (c *Cluster) Hops(ctx context.Context, h *Host) (Hops, error) {
	var hops Hops
	out, err := c.Exec(ctx, h, "nft", "-j", "list", "counters", "table", "ip", hopTable)
	if err != nil {
		return hops, err
	}
	var list struct {
		NFTables []struct {
			Counter *struct {
				Name    string `json:"name"`
				Packets int    `json:"packets"`
			} `json:"counter"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return hops, fmt.Errorf("nft: %w", err)
	}
	for _, x := range list.NFTables {
		var n int
		if x.Counter == nil {
			continue
		}
		if _, err := fmt.Sscanf(x.Counter.Name, "hop%d", &n); err != nil || n < 1 || n > len(hops) {
			return hops, fmt.Errorf("nft: unknown counter %q", x.Counter.Name)
		}
		hops[n-1] = x.Counter.Packets
	}
	return hops, nil
}

// Since is what was counted after an earlier reading.
func (h Hops) Since(before Hops) Hops {
	for i := range h {
		h[i] -= before[i]
	}
	return h
}
