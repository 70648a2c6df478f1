package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// forwardStory tells of a VIP whose connections go to other machines which share of the new ones
// each server gets, and why one gets none.
func forwardStory(v *model.View, d *model.Desired, vip *model.VIP) []string {
	i := slices.IndexFunc(v.LoadBalancers, func(lb model.LoadBalancer) bool { return slices.Contains(lb.VIPs, vip.Addr) })
	first := slices.IndexFunc(d.Forward.Services, func(s model.ForwardService) bool { return s.Addr == vip.Addr })
	if i < 0 || first < 0 {
		return nil
	}
	service := &d.Forward.Services[first]
	slots := make(map[netip.Addr]int)
	total := 0
	if service.Slots != nil {
		total = len(service.Slots.Slots)
		for _, s := range service.Slots.Slots {
			slots[s.Addr()]++
		}
	}
	var out []string
	for _, x := range v.LoadBalancers[i].Servers {
		if x.Addr.Is4() != vip.Addr.Is4() {
			continue
		}
		h := v.Health[x.Check]
		switch n := slots[x.Addr]; {
		case n > 0 && x.Check != "" && !h.State.Passes():
			out = append(out, fmt.Sprintf("%s gets %d %% of the new connections, although its check is %s: %s.", x.Addr, percent(n, total), h.State, h.Detail))
		case n > 0:
			out = append(out, fmt.Sprintf("%s gets %d %% of the new connections.", x.Addr, percent(n, total)))
		case x.Weight == 0:
			out = append(out, fmt.Sprintf("%s gets no new connections: its weight is 0.", x.Addr))
		case h.Failing != "":
			out = append(out, fmt.Sprintf("%s gets no new connections: its last check failed: %s.", x.Addr, h.Failing))
		default:
			out = append(out, fmt.Sprintf("%s gets no new connections: its check is %s: %s.", x.Addr, h.State, h.Detail))
		}
	}
	return out
}

// percent rounds a share.
func percent(n, of int) int { return (200*n + of) / (2 * of) }
