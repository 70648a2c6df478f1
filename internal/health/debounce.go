package health

import "lbd.dev/lbd/internal/model"

// debouncer turns single results into a state that changes only after rise
// successes or fall failures in a row.
type debouncer struct {
	fall, rise int
	state      model.Health

	passes, fails int // in a row
}

// observe adds a result and tells whether the state has changed.
func (d *debouncer) observe(pass bool) bool {
	if pass {
		d.passes, d.fails = d.passes+1, 0
		return d.become(model.HealthUp, d.passes >= d.rise)
	}
	d.passes, d.fails = 0, d.fails+1
	return d.become(model.HealthDown, d.fails >= d.fall)
}

func (d *debouncer) become(state model.Health, enough bool) bool {
	if !enough || d.state == state {
		return false
	}
	d.state = state
	return true
}

// falling tells that the last result was a failure and that the state is not
// down (yet): another result is wanted soon.
func (d *debouncer) falling() bool { return d.fails > 0 && d.state != model.HealthDown }
