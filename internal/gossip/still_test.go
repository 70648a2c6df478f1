package gossip

import (
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestExchangesDoNotWakeTheSettled: that full states were exchanged is told to a node
// that settles, at once or when it begins to; one that is settled need not decide for it.
func TestExchangesDoNotWakeTheSettled(t *testing.T) {
	bubble(t, func(l *lab) {
		a := l.start(1)
		l.start(2)
		l.joined(5 * time.Second)
		settle := func(on bool) { a.apply(func(gs *model.GroupState) { gs.Settled = on }) }
		last := func() time.Time { return see(a, func(g *model.Gossip) time.Time { return g.Exchanged }) }
		settle(true)
		time.Sleep(2 * time.Second)
		before, told := a.publications(), last()
		time.Sleep(time.Minute)
		if n, now := a.publications()-before, last(); n != 0 || !now.Equal(told) {
			t.Errorf("%d publications while nothing happened, exchanges until %v are told", n, now)
		}
		settle(false)
		l.within(time.Second, "the last exchange is told", func() bool { return last().Sub(told) > 30*time.Second })
		told = last()
		l.within(30*time.Second, "the next exchange is told", func() bool { return last().After(told) })
	})
}
