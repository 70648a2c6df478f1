package gossip

import (
	"context"
	"testing"
	"time"

	"lbd.dev/lbd/internal/gossip/beat"
	"lbd.dev/lbd/internal/model"
)

// next has the node expect heartbeats of the owners, as a successor does.
func (m *member) next(owners ...model.NodeName) {
	m.apply(func(gs *model.GroupState) { gs.Owners = owners })
}

// TestOwnerWhoseDecisionsStandStillIsMissed: its gossip goes on, and it never had to send
// a heartbeat to the node that is to take over, which was drained until now.
func TestOwnerWhoseDecisionsStandStillIsMissed(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		a.claim(vip1, 1)
		want := &model.Desired{Gen: 9, ValidUntil: time.Now().Add(time.Second), Group: a.want}
		if _, err := a.driver.Apply(context.Background(), want); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // no decision any more
		b.standby(vip1)
		b.next("m1")
		l.within(beat.FirstBeat+time.Second, "the owner is late", func() bool { return !b.other("m1").Late.IsZero() })
		time.Sleep(10 * time.Second)
		if b.other("m1").Late.IsZero() || b.other("m1").State != model.MemberAlive {
			t.Errorf("late %v, %v: want late and alive", b.other("m1").Late, b.other("m1").State)
		}
		a.claim(vip1, 1, "m2") // it decides again
		l.within(time.Second, "the owner is not late", func() bool { return b.other("m1").Late.IsZero() })
		if missed := b.heard("m1").Missed; missed != 0 {
			t.Errorf("%d heartbeats missed that were never sent", missed)
		}
	})
}

// TestOwnerThatOwesNoHeartbeatsIsNotMissed: it decides, and sends none since it sees the
// ranks in another way. It says so when it is asked.
func TestOwnerThatOwesNoHeartbeatsIsNotMissed(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		a.claim(vip1, 1)
		b.standby(vip1)
		b.next("m1")
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if !b.other("m1").Late.IsZero() {
				t.Fatal("it is late")
			}
		}
	})
}

// TestOwnerThatIsNoneAnyMoreIsNotAwaited: the VIP moved, or somebody else is next.
func TestOwnerThatIsNoneAnyMoreIsNotAwaited(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		stale := &model.Desired{Gen: 9, ValidUntil: time.Now(), Group: a.want}
		if _, err := a.driver.Apply(context.Background(), stale); err != nil {
			t.Fatal(err)
		}
		b.next("m1")
		time.Sleep(time.Second)
		b.next()
		time.Sleep(2 * beat.FirstBeat)
		if !b.other("m1").Late.IsZero() {
			t.Error("late")
		}
	})
}
