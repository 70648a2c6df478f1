package decide

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// litFor is longer than any test lasts.
const litFor = 20 * time.Hour

// lit has the network of every interface answer, and nobody ask for a long time.
func lit(v *model.View) {
	v.Memory.Wires = make(map[string]model.WireMemory)
	for n := range v.Links {
		at := v.Now.Add(2 * litFor)
		v.Memory.Wires[n] = model.WireMemory{At: at, Heard: at}
	}
}

// hear lets layer 2 say who answers of those whom it was asked for.
func (s *stage) hear() {
	a := s.v.Applied[model.SinkLayer2]
	if a.VIPs = maps.Clone(a.VIPs); a.VIPs == nil {
		a.VIPs = map[netip.Addr]model.AppliedVIP{}
	}
	for _, q := range s.d.L2 {
		if q.Mode != model.L2Probe || q.Addr == scriptVIP {
			continue
		}
		answers := slices.ContainsFunc(s.answer, func(n string) bool {
			return slices.Contains(s.v.Gossip.Members[model.NodeName(n)].Addrs, q.Addr)
		})
		a.VIPs[q.Addr] = model.AppliedVIP{Probe: model.ProbeResult{Series: q.Series, Done: true, Answered: answers, At: s.v.Now}}
	}
	s.v.Applied[model.SinkLayer2] = a
}
