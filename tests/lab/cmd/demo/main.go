// Demo shows in about a minute what lbd does when things break: three nodes
// in network namespaces, a client that connects 200 times a second, and an
// observer that asks the wire who holds the address. It exits non-zero if a
// promise is broken.
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

func main() {
	lab.Program("\ndemo", demo)
}

// step is one chapter of the story.
type step struct {
	scenario lab.Scenario
	title    string // with the owner's name for %s
	tell     func(*lab.Outcome) []string
}

func steps() []step {
	return []step{
		{lab.LinkDown(), "Somebody pulls the cable of %s.", tellOutage},
		{lab.Drain(), "Planned work: `lbd drain` on %s.", tellPlanned},
		{lab.Freeze(), "The daemon on %s freezes (SIGSTOP), its node lives on.", tellFrozen},
		{lab.ServiceDeath(), "The service behind the address dies on %s.", tellOutage},
	}
}

func demo(ctx context.Context) (err error) {
	if err := lab.Usable(); err != nil {
		return err
	}
	fmt.Println("lbd demo: three nodes in network namespaces on this machine; nothing else is touched.")
	fmt.Println("Building lbd and the lab's agent ...")
	bin, err := lab.Build(ctx, true)
	if err != nil {
		return err
	}
	defer bin.Close()
	begin := time.Now()
	defer func() { fmt.Printf("\nCleaned up. %.0f s in all.\n", time.Since(begin).Seconds()) }()
	broken, err := layer2(ctx, bin, begin)
	if err != nil {
		return err
	}
	if err := interop.Missing(); err != nil {
		return err
	}
	more, err := bgp(ctx, bin)
	if err != nil {
		return err
	}
	if broken += more; broken > 0 {
		return fmt.Errorf("%d promises broken", broken)
	}
	fmt.Println("\nAll promises held.")
	return nil
}

// layer2 plays the chapters on one LAN and returns how many promises they broke.
func layer2(ctx context.Context, bin *lab.Bin, begin time.Time) (broken int, err error) {
	lbd := &lab.LBD{}
	c, err := lab.NewCluster(ctx, bin, lbd, 3)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	introduce(c, time.Since(begin))
	for i, s := range steps() {
		n, err := play(ctx, c, i+1, s)
		if err != nil {
			return broken, err
		}
		broken += n
	}
	n, err := tour(ctx, c, lbd)
	return broken + n, err
}

func introduce(c *lab.Cluster, took time.Duration) {
	fmt.Printf(`
m1, m2 and m3 run lbd and a stand-in for an API server (https, health-checked).
A client connects 200 times a second; an observer asks the LAN 50 times a second
who holds the address. Ready after %.1f s:

`, took.Seconds())
	for _, v := range c.Eyes.VIPs {
		name := "nobody"
		if n, err := c.Owner(v); err == nil {
			name = n.Name
		}
		fmt.Printf("   %-12s is held by %s\n", v, name)
	}
}

// play runs one chapter and returns how many promises it broke.
func play(ctx context.Context, c *lab.Cluster, number int, s step) (int, error) {
	if err := c.Stable(ctx); err != nil {
		return 0, err
	}
	owner, err := c.Owner(lab.VIP4())
	if err != nil {
		return 0, err
	}
	fmt.Printf("\n%d. %s\n", number, fmt.Sprintf(s.title, owner.Name))
	o, err := c.Run(ctx, s.scenario, lab.VIP4())
	if err != nil {
		return 0, err
	}
	for _, line := range s.tell(o) {
		fmt.Println("   " + line)
	}
	p := lab.PromiseFor(o.Scenario, false)
	broken := p.Broken([]*lab.Outcome{o}, 1)
	if len(broken) == 0 {
		fmt.Printf("   kept: %s %s\n", p.ID, p.Text)
		return 0, nil
	}
	for _, b := range broken {
		fmt.Printf("   BROKEN: %s: %s\n", p.ID, b)
	}
	if o.Busy() {
		fmt.Printf("   (the machine was %.0f %% busy, which may be the cause)\n", 100*o.Load)
	}
	return len(broken), nil
}

func served(o *lab.Outcome) string {
	return fmt.Sprintf("served by    %s before, %s after", o.Owner, strings.Join(o.First.Claimants, " and "))
}

func tellOutage(o *lab.Outcome) []string {
	r := o.First.Reach
	return []string{served(o), fmt.Sprintf("outage       %d ms for clients (%d of %d connections failed)", r.Outage.Milliseconds(), r.Failed, r.Attempts)}
}

func tellPlanned(o *lab.Outcome) []string {
	r := o.First.Reach
	return []string{served(o), fmt.Sprintf("failed       %d of %d connections", r.Failed, r.Attempts)}
}

func tellFrozen(o *lab.Outcome) []string {
	lines := []string{"gone         the kernel of " + o.Owner + " never dropped the address"}
	if o.Gone >= 0 {
		lines[0] = fmt.Sprintf("gone         the kernel of %s dropped the address by itself after %d ms", o.Owner, o.Gone.Milliseconds())
	}
	return append(lines, tellClaims(o)...)
}

func tellClaims(o *lab.Outcome) []string {
	r := o.First.Reach
	return []string{
		served(o),
		fmt.Sprintf("takeover     %d ms after the freeze; two claimants at once: %d ms", o.First.Takeover.Milliseconds(), o.First.Dual.Milliseconds()),
		fmt.Sprintf("outage       %d ms for clients (%d of %d connections failed)", r.Outage.Milliseconds(), r.Failed, r.Attempts),
		fmt.Sprintf("thawed       %s runs again: address moved: %v, two claimants: %d ms", o.Owner, o.Second.Moved, o.Second.Dual.Milliseconds()),
	}
}
