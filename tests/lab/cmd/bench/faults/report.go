package faults

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/bench"
	"lbd.dev/lbd/tests/lab/measure"
)

const preamble = `# Benchmarks

Written by ` + "`make benchfaults`" + ` (` + "`go run ./tests/lab/cmd/bench faults`" + `). Three nodes, a client and an observer of the wire in
network namespaces on one Linux bridge. Every system meets the same faults and is measured by the same means.

- **Outage**: the client connects every 5 ms (timeout 250 ms); the longest time from the start of the last success to the end of the
  first success after which all succeed for 1 s. 0: no attempt failed.
- **Takeover**: from the fault until another node first claims the address by ARP (the observer asks every 20 ms and hears announcements).
- **Dual claim**: the time in which two nodes claimed the address by ARP.
- **Gone**: from the fault until the kernel of the old owner no longer has the address (looked at every 5 ms).
- **Long-lived**: of 60 connections with a line echoed each 50 ms, how many were alive at the end (mean).
- Faults come at a random moment (uniform over 2 s). All figures are min / median / max in ms unless said otherwise.
- **Promise** is that of lbd, held by every run that counts. A median is held from five runs on.
- **Busy**: how much of the machine's processor time was used during a run, steal included, in %.
- Clock jumps are not in this lab: Linux has no namespace for the wall clock. They are left to simulation.

`

var faults = map[string]string{
	"linkdown":  "the owner's link goes down at the switch (power, cable)",
	"sigkill":   "SIGKILL to the owner's daemon; nothing restarts it, the node lives",
	"sigstop":   "SIGSTOP to the owner's daemon, SIGCONT once another node has been the owner for 5 s",
	"sigterm":   "SIGTERM to the owner's daemon",
	"drain":     "the owner is drained; keepalived has no such command",
	"respawn":   "SIGKILL to the owner's daemon, started again after 1 s",
	"appdeath":  "the service behind the address is killed on the owner: its port refuses",
	"apphang":   "the service is frozen on the owner: it accepts and hangs (keepalived's TCP check cannot see that)",
	"rejoin":    "as linkdown; the link comes back 3 s after the address is served again",
	"wirecut":   "the switch drops everything from and to the owner, which keeps its carrier; undone 3 s after the address is served again",
	"return":    "SIGTERM to the owner's daemon, which is started again as soon as it has ended",
	"rolling":   "SIGTERM to the daemon of each node and a start as soon as it has ended, 3 s between two nodes; the owner's is the first",
	"partition": "only what the daemons say to each other is dropped at the owner, for 6 s; ARP and clients pass",
}

func report(o *options, r *results) string {
	var b bench.Report
	b.WriteString(preamble + bench.Dropped(o.maxLoad, "Busy"))
	b.Printf("\nMachine: %s. Written on %s.\n\n", machine(), time.Now().Format(time.DateOnly))
	for _, s := range o.systems {
		b.Printf("- **%s**: %s.\n", s.Name(), s.Configuration())
	}
	for _, sc := range o.scenarios {
		b.Printf("\n## %s\n\nThe fault: %s.\n\n", sc.Name, faults[sc.Name])
		table(&b, o, r, sc)
	}
	idleTable(&b, r)
	return b.String()
}

func table(b *bench.Report, o *options, r *results, sc lab.Scenario) {
	head := []string{"System", "Runs (dropped)", "Busy", "Outage", "Failed attempts", "Takeover", "Dual claim", "Gone", "Long-lived"}
	if sc.Undo != nil {
		head = append(head, "After its end: outage", "failed, max", "moved, runs", "dual claim")
	}
	b.Head(append(head, "Promise", "Kept")...)
	var broken []string
	for _, s := range o.systems {
		good, busy, failed := r.runs(s.Name(), sc.Name)
		if len(good)+busy+failed == 0 {
			continue
		}
		cells := append([]string{s.Name(), fmt.Sprintf("%d (%d)%s", len(good), busy, notHappened(failed))}, firstCells(good)...)
		if sc.Undo != nil {
			cells = append(cells, secondCells(good)...)
		}
		if !promises(s) {
			b.Row(append(cells, "", "")...)
			continue
		}
		p := lab.PromiseFor(sc.Name, s.Name() == "lbd-fast")
		bad := p.Broken(good, 1)
		if p.Open {
			p.Text += ", no connection lost"
		}
		b.Row(append(cells, p.ID+": "+p.Text, kept(good, bad))...)
		for _, x := range bad {
			broken = append(broken, s.Name()+": "+x)
		}
	}
	b.Broken(broken)
}

