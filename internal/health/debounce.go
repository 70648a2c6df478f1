package health

import "lbd.dev/lbd/internal/model"

// debouncer turns single results into a state that changes only after rise
// successes or fall failures in a row.
type debouncer struct {
	fall, rise int
	state      model.Health

	passes, fails int // of the required check, in a row
	hits, misses  int // of the preferred one
}

// observe adds a result, model.HealthUp, HealthDegraded or HealthDown, and tells whether
// the state has changed.
func (d *debouncer) observe(result model.Health) bool {
	was := d.state
	if result == model.HealthUp {
		d.hits, d.misses = d.hits+1, 0
	} else {
		d.hits, d.misses = 0, d.misses+1
	}
	if result == model.HealthDown {
		d.passes, d.fails = 0, d.fails+1
	} else {
		d.passes, d.fails = d.passes+1, 0
	}
	switch {
	case d.fails >= d.fall:
		d.state = model.HealthDown
	case d.fails > 0 && d.state != model.HealthUp:
	case d.misses >= d.fall && (d.passes >= d.rise || d.state == model.HealthUp):
		d.state = model.HealthDegraded
	case d.hits >= d.rise:
		d.state = model.HealthUp
	}
	return d.state != was
}

// falling tells that the last result was worse than the state (yet): another result is
// wanted soon.
func (d *debouncer) falling() bool {
	if d.fails > 0 {
		return d.state != model.HealthDown
	}
	return d.misses > 0 && d.state != model.HealthDegraded
}
