package lease

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// table is an API server with one Lease.
type table struct {
	mu      sync.Mutex
	r       *Record
	version int
	writers []string
}

// seat is the table as one process reaches it.
type seat struct {
	*table
	mu   sync.Mutex
	cut  bool          // nothing comes through
	lost bool          // requests come through, answers do not
	slow time.Duration // of each request
}

func (s *seat) set(f func(*seat)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *seat) pass(ctx context.Context) (bool, error) {
	s.mu.Lock()
	cut, lost, slow := s.cut, s.lost, s.slow
	s.mu.Unlock()
	if cut {
		<-ctx.Done()
		return false, ctx.Err()
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(slow):
	}
	return lost, nil
}

func (s *seat) Get(ctx context.Context) (Record, error) {
	lost, err := s.pass(ctx)
	if err != nil {
		return Record{}, err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if lost {
		return Record{}, errors.New("no answer")
	}
	if s.r == nil {
		return Record{}, apierrors.NewNotFound(resource, "x")
	}
	return *s.r, nil
}

func (s *seat) Create(ctx context.Context, r Record) (Record, error) { return s.write(ctx, r, true) }
func (s *seat) Update(ctx context.Context, r Record) (Record, error) { return s.write(ctx, r, false) }

func (s *seat) write(ctx context.Context, r Record, create bool) (Record, error) {
	lost, err := s.pass(ctx)
	if err != nil {
		return Record{}, err
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	switch {
	case create && s.r != nil:
		return Record{}, apierrors.NewAlreadyExists(resource, "x")
	case !create && s.r == nil:
		return Record{}, apierrors.NewNotFound(resource, "x")
	case !create && s.r.Version != r.Version:
		return Record{}, apierrors.NewConflict(resource, "x", errors.New("changed"))
	}
	s.version++
	r.Version = strconv.Itoa(s.version)
	s.r = &r
	s.writers = append(s.writers, r.Holder)
	if lost {
		return Record{}, errors.New("no answer")
	}
	return r, nil
}

// process is one that takes part.
type process struct {
	*seat
	e     *Elector
	stop  context.CancelFunc
	ended chan struct{}
	terms chan time.Duration // how long each term lasted
	mu    sync.Mutex
	leads bool
	late  time.Duration // lead goes on for so long after the end of its context
}

func (p *process) leading() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leads
}

func begin(t *testing.T, table *table, name string) *process {
	p := newProcess(table, name)
	p.start(t)
	return p
}

func newProcess(table *table, name string) *process {
	p := &process{seat: &seat{table: table}, ended: make(chan struct{}), terms: make(chan time.Duration, 100)}
	p.e = New(Options{Logger: slog.New(slog.DiscardHandler), API: p.seat, Identity: name})
	return p
}

func (p *process) start(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	p.stop = stop
	go func() {
		defer close(p.ended)
		p.e.Run(ctx, func(ctx context.Context) {
			begun := time.Now()
			p.mu.Lock()
			p.leads = true
			p.mu.Unlock()
			<-ctx.Done()
			p.mu.Lock()
			late := p.late
			p.mu.Unlock()
			time.Sleep(late)
			p.mu.Lock()
			p.leads = false
			p.mu.Unlock()
			p.terms <- time.Since(begun)
		})
	}()
}

// one fails if two lead, and returns who does.
func one(t *testing.T, all ...*process) *process {
	t.Helper()
	var leader *process
	for _, p := range all {
		if p.leading() {
			if leader != nil {
				t.Fatal("two lead")
			}
			leader = p
		}
	}
	return leader
}

// during looks every 100 ms.
func during(t *testing.T, d time.Duration, all ...*process) {
	t.Helper()
	for range d / (100 * time.Millisecond) {
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		one(t, all...)
	}
}

func end(all ...*process) {
	for _, p := range all {
		p.stop()
		<-p.ended
	}
}

func TestOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := &table{}
		a, b := begin(t, tab, "a"), begin(t, tab, "b")
		during(t, time.Minute, a, b)
		leader := one(t, a, b)
		if leader == nil || !leader.e.Valid() || leader.e.Holder() != leader.e.o.Identity {
			t.Fatal("nobody leads")
		}
		other := map[*process]*process{a: b, b: a}[leader]
		if other.e.Valid() || other.e.Holder() != leader.e.o.Identity || len(other.terms) > 0 {
			t.Error("the other leads too")
		}
		if n := len(leader.terms); n > 0 {
			t.Errorf("the leader changed %d times", n)
		}
		// A planned end hands over within a turn, but not before the last write.
		leader.mu.Lock()
		leader.late = RequestTimeout
		leader.mu.Unlock()
		leader.stop()
		during(t, RequestTimeout, leader, other)
		<-leader.ended
		during(t, 3*time.Second, leader, other)
		if !other.leading() {
			t.Error("nobody leads 3 s after a planned end")
		}
		if tab.r.Transitions != 1 && tab.r.Transitions != 2 {
			t.Errorf("%d transitions", tab.r.Transitions)
		}
		end(other)
	})
}

