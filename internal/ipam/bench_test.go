package ipam

import (
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// benchmark measures one allocation and its release, from a pool of 2^24 in which
// use has taken addresses by number.
func benchmark(b *testing.B, avoid bool, use func(s *set), r Request) {
	p := auto("p", "10.0.0.0/8")
	p.AvoidBuggyIPs = avoid
	a, _ := New(Config{Pools: []Pool{p}})
	use(&a.pools["p"].spaces[0].free)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Allocate(r, t0); err != nil {
			b.Fatal(err)
		}
		a.Free(r.Owner, t0)
	}
}

const all = 1 << 24

// scatter takes n numbers that are every step-th one.
func scatter(n, step uint64) func(*set) {
	return func(s *set) {
		for i := range n {
			s.remove(small(i * step))
		}
	}
}

// last leaves only the last number.
func last(s *set) {
	only := s.size.minus(small(1))
	*s = set{}
	s.add(only)
}

func BenchmarkAllocate(b *testing.B) {
	for _, c := range []struct {
		name  string
		avoid bool
		use   func(*set)
	}{
		{"empty", false, func(*set) {}},
		{"half-scattered", false, scatter(all/2, 2)},
		{"1M-scattered", false, scatter(1_000_000, 16)},
		{"one-left", false, last},
		{"one-left-avoid", true, last},
	} {
		b.Run(c.name, func(b *testing.B) { benchmark(b, c.avoid, c.use, service("a")) })
		if c.name != "one-left-avoid" {
			r := service("a", ask("10.255.255.255"))
			b.Run(c.name+"-explicit", func(b *testing.B) { benchmark(b, c.avoid, c.use, r) })
		}
	}
}

// BenchmarkAllocateServices allocates beside a million Services that hold every
// 16th address, with quarantine.
func BenchmarkAllocateServices(b *testing.B) {
	a, _ := New(Config{Pools: []Pool{auto("p", "10.0.0.0/8")}, Quarantine: time.Minute})
	list := make([]Assignment, 1_000_000)
	for i := range list {
		list[i] = Assignment{Owner: model.Key{Namespace: "ns", Name: fmt.Sprint(i)}, Addresses: []Address{{Addr: number{lo: 10<<24 + uint64(i)*16}.addr(IPv4)}}}
	}
	if c := a.Restore(list); len(c) > 0 {
		b.Fatal(c[0])
	}
	r, now := service("a"), t0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond) // 60000 addresses rest at a time
		if _, err := a.Allocate(r, now); err != nil {
			b.Fatal(err)
		}
		a.Free(r.Owner, now)
	}
}

// BenchmarkAllocateShared allocates for a key that 5000 Services have, all of them
// on the same port; the worst case looks at each address.
func BenchmarkAllocateShared(b *testing.B) {
	for name, ports := range map[string][]uint16{"port-in-use": {80}, "other-port": {81}} {
		b.Run(name, func(b *testing.B) {
			a, _ := New(Config{Pools: []Pool{auto("p", "10.0.0.0/8")}})
			for i := range 5000 {
				if _, err := a.Allocate(service(fmt.Sprint(i), share("k", 80)), t0); err != nil {
					b.Fatal(err)
				}
			}
			r := service("a", share("k", ports...))
			for b.Loop() {
				if _, err := a.Allocate(r, t0); err != nil {
					b.Fatal(err)
				}
				a.Free(r.Owner, t0)
			}
		})
	}
}

// BenchmarkAllocateManyPools chooses among 1000 pools for a namespace each, and as
// many for all that are full.
func BenchmarkAllocateManyPools(b *testing.B) {
	var pools []Pool
	for i := range 1000 {
		pools = append(pools, pinnedTo(fmt.Sprintf("ns%d", i), 1, auto(fmt.Sprintf("ns%d", i), number{lo: 10<<24 + uint64(i)}.addr(IPv4).String()+"/32")),
			auto(fmt.Sprintf("all%d", i), number{lo: 11<<24 + uint64(i)}.addr(IPv4).String()+"/32"))
	}
	pools = append(pools, auto("zz", "12.0.0.0/8"))
	a, errs := New(Config{Pools: pools})
	if len(errs) > 0 {
		b.Fatal(errs)
	}
	for i := range 2000 {
		if _, err := a.Allocate(service(fmt.Sprintf("ns%d/%d", i%1000, i)), t0); err != nil {
			b.Fatal(err)
		}
	}
	r := service("ns5/a")
	for b.Loop() {
		if _, err := a.Allocate(r, t0); err != nil {
			b.Fatal(err)
		}
		a.Free(r.Owner, t0)
	}
}
