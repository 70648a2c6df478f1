package main

import (
	"fmt"
	"strings"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab/measure"
)

const preamble = `# BGP

Written by ` + "`make benchbgp`" + ` (` + "`go run ./tests/lab/cmd/benchbgp`" + `). Three nodes and a client on either side of one router with FRR 8.4
(connect timer 1 s, maximum-paths 16, L4 hash) in network namespaces; two VIPs, one of each family, each with a session of its own.

- **Gone**, **Back**: from the fault, or its end, until the router's kernel tells (rtnetlink) that the last VIP's next hop through the
  node has left, or is there again.
- **Failed**: of the client's attempts, one each 5 ms to each VIP (timeout 250 ms), from the fault to the end of the run. **Outage**: the longest time
  in which some failed. With three nodes about a third of all fail while a dead next hop is in use.
- **Hole**: for how long the router sent packets for a VIP to the node while its kernel did not have the address.
- **Long-lived**: of 60 connections with a line echoed each 50 ms, those alive at the end, of the node's own and of the others (mean). The router
  rehashes when the set of next hops changes; without resilient groups that moves connections of nodes that nothing happened to. A ring of the
  nodes finds them: **all kept** is each of the 60, **others kept** each of those of the other nodes. With a server dies what it had accepted.
- Faults come at a random moment (uniform over 2 s). All figures are min / median / max in ms unless said otherwise.
`

func meanings() map[string]string {
	return map[string]string{
		"linkdown": "the node's link goes down at the switch", "sigkill": "SIGKILL to the daemon; the node lives",
		"sigstop": "SIGSTOP to the daemon", "sigterm": "SIGTERM to the daemon", "drain": "`lbd drain`",
		"respawn": "SIGKILL, started again after 1 to 2 s", "appdeath": "the service is killed: its port refuses",
		"apphang": "the service is frozen: it accepts and hangs", "clear": "the router clears its sessions with the node",
	}
}

func report(o *options, r *results) string {
	var b strings.Builder
	b.WriteString(preamble)
	if o.parallel > 1 {
		fmt.Fprintf(&b, "- %d systems were measured at once, each with a router of its own on the same processors.\n", o.parallel)
	}
	if o.maxLoad >= 1 {
		b.WriteString("- No run was dropped because the machine was busy: it was shared with other work, as the column Busy (%) shows.\n")
	} else {
		fmt.Fprintf(&b, "- Runs in which the machine was more than %.0f %% busy were dropped and repeated; they are counted in brackets.\n", 100*o.maxLoad)
	}
	fmt.Fprintf(&b, "\nMachine: %s. Written on %s.\n\n", measure.Machine(), time.Now().Format(time.DateOnly))
	for _, s := range r.systems {
		fmt.Fprintf(&b, "- **%s**: %s.\n", s.Name(), s.Configuration())
	}
	for _, s := range r.systems {
		faultTable(&b, r, s)
	}
	otherTable(&b, r)
	for _, e := range r.errors {
		fmt.Fprintf(&b, "\nNot measured: %s\n", strings.ReplaceAll(e, "\n", " "))
	}
	return b.String()
}

