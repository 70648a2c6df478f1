package bgp

import "sync/atomic"

// Stats are totals since the driver was made. Sessions are in model.PeerReport.
type Stats struct {
	PathsSet       uint64 // paths added or changed
	PathsWithdrawn uint64
	BFDDown        uint64 // BGP sessions that BFD ended
	Expired        uint64 // times that paths were withdrawn since nobody decided
	Errors         uint64 // paths that the speaker refused
}

type counters struct{ set, deleted, bfdDown, expired, errors atomic.Uint64 }

// Stats returns the totals.
func (d *Driver) Stats() Stats {
	c := &d.stats
	return Stats{
		PathsSet: c.set.Load(), PathsWithdrawn: c.deleted.Load(), BFDDown: c.bfdDown.Load(),
		Expired: c.expired.Load(), Errors: c.errors.Load(),
	}
}
