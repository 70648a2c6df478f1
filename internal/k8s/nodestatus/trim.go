package nodestatus

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

const established = "Established"

// trim leaves out what changes while nothing happens: the time, counters and
// durations. What s has is not changed.
func trim(s v1alpha1.NodeStatus) v1alpha1.NodeStatus {
	s.Metadata = &v1alpha1.ObjectMeta{Name: s.Node}
	s.Time = time.Time{}
	s.Members = slices.Clone(s.Members)
	for i := range s.Members {
		s.Members[i].Late = ""
	}
	s.BGP = slices.Clone(s.BGP)
	for i := range s.BGP {
		b := &s.BGP[i]
		b.Paths, b.Received, b.Flaps, b.LastErrorAt = nil, 0, 0, time.Time{}
	}
	s.Health = slices.Clone(s.Health)
	for i := range s.Health {
		h := &s.Health[i]
		h.LastDuration, h.Successes, h.Failures = "", 0, 0
	}
	s.Gossip = v1alpha1.GossipStatus{Absent: s.Gossip.Absent, Error: s.Gossip.Error}
	return s
}

// change says how soon a difference is worth a write.
type change int

const (
	none change = iota
	// words: texts of errors, which may be others with each attempt at the same.
	words
	usual
	// move: an address or a session is elsewhere, or in another state.
	move
)

// compare compares two statuses that are trimmed.
func compare(a, b *v1alpha1.NodeStatus) change {
	switch {
	case moved(a, b):
		return move
	case reflect.DeepEqual(a, b):
		return none
	case reflect.DeepEqual(wordless(a), wordless(b)):
		return words
	}
	return usual
}

// moved tells whether the node stands otherwise, or an address or a session does.
func moved(a, b *v1alpha1.NodeStatus) bool {
	if a.Draining != b.Draining || a.Settled != b.Settled || a.Summary.Announced != b.Summary.Announced ||
		a.Summary.BGP != b.Summary.BGP || a.Summary.BFD != b.Summary.BFD {
		return true
	}
	return !model.SameList(a.VIPs, b.VIPs) && !slices.EqualFunc(a.VIPs, b.VIPs, func(x, y v1alpha1.VIPStatus) bool {
		return x.Address == y.Address && x.Mode == y.Mode && x.Owner == y.Owner && x.Announced == y.Announced
	})
}

// wordless is a status without the texts of errors.
func wordless(s *v1alpha1.NodeStatus) v1alpha1.NodeStatus {
	c := *s
	sum := *s.Summary
	sum.Problem = present(sum.Problem)
	c.Summary = &sum
	c.BGP = slices.Clone(s.BGP)
	for i := range c.BGP {
		b := &c.BGP[i]
		b.Error = present(b.Error)
		if b.State != established { // it goes through the others again and again
			b.State = ""
		}
	}
	c.VIPs = slices.Clone(s.VIPs)
	for i := range c.VIPs {
		c.VIPs[i].Detail = ""
	}
	c.Health = slices.Clone(s.Health)
	for i := range c.Health {
		c.Health[i].Detail = ""
	}
	c.LoadBalancers = slices.Clone(s.LoadBalancers)
	for i := range c.LoadBalancers {
		of := &c.LoadBalancers[i]
		of.Backends = slices.Clone(of.Backends)
		for j := range of.Backends {
			of.Backends[j].Detail = ""
		}
	}
	c.Drivers = slices.Clone(s.Drivers)
	for i := range c.Drivers {
		c.Drivers[i].Error = present(c.Drivers[i].Error)
	}
	c.Gossip.Error = present(c.Gossip.Error)
	if s.Kubernetes != nil {
		k := *s.Kubernetes
		k.LastError, k.Since = "", time.Time{}
		c.Kubernetes = &k
	}
	return c
}

// present is the same for every text but none.
func present(text string) string { return strings.Repeat("x", min(len(text), 1)) }
