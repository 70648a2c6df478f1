package services

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab/bench"
	"lbd.dev/lbd/tests/lab/measure"
)

const preamble = `# Services

Written by ` + "`make benchservices`" + `. A real etcd and kube-apiserver, one ` + "`lbd controller`" + ` and three nodes with ` + "`lbd run`" + ` in network
namespaces; a pool, an L2Advertisement, and Services with one address and one EndpointSlice each, a quarter of them with
externalTrafficPolicy Local. All of them share the processors with what measures them, so times are upper bounds.

- **Announced** is what the client hears: the first ARP frame in which a node claims the address. **Reachable** is a TCP connection
  through kube-proxy (nftables mode, at least 100 ms between two writes of its rules), tried every 10 ms. It runs with 100 Services alone.
  By default kube-proxy writes its rules once a second, so that what comes just after waits for longer than lbd takes: the other row.
- Of the three daemons the worst counts. Processor time is that of 20 s, requests those of a minute, in which nothing happens.
- **Node cut off**: its link goes down at the switch; the time until others announce the first and the last of its addresses.
- **Busy**: how much of the machine's processor time was used meanwhile, in %.
`

func report(p *controlplane.Programs, all []*figures) string {
	var b bench.Report
	b.WriteString(preamble)
	b.Printf("\nMachine: %s; Kubernetes %s, etcd %s. Written on %s.\n\n", measure.Machine(), p.Kubernetes, p.EtcdVersion, time.Now().Format(time.DateOnly))
	line := func(what, goal string, cell func(*figures) string) {
		cells := []string{what, goal}
		for _, f := range all {
			cells = append(cells, cell(f))
		}
		b.Row(cells...)
	}
	line("Services", "Goal", func(f *figures) string { return fmt.Sprint(f.services) })
	b.Printf("|---|---|%s\n", strings.Repeat("---|", len(all)))
	startRows(line)
	changeRows(line)
	for _, f := range all {
		for _, e := range f.errors {
			b.Printf("\nNot measured with %d Services: %s\n", f.services, bench.OneLine(e))
		}
	}
	return b.String()
}

type row func(what, goal string, cell func(*figures) string)

func startRows(line row) {
	line("start of the controller until all Services have addresses (busy)", "", func(f *figures) string { return timed(f, f.allocated, "allocation") })
	line("start of the daemons until all addresses are announced (busy)", "20 s", func(f *figures) string { return timed(f, f.announced, "start") })
	line("frames about addresses on the wire at the start, sum; most in a second; in 10 ms", "", func(f *figures) string {
		return fmt.Sprintf("%d; %d; %d", f.frames, f.second, f.short)
	})
	line("addresses of a node, most / mean", "1.2", func(f *figures) string {
		sum := 0
		for _, n := range f.spread {
			sum += n
		}
		if sum == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f", float64(slices.Max(f.spread)*len(f.spread))/float64(sum))
	})
	line("memory of a daemon, after (most), MiB", "150", func(f *figures) string { return fmt.Sprintf("%d (%d)", f.speakerRSS>>20, f.speakerMax>>20) })
	line("memory of the controller, after (most), MiB", "", func(f *figures) string { return fmt.Sprintf("%d (%d)", f.ctlRSS>>20, f.ctlMax>>20) })
	line("processor time of a daemon, steady, % of a core (busy)", "2", func(f *figures) string { return fmt.Sprintf("%.2f (%.0f)", 100*f.speakerCPU, 100*f.load["steady"]) })
	line("processor time of the controller, steady, % of a core", "", func(f *figures) string { return fmt.Sprintf("%.2f", 100*f.ctlCPU) })
	for _, who := range []struct{ key, name string }{{"speaker", "a daemon"}, {"controller", "the controller"}} {
		line("requests of "+who.name+" from its start until then", "", func(f *figures) string { return f.start[who.key].String() })
		line("requests of "+who.name+" in a minute, steady", "", func(f *figures) string { return f.perMinute(who.key).String() })
	}
}

func (f *figures) perMinute(who string) requests {
	r := requests{}
	for verb, n := range f.steady[who] {
		r[verb] = n * float64(time.Minute) / float64(f.steadyFor)
	}
	return r
}

func changeRows(line row) {
	line("a Service created until it has an address, p50 / p99, ms (busy)", "", func(f *figures) string { return timedAll(f, f.given, "created") })
	line("until its address is announced, p50 / p99, ms", "", func(f *figures) string { return measure.Percentiles(f.visible) })
	line("until it is reachable, p50 / p99, ms", "1000", func(f *figures) string { return measure.Percentiles(f.served) })
	line("until it is reachable with kube-proxy at its default, p50 / p99, ms (busy)", "", func(f *figures) string { return timedAll(f, f.servedUsual, "usual") })
	line("endpoint moved (Local) until the owner followed, p50 / p99, ms (busy)", "500", func(f *figures) string { return timedAll(f, f.moves, "moves") })
	line("node cut off: addresses; announced by others, first to last, ms (busy)", "1000", func(f *figures) string {
		var out []string
		for _, x := range f.cuts {
			text := fmt.Sprintf("%d; %d to %d", x.vips, x.first.Milliseconds(), x.all.Milliseconds())
			if x.reachable > 0 {
				text += fmt.Sprintf(", all reached %d", x.reachable.Milliseconds())
			}
			out = append(out, text)
		}
		return fmt.Sprintf("%s (%.0f)", strings.Join(out, "<br>"), 100*f.load["cuts"])
	})
}

func timed(f *figures, d time.Duration, load string) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f s (%.0f)", d.Seconds(), 100*f.load[load])
}

func timedAll(f *figures, d []time.Duration, load string) string {
	return fmt.Sprintf("%s (%.0f)", measure.Percentiles(d), 100*f.load[load])
}
