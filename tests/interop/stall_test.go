package interop_test

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/tests/interop"
)

// TestStall freezes the router's BFD daemon, and all of lbd, for longer than the
// detection time: once they run again the session comes up and stays up, whatever
// had queued up meanwhile. Each state that one side tells at once is answered at
// once by the other, so a few packets of the past can chase one another for ever.
func TestStall(t *testing.T) {
	t.Parallel()
	need(t)
	c := startCase(t, matrixCase{name: "bfd"}, "frr")
	frr := c.Router.(*interop.FRR)
	up := expectations(t, c, filepath.Join("testdata", "matrix", "bfd"), "frr")
	if err := interop.Eventually(t.Context(), caseLimit, "as expected", up); err != nil {
		t.Fatal(err)
	}
	m := c.Net.Nodes[0]
	for _, x := range []struct {
		name   string
		signal func(syscall.Signal) error
	}{{"router", frr.BFD.Signal}, {"node", m.Daemon.Signal}} {
		for range 3 {
			before, err := flaps(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if err := x.signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			interop.Pause(t.Context(), 1500*time.Millisecond)
			if err := x.signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if err := interop.Eventually(t.Context(), caseLimit, x.name+" runs again", up); err != nil {
				t.Fatal(err)
			}
			interop.Pause(t.Context(), 2*time.Second)
			// A session that was lost meanwhile is among the flaps. On a busy machine the question
			// itself may fail once.
			if err := interop.Eventually(t.Context(), caseLimit, x.name+", two seconds later", up); err != nil {
				t.Error(err)
			}
			after, err := flaps(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s frozen for 1.5 s: %d flaps", x.name, after-before)
			if after-before > fewFlaps {
				t.Errorf("%s frozen for 1.5 s: %d flaps, want 1 and not over %d", x.name, after-before, fewFlaps)
			}
		}
	}
}

// fewFlaps is how often the session may be lost after a stall: once, and some more
// on a busy machine.
const fewFlaps = 4

// flaps is how often lbd lost its session.
func flaps(ctx context.Context, c *interop.Case) (uint64, error) {
	st, err := c.Status(ctx)
	if err != nil {
		return 0, err
	}
	if len(st.BGP) != 1 {
		return 0, fmt.Errorf("%d sessions, want 1", len(st.BGP))
	}
	return st.BGP[0].Flaps, nil
}
