// Package source is the port through which facts reach the daemon.
package source

import (
	"context"

	"lbd.dev/lbd/internal/model"
)

// Publish hands a change of the View to the daemon. The function runs later, on
// the daemon's goroutine, and must only replace the source's own section. It may
// keep what it was given: the caller must not change it afterwards. Publish
// never blocks for long and is safe for concurrent use.
type Publish func(change func(*model.View))

// Source watches something and publishes what it finds. Run blocks until ctx
// ends or the source cannot go on. A source marks View.Synced[Name()] in the
// change that carries its first full state.
type Source interface {
	Name() model.SourceName
	Run(ctx context.Context, publish Publish) error
}
