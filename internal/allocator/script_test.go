package allocator

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/ipam"
	"lbd.dev/lbd/internal/model"
)

// t0 is when tests begin.
var t0 = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// tester is what tests and properties have in common.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// cluster is an API server in memory with one controller: it keeps objects, and
// writes are done at once.
type cluster struct {
	t        tester
	a        *Allocator
	opts     Options
	now      time.Time
	services map[model.Key]*Service
	spaces   map[string]map[string]string
	pools    map[string]Pool
	nodes    []netip.Addr
	statuses map[string]PoolStatus
	events   []Event
	writes   int // since the script looked
	version  int
	born     int
	wake     time.Time
	told     int  // statuses of pools, since the script looked
	strict   bool // no address is ever in two statuses
}

func newCluster(t tester) *cluster {
	c := &cluster{
		t: t, now: t0, opts: Options{Class: "lbd.dev/lbd", Quarantine: time.Minute}, services: map[model.Key]*Service{},
		spaces: map[string]map[string]string{}, pools: map[string]Pool{}, statuses: map[string]PoolStatus{},
	}
	c.restart()
	return c
}

// restart makes a controller that knows what the API server has, and what rests.
func (c *cluster) restart() {
	before := c.a
	c.a = New(c.opts)
	if before != nil {
		for addr, until := range before.Resting() {
			c.a.Rest(addr, until)
		}
	}
	for name, labels := range c.spaces {
		c.a.SetNamespace(name, labels)
	}
	for _, s := range c.services {
		c.a.SetService(*s)
	}
	c.a.SetNodes(c.nodes)
	c.setPools()
}

func (c *cluster) setPools() { c.a.SetPools(slices.Collect(maps.Values(c.pools))) }

// set stores a Service, as an update by a user does.
func (c *cluster) set(s *Service) {
	c.version++
	s.Version = strconv.Itoa(c.version)
	c.services[s.Key] = s
	c.a.SetService(*s)
}

// do carries out a write as the API server does.
func (c *cluster) do(w Write) bool {
	s := c.services[w.Service]
	if s == nil || s.UID != w.UID || s.Version != w.Version {
		return false
	}
	x := *s
	x.Ingress = slices.Clone(w.Ingress)
	x.Annotations = maps.Clone(x.Annotations)
	if x.Annotations == nil {
		x.Annotations = map[string]string{}
	}
	delete(x.Annotations, AllocatedFrom)
	if w.Mark != "" {
		x.Annotations[AllocatedFrom] = w.Mark
	}
	c.events = append(c.events, w.Events...)
	c.writes++
	c.set(&x)
	if c.strict {
		if bad := c.twice(); bad != "" {
			c.t.Errorf("after a write of %s: %s", w.Service, bad)
		}
	}
	return true
}

// settle steps until nothing is left to write.
func (c *cluster) settle() {
	c.t.Helper()
	for range 10 {
		r := c.a.Step(c.now)
		c.take(r)
		for _, w := range r.Writes {
			if !c.do(w) {
				c.t.Fatalf("write %+v does not fit the object", w)
			}
		}
		if len(r.Writes) == 0 && (r.Wake.IsZero() || r.Wake.After(c.now)) {
			return
		}
	}
	c.t.Fatalf("writes without an end")
}

// normal are the events that call for nothing; kubectl shows all others as warnings.
var normal = map[string]bool{EventAllocated: true, EventPoolAccepted: true}

func (c *cluster) take(r Result) {
	told := slices.Clone(r.Events)
	for _, w := range r.Writes {
		told = append(told, w.Events...)
	}
	for _, e := range told {
		if e.Warning == normal[e.Reason] {
			c.t.Errorf("event %s is a warning: %v", e.Reason, e.Warning)
		}
	}
	c.events = append(c.events, r.Events...)
	c.told += len(r.Pools)
	c.wake = r.Wake
	for _, p := range r.Pools {
		c.statuses[p.Name] = p
	}
}

// key completes a name with the namespace default.
func key(name string) model.Key {
	k := model.ParseKey(name)
	k.Namespace = cmp.Or(k.Namespace, "default")
	return k
}

