package services

import (
	"fmt"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/agree"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/resolve"
	"lbd.dev/lbd/internal/tenants"
)

// l2Advert is an L2Advertisement as this node reads it.
type l2Advert struct {
	*v1alpha1.L2Advertisement
	here bool // it selects this node
}

// bgpAdvert is a BGPAdvertisement as this node reads it.
type bgpAdvert struct {
	name     string
	services []v1alpha1.Selector
	here     bool // it selects this node
	usable   bool
	adverts  [2]model.BGPAdvert // by isV6
}

func isV6(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// plan is how addresses of a pool are announced whose Services match the same
// advertisements.
type plan struct {
	l2, l2Here   bool // some advertisement covers them; one that selects this node
	interfaces   []string
	preference   *model.Preference
	bgp          []model.BGPAdvert // of this node, or of others if it has none
	bgpHere      bool
	owned        []model.BGPAdvert // see ofOwner; nil: not asked for yet
	problems     []Problem
	disappointed bool // an advertisement covers them that is not usable
}

// planKey names a plan.
type planKey struct {
	pool int
	v6   bool
	// mask has a byte for each advertisement of the pool: those for layer 2, then
	// those for BGP; 1 if it selects a Service.
	mask string
}

// poolAdverts are the advertisements of one pool, sorted by name.
type poolAdverts struct {
	l2, bgp []int
	// selective: some select Services by labels.
	selective bool
}

// anyMatches tells whether a list of selectors matches; an empty one does.
func anyMatches(list []v1alpha1.Selector, labels map[string]string) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(s v1alpha1.Selector) bool { return s.Matches(labels) })
}

// config is what the objects mean on this node.
type config struct {
	objects Objects
	cluster cluster
	pools   agree.PoolIndex
	l2      []l2Advert
	bgp     []bgpAdvert
	byPool  []poolAdverts
	plans   map[planKey]*plan
	// preferring: the labels of other nodes count. selectsBackends: all that is known of them does.
	preferring, selectsBackends bool

	// mute are objects, by kind and name, that nothing is advertised by; single are the
	// lengths of prefixes, by BGPAdvertisement and path, that do not count.
	mute, single map[[2]string]bool

	virtual   []model.VIP          // sorted by Addr
	balancers []model.LoadBalancer // sorted by Name
	// tenants are the LoadBalancers that Services of tenants have, by address.
	tenants map[netip.Addr]*model.LoadBalancer
	// judged is what is said of the objects of tenants.
	judged tenants.Output
	// forwardings are the ways from an address and a port of a LoadBalancer to a backend.
	forwardings int
	peers       []model.BGPPeer
	checks      map[string]v1alpha1.HealthCheck
	problems    []Problem
	warnings    []Problem
}

func (c *config) bad(kind, name, format string, args ...any) {
	c.problems = append(c.problems, Problem{kind, name, fmt.Sprintf(format, args...)})
}

// newConfig compiles the objects for a node with these labels.
func newConfig(o Objects, labels map[string]string, nodes cluster) *config {
	c := &config{objects: o, cluster: nodes, pools: agree.NewPoolIndex(o.Pools), plans: make(map[planKey]*plan), checks: make(map[string]v1alpha1.HealthCheck),
		mute: make(map[[2]string]bool), single: make(map[[2]string]bool)}
	c.judge(labels)
	defined := communities(o.Communities)
	c.readPeers(labels)
	for _, a := range o.L2Advertisements {
		c.l2 = append(c.l2, l2Advert{a, anyMatches(a.Spec.NodeSelectors, labels)})
		c.preferring = c.preferring || len(a.Spec.PreferredNodeSelectors) > 0
		c.selectsPools(v1alpha1.KindL2Advertisement, a.Metadata.Name, a.Spec.IPAddressPools, a.Spec.IPAddressPoolSelectors)
	}
	for _, a := range o.BGPAdvertisements {
		c.readBGP(a, labels, defined)
	}
	c.assign()
	c.readVirtual(defined)
	c.readTenants()
	return c
}

// selectsPools reports an advertisement whose selectors match no pool.
func (c *config) selectsPools(kind, name string, pools []string, selectors []v1alpha1.Selector) {
	if len(selectors) == 0 || slices.ContainsFunc(c.objects.Pools, func(p *v1alpha1.IPAddressPool) bool { return agree.Covers(pools, selectors, p) }) {
		return
	}
	c.bad(kind, name, "spec.ipAddressPoolSelectors match the labels of no valid IPAddressPool: nothing is announced by it")
}

// length is that of prefixes, 0 if each address is advertised by itself. So it is too if
// prefixes are larger than an entry of a pool: routers must not be told of addresses that
// are not in it.
func (c *config) length(name, path string, length, single int32) int {
	if length == single || c.single[[2]string{name, path}] {
		return 0
	}
	return int(length)
}

// assign finds the advertisements of each pool.
func (c *config) assign() {
	for _, p := range c.objects.Pools {
		var x poolAdverts
		for i := range c.l2 {
			if s := &c.l2[i].Spec; agree.Covers(s.IPAddressPools, s.IPAddressPoolSelectors, p) {
				x.l2 = append(x.l2, i)
				x.selective = x.selective || len(s.ServiceSelectors) > 0
			}
		}
		for i, a := range c.objects.BGPAdvertisements {
			if s := &a.Spec; agree.Covers(s.IPAddressPools, s.IPAddressPoolSelectors, p) {
				x.bgp = append(x.bgp, i)
				x.selective = x.selective || len(s.ServiceSelectors) > 0
			}
		}
		c.byPool = append(c.byPool, x)
	}
}

