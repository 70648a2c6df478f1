package gossip

import (
	"testing"

	"lbd.dev/lbd/internal/fieldtest"
	"lbd.dev/lbd/internal/model"
)

// TestSame: a change of whatever the others are told is told, that of a new field too.
func TestSame(t *testing.T) {
	fieldtest.Same(t, sameHead, "V")
	fieldtest.Same(t, func(a, b *model.HeartbeatTarget) bool { return sameTarget(*a, *b) })
	fieldtest.Same(t, func(a, b *[]model.GroupVIP) bool { return sameVIPs(*a, *b) })
}
