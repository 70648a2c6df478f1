package steady_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lbd.dev/lbd/internal/steady"
)

// TestList: whatever was before, the list is what was added, the list before is left alone, and
// one that is the same is taken over with its memory.
func TestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOfN(rapid.IntRange(0, 2), 0, 6)
		old, want := numbers.Draw(t, "old"), numbers.Draw(t, "want")
		before := slices.Clone(old)
		l := steady.Begin(old, rapid.IntRange(0, 6).Draw(t, "size"))
		for _, x := range want {
			steady.Put(&l, x)
		}
		got := l.Result()
		if !slices.Equal(got, want) || !slices.Equal(old, before) {
			t.Fatalf("%v after %v, which is now %v: want %v", got, before, old, want)
		}
		if len(want) > 0 && len(want) <= len(old) && slices.Equal(old[:len(want)], want) && &got[0] != &old[0] {
			t.Fatal("the same list is not taken over")
		}
		if more := append(got, 9); !slices.Equal(old, before) || more[len(got)] != 9 {
			t.Fatal("who appends to the list changes the one before")
		}
	})
}

// TestSteadyList: a list that is the same costs no memory.
func TestSteadyList(t *testing.T) {
	old := []int{1, 2, 3}
	if n := testing.AllocsPerRun(100, func() {
		l := steady.Begin(old, len(old))
		for _, x := range old {
			steady.Put(&l, x)
		}
		l.Result()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestMap: the map before is left alone, and is the result if nothing changes.
func TestMap(t *testing.T) {
	old := map[string]int{"a": 1, "b": 2}
	m := steady.Map[string, int]{Old: old}
	m.Drop("c")
	if got := m.Result(); !maps.Equal(got, old) {
		t.Error(got)
	}
	if n := testing.AllocsPerRun(10, func() { m.Drop("c"); m.Result() }); n != 0 {
		t.Errorf("%v allocations although nothing changed", n)
	}
	m.Drop("a")
	m.Set("b", 3)
	m.Set("c", 4)
	if got := m.Result(); !maps.Equal(got, map[string]int{"b": 3, "c": 4}) || !maps.Equal(old, map[string]int{"a": 1, "b": 2}) {
		t.Error(got, old)
	}
	m = steady.Map[string, int]{Old: old}
	m.Update("a", 9, false, false)
	if got := m.Result(); !maps.Equal(got, old) {
		t.Error("a value that has not changed is set:", got)
	}
	m.Update("a", 9, true, true)
	m.Update("b", 3, true, false)
	if got := m.Result(); !maps.Equal(got, map[string]int{"b": 3}) {
		t.Error("one that has ended and one that has changed:", got)
	}
	var none steady.Map[string, int]
	none.Set("a", 1)
	if got := none.Result(); got["a"] != 1 {
		t.Error(got)
	}
}
