package ipam

import "slices"

// span is an interval of numbers, both ends included.
type span struct{ lo, hi number }

// set is a set of numbers as sorted intervals that neither overlap nor touch. It
// costs memory by interval and not by number. The intervals lie in chunks, so
// that a change moves little memory also when there are millions of them.
type set struct {
	chunks [][]span // none is empty
	size   number
}

// chunkMax is the most intervals of a chunk.
const chunkMax = 256

// full returns the set of the numbers from 0 to n-1.
func full(n number) set {
	if n == (number{}) {
		return set{}
	}
	return set{chunks: [][]span{{{hi: n.minus(small(1))}}}, size: n}
}

// find returns the place of the first interval that ends at x or later; c is
// len(s.chunks) if there is none.
func (s *set) find(x number) (c, i int) {
	lo, hi := 0, len(s.chunks)
	for lo < hi {
		mid := (lo + hi) / 2
		if chunk := s.chunks[mid]; chunk[len(chunk)-1].hi.less(x) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if c = lo; c == len(s.chunks) {
		return c, 0
	}
	chunk := s.chunks[c]
	lo, hi = 0, len(chunk)
	for lo < hi {
		mid := (lo + hi) / 2
		if chunk[mid].hi.less(x) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return c, lo
}

// next returns the smallest number of the set that is x or more.
func (s *set) next(x number) (number, bool) {
	c, i := s.find(x)
	if c == len(s.chunks) {
		return number{}, false
	}
	if lo := s.chunks[c][i].lo; x.less(lo) {
		return lo, true
	}
	return x, true
}

// remove takes x out and tells whether it was there.
func (s *set) remove(x number) bool {
	c, i := s.find(x)
	if c == len(s.chunks) || x.less(s.chunks[c][i].lo) {
		return false
	}
	s.size = s.size.minus(small(1))
	switch at := &s.chunks[c][i]; {
	case at.lo == at.hi:
		s.deleteAt(c, i)
	case at.lo == x:
		at.lo = x.next()
	case at.hi == x:
		at.hi = x.minus(small(1))
	default:
		left := span{at.lo, x.minus(small(1))}
		at.lo = x.next()
		s.insertAt(c, i, left)
	}
	return true
}

// add puts x in and tells whether it was missing.
func (s *set) add(x number) bool {
	c, i := s.find(x)
	var left, right *span
	if c < len(s.chunks) {
		right = &s.chunks[c][i]
		if !x.less(right.lo) {
			return false
		}
		if right.lo != x.next() {
			right = nil
		}
	}
	switch {
	case i > 0:
		left = &s.chunks[c][i-1]
	case c > 0:
		left = &s.chunks[c-1][len(s.chunks[c-1])-1]
	}
	if left != nil && left.hi.next() != x {
		left = nil
	}
	s.size = s.size.next()
	switch {
	case left != nil && right != nil:
		left.hi = right.hi
		s.deleteAt(c, i)
	case left != nil:
		left.hi = x
	case right != nil:
		right.lo = x
	default:
		s.insertAt(c, i, span{x, x})
	}
	return true
}

func (s *set) insertAt(c, i int, v span) {
	switch {
	case len(s.chunks) == 0:
		s.chunks = [][]span{{v}}
		return
	case c == len(s.chunks):
		c--
		i = len(s.chunks[c])
	}
	chunk := slices.Insert(s.chunks[c], i, v)
	s.chunks[c] = chunk
	if len(chunk) > chunkMax {
		half := len(chunk) / 2
		s.chunks[c] = chunk[:half:half]
		s.chunks = slices.Insert(s.chunks, c+1, slices.Clone(chunk[half:]))
	}
}

// deleteAt keeps chunks from becoming many and small.
func (s *set) deleteAt(c, i int) {
	chunk := slices.Delete(s.chunks[c], i, i+1)
	s.chunks[c] = chunk
	switch {
	case len(chunk) == 0:
		s.chunks = slices.Delete(s.chunks, c, c+1)
	case len(chunk) >= chunkMax/4:
	case s.merge(c):
	case c > 0:
		s.merge(c - 1)
	}
}

// merge joins a chunk with the next one if both are small.
func (s *set) merge(c int) bool {
	if c+1 >= len(s.chunks) || len(s.chunks[c])+len(s.chunks[c+1]) > chunkMax/2 {
		return false
	}
	s.chunks[c] = append(s.chunks[c], s.chunks[c+1]...)
	s.chunks = slices.Delete(s.chunks, c+1, c+2)
	return true
}
