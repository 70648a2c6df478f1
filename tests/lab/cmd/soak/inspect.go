package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// life is one process of a node's daemon.
type life struct {
	node string
	pid  int
}

// sample is what one daemon used at one time.
type sample struct {
	at         time.Time
	goroutines float64
	rss        int64
}

// The limits. Goroutines come and go with checks and connections.
const (
	maxGoroutines    = 150
	growthGoroutines = 15
	maxRSS           = 40 << 20
	growthRSS        = 8 << 20
	warmUp           = time.Minute
	lingerLimit      = 40 * time.Second // the drain timeout and some
)

// inspect looks into every node during quiet.
func (s *run) inspect(ctx context.Context) {
	s.leftovers(ctx)
	for _, n := range s.cluster.Nodes {
		g, err := n.Metric(ctx, "go_goroutines")
		if err != nil {
			if ctx.Err() == nil {
				s.violation("%v", err)
			}
			continue
		}
		rss, err := measure.RSS(n.Daemon.PID())
		if err != nil {
			s.violation("%s: %v", n.Name, err)
			continue
		}
		now := sample{time.Now(), g, rss}
		key := life{n.Name, n.Daemon.PID()}
		if _, ok := s.base[key]; !ok || now.at.Sub(s.begin) < warmUp {
			s.base[key] = now
		}
		s.last[key] = now
		if g > maxGoroutines || rss > maxRSS {
			s.violation("%s uses %.0f goroutines and %.1f MiB", n.Name, g, float64(rss)/(1<<20))
		}
	}
}

// growth compares the first and the last look at each process.
func (s *run) growth() {
	for k, first := range s.base {
		last := s.last[k]
		if last.at.Sub(first.at) < warmUp {
			continue
		}
		s.say("%s (process %d) over %v: goroutines %.0f -> %.0f, RSS %.1f -> %.1f MiB", k.node, k.pid, last.at.Sub(first.at).Round(time.Second),
			first.goroutines, last.goroutines, float64(first.rss)/(1<<20), float64(last.rss)/(1<<20))
		if last.goroutines > first.goroutines+growthGoroutines || last.rss > first.rss+growthRSS {
			s.violation("%s grew", k.node)
		}
	}
}

// leftovers looks for VIPs on nodes that do not own them, for tables that silence
// them, and for a healthy owner. A node that gave a VIP up may keep it, silent, as
// long as connections last.
func (s *run) leftovers(ctx context.Context) {
	deadline := time.Now().Add(lingerLimit)
	for {
		bad := s.stale(ctx)
		if len(bad) == 0 || ctx.Err() != nil {
			return
		}
		if time.Now().After(deadline) {
			s.violation("stale: %s", strings.Join(bad, "; "))
			return
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

func (s *run) stale(ctx context.Context) []string {
	var bad []string
	owners := map[string]bool{}
	for _, v := range s.cluster.Eyes.VIPs {
		n, err := s.cluster.Owner(v)
		if err != nil {
			return []string{err.Error()}
		}
		owners[n.Name+" "+v.String()] = true
		if !n.Service.Alive() {
			bad = append(bad, v.String()+" is on "+n.Name+", whose service is dead")
		}
	}
	for _, n := range s.cluster.Nodes {
		left, err := s.cluster.Leftovers(ctx, n)
		if err != nil {
			return []string{err.Error()}
		}
		left = slices.DeleteFunc(left, func(what string) bool { return owners[n.Name+" "+what] })
		for _, what := range left {
			bad = append(bad, n.Name+" has "+what)
		}
	}
	return bad
}
