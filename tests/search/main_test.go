package search

import (
	"os"
	"runtime/debug"
	"testing"
)

// A collection looks at the keys of all states that were ever seen. With fewer collections a search
// takes a fifth less time, and up to 2 GiB.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(2 << 30)
	os.Exit(m.Run())
}
