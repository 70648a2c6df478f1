package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// SetAddresses has a Machine say that it has these.
func (m *MachineCluster) SetAddresses(ctx context.Context, name string, addrs ...netip.Addr) error {
	var list []any
	for _, a := range addrs {
		list = append(list, map[string]any{"type": "InternalIP", "address": a.String()})
	}
	return m.patch(ctx, name, map[string]any{"status": map[string]any{"addresses": list}}, "status")
}

// Asker asks stand-ins of API servers by new connections, and keeps who answered.
type Asker struct {
	*Prober
	mu      sync.Mutex // guards answers
	answers []answer
}

type answer struct {
	start, end measure.Time
	server     string
}

// askEvery and askLimit are how often an Asker asks, and how long it waits: longer than the first
// packet of a connection takes that is sent twice.
const (
	askEvery = 20 * time.Millisecond
	askLimit = 3 * time.Second
)

// Ask begins to ask at an address and port, from a host, until Stop.
func (m *MachineLab) Ask(ctx context.Context, from *lab.Host, at netip.AddrPort) *Asker {
	a := &Asker{}
	conf := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // who answers is what is asked
	url := "https://" + at.String() + "/livez"
	a.Prober = probe(ctx, askEvery, askLimit, func(ctx context.Context) error {
		start := measure.Now()
		text, err := get(ctx, m.Lab, from, url, conf)
		if err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.answers = append(a.answers, answer{start, measure.Now(), strings.TrimPrefix(strings.TrimSpace(text), "ok ")})
		return nil
	})
	return a
}

// Servers counts who answered what was asked in [from, to).
func (a *Asker) Servers(from, to measure.Time) map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]int{}
	for _, x := range a.answers {
		if x.start >= from && x.start < to {
			out[x.server]++
		}
	}
	return out
}

// Slow is when the last connection began, after a moment, that took so long or longer; zero if
// none did.
func (a *Asker) Slow(from measure.Time, limit time.Duration) (last measure.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range a.answers {
		if x.start >= from && x.end.Sub(x.start) >= limit {
			last = max(last, x.start)
		}
	}
	return last
}

// Leaves waits until a server answers no new connection any more, and others do.
func (a *Asker) Leaves(ctx context.Context, server string) error {
	return Eventually(ctx, waitLimit, server+" gets no new connections", func() error {
		now := measure.Now()
		got := a.Servers(now.Add(-time.Second), now)
		if got[server] > 0 || len(got) == 0 {
			return fmt.Errorf("in the last second %v answered", got)
		}
		return nil
	})
}
