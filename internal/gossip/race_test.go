//go:build race

package gossip

import "runtime"

// One processor with the race detector: all timers of a synctest bubble share one context of the detector, and Go 1.26
// fires those of channels on whatever processor reads them. Two at once crash the program (go.dev/issue/78156),
// in one of twenty runs of TestSize.
func init() { runtime.GOMAXPROCS(1) }
