// Bench measures lbd in front of real API servers, with many Services or many Machines, and
// writes its part of a report in Markdown.
package main

import (
	"lbd.dev/lbd/tests/controlplane/cmd/bench/machines"
	"lbd.dev/lbd/tests/controlplane/cmd/bench/services"
	"lbd.dev/lbd/tests/lab/bench"
)

func main() { bench.Main(services.Command(), machines.Command()) }
