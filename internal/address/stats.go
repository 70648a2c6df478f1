package address

import "sync/atomic"

// Stats counts what the driver did since New.
type Stats struct {
	Renewals    uint64 // lifetimes that were set anew
	Readds      uint64 // addresses bound again that somebody had removed
	Expirations uint64 // bindings whose lifetime ended, see AppliedVIP.Expired
	Errors      uint64 // refusals of the kernel and lost subscriptions
}

type counters struct{ renewals, readds, expirations, errors atomic.Uint64 }

func (c *counters) read() Stats {
	return Stats{
		Renewals:    c.renewals.Load(),
		Readds:      c.readds.Load(),
		Expirations: c.expirations.Load(),
		Errors:      c.errors.Load(),
	}
}
