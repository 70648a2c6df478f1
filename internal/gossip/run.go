package gossip

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/source"
)

const (
	tendEvery  = time.Second // keys, questions to late nodes
	sweepEvery = time.Minute // forgetting
	// answerEvery bounds the answers to one sender whose claims are beaten: less
	// than a heartbeat's interval, so that each heartbeat may be answered.
	answerEvery = 40 * time.Millisecond
	// turnLimit is how many messages are read before heartbeats and deadlines
	// have their turn again.
	turnLimit = 64
)

// repeatAfter is when a change of the own record is told once more in a small
// group: datagrams get lost, and the next full exchange is seconds away.
var repeatAfter = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second}

// repeatClaims is how often an owner goes on telling its record. After a cut that
// was too short for anybody to be called dead nothing else brings the two owners
// of a VIP together before the next full exchange.
const repeatClaims = time.Second

// turn is the state of Run.
type turn struct {
	told     uint64    // own version that is being repeated
	toldAt   time.Time // since when
	repeated int       // how often it has been
	// repeatedAt is when it was told last.
	repeatedAt time.Time
	g          *Gossip
	out        []outgoing // to send when the lock is free
	full       []*memberlist.Node
	answered   map[model.NodeName]time.Time
	staled     map[model.NodeName]time.Time
	tended     time.Time
	swept      time.Time
	raised     bool      // the own incarnation went up: tell everybody everything
	raisedAt   time.Time // last logged
	replan     bool      // an address changed
	keys       bool      // somebody told of new keys, or came or went
}

// run is the one goroutine that writes the table and publishes.
func (g *Gossip) run(ctx context.Context, publish source.Publish) error {
	if g.running.Swap(true) {
		return errors.New("gossip: source runs already")
	}
	defer g.running.Store(false)
	g.join.resolveAll(ctx)
	stop := g.join.start(ctx)
	defer stop()

	g.mu.Lock()
	d := g.table.whole()
	g.mu.Unlock()
	peers := g.join.others()
	d.peers, d.synced = &peers, true
	publish(d.apply)

	t := &turn{g: g, answered: map[model.NodeName]time.Time{}, staled: map[model.NodeName]time.Time{}, swept: time.Now()}
	timer := newAlarm(g.sender.real, g.log)
	defer timer.close()
	timer.set(0)
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.ctx.Done():
			<-ctx.Done() // the membership has ended, the daemon has not
			return nil
		case <-g.wake:
		case <-timer.rings():
		}
		next, d := t.take()
		t.send()
		if now := time.Now(); now.Sub(looked) >= tendEvery || now.Before(looked) {
			looked = now
			if err := g.look(now); err != nil {
				return err
			}
		}
		if d != nil {
			publish(d.apply)
		}
		timer.set(max(time.Until(next), 0))
	}
}

// take reads what has come and returns when it must be called again at the
// latest, and what is to be published.
func (t *turn) take() (next time.Time, d *delta) {
	g := t.g
	g.mu.Lock()
	defer g.mu.Unlock()
	t.takeEvents()
	t.takeBeats()
	more := false
	for range turnLimit {
		p, ok := g.inbox.pop()
		if !ok {
			break
		}
		t.takeMessage(p)
	}
	if f, ok := g.fulls.pop(); ok {
		t.takeFull(f)
	}
	t.takeBeats() // those that came meanwhile, before anybody is called late
	if n, _ := g.inbox.stats(); n > 0 {
		more = true
	}
	if n, _ := g.fulls.stats(); n > 0 {
		more = true
	}
	now := time.Now()
	next = g.deadlines(now)
	if now.Sub(t.tended) >= tendEvery || now.Before(t.tended) {
		t.tend(now)
	}
	if at := t.tended.Add(tendEvery); next.IsZero() || at.Before(next) {
		next = at
	}
	if more {
		next = now
	}
	if at := t.repeat(now); !at.IsZero() && at.Before(next) {
		next = at
	}
	if peers, changed := g.join.takeOthers(); changed {
		g.table.delta.peers = &peers
	}
	if g.own.settled() && g.table.still() {
		// Full exchanges count while a node settles. One that is settled learns of the
		// last of them with what comes next, or when it settles anew: with thousands of
		// VIPs a decision for each would be most of what they cost.
		return next, nil
	}
	return next, g.table.flush()
}

