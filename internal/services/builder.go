package services

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// Builder keeps what a cluster says and makes a Result of it. A change costs what
// depends on it: with thousands of Services a new endpoint must not. It is not safe
// for concurrent use.
type Builder struct {
	o       Options
	objects Objects
	nodes   map[string]*Node

	services  map[model.Key]*Service // those that are ours
	byAddr    map[netip.Addr][]model.Key
	slices    map[model.Key]Slice
	endpoints map[model.Key]*[2]family // by Service, isV6

	config *config // nil: to be compiled
	// bar is why this node is to announce no Services.
	bar       string
	nodesRead bool

	dirty map[netip.Addr]bool
	all   bool // everything is
	// troubled: problems may have changed.
	troubled bool
	problems map[netip.Addr][]Problem // about Services
	last     Result
	adverts  [][]model.BGPAdvert // in use, to be taken over
	prefs    []*model.Preference
}

// family are the endpoints of a Service for one address family.
type family struct {
	all    Endpoints
	slices map[model.Key]Endpoints
}

// New returns a Builder that knows of nothing.
func New(o Options) *Builder {
	return &Builder{
		o: o, nodes: make(map[string]*Node), services: make(map[model.Key]*Service), byAddr: make(map[netip.Addr][]model.Key),
		slices: make(map[model.Key]Slice), endpoints: make(map[model.Key]*[2]family), dirty: make(map[netip.Addr]bool),
		problems: make(map[netip.Addr][]Problem), all: true, last: Result{Checks: make(map[string]v1alpha1.HealthCheck)},
	}
}

// SetService adds or replaces a Service; nil removes it. One that is not ours is
// removed too.
func (b *Builder) SetService(k model.Key, s *Service) {
	if s != nil && !b.o.Ours(s.Class) {
		s = nil
	}
	old := b.services[k]
	if old != nil {
		for _, a := range old.Addresses {
			b.dirty[a] = true
			if s == nil || !slices.Contains(s.Addresses, a) {
				b.leave(a, k)
			}
		}
	}
	if s == nil {
		delete(b.services, k)
		return
	}
	b.services[k] = s
	for _, a := range s.Addresses {
		b.dirty[a] = true
		if i, there := slices.BinarySearchFunc(b.byAddr[a], k, model.Key.Compare); !there {
			b.byAddr[a] = slices.Insert(b.byAddr[a], i, k)
		}
	}
}

// leave removes a Service from those of an address.
func (b *Builder) leave(a netip.Addr, k model.Key) {
	list := slices.DeleteFunc(b.byAddr[a], func(x model.Key) bool { return x == k })
	if len(list) == 0 {
		delete(b.byAddr, a)
		return
	}
	b.byAddr[a] = list
}

// SetSlice adds or replaces an EndpointSlice; nil removes it.
func (b *Builder) SetSlice(k model.Key, s *Slice) {
	if old, had := b.slices[k]; had && (s == nil || s.Service != old.Service || s.IPv6 != old.IPv6) {
		b.count(k, old, false)
	}
	if s == nil {
		delete(b.slices, k)
		return
	}
	b.slices[k] = *s
	b.count(k, *s, true)
}

// count adds an EndpointSlice to its Service, or removes it.
func (b *Builder) count(k model.Key, s Slice, there bool) {
	e := b.endpoints[s.Service]
	if e == nil {
		e = new([2]family)
		b.endpoints[s.Service] = e
	}
	f := &e[isV6(s.IPv6)]
	if f.slices == nil {
		f.slices = make(map[model.Key]Endpoints, 1)
	}
	if there {
		f.slices[k] = s.Endpoints
	} else {
		delete(f.slices, k)
	}
	before := f.all
	f.all = 0
	for _, x := range f.slices {
		f.all |= x
	}
	if len(e[0].slices)+len(e[1].slices) == 0 {
		delete(b.endpoints, s.Service)
	}
	if svc := b.services[s.Service]; svc != nil && f.all != before {
		for _, a := range svc.Addresses {
			if a.Is6() == s.IPv6 {
				b.dirty[a] = true
			}
		}
	}
}