// TestClockOfAStandbyIsSet: a standby whose wall clock is set forward does not take a
// Lease that is alive, and one whose clock is set back takes one that is not.
func TestClockOfAStandbyIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := &table{}
				a := begin(t, tab, "a")
				during(t, 5*time.Second, a)
				var step atomic.Int64
				b := newProcess(tab, "b")
				b.e.now = func() instant {
					at := now()
					at.wall = at.wall.Add(time.Duration(step.Load()))
					return at
				}
				b.start(t)
				during(t, 5*time.Second, a, b)
				for range 5 { // while a renewal is late, but good
					a.set(func(s *seat) { s.cut = true })
					during(t, 3*time.Second, a, b)
					step.Add(int64(by))
					during(t, 3*time.Second, a, b)
					a.set(func(s *seat) { s.cut = false })
					during(t, 4*time.Second, a, b)
				}
				if !a.leading() || len(a.terms) > 0 || tab.r.Transitions != 0 {
					t.Fatalf("a leads: %v, the Lease changed hands %d times", a.leading(), tab.r.Transitions)
				}
				a.set(func(s *seat) { s.cut = true })
				during(t, time.Second, a, b)
				step.Add(int64(by))
				during(t, DefaultDuration+2*DefaultRetry, a, b)
				if !b.leading() {
					t.Error("nobody leads after the end of the Lease")
				}
				end(a, b)
			})
		})
	}
}

// TestCutOff: a leader that is cut off stops before the other one begins, also if it
// takes its time, and after 15 s there is a new one.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := &table{}
		a, b := begin(t, tab, "a"), begin(t, tab, "b")
		during(t, 10*time.Second, a, b)
		leader := one(t, a, b)
		other := map[*process]*process{a: b, b: a}[leader]
		leader.set(func(s *seat) { s.cut = true })
		leader.mu.Lock()
		leader.late = RequestTimeout // as if its last request took that long
		leader.mu.Unlock()
		cut := time.Now()
		for leader.e.Valid() {
			time.Sleep(100 * time.Millisecond)
		}
		if d := time.Since(cut); d > DefaultDeadline {
			t.Errorf("valid for %v", d)
		}
		for !other.leading() {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			one(t, a, b)
		}
		if d := time.Since(cut); d > DefaultDuration+2*DefaultRetry {
			t.Errorf("led again after %v", d)
		}
		leader.set(func(s *seat) { s.cut = false })
		during(t, time.Minute, a, b)
		if one(t, a, b) != other {
			t.Error("the lease went back")
		}
		end(a, b)
	})
}

// look returns how often the Lease was written, and its note.
func (t *table) look() (writes int, note string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.writers), t.r.Note
}

// TestNote: what a leader leaves is there for the next one, whether it gives the Lease
// up or dies, and costs no request of its own.
func TestNote(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tab := &table{}
			a, b := begin(t, tab, "a"), begin(t, tab, "b")
			during(t, 10*time.Second, a, b)
			leader := one(t, a, b)
			other := map[*process]*process{a: b, b: a}[leader]
			before, _ := tab.look()
			leader.e.SetNote("from " + leader.e.o.Identity)
			if now, _ := tab.look(); now != before {
				t.Error("written at once")
			}
			if dies {
				during(t, DefaultRetry, a, b) // a renewal
				leader.set(func(s *seat) { s.cut = true })
			}
			leader.stop()
			for !other.leading() {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
			}
			if got, want := other.e.Note(), "from "+leader.e.o.Identity; got != want {
				t.Errorf("dies %v: found %q, want %q", dies, got, want)
			}
			during(t, 10*time.Second, other) // renewals keep it
			if _, got := tab.look(); got != "from "+leader.e.o.Identity {
				t.Errorf("dies %v: the lease says %q", dies, got)
			}
			end(other, leader)
		})
	}
}

// TestLostAnswer: a renewal whose answer is lost costs nothing.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := &table{}
		a := begin(t, tab, "a")
		during(t, 10*time.Second, a)
		a.set(func(s *seat) { s.lost = true })
		during(t, 5*time.Second, a)
		a.set(func(s *seat) { s.lost = false })
		during(t, time.Minute, a)
		if len(a.terms) > 0 || !a.leading() || a.e.Err() != nil {
			t.Errorf("%d terms, %v", len(a.terms), a.e.Err())
		}
		end(a)
	})
}

// TestTaken: somebody who takes the lease by force is believed.
func TestTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := &table{}
		a := begin(t, tab, "a")
		during(t, 10*time.Second, a)
		tab.mu.Lock()
		tab.version++
		tab.r = &Record{Holder: "z", Duration: DefaultDuration, Version: strconv.Itoa(tab.version)}
		tab.mu.Unlock()
		time.Sleep(DefaultRetry + time.Second)
		synctest.Wait()
		if a.leading() || a.e.Valid() {
			t.Error("leads on")
		}
		end(a)
		if tab.r.Holder != "z" {
			t.Error("released what is another's")
		}
	})
}

// TestSlow: a slow API server does not end a term as long as renewals come through.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := begin(t, &table{}, "a")
		a.set(func(s *seat) { s.slow = 3 * time.Second })
		during(t, 5*time.Minute, a)
		if len(a.terms) > 0 || !a.leading() {
			t.Errorf("%d terms", len(a.terms))
		}
		end(a)
	})
}

// TestFrozen: a process that stood still is not valid when it goes on.
func TestFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Options{Logger: slog.New(slog.DiscardHandler), Identity: "a"})
		e.renewed = now()
		if !e.Valid() {
			t.Error("not valid at once")
		}
		time.Sleep(DefaultDeadline)
		if e.Valid() {
			t.Error("valid after the deadline")
		}
	})
	if DefaultDeadline+RequestTimeout >= DefaultDuration {
		t.Error("a last request may outlast the lease")
	}
}
