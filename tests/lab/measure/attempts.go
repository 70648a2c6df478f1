package measure

import (
	"cmp"
	"slices"
	"time"
)

// Calm is how long every attempt must succeed for an outage to be over.
const Calm = time.Second

// Attempt is one try of the client to reach a VIP.
type Attempt struct {
	Start Time   `json:"s"`
	End   Time   `json:"e"`
	Node  string `json:"n,omitempty"` // who served it
	Err   string `json:"x,omitempty"` // empty: it succeeded
}

// OK tells whether the attempt was served.
func (a Attempt) OK() bool { return a.Err == "" }

// Reach is what a client saw of one VIP.
type Reach struct {
	// Outage is the longest time from the start of the last success to the end of
	// the first success after which everything succeeds for Calm. 0: nothing failed.
	Outage time.Duration
	// Never says that the last outage had not ended when watching did; Outage is
	// then a lower bound.
	Never            bool
	Attempts, Failed int
	// Back is the end of the last outage; zero if there was none.
	Back Time
	// Errors counts the failed attempts by cause.
	Errors map[string]int
}

// Reached sums up the attempts that started in [from, to), in any order. A
// success just before from should be included for exact figures.
func Reached(all []Attempt, from, to Time) Reach {
	a := within(all, from, to)
	r := Reach{Attempts: len(a), Errors: map[string]int{}}
	last := from
	for i := 0; i < len(a); {
		if a[i].OK() {
			last = a[i].Start
			i++
			continue
		}
		next, end, over := recovery(a[i:])
		for _, x := range a[i : i+next] {
			if !x.OK() {
				r.Failed++
				r.Errors[x.Err]++
			}
		}
		r.Outage = max(r.Outage, end.Sub(last))
		r.Never = !over
		r.Back = end
		i += next
	}
	return r
}

// recovery finds the first success after which all attempts succeed for Calm.
// It returns its index, the end of the outage and whether it is over. An outage
// whose calm was not watched to its end lasts until that success at least, or
// until the last failure.
func recovery(a []Attempt) (index int, end Time, over bool) {
	candidate := -1
	for i, x := range a {
		if !x.OK() {
			candidate = -1
			end = max(end, x.End)
			continue
		}
		if candidate < 0 {
			candidate = i
		}
		if x.Start.Sub(a[candidate].Start) >= Calm {
			return candidate, a[candidate].End, true
		}
	}
	if candidate >= 0 {
		end = a[candidate].End
	}
	return len(a), end, false
}

func within(all []Attempt, from, to Time) []Attempt {
	a := make([]Attempt, 0, len(all))
	for _, x := range all {
		if x.Start >= from && x.Start < to {
			a = append(a, x)
		}
	}
	slices.SortFunc(a, func(x, y Attempt) int { return cmp.Compare(x.Start, y.Start) })
	return a
}

// Served is a stretch of time in which one node served everything that was
// served.
type Served struct {
	Node     string
	From, To Time
	Count    int
}

// Servers tells who served the attempts in [from, to), in order of time.
func Servers(all []Attempt, from, to Time) []Served {
	var s []Served
	for _, x := range within(all, from, to) {
		switch n := len(s); {
		case !x.OK():
		case n > 0 && s[n-1].Node == x.Node:
			s[n-1].To = x.End
			s[n-1].Count++
		default:
			s = append(s, Served{Node: x.Node, From: x.Start, To: x.End, Count: 1})
		}
	}
	return s
}