func (c *config) readBGP(a *v1alpha1.BGPAdvertisement, labels map[string]string, communities map[string]v1alpha1.CommunityValue) {
	const kind = v1alpha1.KindBGPAdvertisement
	s := &a.Spec
	out := bgpAdvert{name: a.Metadata.Name, services: s.ServiceSelectors, here: anyMatches(s.NodeSelectors, labels)}
	c.selectsPools(kind, out.name, s.IPAddressPools, s.IPAddressPoolSelectors)
	asked := &v1alpha1.BGPAdvertise{Peers: s.Peers, Communities: s.Communities}
	if s.LocalPref != 0 {
		asked.LocalPref = &s.LocalPref
	}
	// Without a peer the others are told; without a community nobody is, since it may be
	// what keeps a path from going too far.
	if out.usable = !c.mute[[2]string{kind, out.name}]; out.usable {
		out.adverts[0] = resolve.Advert(asked, communities)
		out.adverts[1] = out.adverts[0]
		out.adverts[0].Length = c.length(out.name, "spec.aggregationLength", *s.AggregationLength, v1alpha1.DefaultAggregationLength)
		out.adverts[1].Length = c.length(out.name, "spec.aggregationLengthV6", *s.AggregationLengthV6, v1alpha1.DefaultAggregationLengthV6)
	}
	c.bgp = append(c.bgp, out)
}

// plan finds how an address of a pool is announced, by the mask of advertisements.
func (c *config) plan(pool int, v6 bool, mask []byte, nodes map[string]*Node) *plan {
	key := planKey{pool: pool, v6: v6}
	if c.byPool[pool].selective {
		if p, ok := c.plans[planKey{pool, v6, string(mask)}]; ok { // no copy of mask
			return p
		}
		key.mask = string(mask)
	} else if p, ok := c.plans[key]; ok {
		return p
	}
	p := &plan{}
	at := &c.byPool[pool]
	chosen := func(i int) bool { return !at.selective || mask[i] != 0 }
	p.layer2(c, at.l2, chosen, nodes)
	var bgp []*bgpAdvert
	for i, n := range at.bgp {
		if chosen(len(at.l2) + i) {
			bgp = append(bgp, &c.bgp[n])
		}
	}
	p.routers(bgp, v6)
	c.plans[key] = p
	return p
}

// mask sets the bytes of the advertisements that select a Service with these
// labels.
func (c *config) mask(pool int, labels map[string]string, mask []byte) {
	at := &c.byPool[pool]
	for i, n := range at.l2 {
		if mask[i] == 0 && anyMatches(c.l2[n].Spec.ServiceSelectors, labels) {
			mask[i] = 1
		}
	}
	for i, n := range at.bgp {
		if i += len(at.l2); mask[i] == 0 && anyMatches(c.bgp[n].services, labels) {
			mask[i] = 1
		}
	}
}

// layer2 combines the L2Advertisements: the interfaces of all that select this
// node, and of all of them what they prefer.
func (p *plan) layer2(c *config, list []int, chosen func(int) bool, nodes map[string]*Node) {
	everywhere := false
	scores := make(map[model.NodeName]int)
	for i, n := range list {
		if !chosen(i) {
			continue
		}
		a := &c.l2[n]
		p.l2 = true
		if a.here {
			p.l2Here = true
			everywhere = everywhere || len(a.Spec.Interfaces) == 0
			for _, name := range a.Spec.Interfaces {
				if !slices.Contains(p.interfaces, name) {
					p.interfaces = append(p.interfaces, name)
				}
			}
		}
		prefer(a, nodes, scores)
	}
	if everywhere {
		p.interfaces = nil
	}
	if len(scores) > 0 {
		p.preference = &model.Preference{Scores: scores}
	}
}

// prefer adds to the scores of the nodes that an advertisement selects and prefers.
func prefer(a *l2Advert, nodes map[string]*Node, scores map[model.NodeName]int) {
	for _, w := range a.Spec.PreferredNodeSelectors {
		for name, n := range nodes {
			if w.Preference.Matches(n.Labels) && anyMatches(a.Spec.NodeSelectors, n.Labels) {
				scores[model.NodeName(name)] += int(w.Weight)
			}
		}
	}
}

// routers lists the BGPAdvertisements, sorted by name: those that select this node,
// else those that select others.
func (p *plan) routers(list []*bgpAdvert, v6 bool) {
	var used []*bgpAdvert
	for _, here := range []bool{true, false} {
		for _, a := range list {
			switch {
			case a.here != here:
			case !a.usable:
				p.disappointed = true
			case here || !p.bgpHere:
				p.bgp, p.bgpHere = append(p.bgp, a.adverts[isV6(v6)]), here
				used = append(used, a)
			}
		}
	}
	if p.bgpHere {
		p.disagree(used, v6)
	}
}

// disagree reports advertisements of the same prefix to the same peer that ask for
// different LOCAL_PREFs: a path has one, while communities add up.
func (p *plan) disagree(list []*bgpAdvert, v6 bool) {
	for i, a := range list {
		x := &a.adverts[isV6(v6)]
		for _, b := range list[:i] {
			y := &b.adverts[isV6(v6)]
			if x.LocalPref == y.LocalPref || x.Length != y.Length || !meet(x.Peers, y.Peers) {
				continue
			}
			p.problems = append(p.problems, Problem{v1alpha1.KindBGPAdvertisement, a.name, fmt.Sprintf(
				"spec.localPref %d is not that of BGPAdvertisement %q, %d, for the same addresses and peers: the higher one counts", x.LocalPref, b.name, y.LocalPref)})
			break
		}
	}
}

// meet tells whether two lists of peers, of which an empty one means all, have a peer
// in common.
func meet(a, b []string) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(n string) bool { return slices.Contains(b, n) })
}