// send does what take left to do without the lock.
func (t *turn) send() {
	g := t.g
	for _, m := range t.out {
		g.sendLater(m.to, m.msg)
	}
	t.out = t.out[:0]
	if t.keys {
		t.keys = false
		if g.keys.tend(g.keyKnown) {
			g.tellKeys()
		}
	}
	if t.raised {
		t.raised = false
		g.tell(g.own.full(), nil)
		t.replan = true
	}
	if len(t.full) > 0 {
		r := g.own.full()
		msgs := chunks(r)
		for _, to := range t.full {
			g.sendRecord(to, r, msgs, g.sendLater)
		}
		t.full = t.full[:0]
	}
	if t.replan {
		t.replan = false
		g.plan(nil)
	}
}

// repeat tells a recent change of the own record again if it is time, and
// returns when the next time is, zero if there is none. The whole record is
// told, if one datagram holds it; a larger one is left to full exchanges.
func (t *turn) repeat(now time.Time) time.Time {
	g := t.g
	if _, seq := g.own.version(); seq != t.told {
		t.told, t.toldAt, t.repeated = seq, now, 0
	}
	for g.members.Load() <= direct+1 {
		at := t.repeatedAt.Add(repeatClaims)
		if t.repeated < len(repeatAfter) {
			at = t.toldAt.Add(repeatAfter[t.repeated])
		} else if !g.own.claiming() {
			return time.Time{}
		}
		if now.Before(at) {
			return at
		}
		t.repeated++
		t.repeatedAt = now
		if g.own.manyEntries() {
			return time.Time{} // found out without writing thousands of them
		}
		msgs := chunks(g.own.full())
		if len(msgs) > 1 {
			return time.Time{}
		}
		for _, to := range g.small(now) {
			t.queue(to, msgs[0])
		}
	}
	return time.Time{}
}

// takeEvents takes over what memberlist said of nodes.
func (t *turn) takeEvents() {
	g := t.g
	now := time.Now()
	for name, e := range g.hooks.take() {
		t.keys = true
		old := g.table.nodes[name]
		t.replan = t.replan || old == nil || old.addr != e.addr
		came := g.table.member(name, e.addr, e.present, now)
		n := g.table.nodes[name]
		if n == nil {
			continue
		}
		// A node that comes back from a LAN of its own tells whom it missed there. That is
		// no news of those that are heard: without them for one turn, rings would reset
		// their connections.
		if w := g.watches[name]; !n.present && !n.head.Left && w != nil && w.timely(now) {
			n.beating = true
		}
		if !came {
			g.join.kick()
			continue
		}
		if to := endpoint(name, e.addr); to != nil && g.alive() <= direct {
			t.full = append(t.full, to)
		}
	}
	g.members.Store(int64(g.alive() + 1))
}

// alive counts the others that are. The lock is held.
func (g *Gossip) alive() int {
	n := 0
	for _, node := range g.table.nodes {
		if node.alive() {
			n++
		}
	}
	return n
}

func (t *turn) takeMessage(p packet) {
	kind, body, err := open(p.msg)
	if err == nil {
		switch kind {
		case typeState:
			var r wireRecord
			if r, err = decodeRecord(body); err == nil {
				t.takeRecord(&r, p.at, true)
			}
		case typeStale:
			var s wireStale
			if s, err = decodeStale(body); err == nil && s.Name == string(t.g.name) {
				t.raise(s.Inc)
			}
		case typeAsk:
			var a wireAsk
			if a, err = decodeAsk(body); err == nil {
				t.takeQuestion(a, p.at)
			}
		default:
			err = errType
		}
	}
	if err != nil {
		t.g.count.refuse(err)
	}
}

// takeFull takes what a full exchange or a stream brought. It is not gossiped on: it came
// by a way that brings it to everybody.
func (t *turn) takeFull(f fullState) {
	for i := range f.records {
		t.takeRecord(&f.records[i], f.at, false)
	}
	t.g.hooks.repeats.merged(f.body)
	if f.exchange {
		t.g.table.delta.exchanged = f.at
	}
}

// takeRecord merges a record; spread passes on what was news.
func (t *turn) takeRecord(r *wireRecord, at time.Time, spread bool) {
	g := t.g
	if r.Name == string(g.name) {
		t.takeOwn(r, at)
		return
	}
	name := model.NodeName(r.Name)
	m := g.table.merge(r, at)
	t.after(name, m)
	if m.stale != 0 {
		return
	}
	if spread && m.changed {
		m.newer.From = string(g.name)
		g.broadcast(m.newer, chunks(m.newer))
	}
	if r.From == "" {
		t.answer(name, r.Entries, at)
	}
}

