package gossip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

const (
	joinFirst = time.Second            // between the first attempts to reach a peer
	joinMost  = 5 * time.Second        // between later ones
	joinRare  = time.Minute            // to a former member that is gone for long
	joinAgain = 300 * time.Millisecond // after a success that made no member yet
	// joinEager is how many such successes are followed up at once. More mean
	// that streams arrive and packets do not; then each further one would only
	// make the peer look alive for some seconds.
	joinEager      = 3
	joinBlocked    = 30 * time.Second
	joinAtOnce     = 8  // attempts at a time; one that succeeds brings all others
	joinAlone      = 32 // members that try at the same time; where there are more, each tries less
	rareAfter      = 10 * time.Minute
	stableAfter    = 30 * time.Second // a member for so long is one
	resolveTimeout = time.Second
)

// followUps are when, counted from its first exchange, a new member of a large group exchanges
// everything with a random member once more. Where hundreds start together, whoever it joined knows
// few of them yet, messages about the others wait in a queue, and memberlist's own exchanges are up
// to a minute apart.
var followUps = [...]time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second}

// joiner keeps asking every peer that is not a member, because memberlist never
// contacts a dead node again by itself: without it a healed partition would
// stay. It knows the configured peers and the former members.
type joiner struct {
	g    *Gossip
	wake chan struct{}

	tries, failures atomic.Uint64

	mu     sync.Mutex // taken after Gossip.mu, never before
	peers  []*peer
	former map[netip.AddrPort]*peer
	hot    map[netip.AddrPort]bool // spoke to us although they are not members
	busy   int
	// hold is until when no other member of a large group is tried: those that the last exchange has
	// brought are about to be members.
	hold time.Time
	// began is when this node was not alone for the first time, and followed how many of the followUps
	// were made since.
	began    time.Time
	followed int
	// listed are the configured peers besides this node; told: they are published.
	listed []model.Peer
	told   bool
}

// peer is somebody to reach.
type peer struct {
	host   string
	port   uint16
	addrs  []netip.AddrPort // as last resolved
	self   bool
	since  time.Time // a member, or not one, since
	next   time.Time
	wait   time.Duration // 0 while it is a member
	eager  int
	busy   bool
	hotAt  time.Time
	warned bool
}

func newJoiner(g *Gossip, peers []string) (*joiner, error) {
	j := &joiner{
		g: g, wake: make(chan struct{}, 1),
		former: map[netip.AddrPort]*peer{}, hot: map[netip.AddrPort]bool{},
	}
	if err := j.set(peers); err != nil {
		return nil, err
	}
	return j, nil
}

