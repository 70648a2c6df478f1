package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// Fabric is a net whose routers run FRR and whose nodes announce VIPs.
type Fabric struct {
	*Net
	Speaker Speaker
	ToRFRR  []*FRR // of ToRs
	CoreFRR *FRR   // nil with one ToR
	Eyes    *lab.Eyes
	routes  map[*lab.Host]*lab.Routes
	lo      map[*lab.Node]*lab.LoAddrs
}

// Options of the routers.
type Options struct {
	// GracefulRestart makes the routers keep paths of a speaker that restarts; FRR
	// is a helper without it too.
	GracefulRestart bool
	// NoShutdown makes the routers deaf to GRACEFUL_SHUTDOWN, as those are that do
	// not implement RFC 8326.
	NoShutdown bool
	// IBGP has the ToRs in the AS of the nodes.
	IBGP bool
}

// StartFabric starts the routers, the services and the speakers in a net and
// waits until every VIP is reached through every node. The caller closes it, and
// with it the net.
func StartFabric(ctx context.Context, n *Net, s Speaker, o Options) (*Fabric, error) {
	f := newFabric(n, s)
	if err := f.start(ctx, o); err != nil {
		err = fmt.Errorf("%w\n%s", err, f.Logs(15))
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func newFabric(n *Net, s Speaker) *Fabric {
	return &Fabric{Net: n, Speaker: s, routes: map[*lab.Host]*lab.Routes{}, lo: map[*lab.Node]*lab.LoAddrs{}}
}

func (f *Fabric) start(ctx context.Context, o Options) error {
	if err := f.startRouters(ctx, o); err != nil {
		return err
	}
	for _, m := range f.Nodes {
		if err := f.startNode(ctx, m); err != nil {
			return err
		}
	}
	if err := f.Spread(ctx, 30*time.Second); err != nil {
		return err
	}
	var err error
	f.Eyes, err = f.OpenProbes(f.Speaker.VIPs())
	return err
}

// startNode starts what runs on a node, and watches its addresses.
func (f *Fabric) startNode(ctx context.Context, m *lab.Node) error {
	w, err := f.WatchLo(&m.Host)
	if err != nil {
		return err
	}
	f.lo[m] = w
	return errors.Join(f.StartService(ctx, m), f.Speaker.Start(ctx, f.Net, m))
}

func (f *Fabric) startRouters(ctx context.Context, o Options) error {
	hosts := slices.Clone(f.ToRs)
	if f.Core != nil {
		hosts = append(hosts, f.Core)
	}
	for _, h := range hosts {
		w, err := f.WatchRoutes(h)
		if err != nil {
			return err
		}
		f.routes[h] = w
		conf := f.torConfig(h, f.Speaker.BFD(), o)
		if h == f.Core {
			conf = f.coreConfig(h)
		}
		r, err := StartFRR(ctx, f.Net, h, conf)
		if err != nil {
			return err
		}
		if h == f.Core {
			f.CoreFRR = r
		} else {
			f.ToRFRR = append(f.ToRFRR, r)
		}
	}
	return nil
}

const bfdFast = `bfd
 profile fast
  transmit-interval 100
  receive-interval 100
  detect-multiplier 3
 exit
exit
!
`

// group is a peer group of FRR and its members, of one family.
type group struct {
	name    string
	asn     int
	members []netip.Addr
	bfd     bool
}

// StartToR starts FRR on a ToR, with a session of each family to every node and
// without BFD.
func (n *Net) StartToR(ctx context.Context, h *lab.Host, o Options) (*FRR, error) {
	return StartFRR(ctx, n, h, n.torConfig(h, false, o))
}

// torASN is the AS of a ToR.
func torASN(i int, ibgp bool) int {
	if ibgp {
		return NodeASN
	}
	return ToRASN + i
}

func (n *Net) torConfig(h *lab.Host, bfd bool, o Options) string {
	asn := torASN(slices.Index(n.ToRs, h), o.IBGP)
	nodes4, nodes6 := group{name: "nodes4", asn: NodeASN, bfd: bfd}, group{name: "nodes6", asn: NodeASN, bfd: bfd}
	for _, m := range n.Nodes {
		nodes4.members = append(nodes4.members, m.IP4)
		nodes6.members = append(nodes6.members, m.IP6)
	}
	groups := []group{nodes4, nodes6}
	if n.Core != nil {
		groups = append(groups,
			group{name: "core4", asn: CoreASN, bfd: true, members: []netip.Addr{v4(79, 254).Addr()}},
			group{name: "core6", asn: CoreASN, bfd: true, members: []netip.Addr{v6(79, 254).Addr()}})
	}
	return frrConfig(asn, h.IP4, o, groups)
}

func (f *Fabric) coreConfig(h *lab.Host) string {
	var groups []group
	for i := range f.ToRs {
		name := fmt.Sprintf("tor%d-", i+1)
		groups = append(groups,
			group{name: name + "4", asn: ToRASN + i, bfd: true, members: []netip.Addr{v4(79, byte(1+i)).Addr()}},
			group{name: name + "6", asn: ToRASN + i, bfd: true, members: []netip.Addr{v6(79, uint16(1+i)).Addr()}})
	}
	return frrConfig(CoreASN, h.IP4, Options{}, groups)
}

// frrConfig is what docs/bgp.md tells an operator to configure, for FRR.
func frrConfig(asn int, id netip.Addr, o Options, groups []group) string {
	var b strings.Builder
	b.WriteString(bfdFast)
	fmt.Fprintf(&b, "router bgp %d\n bgp router-id %s\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n", asn, id)
	b.WriteString(" bgp bestpath as-path multipath-relax\n timers bgp 3 9\n")
	if o.GracefulRestart {
		b.WriteString(" bgp graceful-restart\n")
	}
	families := map[string]string{}
	maps := ""
	for _, g := range groups {
		fmt.Fprintf(&b, " neighbor %[1]s peer-group\n neighbor %[1]s remote-as %[2]d\n neighbor %[1]s timers connect 1\n", g.name, g.asn)
		if g.bfd {
			fmt.Fprintf(&b, " neighbor %[1]s bfd\n neighbor %[1]s bfd profile fast\n", g.name)
		}
		for _, m := range g.members {
			fmt.Fprintf(&b, " neighbor %s peer-group %s\n", m, g.name)
		}
		family := "ipv4"
		if g.members[0].Is6() {
			family = "ipv6"
		}
		families[family] += fmt.Sprintf("  neighbor %s activate\n", g.name)
		if o.NoShutdown {
			families[family] += fmt.Sprintf("  neighbor %s route-map deaf in\n", g.name)
			maps = "bgp community-list standard gshut seq 5 permit 65535:0\nroute-map deaf permit 10\n set comm-list gshut delete\nexit\n"
		}
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		fmt.Fprintf(&b, " address-family %s unicast\n%s  maximum-paths 16\n exit-address-family\n", family, families[family])
	}
	b.WriteString("exit\n" + maps)
	return b.String()
}

// Prefix is the host route of an address, as kernels and routers write it.
func Prefix(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

// Gateway is what the route of a VIP through the node looks like on a ToR.
func Gateway(m *lab.Host, vip netip.Addr) string {
	if vip.Is4() {
		return m.IP4.String()
	}
	return m.IP6.String()
}

// Events are the changes of routes that the kernel of a router told so far.
func (f *Fabric) Events(h *lab.Host) ([]measure.Route, error) { return f.routes[h].Events() }

// kernelRoute is the part of `ip -j route` that the lab looks at.
type kernelRoute struct {
	Gateway  string        `json:"gateway"`
	Via      *kernelRoute  `json:"via"`
	Host     string        `json:"host"`
	Nexthops []kernelRoute `json:"nexthops"`
}

// Hops are the next hops of a VIP in the kernel of a router, sorted.
func (n *Net) Hops(ctx context.Context, h *lab.Host, vip netip.Addr) ([]string, error) {
	family := "-4"
	if vip.Is6() {
		family = "-6"
	}
	out, err := n.Exec(ctx, h, "ip", family, "-j", "route", "show", Prefix(vip))
	if err != nil {
		return nil, err
	}
	var routes []kernelRoute
	if strings.TrimSpace(out) != "" {
		if err := json.Unmarshal([]byte(out), &routes); err != nil {
			return nil, fmt.Errorf("route: %w", err)
		}
	}
	var hops []string
	for _, r := range routes {
		hops = append(hops, r.hops()...)
	}
	slices.Sort(hops)
	return hops, nil
}

// hops are the gateways of a route, sorted.
func (r *kernelRoute) hops() []string {
	var out []string
	for _, x := range append([]kernelRoute{*r}, r.Nexthops...) {
		switch {
		case x.Gateway != "":
			out = append(out, x.Gateway)
		case x.Via != nil:
			out = append(out, x.Via.Host)
		}
	}
	slices.Sort(out)
	return out
}

// HasHops tells whether the kernel of a ToR has exactly the nodes as next hops
// of the VIP.
func (n *Net) HasHops(ctx context.Context, h *lab.Host, vip netip.Addr, nodes []*lab.Node) error {
	var want []string
	for _, m := range nodes {
		want = append(want, Gateway(&m.Host, vip))
	}
	slices.Sort(want)
	got, err := n.Hops(ctx, h, vip)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s has %s via %v, want %v", h.Name, Prefix(vip), got, want)
	}
	return nil
}

// Spread waits until every ToR has every node as next hop of every VIP, and the
// core, if there is one, every ToR.
func (f *Fabric) Spread(ctx context.Context, limit time.Duration) error {
	return Eventually(ctx, limit, "every node is a next hop", func() error {
		for _, v := range f.Speaker.VIPs() {
			for _, h := range f.ToRs {
				if err := f.HasHops(ctx, h, v, f.Nodes); err != nil {
					return err
				}
			}
			if f.Core == nil {
				continue
			}
			got, err := f.Hops(ctx, f.Core, v)
			if err != nil {
				return err
			}
			if len(got) != len(f.ToRs) {
				return fmt.Errorf("core has %s via %v", Prefix(v), got)
			}
		}
		return nil
	})
}

// Others are the nodes besides m.
func (n *Net) Others(m *lab.Node) []*lab.Node {
	return slices.DeleteFunc(slices.Clone(n.Nodes), func(x *lab.Node) bool { return x == m })
}

// ClearSessions resets the sessions of every ToR with a node.
func (f *Fabric) ClearSessions(ctx context.Context, _ *Fabric, m *lab.Node) error {
	var errs []error
	for _, r := range f.ToRFRR {
		for _, a := range []netip.Addr{m.IP4, m.IP6} {
			_, err := r.Show(ctx, "clear bgp "+a.String())
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Logs returns the last lines of every daemon.
func (f *Fabric) Logs(lines int) string {
	var b strings.Builder
	b.WriteString(f.Lab.Logs(lines))
	for _, r := range append(slices.Clone(f.ToRFRR), f.CoreFRR) {
		if r != nil {
			b.WriteString(r.Host.Name + "\n" + r.Tail(lines))
		}
	}
	return b.String()
}

// Close stops everything and removes the net.
func (f *Fabric) Close() error {
	var errs []error
	if f.Eyes != nil {
		errs = append(errs, f.Eyes.Close())
	}
	for _, w := range f.routes {
		errs = append(errs, w.Close())
	}
	for _, w := range f.lo {
		errs = append(errs, w.Close())
	}
	return errors.Join(append(errs, f.Lab.Close())...)
}
