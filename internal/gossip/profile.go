package gossip

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"
)

// Detection names how fast the death of a node is seen.
type Detection string

// The three profiles. What differs most is the interval of heartbeats, because
// those decide a takeover; memberlist only gives the second opinion.
const (
	DetectionLAN  Detection = "lan"  // heartbeats every 50 ms
	DetectionFast Detection = "fast" // heartbeats every 20 ms
	DetectionWAN  Detection = "wan"  // heartbeats every 200 ms
)

// profile holds the timing of one Detection.
type profile struct {
	beat time.Duration // interval of heartbeats

	// probeTimeout must leave 2*probeTimeout + RTT + slack < probeInterval. A
	// helper sends its nack probeTimeout after it was asked, that is
	// 2*probeTimeout after the probe began; if that is too late, every genuine
	// death makes the prober doubt itself and probe at half the rate.
	probeInterval, probeTimeout time.Duration
	// suspicion multiplies probeInterval*max(1, log10 N). 3 leaves room for one
	// confirmation by another node; 2 gave false deaths under load.
	suspicion int
	gossip    time.Duration // interval of gossip rounds
	pushPull  time.Duration // interval of full exchanges up to 32 nodes
}

func (d Detection) profile() (profile, error) {
	switch d {
	case DetectionLAN, "":
		return profile{
			beat: 50 * time.Millisecond, probeInterval: time.Second, probeTimeout: 400 * time.Millisecond,
			suspicion: 3, gossip: 200 * time.Millisecond, pushPull: 10 * time.Second,
		}, nil
	case DetectionFast:
		return profile{
			beat: 20 * time.Millisecond, probeInterval: 500 * time.Millisecond, probeTimeout: 200 * time.Millisecond,
			suspicion: 3, gossip: 50 * time.Millisecond, pushPull: 10 * time.Second,
		}, nil
	case DetectionWAN: // for round trips up to 500 ms
		return profile{
			beat: 200 * time.Millisecond, probeInterval: 3 * time.Second, probeTimeout: 1200 * time.Millisecond,
			suspicion: 4, gossip: 200 * time.Millisecond, pushPull: 20 * time.Second,
		}, nil
	}
	return profile{}, fmt.Errorf("gossip: detection %q is not one of lan, fast, wan", string(d))
}

// TakenAfter is how long after a node stops another one may begin to take what it
// owned, at the earliest: its heartbeats are then late, and the last one may have
// been due when it stopped.
func (d Detection) TakenAfter() time.Duration {
	p, err := d.profile()
	if err != nil {
		p, _ = DetectionFast.profile()
	}
	return (beatsMissed-1)*p.beat + p.beat/5
}

// apply sets what the profile and lbd's use of memberlist ask for.
func (p profile) apply(c *memberlist.Config) {
	c.ProbeInterval = p.probeInterval
	c.ProbeTimeout = p.probeTimeout
	c.SuspicionMult = p.suspicion
	// The longest suspicion, for when nobody confirms, e.g. because two of three
	// nodes died: twice the shortest and not six times.
	c.SuspicionMaxTimeoutMult = 2
	c.GossipInterval = p.gossip
	c.PushPullInterval = p.pushPull
	// Bounds each dial, read and write of an exchange.
	c.TCPTimeout = streamTimeout
	if p.probeTimeout > streamTimeout {
		c.TCPTimeout = 3 * time.Second
	}
	// A member that is reachable by TCP only would count as alive although
	// neither heartbeats nor claims reach it, and could be chosen as successor.
	c.DisableTcpPings = true
	// A node that is cut off doubts itself more with every probe that fails, up to
	// eight times slower; alone, it would take half a minute to see that it is.
	c.AwarenessMaxMultiplier = 2
	// A node that comes back under its name with another address.
	c.DeadNodeReclaimTime = 2 * time.Second
	// LZW costs more than it saves: messages are small and most fit one packet.
	c.EnableCompression = false
}

// streamTimeout bounds one step of a full exchange on a LAN.
const streamTimeout = time.Second