// set replaces the configured peers with those that can be read.
func (j *joiner) set(peers []string) error {
	var errs []error
	var list []*peer
	for _, text := range peers {
		p, err := parsePeer(text, j.g.self.Port())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !slices.ContainsFunc(list, func(q *peer) bool { return q.host == p.host && q.port == p.port }) {
			list = append(list, p)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, p := range list {
		for _, old := range j.peers { // keeps what is known of it
			if old.host == p.host && old.port == p.port {
				list[i] = old
			}
		}
		j.recognise(list[i])
	}
	j.peers = list
	j.recount()
	wake.Up(j.wake)
	return errors.Join(errs...)
}

// parsePeer reads "10.0.0.1", "10.0.0.1:7947", "fd00::1", "[fd00::1]:7947",
// "host" or "host:7947".
func parsePeer(text string, port uint16) (*peer, error) {
	host := text
	if h, p, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("gossip: peer %q: port is not a number from 1 to 65535", text)
		}
		host, port = h, uint16(n)
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if ip, err := netip.ParseAddr(host); err == nil {
		at := addrPort(ip, port)
		return &peer{host: at.Addr().String(), port: port, addrs: []netip.AddrPort{at}}, nil
	}
	if !record.ValidName(host) || strings.ContainsAny(host, ":[]") {
		return nil, fmt.Errorf("gossip: peer %q is neither an address nor a host name, with or without a port", text)
	}
	return &peer{host: host, port: port}, nil
}

func (p *peer) literal() bool {
	_, err := netip.ParseAddr(p.host)
	return err == nil
}

// recognise notes whether the peer is this node.
func (j *joiner) recognise(p *peer) {
	p.self = slices.Contains(p.addrs, j.g.self) || p.host == string(j.g.name)
}

// recount is called with the lock held.
func (j *joiner) recount() {
	var list []model.Peer
	for _, p := range j.peers {
		if p.self {
			continue
		}
		x := model.Peer{Host: p.host}
		for _, a := range p.addrs {
			x.Addrs = append(x.Addrs, a.Addr())
		}
		slices.SortFunc(x.Addrs, netip.Addr.Compare)
		list = append(list, x)
	}
	if !reflect.DeepEqual(list, j.listed) {
		j.listed, j.told = list, false
		wake.Up(j.g.wake)
	}
}

// others are the configured peers besides this node.
func (j *joiner) others() []model.Peer {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.told = true
	return j.listed
}

// takeOthers is others if that has changed since it was asked for.
func (j *joiner) takeOthers() (peers []model.Peer, changed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	changed, j.told = !j.told, true
	return j.listed, changed
}

// met is called for a node that sends although it is not a member here.
func (j *joiner) met(addr netip.AddrPort) {
	if !addr.IsValid() {
		return
	}
	j.mu.Lock()
	if len(j.hot) < record.MaxNodes {
		j.hot[addr] = true
	}
	j.mu.Unlock()
	wake.Up(j.wake)
}

// absent are the configured peers that are not members.
func (j *joiner) absent() []string {
	live := j.g.roster()
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for _, p := range j.peers {
		if !p.self && !live.has(p) {
			out = append(out, net.JoinHostPort(p.host, strconv.Itoa(int(p.port))))
		}
	}
	return out
}

// roster is who is a member and who was.
type roster struct {
	alive map[netip.AddrPort]bool
	names map[string]bool
	gone  map[netip.AddrPort]time.Time
}

func (g *Gossip) roster() roster {
	r := roster{map[netip.AddrPort]bool{}, map[string]bool{}, map[netip.AddrPort]time.Time{}}
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := range g.table.Nodes() {
		// By memberlist's word alone: a node whose heartbeats arrive although
		// memberlist counts it as dead is just the one to join again.
		switch {
		case n.Present && !n.Left():
			r.alive[n.Addr], r.names[string(n.Name)] = true, true
		case !n.Left():
			if n.Addr.IsValid() {
				r.gone[n.Addr] = n.GoneSince
			}
		}
	}
	return r
}

func (r roster) has(p *peer) bool {
	return r.names[p.host] || slices.ContainsFunc(p.addrs, func(a netip.AddrPort) bool { return r.alive[a] })
}

// resolveAll looks up every host name once, so that the number of peers is
// right from the first publication on.
func (j *joiner) resolveAll(ctx context.Context) {
	j.mu.Lock()
	peers := slices.Clone(j.peers)
	j.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range peers {
		if !p.literal() {
			wg.Go(func() { j.resolve(ctx, p) })
		}
	}
	wg.Wait()
}

// resolve looks the peer up afresh and returns its addresses without those of
// this node.
func (j *joiner) resolve(ctx context.Context, p *peer) ([]netip.AddrPort, error) {
	if !p.literal() {
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", p.host)
		if err != nil {
			return nil, err
		}
		j.mu.Lock()
		p.addrs = nil
		for _, ip := range ips { // of the family that the sockets have
			if ip.Unmap().Is4() == j.g.self.Addr().Is4() {
				p.addrs = append(p.addrs, addrPort(ip, p.port))
			}
		}
		j.recognise(p)
		j.recount()
		j.mu.Unlock()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if p.self {
		return nil, nil
	}
	return slices.Clone(p.addrs), nil
}

// start runs until ctx ends or stop is called, which waits for it.
func (j *joiner) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-j.g.ctx.Done():
				return
			case <-j.wake:
			case <-timer.C:
			}
			timer.Reset(j.launch(ctx))
		}
	})
	return func() { cancel(); wg.Wait() }
}

// launch starts the attempts that are due and returns how long to wait.
func (j *joiner) launch(ctx context.Context) time.Duration {
	live := j.g.roster()
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	all := j.candidates(live)
	rand.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	wait := joinMost
	for _, p := range all {
		if p.self || p.busy {
			continue
		}
		if live.has(p) {
			if p.wait != 0 {
				p.wait, p.since = 0, now
			}
			if now.Sub(p.since) > stableAfter {
				p.eager, p.warned = 0, false
			}
			continue
		}
		if p.wait == 0 {
			p.wait, p.next, p.since = joinFirst, now, now
			if since, ok := live.gone[p.addrs0()]; ok {
				p.since = since
			}
			if p.eager > joinEager {
				p.next = now.Add(joinBlocked)
			}
		}
		if j.isHot(p) && now.Sub(p.hotAt) >= time.Second {
			p.hotAt, p.next = now, now
		}
		if due := p.next.Sub(now); due > 0 {
			wait = min(wait, due)
		} else if hold := j.hold.Sub(now); hold > 0 && len(live.alive) > joinAlone {
			wait = min(wait, hold)
		} else if j.busy < atOnce(len(live.alive)) {
			j.attempt(ctx, p, live)
		}
	}
	clear(j.hot)
	return min(wait, j.followUp(live, now))
}