// after does what the result of a merge asks for.
func (t *turn) after(name model.NodeName, m merged) {
	g := t.g
	if m.stale != 0 {
		g.count.stale.Add(1)
		t.tellStale(name, m.stale)
		return
	}
	n := g.table.nodes[name]
	if n == nil {
		return
	}
	if m.newer.Head != nil {
		t.keys = true
	}
	if m.newLife || m.newer.Head != nil && n.head.Left {
		g.expectNothing(n)
	}
}

// takeOwn is this node's record as others know it, of this life or an earlier
// one: its epochs count, and a life that is above this one is exceeded.
func (t *turn) takeOwn(r *wireRecord, at time.Time) {
	for i := range r.Entries {
		t.g.table.see(r.Entries[i].Addr, max(r.Entries[i].Epoch, r.Entries[i].Seen), at)
	}
	if r.Inc > t.g.own.life() {
		t.raise(r.Inc)
	}
}

func (t *turn) raise(known uint64) {
	if !t.g.own.raise(known) {
		return
	}
	t.raised = true
	if now := time.Now(); now.Sub(t.raisedAt) > time.Minute || t.raisedAt.IsZero() {
		t.raisedAt = now
		t.g.log.Info("others know a later start of this node: the clock went back, or another node has its name",
			"node", t.g.name)
	}
}

// tellStale tells a node that it speaks with an incarnation below a known one.
func (t *turn) tellStale(name model.NodeName, inc uint64) {
	if !due(t.staled, name, time.Now(), answerEvery) {
		return
	}
	t.queue(t.g.addrOf(name), encode(typeStale, wireStale{Name: string(name), Inc: inc}))
}

// answer tells a node of the claims that are not below its own, and reports whether
// there are any.
func (t *turn) answer(name model.NodeName, told []wireEntry, now time.Time) bool {
	g := t.g
	var own []netip.Addr
	for i := range told {
		if e := told[i].Epoch; e != 0 && g.own.epoch(told[i].Addr) >= e {
			own = append(own, told[i].Addr)
		}
	}
	others := g.table.beating(name, told)
	if len(own) == 0 && len(others) == 0 {
		return false
	}
	if !due(t.answered, name, now, answerEvery) {
		return true
	}
	to := g.addrOf(name)
	if len(own) > 0 {
		for _, m := range chunks(g.own.claims(own)) {
			t.queue(to, m)
		}
	}
	for owner, addrs := range others {
		n := g.table.nodes[owner]
		r := wireRecord{Name: string(owner), From: string(g.name), Inc: n.inc, Seq: n.seq}
		for _, a := range addrs {
			r.Entries = append(r.Entries, n.wire(a))
		}
		for _, m := range chunks(r) {
			t.queue(to, m)
		}
	}
	return true
}

func (t *turn) queue(to *memberlist.Node, msg []byte) {
	if to != nil {
		t.out = append(t.out, outgoing{to, msg})
	}
}

// tend is the work of every second.
func (t *turn) tend(now time.Time) {
	g := t.g
	t.tended, t.keys = now, true
	clear(t.answered)
	clear(t.staled)
	for name, w := range g.watches {
		if (w.awaiting || !w.late.IsZero()) && g.table.nodes[name] != nil && g.table.nodes[name].alive() {
			t.queue(g.addrOf(name), encode(typeAsk, wireAsk{Name: string(g.name)}))
		}
	}
	if now.Sub(t.swept) < sweepEvery && !now.Before(t.swept) {
		return
	}
	t.swept = now
	g.table.sweep(now, func(a netip.Addr) bool { return g.own.has(a) })
	known := func(name model.NodeName) bool { return g.table.nodes[name] != nil }
	for name := range g.watches {
		if !known(name) {
			delete(g.watches, name)
		}
	}
	g.sender.forget(known)
}

// due tells whether something is to be done again for a node, and notes it.
func due(last map[model.NodeName]time.Time, name model.NodeName, now time.Time, every time.Duration) bool {
	if at, ok := last[name]; ok && now.Sub(at) < every && !now.Before(at) {
		return false
	}
	last[name] = now
	return true
}

// allKnow tells whether every live node that lists its keys lists this one.
func (t *table) allKnow(fingerprint string) bool {
	for _, n := range t.nodes {
		if n.alive() && len(n.head.Keys) > 0 && !contains(n.head.Keys, fingerprint) {
			return false
		}
	}
	return true
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