// SetNode adds or replaces a Node; nil removes it.
func (b *Builder) SetNode(name string, n *Node) {
	old := b.nodes[name]
	if n == nil {
		delete(b.nodes, name)
	} else {
		b.nodes[name] = n
	}
	b.nodesRead = true
	relabelled := old == nil || n == nil || !maps.Equal(old.Labels, n.Labels)
	if relabelled && (name == string(b.o.Self) || b.config != nil && b.config.preferring) {
		b.config = nil
	}
	if b.config != nil && b.config.selectsBackends && !reflect.DeepEqual(old, n) {
		b.config = nil
	}
	if bar := b.excluded(); bar != b.bar {
		b.bar, b.all = bar, true
	}
}

// excluded says why this node is to announce no Services.
func (b *Builder) excluded() string {
	self := b.nodes[string(b.o.Self)]
	if self == nil {
		return fmt.Sprintf("the cluster has no Node %q", b.o.Self)
	}
	ready := false
	for _, n := range b.nodes {
		if ready = n.Ready == ConditionTrue; ready {
			break
		}
	}
	return self.excluded(ready, b.o.CordonDrains)
}

// SetObjects replaces the objects of lbd.dev.
func (b *Builder) SetObjects(o Objects) {
	b.objects = o
	b.config = nil
}

// Build returns what this node is to know, and whether that has changed since the
// last call.
func (b *Builder) Build() (Result, bool) {
	if b.bar == "" && !b.nodesRead {
		b.bar = b.excluded()
	}
	changed := false
	if b.config == nil {
		changed = b.compile()
	}
	vips, some := b.vips()
	changed = changed || some
	b.last.VIPs = vips
	if b.troubled {
		b.troubled = false
		if problems := b.allProblems(); !slices.Equal(problems, b.last.Problems) {
			b.last.Problems, changed = problems, true
		}
		if !slices.Equal(b.config.warnings, b.last.Warnings) {
			b.last.Warnings, changed = b.config.warnings, true
		}
	}
	return b.last, changed
}

// compile reads the objects anew and tells whether peers, LoadBalancers, checks or labels
// have changed.
func (b *Builder) compile() bool {
	var labels map[string]string
	if self := b.nodes[string(b.o.Self)]; self != nil {
		labels = self.Labels
	}
	b.config, b.all = newConfig(b.objects, labels, cluster{b.nodes, b.o.CordonDrains}), true
	c := b.config
	for i := range c.virtual {
		c.virtual[i].BGP = b.known(c.virtual[i].BGP)
	}
	slices.SortFunc(c.peers, func(x, y model.BGPPeer) int {
		if x.Name < y.Name {
			return -1
		}
		return 1
	})
	same := reflect.DeepEqual(c.peers, b.last.Peers) && reflect.DeepEqual(c.checks, b.last.Checks) && reflect.DeepEqual(c.balancers, b.last.LoadBalancers) && maps.Equal(labels, b.last.Labels)
	b.last.Peers, b.last.LoadBalancers, b.last.Checks, b.last.Labels = c.peers, c.balancers, c.checks, labels
	return !same
}