// followUp exchanges all with a member at random if that is due, and returns how long to wait.
func (j *joiner) followUp(live roster, now time.Time) time.Duration {
	if j.began.IsZero() && len(live.alive) > 0 {
		j.began = now
	}
	if j.began.IsZero() || j.followed == len(followUps) {
		return joinMost
	}
	if due := j.began.Add(followUps[j.followed]).Sub(now); due > 0 {
		return due
	}
	j.followed++
	if len(live.alive) > joinAlone {
		all := slices.Collect(maps.Keys(live.alive))
		a := all[rand.IntN(len(all))]
		j.g.spawn(func() {
			if _, err := j.g.list.Join([]string{peerAddr(a)}); err != nil {
				j.g.log.Debug("gossip member not reached", "peer", a, "err", err)
			}
		})
	}
	return 0
}

// atOnce is how many attempts a member of a group makes at a time. An exchange takes as long as the
// group is large, and after a partition all members of both halves make theirs together.
func atOnce(alive int) int { return max(1, joinAtOnce*joinAlone/max(alive, joinAlone)) }

// candidates are the configured peers and the former members at addresses that
// no configured peer has.
func (j *joiner) candidates(live roster) []*peer {
	all := slices.Clone(j.peers)
	have := map[netip.AddrPort]bool{j.g.self: true}
	for _, p := range j.peers {
		for _, a := range p.addrs {
			have[a] = true
		}
	}
	maps.DeleteFunc(j.former, func(a netip.AddrPort, _ *peer) bool {
		_, gone := live.gone[a]
		return !gone || have[a]
	})
	for a := range live.gone {
		if have[a] {
			continue
		}
		if j.former[a] == nil {
			j.former[a] = &peer{host: a.Addr().String(), port: a.Port(), addrs: []netip.AddrPort{a}}
		}
		all = append(all, j.former[a])
	}
	return all
}

func (j *joiner) isHot(p *peer) bool {
	return slices.ContainsFunc(p.addrs, func(a netip.AddrPort) bool { return j.hot[a] })
}

func (p *peer) addrs0() netip.AddrPort {
	if len(p.addrs) == 0 {
		return netip.AddrPort{}
	}
	return p.addrs[0]
}

// attempt tries one peer in a goroutine that ends with the transport. The lock
// is held.
func (j *joiner) attempt(ctx context.Context, p *peer, live roster) {
	started := j.g.spawn(func() {
		addrs, err := j.resolve(ctx, p)
		joined := false
		for _, a := range addrs {
			if live.alive[a] {
				continue
			}
			j.tries.Add(1)
			if _, e := j.g.list.Join([]string{peerAddr(a)}); e != nil {
				j.failures.Add(1)
				err = e
				continue
			}
			joined = true
		}
		j.done(p, joined, err)
	})
	if started {
		p.busy = true
		j.busy++
	}
}

// done sets the time of the next attempt.
func (j *joiner) done(p *peer, joined bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer wake.Up(j.wake)
	p.busy = false
	j.busy--
	now := time.Now()
	if joined {
		p.eager++
		j.hold = now.Add(joinAgain)
	} else {
		p.eager = 0
		j.g.log.Debug("gossip peer not reached", "peer", p.host, "err", err)
	}
	if joined && p.eager <= joinEager {
		p.next = now.Add(joinAgain)
		return
	}
	if joined && !p.warned {
		p.warned = true
		j.g.log.Info("gossip peer answers on TCP but does not become a member: is its UDP port blocked?",
			"peer", p.host, "port", p.port)
	}
	most := joinMost
	if now.Sub(p.since) > rareAfter && j.former[p.addrs0()] == p {
		most = joinRare
	}
	if joined {
		most, p.wait = joinBlocked, joinBlocked
	}
	p.wait = min(max(p.wait, joinFirst), most)
	p.next = now.Add(p.wait + rand.N(p.wait/4))
	p.wait = min(p.wait*3/2, most)
}
