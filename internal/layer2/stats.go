package layer2

import "sync/atomic"

// Stats are totals since the driver was made.
type Stats struct {
	Announcements  uint64 // frames that announced a VIP, defences included
	Probes         uint64 // probe frames sent
	ProbesAnswered uint64 // probe series that ended because somebody holds the VIP
	ProbesSilent   uint64 // probe series that nobody answered
	Conflicts      uint64 // frames in which a foreign host used an announced VIP
	Defences       uint64 // announcements that answered a conflict
	Answers        uint64 // requests and solicitations that were answered
	Dropped        uint64 // those that were not, since there were too many
	Lapses         uint64 // times that the process stood still for too long to go on answering
	Errors         uint64 // frames, sockets and rules that failed
}

type counters struct {
	announcements, probes, answered, silent, conflicts, defences, answers, dropped, errors atomic.Uint64
}

// Stats returns the totals.
func (d *Driver) Stats() Stats {
	c := &d.counters
	return Stats{
		Announcements:  c.announcements.Load(),
		Probes:         c.probes.Load(),
		ProbesAnswered: c.answered.Load(),
		ProbesSilent:   c.silent.Load(),
		Conflicts:      c.conflicts.Load(),
		Defences:       c.defences.Load(),
		Answers:        c.answers.Load(),
		Dropped:        c.dropped.Load(),
		Lapses:         d.clock.count(),
		Errors:         c.errors.Load(),
	}
}
