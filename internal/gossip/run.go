package gossip

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/beat"
	"lbd.dev/lbd/internal/gossip/record"
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

// loop is what Run remembers from one round to the next.
type loop struct {
	g          *Gossip
	repetition repetition
	answered   map[model.NodeName]time.Time
	staled     map[model.NodeName]time.Time
	tended     time.Time
	swept      time.Time
	raisedAt   time.Time // last logged
}

// repetition is how far the repeating of a change is.
type repetition struct {
	told  uint64    // own version that is being repeated
	since time.Time // when it was told first
	times int       // it has been repeated
	at    time.Time // it was told last
}

func newLoop(g *Gossip) *loop {
	return &loop{
		g: g, swept: time.Now(),
		answered: map[model.NodeName]time.Time{}, staled: map[model.NodeName]time.Time{},
	}
}

// round is one time that Run reads what has come, with what is to be done after it, when
// the lock is free.
type round struct {
	*loop
	out    []outgoing         // to send
	full   []*memberlist.Node // to send the whole own record
	raised bool               // the own incarnation went up: tell everybody everything
	replan bool               // an address changed
	keys   bool               // somebody told of new keys, or came or went
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
	whole := g.table.Whole()
	g.mu.Unlock()
	publish(whole.First(g.join.others()).Apply)

	l := newLoop(g)
	timer := beat.NewAlarm(g.sockets != nil, g.log)
	defer timer.Close()
	timer.Set(0)
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.ctx.Done():
			<-ctx.Done() // the membership has ended, the daemon has not
			return nil
		case <-g.wake:
		case <-timer.Rings():
		}
		r := round{loop: l}
		change, next := r.take()
		r.send()
		if now := time.Now(); now.Sub(looked) >= tendEvery || now.Before(looked) {
			looked = now
			if err := g.look(now); err != nil {
				return err
			}
		}
		if change != nil {
			publish(change.Apply)
		}
		timer.Set(max(time.Until(next), 0))
	}
}

// take reads what has come, and returns what is to be published and when the next round must
// be at the latest.
func (r *round) take() (change *record.Delta, next time.Time) {
	g := r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	r.takeEvents()
	r.takeBeats()
	for range turnLimit {
		p, ok := g.inbox.pop()
		if !ok {
			break
		}
		r.takeMessage(p)
	}
	if f, ok := g.fulls.pop(); ok {
		r.takeFull(f)
	}
	r.takeBeats() // those that came meanwhile, before anybody is called late
	now := time.Now()
	next = r.takeDeadlines(now)
	if now.Sub(r.tended) >= tendEvery || now.Before(r.tended) {
		r.tend(now)
	}
	if at := r.tended.Add(tendEvery); next.IsZero() || at.Before(next) {
		next = at
	}
	if g.inbox.length()+g.fulls.length() > 0 {
		next = now
	}
	if at := r.repeat(now); !at.IsZero() && at.Before(next) {
		next = at
	}
	if peers, changed := g.join.takeOthers(); changed {
		g.table.Peers(peers)
	}
	if g.table.Moved() && g.own.SetFormat(g.table.Format()) {
		r.replan = true
	}
	if g.own.Settled() && g.table.Still() {
		// Full exchanges count while a node settles. One that is settled learns of the
		// last of them with what comes next, or when it settles anew: with thousands of
		// VIPs a decision for each would be most of what they cost.
		return nil, next
	}
	return g.table.Flush(), next
}

// send does what take left to do without the lock.
func (r *round) send() {
	g := r.g
	for _, m := range r.out {
		g.sendLater(m.to, m.msg)
	}
	if r.keys && g.keys.tend(g.keyKnown) {
		g.tellKeys()
	}
	if r.raised {
		g.tell(g.own.Full(), nil)
	}
	if len(r.full) > 0 {
		whole := g.own.Full()
		msgs := record.Chunks(g.own.Format(), whole)
		for _, to := range r.full {
			g.sendRecord(to, whole, msgs, g.sendLater)
		}
	}
	if r.replan || r.raised {
		g.planner.Plan(nil)
	}
}

// repeat tells a recent change of the own record again if it is time, and
// returns when the next time is, zero if there is none. The whole record is
// told, if one datagram holds it; a larger one is left to full exchanges.
func (r *round) repeat(now time.Time) time.Time {
	g, p := r.g, &r.repetition
	if told := g.own.Told(); told != p.told {
		p.told, p.since, p.times = told, now, 0
	}
	for g.members.Load() <= direct+1 {
		at := p.at.Add(repeatClaims)
		if p.times < len(repeatAfter) {
			at = p.since.Add(repeatAfter[p.times])
		} else if !g.own.Claiming() {
			return time.Time{}
		}
		if now.Before(at) {
			return at
		}
		p.times++
		p.at = now
		if g.own.ManyEntries() {
			return time.Time{} // found out without writing thousands of them
		}
		msgs := record.Chunks(g.own.Format(), g.own.Full())
		if len(msgs) > 1 {
			return time.Time{}
		}
		for _, to := range g.small(now) {
			r.queue(to, msgs[0])
		}
	}
	return time.Time{}
}

// tend is the work of every second.
func (r *round) tend(now time.Time) {
	g := r.g
	r.tended, r.keys = now, true
	clear(r.answered)
	clear(r.staled)
	for _, name := range g.watches.Missed() {
		if n := g.table.Node(name); n != nil && n.Alive() {
			r.queue(g.addrOf(name), record.Ask{Name: string(g.name)}.Encode(g.own.Format()))
		}
	}
	if now.Sub(r.swept) < sweepEvery && !now.Before(r.swept) {
		return
	}
	r.swept = now
	g.table.Sweep(now, g.own.Has)
	known := func(name model.NodeName) bool { return g.table.Node(name) != nil }
	g.watches.Forget(known)
	g.sender.Forget(known)
}

func (r *round) queue(to *memberlist.Node, msg []byte) {
	if to != nil {
		r.out = append(r.out, outgoing{to, msg})
	}
}
