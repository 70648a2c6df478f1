package bgp

import (
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestDeadManAfterClose: a dead man's switch that goes off while Close has the paths finds the
// driver closed: the paths stay with the routers, which keep them for a restart.
func TestDeadManAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", peer("a", "10.0.0.1"))
		b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a")}
		b.want.ValidUntil = time.Now().Add(1500 * time.Millisecond)
		b.apply("start, set 203.0.113.1, add a")
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		b.took(`close "lbd stops on this node"`)
		time.Sleep(10 * time.Second)
		b.expire()
		b.took("")
	})
}
