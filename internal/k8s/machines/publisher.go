package machines

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/resolve"
	"lbd.dev/lbd/internal/source"
)

// targetWait bounds how long the first news waits for objects that stand for
// Machines: those of one balancer must not hold up all others for ever.
const targetWait = 10 * time.Second

// farewell is how long an address stays that no balancer gives this node any more. Why
// may come by another watch: the Machines are being moved, or are lost.
const farewell = 2 * time.Second

// publisher is the goroutine that tells the View.
type publisher struct {
	s       *Source
	publish source.Publish
	memory  memory
	told    facts
	ever    bool
	// managed: Machines were read once, so that their absence is no news.
	managed bool
	// fresh: with this client, or since there were no Machines of this cluster, this
	// node has not been found among the objects.
	fresh   bool
	cluster model.Key // of the Machine of this node, as far as it was known
	waiting time.Time // since when targets are waited for
	said    string    // the error that was logged last
	surplus int       // Machines that are no gossip peers since there are too many, at the last look
	ending  map[netip.Addr]time.Time
	// clusters are those of the balancers that are forwarded here, by their names.
	clusters map[string]model.Key
	refused  map[string]bool // balancers that are not forwarded, as far as that was logged
}

// facts are what is told.
type facts struct {
	machines  model.Machines
	vips      []model.VIP
	balancers []model.LoadBalancer // what is forwarded to Machines, sorted by name
	checks    map[string]v1alpha1.HealthCheck
	peers     []netip.Addr // if they are asked for
	// forwardings counts the ways from an address to a Machine that were asked for so far.
	forwardings int
}

// look tells what has changed.
func (p *publisher) look(set *Set, now time.Time) {
	p.notice(errors.Join(set.Err(now), p.surplusErr()))
	if !set.Synced() {
		return
	}
	p.s.mu.Lock()
	me := p.s.me(p.s.addrs)
	p.s.mu.Unlock()
	if len(me.Addrs) == 0 { // it is not known yet which Machine this node is
		return
	}
	balancers := set.Balancers()
	unread := set.Unread(balancers)
	if p.waits(len(unread) > 0, now) {
		return
	}
	all := set.Machines()
	if p.ever && p.emptied(set, all, now) {
		p.lost()
		return
	}
	f, found := p.facts(p.memory.recall(all), balancers, unread, me)
	p.moving(set, all)
	if p.ever && p.fresh && !found && len(p.told.vips) > 0 {
		p.lost() // objects that are being moved or restored come one by one
		return
	}
	p.fresh = p.fresh && !found
	p.linger(&f, set, now)
	f.machines.Manager = set.Knows(now)
	p.managed = p.managed || f.machines.Manager
	p.tell(f)
}

// surplusErr says that not all Machines are gossip peers that would be.
func (p *publisher) surplusErr() error {
	if p.surplus == 0 {
		return nil
	}
	return fmt.Errorf("machines.peers: of %d Machines of the control plane only the %d oldest are gossip peers", machines.MaxPeers+p.surplus, machines.MaxPeers)
}

// notice keeps why something is not read, and logs it once.
func (p *publisher) notice(err error) {
	p.s.setErr(err)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != p.said {
		p.s.o.Logger.Warn("the management cluster is not read, or not all of it", "err", err)
	}
	p.said = text
}

// waits tells whether targets are still being read before anything was told. The
// first news ends what an earlier process left in force.
func (p *publisher) waits(unread bool, now time.Time) bool {
	if p.ever || !unread {
		return false
	}
	if p.waiting.IsZero() {
		p.waiting = now
	}
	return now.Sub(p.waiting) < targetWait
}

// emptied tells whether what the API says is no news: it is lost, had the Machines
// of this cluster moved, or has lost them all, as one that was replaced or restored.
func (p *publisher) emptied(set *Set, all []*machines.Machine, now time.Time) bool {
	if !set.Knows(now) && (p.managed || !set.NoMachines()) {
		return true
	}
	none := p.cluster != (model.Key{}) && !slices.ContainsFunc(all, func(m *machines.Machine) bool {
		return m.Target == "" && m.Cluster() == p.cluster
	})
	if set.Moved(p.cluster, none) || none {
		p.fresh = true // what comes back comes one by one
		return true
	}
	return false
}

// facts are what the objects mean for this node; found: it is one of them.
func (p *publisher) facts(all []*machines.Machine, balancers []*machines.Balancer, unread map[model.Key]bool, me machines.Node) (f facts, found bool) {
	rules := &p.s.rules
	self := machines.Self(all, me, rules, "")
	if self != nil {
		p.cluster, found = self.Cluster(), true
	}
	f.checks = map[string]v1alpha1.HealthCheck{}
	var balanced []machines.Balanced
	for _, b := range balancers {
		if addrs := p.memory.addrs(b); b.Usable() && len(addrs) > 0 {
			f.machines.Balanced = append(f.machines.Balanced, addrs...)
			balanced = append(balanced, machines.Balanced{Balancer: b, Addrs: addrs})
		}
	}
	for _, x := range balanced {
		b := x.Balancer
		if unread[b.Key] {
			p.keep(&f, b)
			continue
		}
		own := self
		if t := b.Target(); t != "" {
			own = machines.Self(all, me, rules, t)
			found = found || own != nil
		}
		if b.Forwarded() {
			found = p.forward(&f, x, all, own) || found
			continue
		}
		if own == nil || !b.Has(own) {
			continue
		}
		for _, addr := range x.Addrs {
			f.vips = append(f.vips, vip(b, addr))
		}
		if h := b.Check(); h != nil {
			f.checks[b.CheckName()] = *h
		}
	}
	f.machines.Drains = rules.Drains(all, p.cluster, me, balanced)
	slices.SortFunc(f.machines.Balanced, netip.Addr.Compare)
	f.machines.Balanced = slices.Compact(f.machines.Balanced)
	if p.s.o.Spec.Peers {
		f.peers, p.surplus = rules.Peers(all, p.cluster, like(p.s.o.Bind, me.Addrs), f.machines.Balanced)
	}
	f.sort()
	return f, found
}

