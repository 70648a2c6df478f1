package address

import (
	"maps"
	"time"

	"lbd.dev/lbd/internal/wake"
)

// pace keeps a beat for every lifetime in use, that of the driver always: the
// moments at which all holds with that lifetime are renewed together, a third of
// it apart. So a long lifetime costs little, and what has the same lifetime ends
// together. d.mu is held.
func (d *Driver) pace() {
	used := map[time.Duration]bool{d.lifetime: true}
	for _, h := range d.holds.list {
		used[h.lifetime] = true
	}
	maps.DeleteFunc(d.beats, func(lifetime time.Duration, _ time.Time) bool { return !used[lifetime] })
	for lifetime := range used {
		if _, ok := d.beats[lifetime]; !ok {
			d.beats[lifetime] = time.Now().Add(lifetime / 3)
			wake.Up(d.tasks.paced)
		}
	}
}

// beat tells which lifetimes have their beat now and moves these beats on. One
// that was missed is not made up for. d.mu is held.
func (d *Driver) beat(now time.Time) map[time.Duration]bool {
	due := make(map[time.Duration]bool, len(d.beats))
	for lifetime, at := range d.beats {
		if now.Before(at) {
			continue
		}
		due[lifetime] = true
		if at = at.Add(lifetime / 3); !at.After(now) {
			at = now.Add(lifetime / 3)
		}
		d.beats[lifetime] = at
	}
	return due
}

// rest is the time until the next beat of any lifetime.
func (d *Driver) rest() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.beats[d.lifetime]
	for _, at := range d.beats {
		if at.Before(next) {
			next = at
		}
	}
	return time.Until(next)
}
