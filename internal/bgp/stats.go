package bgp

import (
	"cmp"
	"slices"

	"lbd.dev/lbd/internal/bgp/bfd"
)

// BFDStats are the counters of the BFD session of a peer. They begin anew with the
// session, so also when the way to the peer changes.
type BFDStats struct {
	Peer string // its name
	Up   bool
	// In and Out are Control packets (RFC 5880 section 4.1) that were accepted and
	// sent.
	In, Out uint64
	// Ups and Downs are how often the session came up and went down.
	Ups, Downs uint64
	// Dropped are the packets of the peer that were not accepted, by each of the
	// reasons of package bfd.
	Dropped map[string]uint64
}

// BFDStats returns the counters of all BFD sessions as they are now, sorted by
// peer. It is safe for concurrent use and does not wait for Apply.
func (d *Driver) BFDStats() []BFDStats {
	all := d.bfd.Status()
	byKey := make(map[bfd.Key]*bfd.Status, len(all))
	for i := range all {
		byKey[all[i].Key] = &all[i]
	}
	d.peerMu.Lock()
	defer d.peerMu.Unlock()
	var out []BFDStats
	for name, w := range d.ways {
		s := byKey[w.key()]
		if s == nil {
			continue
		}
		x := BFDStats{
			Peer: name, Up: s.State == bfd.Up, In: s.In, Out: s.Out,
			// It begins in Down, so every other change is one to Up.
			Ups: (s.Transitions + 1) / 2, Downs: s.Transitions / 2,
			Dropped: make(map[string]uint64, len(s.Dropped)),
		}
		for r := bfd.DropMalformed; int(r) < len(s.Dropped); r++ {
			x.Dropped[r.String()] = s.Dropped[r]
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b BFDStats) int { return cmp.Compare(a.Peer, b.Peer) })
	return out
}
