package bgp

import (
	"time"

	"lbd.dev/lbd/internal/model"
)

// deadManWait is how long after the end of the last decision paths stay. Then
// nobody decides any more although the process runs, and it must not attract
// packets for ever.
const deadManWait = 5 * time.Second

// deadMan is the dead man's switch. Driver.pathMu guards it.
type deadMan struct {
	validUntil time.Time // of the last decision; zero: none follows
	dead       *time.Timer
	expired    bool
}

// end turns the switch off.
func (m *deadMan) end() {
	m.dead.Stop()
	m.validUntil = time.Time{}
}

// outlived tells whether the decision is so old that the dead man's switch counts,
// and sets that anew.
func (d *Driver) outlived(want *model.Desired) bool {
	until := want.ValidUntil
	if until.IsZero() {
		return false
	}
	past := !time.Now().Before(until.Add(deadManWait))
	if !past && d.expired {
		d.expired = false
		d.log.Info("decisions are made again", "paths", len(want.BGP.Paths))
	}
	d.validUntil = until
	switch {
	case want.BGP.Leave:
		d.deadMan.end() // no decision follows
	case !past || !d.expired: // it is not told twice: each time has Apply called
		d.dead.Reset(max(time.Until(until.Add(deadManWait)), 0))
	}
	return past
}

// expire is the dead man's switch: nobody has decided for too long.
func (d *Driver) expire() {
	d.pathMu.Lock()
	defer d.pathMu.Unlock()
	if d.validUntil.IsZero() || time.Now().Before(d.validUntil.Add(deadManWait)) {
		return
	}
	if len(d.paths) > 0 && !d.expired {
		d.log.Warn("no decision for too long: paths withdrawn", "paths", len(d.paths), "since", time.Since(d.validUntil).Round(time.Millisecond))
	}
	news := !d.expired
	d.expired = true
	for prefix := range d.paths {
		if err := d.speaker.DeletePath(prefix); err != nil {
			d.log.Error("path not withdrawn", "prefix", prefix, "err", err)
			d.dead.Reset(time.Second)
			continue
		}
		delete(d.paths, prefix)
		news = true
	}
	if news {
		d.notify()
	}
}
