package allocator

import (
	"testing"

	"lbd.dev/lbd/internal/fieldtest"
)

// TestSameSharing: Services that wait for an address look again after each change of what
// is shared.
func TestSameSharing(t *testing.T) {
	fieldtest.Same(t, sameSharing)
}
