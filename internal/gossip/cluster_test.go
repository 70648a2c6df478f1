package gossip

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/gossip/memnet"
	"lbd.dev/lbd/internal/model"
)

const testPort = 7947

var (
	vip1 = netip.MustParseAddr("10.0.0.200")
	vip2 = netip.MustParseAddr("fd00::200")
	key1 = bytes.Repeat([]byte{1}, 32)
	key2 = bytes.Repeat([]byte{2}, 32)
)

// lab is a cluster in a bubble.
type lab struct {
	t     *testing.T
	net   *memnet.Network
	nodes map[string]*member
}

// member is one Gossip with the View that it has published.
type member struct {
	*Gossip
	lab    *lab
	driver announce.Driver
	stop   context.CancelFunc
	ended  chan struct{}

	mu        sync.Mutex
	view      model.View
	published int
	exchanges int
	gen       uint64
	want      model.GroupState
}

// bubble runs f with an empty network; what f started is closed at the end.
func bubble(t *testing.T, f func(l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, net: memnet.New(), nodes: map[string]*member{}}
		defer func() {
			for _, m := range l.nodes {
				m.kill()
			}
			time.Sleep(10 * time.Second) // lets memberlist's timers end inside the bubble
		}()
		f(l)
	})
}

func addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)}) }

func peersOf(n int) []string {
	var out []string
	for i := 1; i <= n; i++ {
		out = append(out, addr(i).String())
	}
	return out
}

func (l *lab) options(i int) Options {
	return Options{
		Logger: slog.New(slog.DiscardHandler), Name: model.NodeName(fmt.Sprintf("m%d", i)),
		BindAddr: addr(i), Port: testPort, Peers: peersOf(3), Label: "test", Keys: [][]byte{key1}, Version: "v1",
	}
}

// start starts node i; change may alter its options.
func (l *lab) start(i int, change ...func(*Options)) *member {
	l.t.Helper()
	o := l.options(i)
	for _, c := range change {
		c(&o)
	}
	tr, err := l.net.Listen(netip.AddrPortFrom(o.BindAddr, o.Port))
	if err != nil {
		l.t.Fatal(err)
	}
	o.Transport = tr
	g, err := New(o)
	if err != nil {
		l.t.Fatal(err)
	}
	m := run(g)
	m.lab = l
	l.nodes[string(o.Name)] = m
	return m
}

// run collects what a Gossip publishes.
func run(g *Gossip) *member {
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{Gossip: g, driver: g.Driver(), stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		_ = g.Source().Run(ctx, func(change func(*model.View)) {
			m.mu.Lock()
			defer m.mu.Unlock()
			before := m.view.Gossip.Exchanged
			change(&m.view)
			m.published++
			if m.view.Gossip.Exchanged != before {
				m.exchanges++
			}
		})
	}()
	return m
}

// kill ends the node as a crash does.
func (m *member) kill() {
	_ = m.close()
	m.stop()
	<-m.ended
}

// apply applies a Desired that is valid for long.
func (m *member) apply(change func(gs *model.GroupState)) {
	m.gen++
	change(&m.want)
	m.want.VIPs = slices.Clone(m.want.VIPs)
	d := &model.Desired{Gen: m.gen, ValidUntil: time.Now().Add(time.Hour), Group: m.want}
	if _, err := m.driver.Apply(context.Background(), d); err != nil {
		panic(err)
	}
}

// claim states a claim for the VIP.
func (m *member) claim(vip netip.Addr, epoch uint64, targets ...model.NodeName) {
	m.apply(func(gs *model.GroupState) {
		gs.Settled = true
		gs.VIPs = []model.GroupVIP{{
			Addr: vip, Standing: model.ReasonOwner, Seen: epoch, Claim: model.Claim{Owner: m.name, Epoch: epoch},
		}}
		gs.Heartbeats = nil
		for _, n := range targets {
			gs.Heartbeats = append(gs.Heartbeats, model.HeartbeatTarget{Node: n, VIPs: []netip.Addr{vip}})
		}
	})
}

func (m *member) standby(vip netip.Addr) {
	m.apply(func(gs *model.GroupState) {
		gs.Settled = true
		gs.VIPs = []model.GroupVIP{{Addr: vip, Standing: model.ReasonStandby}}
		gs.Heartbeats = nil
	})
}

// see reads the view.
func see[T any](m *member, f func(*model.Gossip) T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return f(&m.view.Gossip)
}

// publications counts those that did not come with a full exchange.
func (m *member) publications() int {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.published - m.exchanges
}

func (m *member) synced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.Synced[model.SourceGossip]
}

func (m *member) alive() []model.NodeName {
	return see(m, func(g *model.Gossip) []model.NodeName {
		var out []model.NodeName
		for n, x := range g.Members {
			if x.State == model.MemberAlive {
				out = append(out, n)
			}
		}
		slices.Sort(out)
		return out
	})
}

func (m *member) other(name model.NodeName) model.Member {
	return see(m, func(g *model.Gossip) model.Member {
		x := g.Members[name]
		x.Standing = maps.Clone(x.Standing)
		return x
	})
}

func (m *member) claims(vip netip.Addr) []model.Claim {
	return see(m, func(g *model.Gossip) []model.Claim { return slices.Clone(g.Claims[vip]) })
}

// within waits until the condition holds and returns how long that took.
func (l *lab) within(limit time.Duration, what string, cond func() bool) time.Duration {
	l.t.Helper()
	start := time.Now()
	for {
		synctest.Wait()
		if cond() {
			return time.Since(start)
		}
		if time.Since(start) >= limit {
			l.t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// joined waits until all nodes see all.
func (l *lab) joined(limit time.Duration) time.Duration {
	l.t.Helper()
	return l.within(limit, "all see all", func() bool {
		for _, m := range l.nodes {
			if len(m.alive()) != len(l.nodes)-1 {
				return false
			}
		}
		return true
	})
}

func TestJoinInAnyOrderWithAbsentPeers(t *testing.T) {
	for _, order := range [][]int{{1, 2, 3}, {3, 1, 2}, {2, 3}} {
		bubble(t, func(l *lab) {
			for _, i := range order {
				l.start(i)
				time.Sleep(700 * time.Millisecond)
			}
			took := l.joined(6 * time.Second)
			t.Logf("order %v: %v after the last start", order, took)
			for name, m := range l.nodes {
				g := see(m, func(g *model.Gossip) model.Gossip { return *g })
				if g.Peers != 2 {
					t.Errorf("%s: peers = %d, want 2", name, g.Peers)
				}
				if g.Exchanged.IsZero() {
					t.Errorf("%s: no exchange", name)
				}
				if !m.synced() {
					t.Errorf("%s: not synced", name)
				}
			}
		})
	}
}
