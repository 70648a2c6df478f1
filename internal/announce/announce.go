// Package announce is the port through which decisions reach the outside, and
// the runner that drives an adapter behind it.
package announce

import (
	"context"
	"sync"
	"time"

	"lbd.dev/lbd/internal/model"
)

// Driver makes its part of a Desired true.
type Driver interface {
	Name() model.SinkName
	// Apply is given the whole wanted state, again and again, often unchanged. It
	// diffs against the truth, adds before it deletes, and returns the truth, also
	// with an error. Deleting what is not there succeeds. It is never called
	// concurrently. The runner fills in Gen and At of the report.
	Apply(ctx context.Context, want *model.Desired) (model.Applied, error)
	// Changed fires when the truth may have changed without an Apply (an address
	// was removed, a probe was answered); the runner then applies the last Desired
	// again. It may be nil.
	Changed() <-chan struct{}
	// Close releases sockets; it does not undo what was applied.
	Close(ctx context.Context) error
}

// Mutex is the lock of a driver: a sync.Mutex, but in a simulation, where whoever waits for
// it lets simulated time pass, and a frozen process gets none.
type Mutex interface {
	sync.Locker
	TryLock() bool
}

// Extender is a Driver that can go on with the Desired that it was given last
// without looking at the truth again. That is most of what an idle daemon asks for.
type Extender interface {
	Driver
	// Extend moves Desired.ValidUntil. It never waits: if the driver is busy, or has
	// anything to put right, it returns false and is given the whole Desired again.
	// It never runs at the same time as Apply.
	Extend(until time.Time) bool
}
