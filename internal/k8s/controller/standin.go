package controller

import (
	"context"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/model"
)

// standIn are the objects of one kind that need addresses of pools. To the allocator each of them is
// a Service with a name that no Service can have, so that no address is given out twice.
type standIn interface {
	// kind is that of the objects.
	kind() string
	// claims are those that are to have addresses, as the watches know them.
	claims() []allocator.Service
	// read returns the same as it is in the API server's store: what a leader before has just
	// written must not be missing.
	read(context.Context) ([]allocator.Service, error)
	// assign writes the addresses of one, or that it has none, and returns what it is then.
	assign(context.Context, model.Key, allocator.Write) (allocator.Service, error)
	// words are those of an event of the allocator, as the users of the object may read them.
	words(allocator.Event) string
	// problem notes why one gets no address; "": it does, or asks for none any more.
	problem(k model.Key, text string)
}

// standInKey is the key by which the allocator knows an object.
func standInKey(kind string, k model.Key) model.Key {
	return model.Key{Namespace: k.Namespace, Name: kind + "/" + k.Name}
}

// standsFor returns whose a key of the allocator is, and the key of the object; nil: it is a Service.
func (c *Controller) standsFor(k model.Key) (standIn, model.Key) {
	kind, name, ok := strings.Cut(k.Name, "/")
	for _, x := range c.standIns {
		if ok && x.kind() == kind {
			return x, model.Key{Namespace: k.Namespace, Name: name}
		}
	}
	return nil, k
}

// ask completes what an object asks for as a Service: these addresses, else free ones.
func (c *Controller) ask(s *allocator.Service, fixed []netip.Addr) {
	s.Type, s.Annotations = "LoadBalancer", map[string]string{allocator.AllocatedFrom: ""}
	if c.o.Allocator.Class != "" {
		s.Class = &c.o.Allocator.Class
	}
	if len(s.Families) > 1 {
		s.Policy = "RequireDualStack"
	}
	if len(fixed) > 0 {
		var texts []string
		for _, addr := range fixed {
			texts = append(texts, addr.String())
		}
		s.Annotations[allocator.LoadBalancerIPs] = strings.Join(texts, ",")
	}
}

// has adds an address of the status of an object, as the status of a Service has it. pool may be "".
func has(s *allocator.Service, addr netip.Addr, pool string) {
	s.Ingress = append(s.Ingress, allocator.Ingress{IP: addr.String()})
	if pool == "" {
		return
	}
	mark := addr.String() + "=" + pool
	if before := s.Annotations[allocator.AllocatedFrom]; before != "" {
		mark = before + "," + mark
	}
	s.Annotations[allocator.AllocatedFrom] = mark
}

// addrsIn are the addresses that a status is to have.
func addrsIn(w allocator.Write) []netip.Addr {
	var addrs []netip.Addr
	for _, in := range w.Ingress {
		if addr, err := netip.ParseAddr(in.IP); err == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// poolsIn are the pools that they are of.
func poolsIn(w allocator.Write) map[netip.Addr]string {
	from := map[netip.Addr]string{}
	for item := range strings.SplitSeq(w.Mark, ",") {
		text, pool, _ := strings.Cut(item, "=")
		if addr, err := netip.ParseAddr(text); err == nil {
			from[addr] = pool
		}
	}
	return from
}

// readStandIns adds the objects that stand as Services to the Services that were read.
func (l *leader) readStandIns(ctx context.Context, all map[model.Key]allocator.Service) error {
	for _, x := range l.c.standIns {
		list, err := x.read(ctx)
		if err != nil {
			return err
		}
		for _, s := range list {
			all[s.Key] = s
			l.standIns[s.Key] = s
		}
	}
	return nil
}

// setStandIns hands to the allocator what has become of them.
func (l *leader) setStandIns() {
	began := time.Now()
	defer func() { l.pace.Done(began, time.Now()) }()
	now := map[model.Key]allocator.Service{}
	for _, x := range l.c.standIns {
		for _, s := range x.claims() {
			now[s.Key] = s
			if old, ok := l.standIns[s.Key]; !ok || !reflect.DeepEqual(old, s) {
				l.set(s)
			}
		}
	}
	for key := range l.standIns {
		if _, ok := now[key]; !ok {
			l.remove(key)
			if x, k := l.c.standsFor(key); x != nil {
				x.problem(k, "")
			}
		}
	}
	l.standIns = now
}

// listAgain reads the TenantServices from the store once the watch has them again, if that was refused
// before. It returns when it is to be called again; zero: all are known.
func (l *leader) listAgain(ctx context.Context, now time.Time) time.Time {
	t := l.c.tenants
	if !t.partial() {
		return time.Time{}
	}
	if next := l.listed.Add(k8s.RetryMost); next.After(now) {
		return next
	}
	l.listed = now
	if s := l.c.objects.TenantServices.State(); s.Connected && !s.Guessed {
		limited, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
		defer cancel()
		list, err := t.read(limited)
		if err == nil && !t.partial() {
			for _, s := range list {
				l.standIns[s.Key] = s
				l.set(s)
			}
			l.take(l.a.Step(now)) // what they show is theirs before anybody else may have it
			l.a.SetPools(t.pools())
			return time.Time{}
		}
	}
	return now.Add(k8s.RetryMost)
}

// lookup returns what is known of a Service, or of what stands for one.
func (l *leader) lookup(key model.Key) (allocator.Service, bool) {
	if s, ok := l.standIns[key]; ok {
		return s, true
	}
	s, ok := l.c.services.Get(key)
	return s.Service, ok
}

// writeStandIn sends the address of an object, as write does for a Service.
func (c *Controller) writeStandIn(ctx context.Context, x standIn, k model.Key, w allocator.Write) result {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.RequestTimeout)
	defer cancel()
	s, err := x.assign(ctx, k, w)
	if err != nil {
		return result{write: w, err: err}
	}
	return result{write: w, service: s, ok: true}
}

// send tells an event about a Service, or about what stands for one.
func (c *Controller) send(e allocator.Event) {
	if x, k := c.standsFor(e.Object); x != nil && e.Kind == "Service" {
		e.Kind, e.Object = x.kind(), k
		if e.Reason == allocator.EventFailed || e.Reason == allocator.EventConflict {
			e.Message = x.words(e)
			x.problem(k, e.Message)
		}
	}
	c.events.send(e)
}
