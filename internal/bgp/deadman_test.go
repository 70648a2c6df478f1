package bgp

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/model"
)

func TestDeadMan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", peer("a", "10.0.0.1"))
		b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a")}
		b.want.ValidUntil = time.Now().Add(1500 * time.Millisecond)
		b.apply("start, set 203.0.113.1, add a")
		b.speaker.session("a", established)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		b.took("")
		b.want.ValidUntil = time.Now().Add(1500 * time.Millisecond) // newer
		b.apply("")
		time.Sleep(6400 * time.Millisecond)
		synctest.Wait()
		b.took("")
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		b.took("delete 203.0.113.1") // sessions stay
		// The runner applies the old decision again: it does not come back.
		if got := b.apply(""); len(got.Paths) != 0 {
			t.Errorf("%+v", got.Paths)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		b.took("")
		if n := strings.Count(b.logged(), "paths withdrawn"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, b.logged())
		}
		b.want.ValidUntil = time.Now().Add(time.Second)
		b.apply("set 203.0.113.1")
	})
}

// TestDeadManRests: who applies the old decision again whenever told of a change
// is told once.
func TestDeadManRests(t *testing.T) {
	for name, refused := range map[string]error{"withdrawn": nil, "not withdrawn": errRefused} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, "", peer("a", "10.0.0.1"))
				b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a")}
				b.want.ValidUntil = time.Now().Add(1500 * time.Millisecond)
				b.apply("start, set 203.0.113.1, add a")
				b.speaker.mu.Lock()
				b.speaker.pathErr[host("203.0.113.1")] = refused
				b.speaker.mu.Unlock()
				applied := 0
				for end := time.After(20 * time.Second); applied < 100; {
					select {
					case <-b.Changed():
						applied++
						_, _ = b.Apply(t.Context(), &b.want)
						continue
					case <-end:
					}
					break
				}
				if applied != 1 {
					t.Errorf("applied %d times", applied)
				}
				if n := strings.Count(b.speaker.took(), "delete"); refused == nil && n != 1 || refused != nil && (n < 10 || n > 20) {
					t.Errorf("tried to withdraw %d times", n)
				}
			})
		})
	}
}

func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		graceful := func(p *model.BGPPeer) { p.GracefulRestart, p.RestartTime = true, 10*time.Second }
		b := newBed(t, "", peer("a", "10.0.0.1", graceful), peer("b", "10.0.0.2"))
		b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a", "b")}
		b.want.ValidUntil = time.Now().Add(1500 * time.Millisecond)
		b.apply("start, set 203.0.113.1, add a, add b")
		b.speaker.session("a", established)
		b.speaker.session("b", established)
		b.want.BGP.Leave = true
		got := b.apply(`remove b "lbd stops on this node"`)
		if x := got.Paths[host("203.0.113.1")]; !slices.Equal(x, []string{"a"}) {
			t.Errorf("advertised to %v", x)
		}
		b.apply("")
		time.Sleep(time.Minute) // no decision follows; the path stays for the restart
		synctest.Wait()
		b.took("")
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
		b.took(`close "lbd stops on this node"`)
		if !b.bfd.closed {
			t.Error("BFD goes on")
		}
	})
}
