package beat

import (
	"testing"

	"lbd.dev/lbd/internal/fieldtest"
	"lbd.dev/lbd/internal/model"
)

// TestSame: a change of whatever decides about heartbeats makes a new plan, that of a new field too.
func TestSame(t *testing.T) {
	fieldtest.Same(t, func(a, b *model.HeartbeatTarget) bool { return sameTarget(*a, *b) })
}
