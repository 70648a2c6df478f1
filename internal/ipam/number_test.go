package ipam

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func (a number) big() *big.Int {
	x := new(big.Int).SetUint64(a.hi)
	return x.Add(x.Lsh(x, 64), new(big.Int).SetUint64(a.lo))
}

// TestNumber compares arithmetic of 128 bits with that of package big, most of it
// where 64 bits end.
func TestNumber(t *testing.T) {
	word := rapid.OneOf(rapid.SampledFrom([]uint64{0, 1, 2, 1<<64 - 1, 1<<64 - 2}), rapid.Uint64())
	rapid.Check(t, func(t *rapid.T) {
		a, b := number{word.Draw(t, "hi"), word.Draw(t, "lo")}, number{word.Draw(t, "hi"), word.Draw(t, "lo")}
		x, y := a.big(), b.big()
		if got := a.less(b); got != (x.Cmp(y) < 0) {
			t.Fatalf("%v < %v is %v", a, b, got)
		}
		if got := compare(a, b); got != x.Cmp(y) {
			t.Fatalf("%v compared with %v is %d", a, b, got)
		}
		limit := new(big.Int).Lsh(big.NewInt(1), 128)
		for what, c := range map[string]struct {
			got  number
			want *big.Int
		}{
			"sum": {a.plus(b), new(big.Int).Add(x, y)}, "difference": {a.minus(b), new(big.Int).Sub(x, y)}, "next": {a.next(), new(big.Int).Add(x, big.NewInt(1))},
		} {
			if c.got.big().Cmp(c.want.Mod(c.want, limit)) != 0 {
				t.Fatalf("%s of %v and %v is %v", what, a, b, c.got)
			}
		}
		if got := a.clamp(); x.IsUint64() && got != a.lo || !x.IsUint64() && got != 1<<64-1 {
			t.Fatalf("%v in 64 bits is %d", a, got)
		}
		if addr := a.addr(IPv6); numberOf(addr) != a {
			t.Fatalf("%v as an address is %v", a, addr)
		}
	})
}
