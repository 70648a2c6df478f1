package measure

import (
	"sync"
	"time"
)

// Standstill watches until stop is called, which returns how long at worst this process
// did not run although it wanted to: it says what the machine did, not what is measured
// on it.
func Standstill() (stop func() time.Duration) {
	const every = 5 * time.Millisecond
	var watch sync.WaitGroup
	var worst time.Duration
	end := make(chan struct{})
	watch.Go(func() {
		for last := time.Now(); ; {
			time.Sleep(every)
			now := time.Now()
			worst = max(worst, now.Sub(last)-every)
			last = now
			select {
			case <-end:
				return
			default:
			}
		}
	})
	return func() time.Duration {
		close(end)
		watch.Wait()
		return worst
	}
}

// Busy is Standstill and, beside it, the busy share of the machine, 0 to 1; 1 if it cannot be read.
func Busy() (stop func() (stood time.Duration, load float64)) {
	standstill := Standstill()
	from, err := ReadCPU()
	return func() (time.Duration, float64) {
		stood := standstill()
		to, errAfter := ReadCPU()
		if err != nil || errAfter != nil {
			return stood, 1
		}
		return stood, Load(from, to)
	}
}
