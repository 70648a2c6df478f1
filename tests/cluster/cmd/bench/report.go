package main

import (
	"fmt"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab/bench"
)

// report is the part of the document.
func (r *results) report() string {
	var b bench.Report
	b.Printf(`## Real control planes

Written by `+"`make benchcluster`"+` (`+"`go run ./cmd/bench`"+` in tests/cluster) on %s: three machines with systemd, containerd, kubelet and
kubeadm %s, stacked etcd, kube-proxy with nftables, on one computer. A client outside the cluster writes five times a second through
the VIP, each time by a new connection and with a limit of 3 s; one watch is open from outside, one on each node that is not the owner.
All figures are of one run.

- **Without a write**: the longest time without a successful write; a write that is slow, as while etcd elects a leader, counts too.
- **Watch**: the longest time without an event, from outside and the worst of the nodes.
- **Owners**: to whom the VIP led the client, in order, by its ARP table, which is looked at every 100 ms.

`, time.Now().UTC().Format(time.DateOnly), r.kubernetes)
	for _, s := range r.systems {
		b.Printf("- **%s**: %s.\n", s.name(), s.describe())
	}
	b.WriteString("\n")
	for i := range faults {
		f := &faults[i]
		var rows []*row
		for _, x := range r.rows {
			if x.fault == f {
				rows = append(rows, x)
			}
		}
		if len(rows) == 0 {
			continue
		}
		b.Printf("### %s\n\n%s.\n\n", f.name, strings.ToUpper(f.words[:1])+f.words[1:])
		b.Head("System", "Writes failed", "Without a write", "Watch outside", "Watch on nodes", "Owners", "Took")
		for _, x := range rows {
			b.Row(x.system, fmt.Sprintf("%d of %d", x.writes.Failed, x.writes.Attempts), seconds(x.gap), seconds(x.outside), seconds(x.nodes),
				strings.Join(x.moves, ", "), took(x))
		}
		for _, x := range rows {
			if x.err != nil {
				b.Printf("\n%s: %s\n", x.system, firstLine(x.err.Error()))
			}
		}
		b.WriteString("\n")
	}
	for _, e := range r.errors {
		b.Printf("Not measured: %s\n\n", firstLine(e))
	}
	return b.String()
}

func took(x *row) string {
	if x.took == 0 {
		return "-"
	}
	return seconds(x.took)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line[:min(len(line), 300)]
}
