package link

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackoff: each try for a subscription that is refused waits twice as long, up to a bound.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Duration
		start := time.Now()
		src := New(Options{})
		src.listen = func() (listener, error) {
			tries = append(tries, time.Since(start))
			return nil, errors.New("refused")
		}
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		if err := src.Run(ctx, (&sink{}).publish); err != nil {
			t.Error(err)
		}
		var want []time.Duration
		for at, wait := time.Duration(0), backoffMin; at < 20*time.Second; wait = min(2*wait, backoffMax) {
			want = append(want, at)
			at += wait
		}
		if len(want) != 9 || !slices.Equal(tries, want) {
			t.Errorf("tried after %v, want %v", tries, want)
		}
	})
}
