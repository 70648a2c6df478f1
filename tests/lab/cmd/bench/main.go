// Bench measures lbd in network namespaces, beside keepalived and behind routers, and
// writes its part of a report in Markdown.
package main

import (
	"lbd.dev/lbd/tests/lab/bench"
	"lbd.dev/lbd/tests/lab/cmd/bench/bgp"
	"lbd.dev/lbd/tests/lab/cmd/bench/faults"
	"lbd.dev/lbd/tests/lab/cmd/bench/forward"
	"lbd.dev/lbd/tests/lab/cmd/bench/ring"
)

func main() { bench.Main(faults.Command(), bgp.Command(), ring.Command(), forward.Command()) }
