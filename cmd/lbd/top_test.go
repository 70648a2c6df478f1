package main

import (
	"errors"
	"strings"
	"testing"
)

// TestTopWantsATerminal: without one it says what to use instead, as a fault of usage.
func TestTopWantsATerminal(t *testing.T) {
	_, err := execute(t, newTop(), "--socket", "/nowhere")
	if !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), "`lbd status -w`") {
		t.Errorf("%v", err)
	}
	if code, _, said := program(t, "top", "--socket", "/nowhere"); code != exitUsage || !strings.Contains(said, "`lbd status -w`") {
		t.Errorf("%d, %s", code, said)
	}
}
