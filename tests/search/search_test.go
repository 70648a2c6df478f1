package search

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// visit is how a state was first reached: by which of the events of another one.
type visit struct{ parent, event int32 }

// explore walks all states breadth first and returns how many there are. It keeps a state only
// until it has looked at what can happen there.
func explore(t *testing.T, start World, limit int, judge judge) int {
	t.Helper()
	seen := map[string]struct{}{start.Key(): {}}
	good := map[string]struct{}{}
	worlds := []*World{&start}
	from := []visit{{-1, -1}}
	begin := time.Now()
	first, next := start, World{}
	for k := 0; k < len(worlds) && len(worlds) < limit; k++ {
		w := worlds[k]
		worlds[k] = nil
		for i, e := range w.Events() {
			next = *w
			next.happen(e)
			key := next.Key()
			if _, ok := seen[key]; ok {
				continue
			}
			seen[key] = struct{}{}
			copied := next
			worlds = append(worlds, &copied)
			from = append(from, visit{int32(k), int32(i)})
			if bad := judge(&next, good); bad != "" {
				t.Fatalf("%s after %d states\n%s", bad, len(worlds), trail(first, from))
			}
		}
	}
	which := "all"
	if len(worlds) >= limit {
		which = "the first"
	}
	t.Logf("%s %d states in %s", which, len(worlds), time.Since(begin).Round(time.Millisecond))
	return len(worlds)
}

// happen lets an event happen.
func (w *World) happen(e Event) {
	e.Do(w)
	w.settleHeal()
	w.normalise()
}

// judge says what is wrong with a state; good are those that end well.
type judge func(w *World, good map[string]struct{}) string

// all asks for one that answers in the end, and never two.
func all(w *World, good map[string]struct{}) string {
	if bad := w.Bad(); bad != "" {
		return bad
	}
	return quiet(*w, good)
}

// local asks that nobody answers from lo. It holds whatever happens, unlike the
// rest: the election is not proof against two faults at once in a world without
// time, with BGP or without.
func local(w *World, _ map[string]struct{}) string { return w.Exposed() }

// trail prints the way from the start to the last state.
func trail(w World, from []visit) string {
	var events []int32
	for k := int32(len(from) - 1); k > 0; k = from[k].parent {
		events = append(events, from[k].event)
	}
	out := "0. start\n" + w.String()
	for i, k := range slices.Backward(events) {
		e := w.Events()[k]
		w.happen(e)
		out += fmt.Sprintf("%d. %s\n%s", len(events)-i, e.Name(), w.String())
	}
	return out
}

// quiet lets everything run its course without further faults and says what is
// wrong with how it ends: each side of the wire that has a node which may own the
// VIP must have exactly one that answers, the others none.
func quiet(w World, good map[string]struct{}) string {
	before := w.Key()
	for range 40 {
		if _, ok := good[before]; ok {
			return ""
		}
		good[before] = struct{}{} // or the test fails
		w.calm()
		w.settleHeal()
		key := w.Key()
		if key == before {
			break
		}
		before = key
	}
	for side := range 2 {
		able, answering, whole, badly := 0, 0, 0, 0
		for i := range w.n {
			off := int8(i) == w.offWire
			if off != (side == 1) {
				continue
			}
			if w.n[i].up && !w.n[i].sick && !w.n[i].draining {
				able++
				whole += int(1 - bit(w.n[i].degraded))
			}
			if w.answers(i) {
				answering++
				badly += int(bit(w.n[i].degraded))
			}
		}
		if able > 0 && answering != 1 {
			return strconv.Itoa(answering) + " answer in the end, on side " + strconv.Itoa(side) + "\n" + w.String()
		}
		if whole > 0 && badly > 0 {
			return "a degraded node answers in the end although one is up, on side " + strconv.Itoa(side) + "\n" + w.String()
		}
	}
	return ""
}

// kept is a settled group of which a node has handed the VIP over, and keeps the address
// for connections although it is well.
func kept(faults uint8) World {
	w := settled(0, kind{open: true})
	for i := range w.size() {
		if !w.answers(i) {
			continue
		}
		w.n[i].draining = true
		w.decide(i, epoch0)
		w.deliver(i, 1-i)
		w.deliver(1-i, i)
		w.n[i].draining = false
		w.decide(i, epoch0)
		break
	}
	for range 5 {
		w.calm()
	}
	w.faults = faults
	return w
}

// named is a settled group whose owner drains while another node, which it may name, is
// frozen.
func named(k kind, frozen int) (w World, ok bool) {
	w = settled(0, k)
	if w.answers(frozen) {
		return w, false
	}
	w.n[frozen].frozen = true
	for i := range w.size() {
		if w.answers(i) {
			w.n[i].draining = true
			w.decide(i, epoch0)
		}
	}
	return w, true
}

// crossed is a settled group of which the wire has cut off the owner, so that there is one
// on either side, and then gossip a node that may be another one.
func crossed(k kind, offGossip int) World {
	w := settled(0, k)
	for i := range w.size() {
		if w.answers(i) {
			w.offWire = int8(i)
		}
	}
	for range 10 {
		w.calm()
	}
	w.offGossip = int8(offGossip)
	for range 10 {
		w.calm()
	}
	return w
}

// keepers counts the nodes that keep the address silently.
func keepers(w *World) (k int) {
	for i := range w.size() {
		if n := &w.n[i]; n.bound && n.silent && n.open && n.mem.Kept {
			k++
		}
	}
	return k
}

