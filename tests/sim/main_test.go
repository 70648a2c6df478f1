package sim

import (
	"os"
	"runtime/debug"
	"testing"
)

// Daemons that live minutes in a second leave much garbage and little else. With fewer collections
// a simulation takes a tenth less time. GOMEMLIMIT leaves room for a large one.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(2 << 30)
	}
	os.Exit(m.Run())
}
