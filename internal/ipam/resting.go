package ipam

import (
	"container/heap"
	"maps"
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/model"
)

// resting holds the addresses in quarantine.
type resting struct {
	until map[netip.Addr]time.Time
	by    map[netip.Addr]model.Key // who gave it up, if that is known
	queue restQueue                // may hold entries that until no longer has
}

type rest struct {
	addr  netip.Addr
	until time.Time
}

func (r *resting) rest(addr netip.Addr, by model.Key, until time.Time) {
	r.until[addr] = until
	if by != (model.Key{}) {
		r.by[addr] = by
	}
	heap.Push(&r.queue, rest{addr, until})
}

// lift ends the quarantine of an address and tells whether there was one.
func (r *resting) lift(addr netip.Addr) bool {
	_, ok := r.until[addr]
	delete(r.until, addr)
	delete(r.by, addr)
	if len(r.until) == 0 {
		r.queue = nil
	}
	return ok
}

// first returns the address whose quarantine ends first.
func (r *resting) first() (netip.Addr, time.Time, bool) {
	for len(r.queue) > 0 {
		top := r.queue[0]
		if until, ok := r.until[top.addr]; ok && until.Equal(top.until) {
			return top.addr, top.until, true
		}
		heap.Pop(&r.queue)
	}
	return netip.Addr{}, time.Time{}, false
}

// restQueue is a heap by end of quarantine, then by address.
type restQueue []rest

func (q restQueue) Len() int { return len(q) }
func (q restQueue) Less(i, j int) bool {
	if !q[i].until.Equal(q[j].until) {
		return q[i].until.Before(q[j].until)
	}
	return q[i].addr.Less(q[j].addr)
}
func (q restQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *restQueue) Push(x any)   { *q = append(*q, x.(rest)) }
func (q *restQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// Rest keeps a free address in quarantine until then, as if it had been freed here.
// One that is in use, or rests for longer already, stays as it is.
func (a *Allocator) Rest(addr netip.Addr, until time.Time) {
	if a.holds[addr] != nil || !a.until[addr].Before(until) {
		return
	}
	by := a.by[addr]
	again := a.lift(addr)
	a.rest(addr, by, until)
	if at := a.place(addr); at.ok && !again {
		at.space.free.remove(at.index)
		at.space.quarantined++
	}
}

// Resting returns the addresses in quarantine and when it ends.
func (a *Allocator) Resting() map[netip.Addr]time.Time { return maps.Clone(a.until) }

// GaveUp counts the addresses in quarantine by the Services that were the last to give them up. One
// that was told by Rest is of nobody.
func (a *Allocator) GaveUp() map[model.Key]int {
	of := make(map[model.Key]int, len(a.by))
	for _, name := range a.by {
		of[name]++
	}
	return of
}
