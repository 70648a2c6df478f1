package measure_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// First attempts of tests run at once; a second attempt runs alone.
func TestTurns(t *testing.T) {
	var turns measure.Turns
	var running sync.WaitGroup
	var beside atomic.Int32
	together := make(chan struct{})
	for range 3 {
		running.Go(func() {
			turns.Attempt(1, func() {
				if beside.Add(1) == 3 {
					close(together)
				}
				<-together // all three are here, or the test hangs
				time.Sleep(20 * time.Millisecond)
				beside.Add(-1)
			})
		})
	}
	<-together
	for range 3 {
		running.Go(func() {
			turns.Attempt(2, func() {
				if n := beside.Add(1); n != 1 {
					t.Errorf("%d attempts run beside one that is to be alone", n-1)
				}
				time.Sleep(20 * time.Millisecond)
				beside.Add(-1)
			})
		})
	}
	running.Wait()
}