// promises tells whether lbd's promises hold for the system.
func promises(s lab.System) bool {
	l, ok := s.(*lab.LBD)
	return ok && !l.Reset
}

func notHappened(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d could not be measured", n)
}

func kept(good []*lab.Outcome, bad []string) string {
	if len(good) == 0 {
		return "not measured"
	}
	return bench.Kept(len(bad) == 0)
}

func firstCells(runs []*lab.Outcome) []string {
	var outage, takeover, dual, gone []time.Duration
	var failed []int
	var load []int
	alive, open, never := 0, 0, 0
	for _, o := range runs {
		outage = append(outage, o.First.Reach.Outage)
		failed = append(failed, o.First.Reach.Failed)
		load = append(load, int(100*o.Load))
		dual = append(dual, o.First.Dual)
		alive, open = alive+o.Conns.Survived(), open+o.Conns.Open
		if o.First.Reach.Never {
			never++
		}
		if o.First.Takeover > 0 {
			takeover = append(takeover, o.First.Takeover)
		}
		if o.Gone >= 0 {
			gone = append(gone, o.Gone)
		}
	}
	return []string{
		measure.Counts(load), measure.SpreadOf(outage).String() + inRuns(never, "not over in"), measure.Counts(failed), bench.Some(takeover, len(runs)),
		measure.SpreadOf(dual).String(), bench.Some(gone, len(runs)), mean(alive, len(runs)) + " of " + mean(open, len(runs)),
	}
}

func secondCells(runs []*lab.Outcome) []string {
	var outage, dual []time.Duration
	failed, moved := 0, 0
	for _, o := range runs {
		outage = append(outage, o.Second.Reach.Outage)
		dual = append(dual, o.Second.Dual)
		failed = max(failed, o.Second.Reach.Failed)
		if o.Second.Moved {
			moved++
		}
	}
	return []string{measure.SpreadOf(outage).String(), fmt.Sprint(failed), fmt.Sprint(moved), measure.SpreadOf(dual).String()}
}

func inRuns(n int, what string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s %d)", what, n)
}

func mean(sum, n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(sum)/float64(n))
}

func idleTable(b *bench.Report, r *results) {
	b.WriteString("\n## Idle\n\nOver 10 s, with everything that the daemon starts, while nobody connects to the address or asks for it. The promise of lbd (P11): RSS <= 40 MiB, CPU <= 1 % of a core. CPU is the scheduler's count for all threads (the CPU clock of the process). The last row of each system was taken right after: a thread that does nothing but send a datagram to each of two nodes every 50 ms, which is the least that an owner must do.\n\n")
	b.Head("System", "Node", "Processes", "RSS MiB", "CPU % of a core", "Machine busy %")
	for _, e := range r.entries {
		for _, i := range e.Idle {
			cpu := fmt.Sprintf("%.2f", 100*i.CPU)
			if i.Processes == 0 { // no daemon
				b.Row("", i.Node, "", "", cpu, "")
				continue
			}
			b.Row(e.System, i.Node, fmt.Sprint(i.Processes), fmt.Sprintf("%.1f", float64(i.RSS)/(1<<20)), cpu, fmt.Sprintf("%.0f", 100*i.Load))
		}
	}
}

// machine describes what the figures were taken on.
func machine() string {
	system := "unknown distribution"
	if f, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(f)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
				system = strings.Trim(v, `"`)
			}
		}
	}
	kv := "keepalived not installed"
	if out, err := exec.Command("keepalived", "--version").CombinedOutput(); err == nil {
		first, _, _ := strings.Cut(string(out), "\n")
		kv, _, _ = strings.Cut(first, " (")
	}
	return system + ", " + measure.Machine() + ", " + kv
}
