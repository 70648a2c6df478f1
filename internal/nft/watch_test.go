package nft

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/google/nftables"
)

// heard counts the calls of a watch.
type heard chan struct{}

func (h heard) lost() { h <- struct{}{} }

// soon is how many calls come until there are so many, or, if none is to come, within a
// moment.
func (h heard) soon(want int) (n int) {
	limit := 30 * time.Second
	if want == 0 {
		limit = 100 * time.Millisecond
	}
	after := time.After(limit)
	for n < want || want == 0 {
		select {
		case <-h:
			n++
		case <-after:
			return n
		}
	}
	return n
}

func (h heard) expect(t *testing.T, what string, want int) {
	t.Helper()
	if got := h.soon(want); got != want {
		t.Errorf("%s: told %d times, want %d", what, got, want)
	}
}

func remove(t *testing.T, s *Session, table *nftables.Table) {
	t.Helper()
	if err := s.Remove(table); err != nil {
		t.Error(err)
	}
}

// TestWatch: it is told of what others do with the tables, and of nothing else.
func TestWatch(t *testing.T) {
	s, foreign := open(t, 10*time.Second), open(t, 10*time.Second)
	h := make(heard, 1000)
	if err := s.Watch(h.lost, one); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		add(t, s, one)
		remove(t, s, one)
	}
	h.expect(t, "own changes", 0)
	if n := s.Others(); n != 0 {
		t.Errorf("%d transactions of others", n)
	}
	add(t, s, one)
	add(t, foreign, other)
	add(t, foreign, six)
	h.expect(t, "changes of other tables, and of another family", 0)
	if n := s.Others(); n != 2 {
		t.Errorf("%d transactions of others, want 2", n)
	}
	remove(t, foreign, one)
	h.expect(t, "removed", 1)
	h.expect(t, "removed, and nothing else", 0)

	_ = s.drop() // as after an answer that was late
	add(t, s, one)
	h.expect(t, "own changes by a new socket", 0)
	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h.expect(t, "flush ruleset", 1)
	s.Unwatch()
	add(t, foreign, one)
	h.expect(t, "no watch any more", 0)
}

// TestWatchHearsWhatOverflows: of what is lost in a full socket it is told.
func TestWatchHearsWhatOverflows(t *testing.T) {
	s, foreign := open(t, 30*time.Second), open(t, 30*time.Second)
	h := make(heard) // a call waits until it is read
	if err := s.Watch(h.lost, one); err != nil {
		t.Fatal(err)
	}
	add(t, foreign, one)
	if err := s.watch.conn.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // it waits in its call
	for i := range 200 {
		add(t, foreign, &nftables.Table{Name: fmt.Sprintf("lbd-%d", i), Family: nftables.TableFamilyIPv4})
	}
	h.expect(t, "the first, and what was lost", 2)
	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	go func() {
		for range h { //nolint:revive // until the end of the test
		}
	}()
	s.Unwatch()
	s.watches.Wait()
	close(h)
}

// TestWatchOfAFight: who removes a table again and again is answered more and more slowly.
func TestWatchOfAFight(t *testing.T) {
	s, foreign := open(t, 10*time.Second), open(t, 10*time.Second)
	h := make(heard, 1000)
	if err := s.Watch(h.lost, one); err != nil {
		t.Fatal(err)
	}
	calls := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		add(t, s, one)
		remove(t, foreign, one)
	}
	for len(h) > 0 {
		<-h
		calls++
	}
	t.Logf("%d calls in 2 s", calls)
	if calls < mendBurst/2 || calls > mendBurst+6 {
		t.Errorf("%d calls in 2 s", calls)
	}
}
