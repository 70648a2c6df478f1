package bgp

import (
	"fmt"
	"slices"
	"time"

	"lbd.dev/lbd/tests/interop"
	"lbd.dev/lbd/tests/lab/bench"
	"lbd.dev/lbd/tests/lab/measure"
)

const preamble = `# BGP

Written by ` + "`make benchbgp`" + ` (` + "`go run ./tests/lab/cmd/bench bgp`" + `). Three nodes and a client on either side of one router with FRR 8.4
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
	var b bench.Report
	b.WriteString(preamble)
	if o.parallel > 1 {
		b.Printf("- %d systems were measured at once, each with a router of its own on the same processors.\n", o.parallel)
	}
	b.Printf("- %s\n%s.\n\n", bench.Dropped(o.maxLoad, "Busy (%)"), bench.Machine())
	for _, s := range r.systems {
		b.Printf("- **%s**: %s.\n", s.Name(), s.Configuration())
	}
	for _, s := range r.systems {
		faultTable(&b, r, s)
	}
	otherTable(&b, r)
	b.NotMeasured(r.errors)
	return b.String()
}

func faultTable(b *bench.Report, r *results, s *interop.LBD) {
	b.Printf("\n## %s\n\n", s.Name())
	b.Head("Fault", "Runs (dropped)", "Busy", "Gone", "Back", "Failed", "Outage", "Hole", "Long-lived, own", "others", "Promise", "Kept")
	var broken []string
	for _, fault := range faultNames() {
		runs := r.runs[s.Name()+" "+fault]
		if len(runs) == 0 {
			continue
		}
		p := interop.PromiseOf(fault, s)
		bad, kept := p.BrokenBy(runs), ""
		if p.Text != "" {
			kept = bench.Kept(len(bad) == 0)
		}
		b.Row(append(append([]string{meanings()[fault], fmt.Sprintf("%d (%d)", len(runs), r.busy[s.Name()+" "+fault])}, cells(runs)...), p.Text, kept)...)
		for _, x := range bad {
			broken = append(broken, fault+": "+x)
		}
	}
	b.Broken(broken)
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
	var d []time.Duration
	for _, o := range runs {
		if v := f(o); v >= 0 {
			d = append(d, v)
		}
	}
	return bench.Some(d, len(runs))
}

func share(alive, open, runs int) string {
	return fmt.Sprintf("%.1f of %.1f", float64(alive)/float64(runs), float64(open)/float64(runs))
}

func otherTable(b *bench.Report, r *results) {
	b.WriteString("\n## Other figures\n\n")
	b.Head("What", "System", "Runs", "Figure", "Promise", "Kept")
	row := func(what, system string, d []time.Duration, limit time.Duration) {
		if sp := measure.SpreadOf(d); sp.N > 0 {
			b.Row(what, system, fmt.Sprint(sp.N), sp.String(), fmt.Sprintf("<= %d ms", limit.Milliseconds()), bench.Kept(sp.Max <= limit))
		}
	}
	for _, s := range r.systems {
		var session, route []time.Duration
		for _, x := range r.starts[s.Name()] {
			session, route = append(session, x.Session), append(route, x.Route)
		}
		row("start of the daemon until its sessions are established", s.Name(), session, 2500*time.Millisecond)
		if sp := measure.SpreadOf(route); sp.N > 0 {
			b.Row("start of the daemon until the node is a next hop of both VIPs", s.Name(), fmt.Sprint(sp.N), sp.String(), "", "")
		}
		row("a VIP is added to the configuration until the router has its route", s.Name(), r.adds[s.Name()], 150*time.Millisecond)
	}
	for _, s := range r.systems {
		if all := r.idle[s.Name()]; len(all) > 0 {
			idleRow(b, fmt.Sprintf("processor time of a daemon that is idle, of a core (machine %d %% busy)", int(100*all[0].Load)), s.Name(), all, 1, "%",
				func(i bench.Idle) float64 { return 100 * i.CPU })
			idleRow(b, "its memory", s.Name(), all, 40, "MiB", func(i bench.Idle) float64 { return float64(i.RSS) / (1 << 20) })
		}
	}
	if r.bulk != nil {
		b.Row(fmt.Sprintf("%d VIPs are added until the router has the last route (machine %.0f %% busy)", r.bulk.Paths, 100*r.bulk.Load), "lbd", "1",
			fmt.Sprintf("%.2f s", r.bulk.Took.Seconds()), "<= 5 s", bench.Kept(r.bulk.Took <= 5*time.Second))
		mib := float64(r.bulk.RSS) / (1 << 20)
		b.Row("memory that they take, 20 s later", "lbd", "1", fmt.Sprintf("%.1f MiB", mib), "<= 60 MiB", bench.Kept(mib <= 60))
	}
}

// idleRow is one figure of all nodes.
func idleRow(b *bench.Report, what, system string, all []bench.Idle, limit float64, unit string, f func(bench.Idle) float64) {
	var x []float64
	for _, i := range all {
		x = append(x, f(i))
	}
	slices.Sort(x)
	b.Row(what, system, fmt.Sprint(len(x)), fmt.Sprintf("%.2f / %.2f / %.2f %s", x[0], x[len(x)/2], x[len(x)-1], unit),
		fmt.Sprintf("<= %g %s", limit, unit), bench.Kept(x[len(x)-1] <= limit))
}