// vips brings the VIPs up to date and tells whether any has changed.
func (b *Builder) vips() ([]model.VIP, bool) {
	if b.all {
		return b.everything()
	}
	var fresh []model.VIP // changed or new, sorted
	gone := make(map[netip.Addr]bool)
	for a := range b.dirty {
		i, had := model.FindVIP(b.last.VIPs, a)
		v, ok := b.vip(a)
		switch {
		case !ok && had:
			gone[a] = true
		case ok && (!had || !v.Same(&b.last.VIPs[i])):
			gone[a] = had
			fresh = append(fresh, v)
		}
	}
	clear(b.dirty)
	if len(fresh)+len(gone) == 0 {
		return b.last.VIPs, false
	}
	slices.SortFunc(fresh, byAddress)
	out := make([]model.VIP, 0, len(b.last.VIPs)+len(fresh))
	for _, v := range b.last.VIPs {
		for len(fresh) > 0 && fresh[0].Addr.Less(v.Addr) {
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
		if !gone[v.Addr] {
			out = append(out, v)
		}
	}
	return append(out, fresh...), true
}

// everything makes all VIPs anew.
func (b *Builder) everything() ([]model.VIP, bool) {
	b.all, b.troubled = false, true
	b.dirty = make(map[netip.Addr]bool) // to clear a large one takes long every time
	clear(b.problems)
	clear(b.config.plans) // Nodes may have changed
	adverts, prefs := b.adverts, b.prefs
	addrs := make([]netip.Addr, 0, len(b.byAddr)+len(b.config.virtual))
	for a := range b.byAddr {
		if _, virtual := b.virtual(a); !virtual {
			addrs = append(addrs, a)
		}
	}
	for _, v := range b.config.virtual {
		addrs = append(addrs, v.Addr)
	}
	addrs = b.config.addTenants(addrs)
	slices.SortFunc(addrs, netip.Addr.Compare)
	out := make([]model.VIP, 0, len(addrs))
	for _, a := range addrs {
		if v, ok := b.vip(a); ok {
			out = append(out, v)
		}
	}
	b.forget(out, adverts, prefs)
	if slices.EqualFunc(out, b.last.VIPs, func(x, y model.VIP) bool { return x.Same(&y) }) {
		return b.last.VIPs, false
	}
	return out, true
}

// virtual returns the VIP of a VirtualIP or LoadBalancer with an address.
func (b *Builder) virtual(a netip.Addr) (model.VIP, bool) {
	i, ok := model.FindVIP(b.config.virtual, a)
	if !ok {
		return model.VIP{}, false
	}
	return b.config.virtual[i], true
}

// vip makes the VIP of an address, and notes what is wrong with its Services.
func (b *Builder) vip(a netip.Addr) (model.VIP, bool) {
	keys := b.byAddr[a]
	if _, had := b.problems[a]; had {
		delete(b.problems, a)
		b.troubled = true
	}
	bad := func(format string, args ...any) {
		b.troubled = true
		for _, k := range keys {
			b.problems[a] = append(b.problems[a], Problem{KindService, k.String(), fmt.Sprintf(format, args...)})
		}
	}
	if v, ok := b.virtual(a); ok {
		bad("the address %s is one of %s %q: it is not announced for the Service", a, v.Kind, v.Name)
		return v, true
	}
	if v, ok := b.tenantVIP(a); ok {
		return v, true
	}
	if len(keys) == 0 {
		return model.VIP{}, false
	}
	pool, _ := b.config.pools.Find(a)
	if pool < 0 {
		bad("the address %s is in no valid IPAddressPool: it is not announced", a)
		return model.VIP{}, false
	}
	p := b.planOf(pool, a, keys)
	v := model.VIP{
		Addr: a, Name: keys[0].String(), Kind: KindService, Unbound: true, L2: p.l2,
		Interfaces: p.interfaces, Preference: p.preference, BGP: p.bgp,
	}
	here := p.l2Here || p.bgpHere
	if here { // on another node the object may be announced in another way
		v.L2 = p.l2Here
		if !p.bgpHere {
			v.BGP = nil
		}
	}
	switch {
	case !p.l2 && len(p.bgp) == 0:
		words := "no L2Advertisement or BGPAdvertisement is for IPAddressPool %q and the labels of the Service: %s is not announced"
		if p.disappointed {
			words = "no usable advertisement is for IPAddressPool %q and the labels of the Service: %s is not announced"
		}
		bad(words, b.config.objects.Pools[pool].Metadata.Name, a)
	case !here:
		v.Barred, v.BarredDetail = model.ReasonNotSelected, "no advertisement for the Service selects this node"
	default:
		v.Barred, v.BarredDetail = b.barred(a, keys)
	}
	return v, true
}

// planOf is how an address is announced. One that Services share is announced as
// any of them is to be.
func (b *Builder) planOf(pool int, a netip.Addr, keys []model.Key) *plan {
	c := b.config
	at := &c.byPool[pool]
	var mask []byte
	if at.selective {
		var room [64]byte
		mask = room[:0]
		for range len(at.l2) + len(at.bgp) {
			mask = append(mask, 0)
		}
		for _, k := range keys {
			c.mask(pool, b.services[k].Labels, mask)
		}
		if len(keys) == 0 { // of a Service of a tenant, which has no labels
			c.mask(pool, nil, mask)
		}
	}
	plans := len(c.plans)
	p := c.plan(pool, a.Is6(), mask, b.nodes)
	b.troubled = b.troubled || len(c.plans) > plans
	p.bgp = b.known(p.bgp)
	p.preference = b.preferred(p.preference)
	return p
}

// barred says why this node is not to announce an address whose Services have
// these keys.
func (b *Builder) barred(a netip.Addr, keys []model.Key) (model.Reason, string) {
	words := ""
	served := false
	for _, k := range keys {
		local := b.services[k].Local
		var e Endpoints
		if f := b.endpoints[k]; f != nil {
			e = f[isV6(a.Is6())].all
		}
		switch {
		case e.serve(local):
			served = true
		case words != "":
		case e == 0:
			words = "no endpoint of " + k.String() + " is ready"
		case e&ServingHere != 0:
			words = "the endpoints of " + k.String() + " on this node are ending"
		default:
			words = "no endpoint of " + k.String() + " is ready on this node"
		}
	}
	switch {
	case !served:
		return model.ReasonNoEndpoint, words
	case b.bar != "":
		return model.ReasonNodeExcluded, b.bar
	}
	return model.ReasonOwner, ""
}

// known returns the adverts in use that are the same, so that what has not changed
// stays the same list.
func (b *Builder) known(a []model.BGPAdvert) []model.BGPAdvert {
	if len(a) == 0 || slices.ContainsFunc(b.adverts, func(o []model.BGPAdvert) bool { return &o[0] == &a[0] }) {
		return a
	}
	for _, o := range b.adverts {
		if reflect.DeepEqual(a, o) {
			return o
		}
	}
	b.adverts = append(b.adverts, a)
	return a
}

// preferred is known for preferences.
func (b *Builder) preferred(p *model.Preference) *model.Preference {
	if p == nil || slices.Contains(b.prefs, p) {
		return p
	}
	for _, o := range b.prefs {
		if reflect.DeepEqual(p, o) {
			return o
		}
	}
	b.prefs = append(b.prefs, p)
	return p
}

// forget drops what no VIP uses any more.
func (b *Builder) forget(vips []model.VIP, adverts [][]model.BGPAdvert, prefs []*model.Preference) {
	if len(adverts)+len(prefs) == 0 {
		return
	}
	usedA, usedP := make(map[*model.BGPAdvert]bool), make(map[*model.Preference]bool)
	for i := range vips {
		if a := vips[i].BGP; len(a) > 0 {
			usedA[&a[0]] = true
		}
		usedP[vips[i].Preference] = true
	}
	b.adverts = slices.DeleteFunc(b.adverts, func(a []model.BGPAdvert) bool { return !usedA[&a[0]] })
	b.prefs = slices.DeleteFunc(b.prefs, func(p *model.Preference) bool { return !usedP[p] })
}

// allProblems lists them sorted, each once.
func (b *Builder) allProblems() []Problem {
	out := slices.Clone(b.config.problems)
	for _, p := range b.config.plans {
		out = append(out, p.problems...)
	}
	for _, list := range b.problems {
		out = append(out, list...)
	}
	slices.SortFunc(out, Problem.Compare)
	return slices.Compact(out)
}
