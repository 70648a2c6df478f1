package health

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestReasonOfAFailureIsToldOnceASecond: a server whose error is another one each time, as with
// a port or a time in it, makes no news with each check.
func TestReasonOfAFailureIsToldOnceASecond(t *testing.T) {
	var told []string
	c := &check{
		debounce: debouncer{fall: 1, rise: 1, state: model.HealthUp}, log: func() *slog.Logger { return slog.New(slog.DiscardHandler) },
		report: func(r result) { told = append(told, r.state.Detail) },
	}
	start := time.Unix(1000, 0)
	for i, s := range []struct {
		after     time.Duration
		err, want string
	}{
		{0, "port 1", "port 1"}, {detailEvery / 2, "port 2", "port 1"}, {detailEvery, "port 3", "port 3"},
		{detailEvery + 1, "port 4", "port 3"}, {2 * detailEvery, "port 5", "port 5"},
	} {
		c.conclude(errors.New(s.err), start.Add(s.after), 0)
		if told[i] != s.want {
			t.Errorf("%v after the first failure: %q, want %q", s.after, told[i], s.want)
		}
	}
}
