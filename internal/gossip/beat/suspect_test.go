package beat

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
)

// path is heartbeats of a node as another one sees them.
type path struct {
	*Watches
	began, now, last time.Time
	seq              uint64
	interval         time.Duration
}

func newPath(interval time.Duration, first ...model.NodeName) *path {
	p := &path{Watches: NewWatches(interval, slog.New(slog.DiscardHandler)), interval: interval}
	p.began = time.Unix(1000, 0)
	p.now = p.began
	p.Await(nil, first, p.now)
	return p
}

// beat has a heartbeat arrive after a time.
func (p *path) beat(after time.Duration) {
	p.seq++
	p.now = p.now.Add(after)
	p.last = p.now
	p.Take(&record.Beat{Name: "m2", Inc: 2, Interval: p.interval.Milliseconds(), Seq: p.seq}, p.now)
}

// pause lets time pass, looking at each deadline, and returns what was missed how long after
// the last heartbeat.
func (p *path) pause(d time.Duration) (out []string) {
	for end := p.now.Add(d); ; {
		late, next := p.Deadlines(p.now)
		for range late {
			out = append(out, fmt.Sprint("late ", p.now.Sub(p.last)))
		}
		news, at := p.Suspects(p.now)
		for _, s := range news {
			out = append(out, fmt.Sprint(s.Twice, " ", p.now.Sub(p.last)))
		}
		if next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
		if next.IsZero() || next.After(end) {
			p.now = end
			return out
		}
		p.now = next
	}
}

func (p *path) missed(t *testing.T, what string, d time.Duration, want ...string) {
	t.Helper()
	if got := p.pause(d); !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestSuspects: the first and the second missed heartbeat are noticed before the node is late,
// each once, and only by its first successor.
func TestSuspects(t *testing.T) {
	for interval, want := range map[time.Duration][]string{
		50 * time.Millisecond:  {"false 60ms", "true 110ms", "late 160ms"},
		20 * time.Millisecond:  {"false 24ms", "true 44ms", "late 64ms"},
		200 * time.Millisecond: {"false 390ms", "true 440ms", "late 640ms"},
	} {
		p := newPath(interval, "m2")
		p.beat(0)
		p.missed(t, interval.String(), 10*time.Second, want...)
		p.beat(0)
		p.missed(t, interval.String()+", again", interval)
		p.beat(0)
		p.missed(t, interval.String()+", again", 10*time.Second, want...)
		if c := p.Counts("m2"); c.Suspicions != 2 || c.Unasked != 0 || c.Late != 2 {
			t.Errorf("%+v", c)
		}
	}
	p := newPath(50*time.Millisecond, "m3")
	p.beat(0)
	p.missed(t, "another node is its first successor", 10*time.Second, "late 160ms")
}

// TestSuspicionEnds: a heartbeat that is late by an interval ends a suspicion, which is
// counted.
func TestSuspicionEnds(t *testing.T) {
	p := newPath(50*time.Millisecond, "m2")
	p.beat(0)
	p.missed(t, "one interval late", 100*time.Millisecond, "false 60ms")
	if !p.Suspected("m2") {
		t.Error("not suspected")
	}
	p.beat(0)
	if c := p.Counts("m2"); p.Suspected("m2") || c.Suspicions != 1 || c.Late != 0 {
		t.Errorf("suspected %v, %+v", p.Suspected("m2"), c)
	}
}

// TestSuspicionOfJitter: where heartbeats come late as a rule, one more is waited for.
func TestSuspicionOfJitter(t *testing.T) {
	p := newPath(50*time.Millisecond, "m2")
	p.beat(0)
	for range 100 { // every other one is late by 12 ms, 6 ms on average
		p.beat(62 * time.Millisecond)
		p.beat(38 * time.Millisecond)
	}
	got := p.pause(time.Second)
	if len(got) != 3 {
		t.Fatal(got)
	}
	first, err := time.ParseDuration(got[0][len("false "):])
	if err != nil || first < 70*time.Millisecond || first > 78*time.Millisecond {
		t.Errorf("%v: the first miss is not noticed some 74 ms after the last heartbeat", got)
	}
	// However bad the path is, the node is late as ever.
	for range 100 {
		p.beat(140 * time.Millisecond)
	}
	p.missed(t, "a bad path", time.Second, "false 100ms", "true 150ms", "late 160ms")
	// What was lost tells nothing of those that arrive.
	p = newPath(50*time.Millisecond, "m2")
	p.beat(0)
	for range 100 {
		p.seq++
		p.beat(100 * time.Millisecond)
	}
	p.missed(t, "every other one is lost", time.Second, "false 60ms", "true 110ms", "late 160ms")
}

// TestSuspicionOfOneself: a timer of this host that is late gives the node one more interval.
func TestSuspicionOfOneself(t *testing.T) {
	p := newPath(50*time.Millisecond, "m2")
	p.beat(0)
	p.now = p.now.Add(90 * time.Millisecond) // 30 ms after the deadline
	p.missed(t, "this host stood still", time.Second, "false 140ms", "late 160ms")
}

// TestSuspicionsAreBounded: so many a second may be told, the others are late as ever.
func TestSuspicionsAreBounded(t *testing.T) {
	p := newPath(50*time.Millisecond, "m2")
	p.beat(0)
	asked := 0
	for range 10 {
		p.seq++
		asked += len(p.pause(65 * time.Millisecond))
		p.beat(0)
	}
	c := p.Counts("m2")
	if asked != mostSuspicions || c.Suspicions != mostSuspicions || c.Unasked != 10-mostSuspicions {
		t.Errorf("%d suspicions, %+v", asked, c)
	}
	p.missed(t, "no more this second", 300*time.Millisecond, "late 160ms")
	p.beat(time.Second)
	p.missed(t, "the next second", 300*time.Millisecond, "false 60ms", "true 110ms", "late 160ms")
}