// TestSearch proves for three nodes and one VIP: never two that answer on one
// wire, and always one in the end. From all daemons starting at once without a
// fault, and from a settled group with faults at any moment. The same for a VIP that is
// not bound, whose daemons may also freeze and thaw. Both with a node that is frozen while the
// owner drains, and hears late that it was named; and with two owners on the two sides of a
// cut that heals while gossip is cut elsewhere, for good, or heals too, and with nodes that
// die meanwhile. For two nodes the same with connections
// that stay open, for which a node keeps the address, also once one does. For two nodes and a VIP
// that BGP advertises too also that none ever answers from lo. And with nodes that become
// degraded and are up again, in the end the owner is none of the former if
// there is one of the latter.
// For two nodes the same where a successor asks the wire whenever it likes, because it misses
// heartbeats.
// LBD_SEARCH_FAULTS goes deeper.
func TestSearch(t *testing.T) {
	faults, limit := 1, 3_000_000
	if s := os.Getenv("LBD_SEARCH_FAULTS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		faults, limit = n, 50_000_000
	}
	t.Run("start", func(t *testing.T) {
		if n := explore(t, Start(0), limit, all); n < 1000 {
			t.Errorf("only %d states: the model does not move", n)
		}
	})
	for f := 2; f <= faults+1; f++ {
		t.Run("levels with "+strconv.Itoa(f)+" faults", func(t *testing.T) {
			if n := explore(t, settled(uint8(f), kind{levels: true}), limit, all); n < 1000 {
				t.Errorf("only %d states: the model does not move", n)
			}
		})
	}
	t.Run("start with BGP", func(t *testing.T) {
		if n := explore(t, start(0, kind{both: true}), limit, all); n < 50 {
			t.Errorf("only %d states: the model does not move", n)
		}
	})
	t.Run("start unbound", func(t *testing.T) {
		if n := explore(t, start(0, kind{unbound: true}), limit, all); n < 1000 {
			t.Errorf("only %d states: the model does not move", n)
		}
	})
	for f := 1; f <= faults; f++ {
		t.Run("unbound with "+strconv.Itoa(f)+" faults", func(t *testing.T) {
			if n := explore(t, settled(uint8(f), kind{unbound: true}), limit, all); n < 1000 {
				t.Errorf("only %d states: the model does not move", n)
			}
		})
	}
	for frozen := range N {
		for _, k := range []kind{{}, {unbound: true}} {
			if w, ok := named(k, frozen); ok {
				t.Run(fmt.Sprintf("%s frozen in a drain, unbound %v", names[frozen], k.unbound), func(t *testing.T) {
					if n := explore(t, w, limit, all); n < 1000 {
						t.Errorf("only %d states: the model does not move", n)
					}
				})
			}
		}
	}
	for off := range N {
		for _, k := range []kind{{}, {unbound: true}} {
			t.Run(fmt.Sprintf("gossip of %s cut, unbound %v", names[off], k.unbound), func(t *testing.T) {
				w := crossed(k, off)
				w.deaf = off > 0
				if faults > 1 || off == 2 || off == 1 && k.unbound { // the others take longer
					w.faults = 1
				}
				if w.answering() != 2 {
					t.Fatalf("not two owners at the beginning\n%s", w.String())
				}
				if n := explore(t, w, limit, all); n < 100 {
					t.Errorf("only %d states: the model does not move", n)
				}
			})
		}
	}
	t.Run("start with connections", func(t *testing.T) {
		if n := explore(t, start(0, kind{open: true}), limit, all); n < 50 {
			t.Errorf("only %d states: the model does not move", n)
		}
	})
	for f := 1; f <= faults; f++ {
		t.Run("connections with "+strconv.Itoa(f)+" faults", func(t *testing.T) {
			if n := explore(t, settled(uint8(f), kind{open: true}), limit, all); n < 1000 {
				t.Errorf("only %d states: the model does not move", n)
			}
		})
		t.Run("kept with "+strconv.Itoa(f)+" faults", func(t *testing.T) {
			w := kept(uint8(f))
			if k := keepers(&w); k != 1 {
				t.Fatalf("%d nodes keep the address at the beginning\n%s", k, w.String())
			}
			if n := explore(t, w, limit, all); n < 1000 {
				t.Errorf("only %d states: the model does not move", n)
			}
		})
	}
	for f := 1; f <= faults+1; f++ {
		t.Run("BGP with "+strconv.Itoa(f)+" faults", func(t *testing.T) {
			judge := all
			if f > 1 {
				judge = local
			}
			if n := explore(t, settled(uint8(f), kind{both: true}), limit, judge); n < 1000 {
				t.Errorf("only %d states: the model does not move", n)
			}
		})
	}
	for f := 1; f <= faults; f++ {
		t.Run("missed heartbeats with "+strconv.Itoa(f)+" faults", func(t *testing.T) {
			if n := explore(t, settled(uint8(f), kind{nervous: true}), limit, all); n < 1000 {
				t.Errorf("only %d states: the model does not move", n)
			}
		})
	}
	for f := 1; f <= faults; f++ {
		t.Run(strconv.Itoa(f)+" faults", func(t *testing.T) {
			if n := explore(t, Settled(uint8(f)), limit, all); n < 1000 {
				t.Errorf("only %d states: the model does not move", n)
			}
		})
	}
}
