package k8s

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// AbsentAfter is how long the API server must say that it has no such kind until what
// was known of the kind is forgotten: what is announced must not end because one
// answer was wrong.
const AbsentAfter = 30 * time.Second

// ForbiddenAfter is how long the API server must refuse the first read of a kind that is
// Optional until the kind counts as empty: an API server that has just started refuses what it
// will allow once it has read its roles. It leaves time to the rest of a node, which waits for
// its cluster for 10 s.
const ForbiddenAfter = RetryMost

// answer is how an attempt to watch a kind ended.
type answer int

const (
	other     answer = iota
	lacking          // the API server says that it has no such kind
	forbidden        // the kind may not be read
)

// verdict is an answer that is repeated, and since when. Another one in between ends it.
type verdict struct {
	is    answer
	since time.Time
}

// lasted notes an answer and returns for how long there was no other.
func (v *verdict) lasted(is answer) time.Duration {
	now := time.Now()
	if v.is != is {
		*v = verdict{is, now}
	}
	return now.Sub(v.since)
}

// confirm has what is known go if the kind was not found and does not exist any more, and has a
// kind that may not be read count as empty if nothing is known of it. said is what the attempts
// before ended with.
func (w *Watch[T]) confirm(ctx context.Context, err error, said *verdict) {
	is := w.answerOf(ctx, err)
	switch lasted := said.lasted(is); is {
	case lacking:
		w.takeLacking(lasted)
	case forbidden:
		w.takeForbidden(err, lasted)
	}
}

// answerOf tells what an error says of the kind. The word of the API server's discovery counts
// for one that was not found.
func (w *Watch[T]) answerOf(ctx context.Context, err error) answer {
	if w.forbidden(err) {
		return forbidden
	}
	if w.o.Lacks == nil || !apierrors.IsNotFound(err) {
		return other
	}
	ctx, cancel := context.WithTimeout(ctx, RetryMost)
	defer cancel()
	if lacks, err := w.o.Lacks(ctx); err != nil || !lacks {
		return other
	}
	return lacking
}

// takeLacking has what is known go once the kind was lacking for long enough. A kind of which
// nothing is known has nothing to lose: it is absent at once, also after an outage.
func (w *Watch[T]) takeLacking(lasted time.Duration) {
	w.mu.Lock()
	if len(w.items) > 0 && lasted < w.patience {
		w.mu.Unlock()
		return
	}
	first := !w.synced || w.state.Guessed
	gone := slices.Collect(maps.Keys(w.items))
	clear(w.items)
	w.synced, w.state.Guessed = true, false
	w.set(true, true, nil)
	w.mu.Unlock()
	if first || len(gone) > 0 {
		w.o.Changed(gone)
	}
}

// forbidden tells whether an error says that the kind may not be read and need not be.
func (w *Watch[T]) forbidden(err error) bool { return w.o.Optional && apierrors.IsForbidden(err) }

// takeForbidden has a kind count as read and empty once it was forbidden for long enough, unless
// something is known of it. One that was lacking is a guess from then on: it is there by now, and its
// objects are not known.
func (w *Watch[T]) takeForbidden(err error, lasted time.Duration) {
	w.mu.Lock()
	first := !w.synced
	if first && lasted < ForbiddenAfter {
		w.mu.Unlock()
		return
	}
	guess := first || w.state.Absent && !w.state.Guessed && lasted >= ForbiddenAfter
	if first || w.state.Absent || w.state.Guessed { // it still is a guess after an outage
		w.state.Guessed = w.state.Guessed || guess
		w.synced = true
		w.set(true, true, fmt.Errorf("%s: %w", w.o.Name, err))
	}
	w.mu.Unlock()
	if guess {
		w.o.Changed(nil)
	}
}
