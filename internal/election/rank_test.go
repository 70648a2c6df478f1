package election

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// best returns the best of the nodes for a VIP.
func best(vip string, nodes []Candidate) model.NodeName {
	top := nodes[0]
	for _, c := range nodes[1:] {
		if Better(vip, c, top) {
			top = c
		}
	}
	return top.Node
}

func group(n int) []Candidate {
	var out []Candidate
	for i := range n {
		out = append(out, Candidate{Node: model.NodeName(fmt.Sprintf("node-%d", i))})
	}
	return out
}

// TestRankSpreads: each of the nodes wins its share of many VIPs.
func TestRankSpreads(t *testing.T) {
	const vips = 20000
	for _, n := range []int{2, 3, 5, 20} {
		won := map[model.NodeName]int{}
		for i := range vips {
			won[best(fmt.Sprintf("vip-%d", i), group(n))]++
		}
		for _, c := range group(n) {
			share := float64(vips) / float64(n)
			if off := math.Abs(float64(won[c.Node]) - share); off > 5*math.Sqrt(share) {
				t.Errorf("%d nodes: %s won %d, want about %.0f", n, c.Node, won[c.Node], share)
			}
		}
	}
}

// TestRankByWeight: shares are in proportion to weights.
func TestRankByWeight(t *testing.T) {
	nodes := []Candidate{{Node: "a", Weight: 100}, {Node: "b", Weight: 200}, {Node: "c"}} // 0 is the default of 100
	won := map[model.NodeName]int{}
	const vips = 20000
	for i := range vips {
		won[best(fmt.Sprintf("vip-%d", i), nodes)]++
	}
	for n, want := range map[model.NodeName]float64{"a": .25, "b": .5, "c": .25} {
		if got := float64(won[n]) / vips; math.Abs(got-want) > .02 {
			t.Errorf("%s has a share of %.3f, want %.2f", n, got, want)
		}
	}
}

// TestRankMovesLittle: a node that comes wins VIPs from the others, and nothing
// else moves.
func TestRankMovesLittle(t *testing.T) {
	for i := range 5000 {
		vip := fmt.Sprintf("vip-%d", i)
		before, after := best(vip, group(4)), best(vip, group(5))
		if before != after && after != "node-4" {
			t.Fatalf("%s moved from %s to %s although only node-4 came", vip, before, after)
		}
	}
}

// TestBetterIsAnOrder: two different nodes are never equal, whatever their names.
func TestBetterIsAnOrder(t *testing.T) {
	nodes := append(group(6), Candidate{Weight: 1}, Candidate{Node: "x", Weight: 1000})
	for _, a := range nodes {
		for _, b := range nodes {
			if a != b && Better("v", a, b) == Better("v", b, a) {
				t.Errorf("%v and %v are not ordered", a, b)
			}
			for _, c := range nodes {
				if Better("v", a, b) && Better("v", b, c) && !Better("v", a, c) {
					t.Errorf("%v, %v, %v: not transitive", a, b, c)
				}
			}
		}
	}
}

// TestRules: the oldest live member sets the version.
func TestRules(t *testing.T) {
	m := map[model.NodeName]model.Member{
		"new":     {State: model.MemberAlive, Known: true, Rules: RulesVersion + 3},
		"unknown": {State: model.MemberAlive},
	}
	if got := Rules(m); got != RulesVersion {
		t.Errorf("got %d", got)
	}
	m["dead"] = model.Member{State: model.MemberDead, Known: true, Rules: -1}
	if got := Rules(m); got != RulesVersion {
		t.Errorf("a dead member counts: %d", got)
	}
}

// TestLeastHash: of nodes below it none goes first, and it leaves out nearly all that do not: of
// nodes that all weigh the same each one.
func TestLeastHash(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const heaviest = 300
	below := 0
	for range 100_000 {
		a := scored{node: "a", hash: r.Uint64(), weight: 1 + r.IntN(heaviest)}
		b := scored{node: "b", hash: r.Uint64(), weight: 1 + r.IntN(heaviest)}
		least := a.least(heaviest)
		switch r.IntN(3) { // close to the bound, or among the highest
		case 0:
			b.hash, b.weight = least+r.Uint64N(1<<40)-1<<39, heaviest
		case 1:
			a.hash, b.hash = math.MaxUint64-r.Uint64N(1<<24), math.MaxUint64-r.Uint64N(1<<24)
			least = a.least(heaviest)
		}
		if b.hash < least {
			below++
			if b.better(a) {
				t.Fatalf("%+v is below %d and goes before %+v", b, least, a)
			}
		}
		b.hash, b.weight = r.Uint64(), a.weight
		if b.better(a) != (b.hash >= a.least(a.weight)) {
			t.Fatalf("of equals %+v and %+v the hash does not say who goes first", a, b)
		}
		b.hash, b.weight = least+1<<50, heaviest
		if least > 1<<50 && b.hash > least && !b.better(a) {
			t.Fatalf("%+v is above %d and does not go before %+v", b, least, a)
		}
	}
	if below < 10_000 {
		t.Errorf("only %d were below: the cases are too few", below)
	}
}
