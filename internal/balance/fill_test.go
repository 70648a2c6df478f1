package balance

import (
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
	"testing"

	"lbd.dev/lbd/internal/model"
)

func servers(n int, weight func(i int) int) []model.Server {
	out := make([]model.Server, n)
	for i := range out {
		out[i] = model.Server{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Weight: weight(i)}
	}
	return out
}

// everyone is in.
func everyone(n int) []bool { return slices.Repeat([]bool{true}, n) }

func equally(int) int { return 10 }

func shares(slots []uint16, n int) []int {
	out := make([]int, n)
	for _, s := range slots {
		out[s]++
	}
	return out
}

// TestSharesFollowWeights: each server has as many slots as its weight says, give or take one.
func TestSharesFollowWeights(t *testing.T) {
	mixed := func(i int) int { return 1 + 7*i%100 }
	for _, n := range []int{1, 2, 3, 10, 100, 101, 1000} {
		for name, weight := range map[string]func(int) int{"equal": equally, "mixed": mixed} {
			all, total := servers(n, weight), 0
			for i := range all {
				total += all[i].Weight
			}
			slots := fill(all, everyone(n))
			for i, got := range shares(slots, n) {
				if share := float64(len(slots)*all[i].Weight) / float64(total); math.Abs(float64(got)-share) >= 2 {
					t.Errorf("%s, %d servers: number %d has %d slots, its share is %.1f", name, n, i, got, share)
				}
			}
		}
	}
}

// TestOthersStayWhereTheyAre: when a server is configured no more, nearly all slots of the others stay theirs.
func TestOthersStayWhereTheyAre(t *testing.T) {
	for _, n := range []int{3, 10, 50} {
		all := servers(n, equally)
		before, after := fill(all, everyone(n)), fill(all[1:], everyone(n-1))
		moved := 0
		for i := range before {
			if before[i] != 0 && before[i] != after[i]+1 {
				moved++
			}
		}
		if moved > len(before)/20 {
			t.Errorf("%d servers: %d of %d slots of others have moved", n, moved, len(before))
		}
	}
}

// TestAllNodesFillAlike: a table is a promise between nodes, of other processors and versions,
// too.
func TestAllNodesFillAlike(t *testing.T) {
	h := fnv.New64a()
	for _, slot := range fill(servers(7, func(i int) int { return 1 + 13*i }), everyone(7)) {
		h.Write([]byte{byte(slot)})
	}
	if got, want := h.Sum64(), uint64(0xfd6a2180be050702); got != want {
		t.Errorf("%#x, want %#x", got, want)
	}
}

func TestLogarithm(t *testing.T) {
	for _, x := range []uint64{1, 2, 3, 1 << 20, 1<<63 - 1, 1 << 63, 0xdeadbeefdeadbeef, math.MaxUint64} {
		got := float64(distance(x)) / (1 << fraction)
		want := 64 - math.Log2(float64(x|1))
		if math.Abs(got-want) > 1e-5 {
			t.Errorf("%#x: %v, want %v", x, got, want)
		}
	}
}

func BenchmarkFill(b *testing.B) {
	all := servers(100, equally)
	for b.Loop() {
		fill(all, everyone(100))
	}
}

// TestOutAndBack: while a server is out the others keep their slots, each and every one, and have
// their shares. When it is back the table is the one before.
func TestOutAndBack(t *testing.T) {
	for _, n := range []int{2, 3, 10, 50, 100} {
		for name, weight := range map[string]func(int) int{"equal": equally, "mixed": func(i int) int { return 1 + 7*i%100 }} {
			all := servers(n, weight)
			in := everyone(n)
			before := fill(all, in)
			total := 0
			for i := range all {
				if in[i] = i%3 != 1; in[i] {
					total += all[i].Weight
				}
			}
			after := fill(all, in)
			for slot, i := range before {
				if in[i] && after[slot] != i || !in[after[slot]] {
					t.Fatalf("%s, %d servers: slot %d went from %d to %d", name, n, slot, i, after[slot])
				}
			}
			for i, got := range shares(after, n) {
				if share := float64(len(after)*all[i].Weight) / float64(total); in[i] && math.Abs(float64(got)-share) >= 2 {
					t.Errorf("%s, %d servers: number %d has %d slots, its share is %.1f", name, n, i, got, share)
				}
			}
		}
	}
	if fill(servers(3, equally), make([]bool, 3)) != nil {
		t.Error("nobody is in, and somebody has slots")
	}
}
