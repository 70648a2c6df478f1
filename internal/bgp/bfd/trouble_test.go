package bfd

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTroubleIsToldOnce: why packets cannot be sent is told once, another reason again, and that they
// can be sent again once, too.
func TestTroubleIsToldOnce(t *testing.T) {
	news := make(chan event, 8)
	l, err := newLoop(func() {}, news)
	if err != nil {
		t.Fatal(err)
	}
	defer l.orders.close()
	m := newMachine(time.Now(), usual, own, 1, func() float64 { return 0.5 })
	w := &watch{m: m, slot: -1, state: Down, out: outbound{fd: -1}}
	defer w.out.close()
	newLab(t).In("a", func() {
		now := time.Now()
		for _, c := range []struct {
			key  Key
			want error
		}{
			{Key{Peer: addr("10.0.0.2"), Interface: "none"}, errNoInterface},
			{Key{Peer: addr("192.0.2.1")}, unix.ENETUNREACH},
			{Key{Peer: addr("10.0.0.2"), Interface: "none"}, errNoInterface},
			{Key{Peer: addr("10.0.0.2")}, nil},
		} {
			w.key = c.key
			w.prepare(0)
			for range 3 {
				l.emit(w, &Packet{State: Down, DetectMult: 3, MyDiscr: own}, now)
			}
			if len(news) != 1 {
				t.Errorf("%s: told %d times", c.key, len(news))
				return
			}
			if e := <-news; e.key != c.key || !errors.Is(e.trouble, c.want) || !errors.Is(w.trouble, c.want) {
				t.Errorf("%s: told %+v, want %v", c.key, e, c.want)
			}
		}
		if w.sent != 3 {
			t.Errorf("%d packets are counted, want 3", w.sent)
		}
	})
}
