package ring

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab/bench"
	"lbd.dev/lbd/tests/lab/measure"
)

const preamble = `# Connections

Written by ` + "`make benchring`" + ` (` + "`go run ./tests/lab/cmd/bench ring`" + `). What [docs/connections.md](connections.md) promises for connections that are
open (P13 to P15), and what it costs. Three nodes in network namespaces on one Linux bridge, by BGP behind a router with FRR; lbd has
default settings, **lbd-reset** is lbd with ` + "`connections: reset`" + `,
**lbd-balanced** with ` + "`advertise.l2.mode: balanced`" + `, keepalived has advert_int 1.

- **Kept**: of 60 connections with a line echoed each 50 ms, those alive at the end, in the worst run; then over all runs, of the node's
  own and of the others'. By BGP the fault goes from node to node; which others a router moves depends on the node. At layer 2 it hits the owner,
  which has all of them unless they are balanced; which of those were lost is not told apart: its own, as long as there are not more.
- **Failed**: new connections that failed, of all runs; the client opens one each 5 ms (by BGP one to each of two VIPs). What a server had
  accepted when it was killed is reset with it. At layer 2 only the owner has the address, unless it is balanced, so that its dead server refuses until the handover.
- **Busy**: how much of the machine's processor time was used meanwhile, steal included, in %: least / median / most.
- Faults come at a random moment (uniform over 2 s). No run was dropped.

`

func meanings() map[string]string {
	return map[string]string{
		"drain": "`lbd drain`", "sigterm": "SIGTERM to the daemon", "rolling": "SIGTERM to the daemon of each node in turn, started again when it has ended",
		"return": "SIGTERM to the daemon, started again when it has ended", "respawn": "SIGKILL to the daemon, started again after 1 s",
		"appdeath": "the server is killed", "linkdown": "the node's link goes down at the switch",
	}
}

func report(r *results) string {
	var b bench.Report
	b.WriteString(preamble)
	b.Printf("%s by `bench ring -parts %s -runs %d -strays %d`.\n", bench.Machine(),
		strings.Join(r.options.parts, ","), r.options.runs, r.options.strays)
	keptTable(&b, r)
	costTable(&b, r)
	deathTable(&b, r)
	b.NotMeasured(r.errors)
	return b.String()
}

func keptTable(b *bench.Report, r *results) {
	by := ""
	for _, k := range r.kept {
		if k.runs == 0 {
			continue
		}
		if k.by != by {
			by = k.by
			b.Printf("\n## Kept, %s\n\n", by)
			b.Head("Fault", "System", "Runs", "Busy", "Kept of 60, worst run", "own", "others", "Failed", "Wanted", "Reached")
		}
		others := ""
		if k.others.Open > 0 {
			others = fmt.Sprintf("%d of %d", k.others.Survived(), k.others.Open)
		}
		text, ok := k.wanted()
		reached := ""
		if text != "" {
			reached = bench.Kept(ok)
		}
		b.Row(meanings()[k.fault], k.system, fmt.Sprint(k.runs), measure.Counts(k.busy), fmt.Sprint(k.leastKept), fmt.Sprintf("%d of %d", k.own.Survived(), k.own.Open),
			others, fmt.Sprintf("%d of %d%s", k.failed, k.attempts, causes(k.errors)), text, reached)
	}
}

// wanted is the promise for a row, and whether it is kept.
func (k *keptRow) wanted() (text string, ok bool) {
	if k.system != "lbd" && k.system != "lbd-balanced" {
		return "", true
	}
	shared := k.by == "BGP" || k.system == "lbd-balanced"
	all := k.own.Survived() == k.own.Open && k.others.Survived() == k.others.Open
	switch {
	case k.fault == "appdeath" && shared:
		return "all of the others, none refused or late", k.others.Survived() == k.others.Open && k.errors["refused"]+k.errors["timeout"] == 0
	case k.fault == "linkdown" && shared:
		return "all of the others", k.others.Survived() == k.others.Open
	case k.fault == "appdeath" || k.fault == "linkdown":
		return "", true // they die with their server or their node
	}
	return "all, 0 failed", all && k.failed == 0
}

