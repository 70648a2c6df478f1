// Package wake tells a goroutine that there is something to do, or that it is time.
package wake

import (
	"context"
	"time"
)

// Up puts a token into a channel of capacity one, and never blocks: a token that is there
// already covers this one too.
func Up(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Sleep waits for a time, or until ctx ends. It tells whether ctx goes on.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
