package gossip

import "sync"

// queue is a bounded mailbox between a callback that must not block and a
// goroutine that reads. When it is full the oldest message goes: it is the one
// most likely to be outdated.
type queue[T any] struct {
	mu       sync.Mutex
	items    []T
	max      int
	bytes    int
	maxBytes int
	size     func(T) int
	dropped  uint64
	wake     chan<- struct{}
}

func newQueue[T any](limit, maxBytes int, size func(T) int, wake chan<- struct{}) *queue[T] {
	return &queue[T]{max: limit, maxBytes: maxBytes, size: size, wake: wake}
}

func (q *queue[T]) push(x T) {
	q.mu.Lock()
	q.items = append(q.items, x)
	q.bytes += q.size(x)
	for len(q.items) > q.max || q.bytes > q.maxBytes && len(q.items) > 1 {
		q.shift()
		q.dropped++
	}
	q.mu.Unlock()
	signal(q.wake)
}

func (q *queue[T]) pop() (T, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		var none T
		return none, false
	}
	return q.shift(), true
}

// shift takes the oldest. The array moves on with append, so what it holds is
// released after at most one more length.
func (q *queue[T]) shift() T {
	var none T
	x := q.items[0]
	q.items[0] = none
	q.items = q.items[1:]
	q.bytes -= q.size(x)
	return x
}

func (q *queue[T]) stats() (length int, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items), q.dropped
}

// signal wakes the reader of a channel of one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
