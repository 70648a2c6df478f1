package layer2

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestConflictIsLoggedNowAndThen: one host that uses a VIP is logged once a minute, another one at
// once but not within the same second, and nobody while the VIP yields.
func TestConflictIsLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		k := newFake()
		h := &harness{T: t, k: k, d: newDriver(slog.New(slog.NewTextHandler(&log, nil)), k), valid: time.Hour}
		for f := range h.s {
			h.s[f] = &fakeSilence{k: k}
			h.d.silence.of[f] = h.s[f]
		}
		defer h.close()
		wants := func(when string, n int) {
			t.Helper()
			h.d.mu.Lock() // no line is being written
			defer h.d.mu.Unlock()
			if got := strings.Count(log.String(), "another host uses the VIP"); got != n {
				t.Errorf("%s: logged %d times, want %d", when, got, n)
			}
		}
		h.apply(announceVIP(vip4))
		for _, c := range []struct {
			when  string
			after time.Duration
			by    model.MAC
			n     int
		}{
			{"the first frame", 0, rivalMAC, 1},
			{"the next", 100 * ms, rivalMAC, 1},
			{"within a minute", conflictLogInterval - 101*ms, rivalMAC, 1},
			{"after a minute", ms, rivalMAC, 2},
			{"another host within a second", defendInterval - ms, otherMAC, 2},
			{"the first one again, after a second", ms, rivalMAC, 3},
			{"the same one a second later", defendInterval, rivalMAC, 3},
			{"another host", 0, otherMAC, 4},
		} {
			time.Sleep(c.after)
			h.k.hear(gratuitous(c.by, vip4))
			wants(c.when, c.n)
		}
		h.apply(yieldingVIP(vip4))
		time.Sleep(2 * conflictLogInterval)
		h.k.hear(gratuitous(rivalMAC, vip4))
		wants("while it yields", 4)
	})
}
