package main

import (
	"context"
	"fmt"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// linesPerStop is how many lines of the watch are read after each move.
const linesPerStop = 4

// tour is the chapter about open connections: a watch stays open while the address
// travels round the nodes. It returns how many promises it broke.
func tour(ctx context.Context, c *lab.Cluster, lbd *lab.LBD) (broken int, err error) {
	if err := c.Stable(ctx); err != nil {
		return 0, err
	}
	fmt.Println("\n5. A client watches the API server; the address travels round all nodes by drain and undrain.")
	from := measure.Now()
	s, err := c.Eyes.OpenStream(ctx, lab.VIP4())
	if err != nil {
		return 0, err
	}
	at, err := c.Owner(lab.VIP4())
	if err != nil {
		return 0, err
	}
	seen, was := map[string]bool{at.Name: true}, s.Read()
	stop("at first", at, was)
	var drained []*lab.Node
	for i := range c.Nodes {
		if i == len(c.Nodes)-1 { // nobody else is left to take the address
			if err := lbd.UndrainAll(ctx, c, drained); err != nil {
				return 0, err
			}
		}
		left := at
		if at, err = lbd.MoveOff(ctx, c, lab.VIP4(), left); err != nil {
			return 0, err
		}
		drained = append(drained, left)
		seen[at.Name] = true
		if was, err = s.More(ctx, linesPerStop); err != nil {
			fmt.Printf("   BROKEN: P13: the watch: %v\n", err)
			return 1, lbd.UndrainAll(ctx, c, drained)
		}
		stop(left.Name+" drained", at, was)
	}
	if err := lbd.UndrainAll(ctx, c, drained); err != nil {
		return 0, err
	}
	r := c.Eyes.Reach(lab.VIP4(), from, measure.Now())
	fmt.Printf("   longest time between two lines      %d ms\n", was.Gap.Milliseconds())
	fmt.Printf("   failed                              %d of %d new connections\n", r.Failed, r.Attempts)
	if len(seen) < len(c.Nodes) {
		return 0, fmt.Errorf("the address was on %d of %d nodes", len(seen), len(c.Nodes))
	}
	if r.Failed > 0 {
		fmt.Printf("   BROKEN: P2: %d connections failed %v\n", r.Failed, r.Errors)
		return 1, nil
	}
	fmt.Println("   kept: P13 the watch stays open, no line missing; P2 0 failed")
	return 0, nil
}

// stop tells of one stop of the address on its way.
func stop(what string, owner *lab.Node, s measure.Stream) {
	fmt.Printf("   %-12s address on %s          %2d lines of the watch, served by %s\n", what, owner.Name, s.Lines, s.Node)
}
