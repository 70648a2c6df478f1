package bfd

import (
	"testing"

	"lbd.dev/lbd/internal/fieldtest"
)

// TestSame: a session is made anew for each field that changes.
func TestSame(t *testing.T) {
	fieldtest.Same(t, (*Session).same)
}