// like is an address of the family in which this node talks to its peers.
func like(bind netip.Addr, own []netip.Addr) netip.Addr {
	if i := slices.IndexFunc(own, netip.Addr.Is4); !bind.IsValid() && i >= 0 {
		return own[i]
	} else if !bind.IsValid() {
		return own[0]
	}
	return bind
}

// sort brings the addresses into order, each once.
func (f *facts) sort() {
	byAddr := func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) }
	slices.SortStableFunc(f.vips, byAddr)
	f.vips = slices.CompactFunc(f.vips, func(a, b model.VIP) bool { return byAddr(a, b) == 0 })
	slices.SortFunc(f.balancers, func(a, b model.LoadBalancer) int { return strings.Compare(a.Name, b.Name) })
	f.machines.Forwarded = nil
	for i := range f.vips {
		if f.vips[i].Forwarded() {
			f.machines.Forwarded = append(f.machines.Forwarded, f.vips[i].Addr)
		}
	}
	slices.Sort(f.machines.Checks)
	f.machines.Checks = slices.Compact(f.machines.Checks)
}

// take adds an address as it was told, with its check, or with what is forwarded.
func (f *facts) take(v model.VIP, told *facts) {
	f.vips = append(f.vips, v)
	if v.Forwarded() {
		f.takeForwarded(v, told)
	}
	if h, ok := told.checks[v.Check]; ok {
		f.checks[v.Check] = h
	}
}

// linger has addresses that are gone stay for the time of farewell.
func (p *publisher) linger(f *facts, set *Set, now time.Time) {
	ending := map[netip.Addr]time.Time{}
	for _, v := range p.told.vips {
		if slices.ContainsFunc(f.vips, func(x model.VIP) bool { return x.Addr == v.Addr }) {
			continue
		}
		end, known := p.ending[v.Addr]
		if !known {
			end = now.Add(farewell)
		}
		if now.Before(end) || p.moved(&v, set) {
			ending[v.Addr] = end
			f.take(v, &p.told)
		}
	}
	p.ending = ending
	maps.DeleteFunc(p.clusters, func(name string, _ model.Key) bool {
		return !slices.ContainsFunc(f.vips, func(v model.VIP) bool { return v.Name == name })
	})
	f.sort()
}

// keep leaves a balancer as it was told: its targets are not read yet.
func (p *publisher) keep(f *facts, b *machines.Balancer) {
	for _, v := range p.told.vips {
		if v.Name == b.String() {
			f.take(v, &p.told)
		}
	}
}

// lost tells that nobody here knows any more who drains; all else stays.
func (p *publisher) lost() {
	if p.told.machines.Manager {
		f := p.told
		f.machines.Manager = false
		p.s.o.Logger.Warn("the management cluster is lost; what it said last stays in force")
		p.tell(f)
	}
}

// tell publishes if it is news.
func (p *publisher) tell(f facts) {
	if p.ever && reflect.DeepEqual(f, p.told) {
		return
	}
	if f.machines.Manager && !p.told.machines.Manager {
		p.s.o.Logger.Info("the management cluster is known", "drains", len(f.machines.Drains), "addresses", len(f.vips))
	}
	objects := !p.ever || !reflect.DeepEqual(f.vips, p.told.vips) || !reflect.DeepEqual(f.balancers, p.told.balancers)
	if !reflect.DeepEqual(f.checks, p.told.checks) {
		p.s.o.OnChecks(f.checks)
	}
	if !slices.Equal(f.peers, p.told.peers) && len(f.peers) > 0 {
		p.s.o.OnPeers(f.peers)
	}
	p.told, p.ever = f, true
	p.publish(func(v *model.View) {
		v.Machines = f.machines
		if objects {
			v.SetObjects(model.SourceMachines, model.Objects{VIPs: f.vips, LoadBalancers: f.balancers})
		}
		v.Synced[model.SourceMachines] = true
	})
}

// vip is the address of a balancer as its members announce it.
func vip(b *machines.Balancer, addr netip.Addr) model.VIP {
	v := model.VIP{Name: b.String(), Kind: model.KindMachineLoadBalancer, Addr: addr}
	if a := b.Spec.Advertise; a != nil {
		if a.L2 != nil {
			v.L2, v.Interfaces = true, slices.Clone(a.L2.Interfaces)
			v.Balanced = a.L2.Mode == v1alpha1.L2Balanced
		}
		if a.BGP != nil {
			v.BGP = []model.BGPAdvert{resolve.Advert(a.BGP, nil)}
		}
	}
	switch {
	case b.Forwarded():
		v.Unbound = true
	case b.Check() != nil:
		v.Check = b.CheckName()
	}
	return v
}