// service makes or changes a Service by words such as "share=k", "ports=80,81".
func (c *cluster) service(name string, words []string) {
	k := key(name)
	s := &Service{
		Key: k, UID: k.Name, Type: "LoadBalancer", Class: new("lbd.dev/lbd"), Families: []string{"IPv4"},
		Policy: "SingleStack", Annotations: map[string]string{}, Labels: map[string]string{},
	}
	if old := c.services[s.Key]; old != nil {
		x := *old
		s = &x
		s.Annotations, s.Labels = maps.Clone(s.Annotations), maps.Clone(s.Labels)
	} else {
		c.born++
		s.Created = t0.Add(time.Duration(c.born) * time.Second)
	}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		c.word(s, k, v)
	}
	c.set(s)
}

func (c *cluster) word(s *Service, k, v string) {
	annotate := func(key string) {
		if v == "" {
			delete(s.Annotations, key)
		} else {
			s.Annotations[key] = v
		}
	}
	switch k {
	case "ips":
		annotate("lbd.dev/loadBalancerIPs")
	case "pool":
		annotate("lbd.dev/address-pool")
	case "share":
		annotate("lbd.dev/allow-shared-ip")
	case "count":
		annotate("lbd.dev/addresses-per-family")
	case "lbip":
		s.LoadBalancerIP = v
	case "ports":
		s.Ports = nil
		for p := range strings.SplitSeq(v, ",") {
			proto := "TCP"
			if u, ok := strings.CutSuffix(p, "u"); ok {
				proto, p = "UDP", u
			}
			n, _ := strconv.Atoi(p)
			s.Ports = append(s.Ports, ipam.Port{Protocol: proto, Number: uint16(n)})
		}
	case "local":
		s.Local, s.Selector = v != "", map[string]string{"app": v}
	case "families":
		s.Families = nil
		for _, f := range v {
			s.Families = append(s.Families, "IPv"+string(f))
		}
	case "policy":
		s.Policy = v
	case "class":
		s.Class = &v
		if v == "" {
			s.Class = nil
		}
	case "type":
		s.Type = v
	case "uid":
		s.UID, s.Ingress, s.Annotations = v, nil, map[string]string{}
	case "age":
		n, _ := strconv.Atoi(v)
		s.Created = t0.Add(-time.Duration(n) * time.Second)
	case "status":
		s.Ingress = nil
		for ip := range strings.SplitSeq(v, ",") {
			if strings.HasSuffix(ip, ".example") {
				s.Ingress = append(s.Ingress, Ingress{Hostname: ip})
			} else if ip != "" {
				s.Ingress = append(s.Ingress, Ingress{IP: ip})
			}
		}
	case "label":
		lk, lv, _ := strings.Cut(v, ":")
		s.Labels[lk] = lv
	default: // an annotation in full
		annotate(k)
	}
}

func (c *cluster) pool(name string, words []string) {
	c.born++
	p := Pool{Name: name, UID: name, Generation: 1, Created: t0.Add(time.Duration(c.born) * time.Second), Spec: v1alpha1.IPAddressPoolSpec{AutoAssign: new(true)}}
	if old, ok := c.pools[name]; ok {
		p.Created, p.Generation = old.Created, old.Generation+1
	}
	alloc := func() *v1alpha1.ServiceAllocation {
		if p.Spec.ServiceAllocation == nil {
			p.Spec.ServiceAllocation = &v1alpha1.ServiceAllocation{}
		}
		return p.Spec.ServiceAllocation
	}
	selector := func(v string) []v1alpha1.Selector {
		k, v, _ := strings.Cut(v, ":")
		return []v1alpha1.Selector{{MatchExpressions: []v1alpha1.SelectorRequirement{{Key: k, Operator: v1alpha1.SelectorIn, Values: []string{v}}}}}
	}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "manual":
			p.Spec.AutoAssign = new(false)
		case "avoid":
			p.Spec.AvoidBuggyIPs = true
		case "priority":
			n, _ := strconv.Atoi(v)
			alloc().Priority = int32(n)
		case "ns":
			alloc().Namespaces = strings.Split(v, ",")
		case "nslabel":
			alloc().NamespaceSelectors = selector(v)
		case "svclabel":
			alloc().ServiceSelectors = selector(v)
		case "invalid":
			p.Invalid = append(p.Invalid, v)
		default:
			p.Spec.Addresses = append(p.Spec.Addresses, w)
		}
	}
	c.pools[name] = p
	c.setPools()
}

// status is what the status of a Service says, "-" for nothing.
func (c *cluster) status(name string) string {
	s := c.services[key(name)]
	if s == nil {
		return "no such Service"
	}
	var list []string
	for _, x := range s.Ingress {
		list = append(list, x.IP+x.Hostname)
	}
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, " ")
}

