package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// Addresses are n IPv4 VIPs from 10.99.1.0 on.
func Addresses(n int) []netip.Addr {
	out := make([]netip.Addr, n)
	for i := range out {
		out[i] = netip.AddrFrom4([4]byte{10, 99, byte(1 + i>>8), byte(i)})
	}
	return out
}

// StartManyFabric is StartFabric for a Speaker with so many VIPs that the client
// asks for none of them.
func StartManyFabric(ctx context.Context, n *Net, s Speaker, o Options) (*Fabric, error) {
	f := newFabric(n, s)
	err := f.startRouters(ctx, o)
	for _, m := range f.Nodes {
		if err == nil {
			err = f.startNode(ctx, m)
		}
	}
	if err == nil {
		err = f.SpreadMany(ctx, 60*time.Second)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, f.Logs(15))
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// SpreadMany waits until the first ToR has every node as next hop of every VIP.
func (f *Fabric) SpreadMany(ctx context.Context, limit time.Duration) error {
	return poll(ctx, limit, 200*time.Millisecond, "every node is a next hop of every VIP", func() error {
		return f.ManyVia(ctx, f.Nodes)
	})
}

// ManyVia tells whether the first ToR has exactly the nodes as next hops of every
// VIP, which is IPv4, and no other BGP route.
func (f *Fabric) ManyVia(ctx context.Context, nodes []*lab.Node) error {
	out, err := f.Exec(ctx, f.ToRs[0], "ip", "-4", "-j", "route", "show", "proto", "bgp")
	if err != nil {
		return err
	}
	var routes []struct {
		kernelRoute
		Dst string `json:"dst"`
	}
	if err := json.Unmarshal([]byte(out), &routes); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	var want []string
	for _, m := range nodes {
		want = append(want, m.IP4.String())
	}
	slices.Sort(want)
	has := map[string]bool{}
	for _, r := range routes {
		if hops := r.hops(); !slices.Equal(hops, want) {
			return fmt.Errorf("%s via %v, want %v", r.Dst, hops, want)
		}
		has[r.Dst] = true
	}
	for _, v := range f.Speaker.VIPs() {
		if !has[v.String()] {
			return fmt.Errorf("no route of %s; %d routes of %d VIPs", v, len(has), len(f.Speaker.VIPs()))
		}
	}
	if len(has) != len(f.Speaker.VIPs()) {
		return fmt.Errorf("%d routes for %d VIPs", len(has), len(f.Speaker.VIPs()))
	}
	return nil
}
