package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab"
)

// The bounds of the BGP chapter; the first is P8's.
const (
	goneWithin     = 500 * time.Millisecond
	withdrawWithin = time.Second
)

// bgp is the chapter about routers: the route in the router's kernel before,
// during and after a drain and a link cut. It returns how many promises it broke.
func bgp(ctx context.Context, bin *lab.Bin) (broken int, err error) {
	n, err := interop.NewToR(ctx, bin, 3)
	if err != nil {
		return 0, err
	}
	f, err := interop.StartFabric(ctx, n, &interop.LBD{}, interop.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fmt.Printf(`
The other way to announce: BGP. A router with FRR between the three nodes and the
client; every healthy node advertises %s, the router spreads connections.

   next hops in the router's kernel    %s
`, interop.VIP4(), hops(ctx, f))

	fmt.Println("\n6. Planned work: `lbd drain` on m1.")
	n1, err := chapter(ctx, f, interop.Drain(), f.Nodes[0], "drained", "undrained", withdrawWithin)
	if err != nil {
		return n1, err
	}
	fmt.Println("\n7. Somebody pulls the cable of m2 (BFD: 100 ms, 3 misses).")
	n2, err := chapter(ctx, f, interop.LinkDown(), f.Nodes[1], "cut", "plugged in", goneWithin)
	return n1 + n2, err
}

// chapter plays one fault. A drain must not fail a single connection.
func chapter(ctx context.Context, f *interop.Fabric, x interop.Fault, m *lab.Node, during, after string, limit time.Duration) (int, error) {
	inner := x.Undo
	x.Undo = func(ctx context.Context, f *interop.Fabric, m *lab.Node) error {
		fmt.Printf("   next hops, %-12s             %s\n", during, hops(ctx, f))
		return inner(ctx, f, m)
	}
	o, err := f.Run(ctx, x, m)
	if err != nil {
		return 0, err
	}
	fmt.Printf("   next hops, %-12s             %s\n", after, hops(ctx, f))
	fmt.Printf("   out of the route after              %d ms, back in it %d ms after the end\n", o.Gone.Milliseconds(), o.Back.Milliseconds())
	failed := o.First.Failed + o.Second.Failed
	fmt.Printf("   failed                              %d of %d connections\n", failed, o.First.Attempts+o.Second.Attempts)
	var bad []string
	if o.Gone < 0 || o.Gone > limit {
		bad = append(bad, fmt.Sprintf("gone after %v, want at most %v", o.Gone, limit))
	}
	if x.Name == interop.Drain().Name && failed > 0 {
		bad = append(bad, fmt.Sprintf("%d connections failed", failed))
	}
	for _, b := range bad {
		fmt.Printf("   BROKEN: P8: %s\n", b)
	}
	if len(bad) == 0 {
		fmt.Printf("   kept: P8 route gone within %v", limit)
		if x.Name == interop.Drain().Name {
			fmt.Print(", no connection failed")
		}
		fmt.Println()
	}
	return len(bad), nil
}

// hops names the nodes that are next hops of the VIP in the router's kernel.
func hops(ctx context.Context, f *interop.Fabric) string {
	got, err := f.Hops(ctx, f.ToRs[0], interop.VIP4())
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, m := range f.Nodes {
		for _, g := range got {
			if g == interop.Gateway(&m.Host, interop.VIP4()) {
				names = append(names, m.Name)
			}
		}
	}
	return strings.Join(names, " ")
}
