// Package steady builds the lists and maps of a decision from those of the decision before.
// Thousands of VIPs stand by without a change for every one that moves, so what does not change
// is taken over: it costs no memory, and drivers see at a glance that it is the same. It is pure.
package steady

import "maps"

// List builds one list. The list of the decision before is taken over up to the first entry that
// differs.
type List[T any] struct {
	old     []T // never changed
	kept    int // how many of old are taken over
	made    []T // what is built instead, once something differs
	changed bool
}

// Begin builds a list of about as many entries as size, out of that of the decision before.
func Begin[T any](old []T, size int) List[T] {
	if len(old) == 0 && size > 0 {
		return List[T]{made: make([]T, 0, size), changed: true}
	}
	return List[T]{old: old}
}

// Next is the entry of the decision before at the place of the one that comes, nil if there is
// none that can be taken over.
func (l *List[T]) Next() *T {
	if l.changed || l.kept >= len(l.old) {
		return nil
	}
	return &l.old[l.kept]
}

// Keep takes over what Next has returned. Whoever builds the list compares, since a value that is
// given to a function of any name would have to be on the heap.
func (l *List[T]) Keep() { l.kept++ }

// Add appends what differs from Next.
func (l *List[T]) Add(x T) {
	if !l.changed {
		l.changed = true
		l.made = make([]T, l.kept, max(len(l.old), l.kept+1))
		copy(l.made, l.old)
	}
	l.made = append(l.made, x)
}

// Put adds a value, or takes over the same one.
func Put[T comparable](l *List[T], x T) {
	if before := l.Next(); before != nil && *before == x {
		l.Keep()
	} else {
		l.Add(x)
	}
}

// Result is the list; it must not be changed any more.
func (l *List[T]) Result() []T {
	if l.changed {
		return l.made
	}
	return l.old[:l.kept:l.kept]
}

// Map is a map that is copied only when one of its values changes.
type Map[K comparable, V any] struct {
	Old  map[K]V // never changed
	Size int     // how many keys there will be about, if there were none
	next map[K]V
}

// Had tells whether the old map has a key.
func (m *Map[K, V]) Had(key K) bool {
	_, had := m.Old[key]
	return had
}

// Set gives a key its value.
func (m *Map[K, V]) Set(key K, value V) {
	if m.next == nil {
		if m.next = maps.Clone(m.Old); m.next == nil {
			m.next = make(map[K]V, m.Size)
		}
	}
	m.next[key] = value
}

// Drop removes a key.
func (m *Map[K, V]) Drop(key K) {
	if m.next == nil && m.Had(key) {
		m.next = maps.Clone(m.Old)
	}
	delete(m.next, key)
}

// Update drops a key that has ended, and gives one whose value has changed its new value.
func (m *Map[K, V]) Update(key K, value V, changed, ended bool) {
	switch {
	case ended:
		m.Drop(key)
	case changed:
		m.Set(key, value)
	}
}

// Result is the map; it must not be changed any more.
func (m *Map[K, V]) Result() map[K]V {
	if m.next != nil {
		return m.next
	}
	return m.Old
}
