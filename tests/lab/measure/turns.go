package measure

import "sync"

// Turns are for the tests of a package that run beside each other: they measure beside each other
// too, and one that has to measure again, since the machine was too busy, does so while no other one
// measures. Attempts must not be nested. The zero value is ready for use.
type Turns struct{ running sync.RWMutex }

// Attempt runs the attempt of that number; the first is 1, and the next ones run alone.
func (t *Turns) Attempt(number int, run func()) {
	if number > 1 {
		t.running.Lock()
		defer t.running.Unlock()
	} else {
		t.running.RLock()
		defer t.running.RUnlock()
	}
	run()
}
