package ipam

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSet compares a set with a map, over enough numbers for several chunks.
func TestSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 3000
		s := full(small(n))
		model := make([]bool, n)
		for i := range model {
			model[i] = true
		}
		size := uint64(n)
		change := func(x int) {
			var did bool
			if model[x] {
				did = s.remove(small(uint64(x)))
				size--
			} else {
				did = s.add(small(uint64(x)))
				size++
			}
			if !did {
				t.Fatalf("change of %d did nothing", x)
			}
			model[x] = !model[x]
			if s.remove(small(uint64(x))) != model[x] {
				t.Fatalf("second look at %d differs", x)
			}
			if model[x] {
				s.add(small(uint64(x)))
			}
		}
		step := rapid.IntRange(2, 5).Draw(t, "step")
		for x := 0; x < n; x += step { // scattered: many chunks
			change(x)
		}
		for range rapid.IntRange(0, 40).Draw(t, "runs") {
			x := rapid.IntRange(0, n-1).Draw(t, "at")
			for k := range rapid.IntRange(1, 600).Draw(t, "length") {
				change((x + k) % n)
			}
		}
		for range rapid.IntRange(0, 6).Draw(t, "plains") { // few intervals again
			x, to := rapid.IntRange(0, n-1).Draw(t, "from"), rapid.Bool().Draw(t, "to")
			for k := x; k < min(x+rapid.IntRange(1, 2000).Draw(t, "length"), n); k++ {
				if model[k] != to {
					change(k)
				}
			}
		}
		next, found := number{}, false
		for x := n - 1; x >= 0; x-- {
			if model[x] {
				next, found = small(uint64(x)), true
			}
			if got, ok := s.next(small(uint64(x))); ok != found || got != next || s.has(small(uint64(x))) != model[x] {
				t.Fatalf("next(%d) = %v %v, want %v %v", x, got, ok, next, found)
			}
		}
		checkForm(t, &s, size)
	})
}

// checkForm looks for intervals that touch, chunks that are empty or too long, and
// a wrong size.
func checkForm(t *rapid.T, s *set, size uint64) {
	var sum, spans uint64
	var last *span
	for _, chunk := range s.chunks {
		if len(chunk) == 0 || len(chunk) > chunkMax {
			t.Fatalf("a chunk of %d", len(chunk))
		}
		for i := range chunk {
			x := &chunk[i]
			if x.hi.less(x.lo) || last != nil && !last.hi.next().less(x.lo) {
				t.Fatalf("%v after %v", x, last)
			}
			sum += x.hi.minus(x.lo).next().lo
			last = x
			spans++
		}
	}
	if sum != size || s.size != small(size) {
		t.Fatalf("size %v, sum %d, want %d", s.size, sum, size)
	}
	if most := spans/(chunkMax/8) + 2; uint64(len(s.chunks)) > most {
		t.Fatalf("%d chunks for %d intervals", len(s.chunks), spans)
	}
}

// has tells whether x is in the set.
func (s *set) has(x number) bool {
	c, i := s.find(x)
	return c < len(s.chunks) && !x.less(s.chunks[c][i].lo)
}