func faultTable(b *strings.Builder, r *results, s *interop.LBD) {
	fmt.Fprintf(b, "\n## %s\n\n", s.Name())
	b.WriteString("| Fault | Runs (dropped) | Busy | Gone | Back | Failed | Outage | Hole | Long-lived, own | others | Promise | Kept |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	var broken []string
	for _, fault := range faultNames() {
		runs := r.runs[s.Name()+" "+fault]
		if len(runs) == 0 {
			continue
		}
		fmt.Fprintf(b, "| %s | %d (%d) | %s |", meanings()[fault], len(runs), r.busy[s.Name()+" "+fault], strings.Join(cells(runs), " | "))
		p := interop.PromiseOf(fault, s)
		bad := p.BrokenBy(runs)
		switch {
		case p.Text == "":
			b.WriteString(" | |\n")
		case len(bad) == 0:
			fmt.Fprintf(b, " %s | yes |\n", p.Text)
		default:
			fmt.Fprintf(b, " %s | **no** |\n", p.Text)
		}
		for _, x := range bad {
			broken = append(broken, fault+": "+x)
		}
	}
	for i, x := range broken {
		if i == 0 {
			b.WriteString("\nBroken:\n\n")
		}
		fmt.Fprintf(b, "- %s\n", x)
	}
}

func faultNames() []string {
	var out []string
	for _, x := range interop.Faults() {
		out = append(out, x.Name)
	}
	return append(out, "clear")
}

func cells(runs []*interop.Outcome) []string {
	var failed, load []int
	own, ownOpen, others, othersOpen := 0, 0, 0, 0
	for _, o := range runs {
		failed = append(failed, o.First.Failed+o.Second.Failed)
		load = append(load, int(100*o.Load))
		own, ownOpen = own+o.Own.Survived(), ownOpen+o.Own.Open
		others, othersOpen = others+o.Others.Survived(), othersOpen+o.Others.Open
	}
	return []string{
		measure.Counts(load),
		some(runs, func(o *interop.Outcome) time.Duration { return o.Gone }),
		some(runs, func(o *interop.Outcome) time.Duration { return o.Back }),
		measure.Counts(failed),
		some(runs, func(o *interop.Outcome) time.Duration { return max(o.First.Outage, o.Second.Outage) }),
		some(runs, func(o *interop.Outcome) time.Duration { return o.Hole }),
		share(own, ownOpen, len(runs)), share(others, othersOpen, len(runs)),
	}
}

// some is a spread of what may not have happened in every run.
func some(runs []*interop.Outcome, f func(*interop.Outcome) time.Duration) string {
	s := spread(runs, f)
	switch {
	case s.N == 0:
		return "never"
	case s.N < len(runs):
		return fmt.Sprintf("%s (never in %d)", s, len(runs)-s.N)
	}
	return s.String()
}

func share(alive, open, runs int) string {
	return fmt.Sprintf("%.1f of %.1f", float64(alive)/float64(runs), float64(open)/float64(runs))
}

func otherTable(b *strings.Builder, r *results) {
	b.WriteString("\n## Other figures\n\n| What | System | Runs | Figure | Promise | Kept |\n|---|---|---|---|---|---|\n")
	row := func(what, system string, s measure.Spread, limit time.Duration) {
		if s.N > 0 {
			fmt.Fprintf(b, "| %s | %s | %d | %s | <= %d ms | %s |\n", what, system, s.N, s, limit.Milliseconds(), kept(s.Max <= limit))
		}
	}
	for _, s := range r.systems {
		var session, route []time.Duration
		for _, x := range r.starts[s.Name()] {
			session, route = append(session, x.Session), append(route, x.Route)
		}
		row("start of the daemon until its sessions are established", s.Name(), measure.SpreadOf(session), 2500*time.Millisecond)
		if sp := measure.SpreadOf(route); sp.N > 0 {
			fmt.Fprintf(b, "| start of the daemon until the node is a next hop of both VIPs | %s | %d | %s | | |\n", s.Name(), sp.N, sp)
		}
		row("a VIP is added to the configuration until the router has its route", s.Name(), measure.SpreadOf(r.adds[s.Name()]), 150*time.Millisecond)
	}
	for _, s := range r.systems {
		if i := r.idle[s.Name()]; i != nil {
			idleRows(b, i, s.Name())
		}
	}
	if r.bulk != nil {
		fmt.Fprintf(b, "| %d VIPs are added until the router has the last route (machine %.0f %% busy) | lbd | 1 | %.2f s | <= 5 s | %s |\n", r.bulk.Paths, 100*r.bulk.Load, r.bulk.Took.Seconds(), kept(r.bulk.Took <= 5*time.Second))
		mib := float64(r.bulk.RSS) / (1 << 20)
		fmt.Fprintf(b, "| memory that they take, 20 s later | lbd | 1 | %.1f MiB | <= 60 MiB | %s |\n", mib, kept(mib <= 60))
	}
}

func kept(ok bool) string {
	if ok {
		return "yes"
	}
	return "**no**"
}
