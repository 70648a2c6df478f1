package page

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneIsMadeForAll: however long a page takes, those who asked for it meanwhile have it when it is
// made, and do not wait until another one may be made.
func TestOneIsMadeForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(slog.New(slog.DiscardHandler), newFake(t))
		began, made := time.Now(), 0
		var asking sync.WaitGroup
		for range 20 {
			asking.Go(func() {
				body, err := p.make(t.Context(), "a", func(context.Context) ([]byte, error) {
					made++
					time.Sleep(fresh)
					return []byte("a"), nil
				})
				if err != nil || string(body) != "a" {
					t.Errorf("%q, %v", body, err)
				}
			})
		}
		asking.Wait()
		if took := time.Since(began); made != 1 || took != fresh {
			t.Errorf("made %d times, the last had it after %v", made, took)
		}
	})
}

// TestOneIsMade: pages are made one after the other, with a rest between them, and one that was just
// made waits for nobody.
func TestOneIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 20 * time.Millisecond
		p := New(slog.New(slog.DiscardHandler), newFake(t))
		var mu sync.Mutex
		var began []time.Time
		page := func(key string) {
			body, err := p.make(t.Context(), key, func(context.Context) ([]byte, error) {
				mu.Lock()
				began = append(began, time.Now())
				mu.Unlock()
				time.Sleep(takes)
				return []byte(key), nil
			})
			if err != nil || string(body) != key {
				t.Errorf("%s: %q, %v", key, body, err)
			}
		}
		var asking sync.WaitGroup
		for _, key := range []string{"a", "b", "c"} {
			asking.Go(func() { page(key) })
		}
		asking.Wait()
		if len(began) != 3 || began[2].Sub(began[0]) < 2*(1+restFactor)*takes {
			t.Errorf("made at %v", began)
		}
		p.making <- struct{}{} // another one is being made, for long
		before := time.Now()
		page("c")
		if len(began) != 3 || time.Since(before) > 0 {
			t.Errorf("made %d times, waited %v", len(began), time.Since(before))
		}
		time.Sleep(fresh)
		if old, _ := p.kept("c"); old != nil {
			t.Error("an old page is kept")
		}
	})
}
