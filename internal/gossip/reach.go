package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Reached is what Reach found out about one configured peer.
type Reached struct {
	Peer string // as configured
	Self bool   // the peer is this host
	RTT  time.Duration
	Err  error
}

// ErrNotListening is wrapped by errors about a peer whose host answers, but on
// whose port nobody listens.
var ErrNotListening = errors.New("nobody listens")

// reachTries is how often a peer is asked: the first packet may be lost to
// neighbour discovery.
const reachTries = 3

// Reach asks each configured peer for an answer that only a daemon with the same
// key and label gives. It takes no part in the group: nobody sees a new member.
func Reach(ctx context.Context, o Options) ([]Reached, error) {
	o.Port = 0                                   // beside a daemon that has the port
	g, err := create(o, string(o.Name)+"/reach") // a slash: not a name of a node
	if err != nil {
		return nil, err
	}
	defer func() { _ = g.Driver().Close(ctx) }()
	out := make([]Reached, len(o.Peers))
	var wg sync.WaitGroup
	for i, text := range o.Peers {
		wg.Go(func() { out[i] = g.reach(ctx, text) })
	}
	wg.Wait()
	return out, nil
}

// reach tells apart a host that is not there, a port that is closed, and a daemon
// that does not understand us.
func (g *Gossip) reach(ctx context.Context, text string) Reached {
	r := Reached{Peer: text}
	p, err := parsePeer(text, 0)
	if err != nil {
		r.Err = err
		return r
	}
	addrs, err := g.join.resolve(ctx, p)
	if err != nil {
		r.Err = err
		return r
	}
	for _, a := range addrs {
		if a.Addr() == g.self.Addr() {
			r.Self, r.Err = true, nil
			return r
		}
		if r.RTT, r.Err = g.ask(ctx, a); r.Err == nil {
			return r
		}
	}
	return r
}

func (g *Gossip) ask(ctx context.Context, a netip.AddrPort) (time.Duration, error) {
	d := net.Dialer{Timeout: streamTimeout}
	c, err := d.DialContext(ctx, "tcp", a.String())
	if err != nil {
		return 0, fmt.Errorf("tcp %s: %w: %w", a, ErrNotListening, err)
	}
	c.Close()
	for range reachTries {
		var rtt time.Duration
		if rtt, err = g.list.Ping("", net.UDPAddrFromAddrPort(a)); err == nil {
			return max(rtt, 0).Round(time.Microsecond), nil
		}
	}
	return 0, fmt.Errorf("%s listens but does not answer: its key or gossip.label differs, or a firewall drops UDP", a)
}