func causes(errs map[string]int) string {
	var out []string
	for _, e := range slices.Sorted(maps.Keys(errs)) {
		if errs[e] > 0 {
			out = append(out, fmt.Sprintf("%s %d", e, errs[e]))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, ", ") + ")"
}

func costTable(b *bench.Report, r *results) {
	if len(r.cost) == 0 {
		return
	}
	b.Printf(`
## Cost of a relay

%d connections to m1 with a line echoed each 20 ms, %v for each figure. The same connections are measured with the address on m1, then on m3, which
relays to m1, then on m2, which relays to m3 and that to m1; counters at m1 say that they were. All answers go directly. Median of %d rounds, with the
least and the most in brackets.

`, echoConns, echoFor, len(r.cost))
	b.Head("Relays", "Busy", "Echo p50, µs", "p99, µs", "p99 more than without, µs", "wanted")
	for n := range maxRelays + 1 {
		pick := func(f func(*round) float64) string { return spread(r.cost, f) }
		more := ""
		if n > 0 {
			more = pick(func(o *round) float64 { return micro(o.p99[n] - o.p99[0]) })
		}
		b.Row(fmt.Sprint(n), pick(func(o *round) float64 { return float64(o.busy[n]) }), pick(func(o *round) float64 { return micro(o.p50[n]) }),
			pick(func(o *round) float64 { return micro(o.p99[n]) }), more, limit(n, "<= 200"))
	}
	loadLine(b, r.load)
	speedTable(b, r)
}

func speedTable(b *bench.Report, r *results) {
	if len(r.speeds) == 0 {
		return
	}
	b.Printf(`
One connection from the client that is written to as fast as it takes it, %v through no, one and two relays in turn, again and again; the share is that
within a round. veth with segmentation offload. Without a limit at the client's link the processors are the limit: client, switch, relay and server
share %d of them, and the path is as long again with each relay.

`, sendFor, runtime.NumCPU())
	b.Head("Client's link", "Rounds", "Relays", "Throughput, Gbit/s", "of that without, %", "wanted")
	for _, w := range r.speeds {
		wire := "no limit"
		if w.gigabits > 0 {
			wire = fmt.Sprintf("%d Gbit/s", w.gigabits)
		}
		for n := range maxRelays + 1 {
			share := ""
			if n > 0 {
				share = spread(w.rounds, func(v *[maxRelays + 1]float64) float64 { return 100 * v[n] / v[0] })
			}
			b.Row(wire, fmt.Sprint(len(w.rounds)), fmt.Sprint(n), spread(w.rounds, func(v *[maxRelays + 1]float64) float64 { return v[n] / 1e9 }), share, limit(n, ">= 90"))
		}
	}
}

// loadLine tells the processor time of one relay. A machine without idle time has used
// all there was in both cases, which says nothing.
func loadLine(b *bench.Report, l *relayLoad) {
	if l == nil || l.relays == 0 {
		return
	}
	b.Printf("\n%d packets of no connection, %d a second for %.0f s, took %.2f s of the machine's processor time without ring and %.2f s with one of three\nnodes (%d relays), switch and veth included. ",
		l.packets, strayRate, l.took.Seconds(), l.plain.Seconds(), l.ring.Seconds(), l.relays)
	if full := 0.95 * float64(runtime.NumCPU()); l.plain.Seconds() > full*l.took.Seconds() || l.ring.Seconds() > full*l.took.Seconds() {
		b.WriteString("That was all there is, so it says nothing of a relay.\n")
		return
	}
	b.Printf("**Processor time of a relay: %.2f µs.**\n", (l.ring-l.plain).Seconds()/float64(l.relays)*1e6)
}

// limit is what is wanted of one relay; nothing is of more.
func limit(relays int, text string) string {
	if relays == 1 {
		return text
	}
	return ""
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// spread is the median of one figure of each round, with the least and the most.
func spread[R any](rounds []R, f func(R) float64) string {
	var v []float64
	for _, o := range rounds {
		v = append(v, f(o))
	}
	slices.Sort(v)
	n := len(v)
	return fmt.Sprintf("%.1f (%.1f to %.1f)", (v[(n-1)/2]+v[n/2])/2, v[0], v[n-1])
}

func deathTable(b *bench.Report, r *results) {
	if len(r.deaths) == 0 {
		return
	}
	b.Printf(`
## Death of another node

The link of a node goes. By layer 2 that is m3, and there are %d connections to m1 with a line echoed each 20 ms; by BGP it is each node in turn.
What the node before it in the ring, by layer 2 m2, detects is in its log, to a millisecond: the line "ring", which says that the wire does not answer for
the host, or "vip" with TakingOver, or "member", when the group has given the node up. The rules are told by the kernel (nftables netlink, as in
`+"`nft monitor`"+`). Times in ms.

`, echoConns)
	b.Head("What dies", "Runs", "Busy", "Fault until it is detected", "Detection until the rules lead past it", "Wanted", "Longest wait for an echo", "Kept",
		"Until the owner's own connections are reset")
	for _, what := range []dying{dyingRelay, dyingOwner, dyingBGP} {
		deathRow(b, what, r.deaths)
	}
}

func deathRow(b *bench.Report, what dying, all []*death) {
	var detected, rules, stalled, reset []time.Duration
	var busy []int
	kept := 0
	for _, o := range all {
		if o.what == what {
			detected, rules, stalled = append(detected, o.detected), append(rules, o.rules), append(stalled, o.stalled)
			busy, kept = append(busy, o.busy), kept+o.kept
			if o.reset >= 0 {
				reset = append(reset, o.reset)
			}
		}
	}
	if len(busy) == 0 {
		return
	}
	words := map[dying]string{
		dyingRelay: "a relay: the address is on m2, which relays to m3 and that to m1",
		dyingOwner: "the owner: m3, which relays to m1, a drained node; m2 takes the address over",
		dyingBGP:   "one of three nodes that advertise by BGP",
	}[what]
	echoes, lived, own := measure.SpreadOf(stalled).String(), fmt.Sprintf("%d of %d", kept, echoConns*len(busy)), ""
	switch what {
	case dyingBGP:
		echoes, lived = "", ""
	case dyingOwner:
		own = measure.SpreadOf(reset).String()
		if n := len(busy) - len(reset); n > 0 {
			own += fmt.Sprintf(" (not in %d)", n)
		}
	}
	b.Row(words, fmt.Sprint(len(busy)), measure.Counts(busy), measure.SpreadOf(detected).String(), measure.SpreadOf(rules).String(), "<= 50", echoes, lived, own)
}