// event takes the first event about an object with this reason.
func (c *cluster) event(name, reason string) (string, bool) {
	for i, e := range c.events {
		object := model.ParseKey(name)
		if e.Kind == "Service" {
			object = key(name)
		}
		if e.Object == object && e.Reason == reason {
			c.events = slices.Delete(c.events, i, i+1)
			return e.Message, true
		}
	}
	return "", false
}

// play runs a script, one command a line.
func (c *cluster) play(script string) {
	c.t.Helper()
	for n, line := range strings.Split(script, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := c.command(words); err != "" {
			c.t.Errorf("line %d, %s: %s", n+1, strings.TrimSpace(line), err)
		}
	}
}

func (c *cluster) command(words []string) string {
	c.t.Helper()
	args := words[1:]
	switch words[0] {
	case "svc":
		c.service(args[0], args[1:])
		c.settle()
	case "new": // without a decision yet
		c.service(args[0], args[1:])
	case "rm":
		delete(c.services, key(args[0]))
		c.a.RemoveService(key(args[0]))
		c.settle()
	case "pool":
		c.pool(args[0], args[1:])
		c.settle()
	case "rmpool":
		delete(c.pools, args[0])
		c.setPools()
		c.settle()
	case "node":
		c.nodes = nil
		for _, x := range args {
			c.nodes = append(c.nodes, netip.MustParseAddr(x))
		}
		c.a.SetNodes(c.nodes)
		c.settle()
	case "ns":
		labels := map[string]string{}
		for _, w := range args[1:] {
			k, v, _ := strings.Cut(w, "=")
			labels[k] = v
		}
		c.spaces[args[0]] = labels
		c.a.SetNamespace(args[0], labels)
		c.settle()
	case "tick":
		n, _ := strconv.Atoi(args[0])
		c.now = c.now.Add(time.Duration(n) * time.Second)
		if !c.wake.IsZero() && !c.wake.After(c.now) { // as the allocator has asked for
			c.settle()
		}
	case "now": // time passes, and nobody asked to be woken
		n, _ := strconv.Atoi(args[0])
		c.now = c.now.Add(time.Duration(n) * time.Second)
	case "strict":
		c.strict = true
	case "step":
		c.settle()
	case "restart":
		c.restart()
		c.settle()
	case "classless":
		c.opts.Classless = args[0] == "on"
		c.restart()
		c.settle()
	default:
		return c.look(words[0], args)
	}
	return ""
}

// look are the commands that change nothing.
func (c *cluster) look(what string, args []string) string {
	switch what {
	case "want":
		if got, want := c.status(args[0]), strings.Join(args[1:], " "); got != want {
			return "it has " + got
		}
	case "event":
		got, ok := c.event(args[0], args[1])
		if want := strings.Join(args[2:], " "); !ok || !strings.Contains(got, want) {
			return fmt.Sprintf("the event says %q; left: %v", got, c.events)
		}
	case "quiet": // no event is left, and nothing was written since the last look
		if len(c.events) > 0 || c.writes > 0 {
			left := fmt.Sprintf("events %v, writes %d", c.events, c.writes)
			c.events, c.writes = nil, 0
			return left
		}
	case "clear":
		c.events, c.writes = nil, 0
	case "told":
		n, _ := strconv.Atoi(args[0])
		if got := c.told; got != n {
			return fmt.Sprintf("%d statuses of pools", got)
		}
		c.told = 0
	case "wrote":
		n, _ := strconv.Atoi(args[0])
		if got := c.writes; got != n {
			return fmt.Sprintf("%d writes", got)
		}
		c.writes = 0
	case "mark":
		if got := c.services[key(args[0])].Annotations[AllocatedFrom]; got != strings.Join(args[1:], " ") {
			return "it is " + got
		}
	case "cond":
		var list []string
		for _, x := range c.statuses[args[0]].Conditions {
			list = append(list, fmt.Sprintf("%s:%t:%s", x.Type, x.True, x.Reason))
		}
		if got := strings.Join(list, " "); got != strings.Join(args[1:], " ") {
			return "it is " + got
		}
	case "counts":
		p := c.statuses[args[0]]
		if got := fmt.Sprint(p.AssignedIPv4, "/", p.AvailableIPv4, " ", p.AssignedIPv6, "/", p.AvailableIPv6); got != strings.Join(args[1:], " ") {
			return "they are " + got
		}
	default:
		return "no such command"
	}
	return ""
}
