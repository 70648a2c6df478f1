package gossip

import (
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/gossip/beat"
	"lbd.dev/lbd/internal/gossip/record"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/wake"
)

// takeEvents takes over what memberlist said of nodes.
func (r *round) takeEvents() {
	g := r.g
	now := time.Now()
	for name, e := range g.hooks.take() {
		r.keys = true
		old := g.table.Node(name)
		r.replan = r.replan || old == nil || old.Addr != e.addr
		came := g.table.Member(name, e.addr, e.present, now)
		n := g.table.Node(name)
		if n == nil {
			continue
		}
		// A node that comes back from a LAN of its own tells whom it missed there. That is
		// no news of those that are heard: without them for one round, rings would reset
		// their connections.
		if !n.Present && !n.Left() && g.watches.InTime(name, now) {
			g.table.Beating(name, true)
		}
		if !came {
			wake.Up(g.join.wake)
			continue
		}
		if to := beat.Endpoint(name, e.addr); to != nil && g.table.Alive() <= direct {
			r.full = append(r.full, to)
		}
	}
	g.members.Store(int64(g.table.Alive() + 1))
}

// takeMessage takes what came by a datagram or by gossip.
func (r *round) takeMessage(p packet) {
	m, err := record.Open(p.msg)
	if err == nil {
		switch m.Type {
		case record.TypeState:
			var rec record.Record
			if rec, err = m.Record(); err == nil {
				r.takeRecord(&rec, p.at, true)
			}
		case record.TypeStale:
			var s record.Stale
			if s, err = m.Stale(); err == nil && s.Name == string(r.g.name) {
				r.raise(s.Inc)
			}
		case record.TypeAsk:
			var a record.Ask
			if a, err = m.Ask(); err == nil {
				r.takeQuestion(a, p.at)
			}
		default:
			err = record.ErrType
		}
	}
	if err != nil {
		r.g.count.refuse(err)
	}
}

// takeFull takes what a full exchange or a stream brought. It is not gossiped on: it came
// by a way that brings it to everybody.
func (r *round) takeFull(f fullState) {
	for i := range f.records {
		r.takeRecord(&f.records[i], f.at, false)
	}
	if f.exchange {
		r.g.table.Exchanged(f.at)
	}
}

// takeRecord merges a record; spread passes on what was news.
func (r *round) takeRecord(rec *record.Record, at time.Time, spread bool) {
	g := r.g
	if rec.Name == string(g.name) {
		r.takeOwn(rec, at)
		return
	}
	name := model.NodeName(rec.Name)
	m := g.table.Merge(rec, at)
	r.after(name, m)
	if m.Stale != 0 {
		return
	}
	if spread && m.Changed {
		m.Newer.From = string(g.name)
		g.broadcast(m.Newer, record.Chunks(g.own.Format(), m.Newer))
	}
	if rec.From == "" {
		r.answer(name, rec.Entries, at)
	}
}

// after does what the result of a merge asks for.
func (r *round) after(name model.NodeName, m record.Merged) {
	g := r.g
	if m.Stale != 0 {
		g.count.stale.Add(1)
		r.tellStale(name, m.Stale)
		return
	}
	n := g.table.Node(name)
	if n == nil {
		return
	}
	if m.Newer.Head != nil {
		r.keys = true
	}
	if m.NewLife || m.Newer.Head != nil && n.Left() {
		g.watches.ExpectNothing(name)
		g.table.NotAwaited(name)
	}
}

// takeOwn is this node's record as others know it, of this life or an earlier
// one: its epochs count, and a life that is above this one is exceeded.
func (r *round) takeOwn(rec *record.Record, at time.Time) {
	for i := range rec.Entries {
		r.g.table.See(rec.Entries[i].Addr, max(rec.Entries[i].Epoch, rec.Entries[i].Seen), at)
	}
	if rec.Inc > r.g.own.Life() {
		r.raise(rec.Inc)
	}
}

func (r *round) raise(known uint64) {
	now := time.Now()
	if !r.g.own.Raise(known, now) {
		return
	}
	r.raised = true
	if now.Sub(r.raisedAt) > time.Minute || r.raisedAt.IsZero() {
		r.raisedAt = now
		r.g.log.Info("others know a later start of this node: the clock went back, or another node has its name",
			"node", r.g.name)
	}
}

// tellStale tells a node that it speaks with an incarnation below a known one.
func (r *round) tellStale(name model.NodeName, inc uint64) {
	if due(r.staled, name, time.Now(), answerEvery) {
		r.queue(r.g.addrOf(name), record.Stale{Name: string(name), Inc: inc}.Encode(r.g.own.Format()))
	}
}

// answer tells a node of the claims that are not below its own.
func (r *round) answer(name model.NodeName, told []record.Entry, now time.Time) {
	g := r.g
	var own []netip.Addr
	for i := range told {
		if e := told[i].Epoch; e != 0 && g.own.Epoch(told[i].Addr) >= e {
			own = append(own, told[i].Addr)
		}
	}
	others := g.table.Outranking(name, told)
	if len(own) == 0 && len(others) == 0 || !due(r.answered, name, now, answerEvery) {
		return
	}
	to := g.addrOf(name)
	if len(own) > 0 {
		for _, m := range record.Chunks(g.own.Format(), g.own.Claims(own)) {
			r.queue(to, m)
		}
	}
	for owner, addrs := range others {
		for _, m := range record.Chunks(g.own.Format(), g.table.Told(g.table.Node(owner), addrs)) {
			r.queue(to, m)
		}
	}
}

// takeQuestion answers, or takes note of an answer.
func (r *round) takeQuestion(a record.Ask, at time.Time) {
	name := model.NodeName(a.Name)
	to := r.g.addrOf(name)
	switch {
	case a.Here:
		r.queue(to, record.Ask{Name: string(r.g.name), Yes: true}.Encode(r.g.own.Format()))
	case a.Yes:
		r.g.table.Heard(name, at)
	case to != nil:
		r.g.sender.Asked(to, time.Now())
	}
}

// takeBeats reads all heartbeats that have come.
func (r *round) takeBeats() {
	for {
		p, ok := r.g.beatbox.pop()
		if !ok {
			return
		}
		m, err := record.Open(p.msg)
		var b record.Beat
		if err == nil {
			b, err = m.Beat()
		}
		if err != nil {
			r.g.count.refuse(err)
			continue
		}
		r.takeBeat(&b, p.at)
	}
}

func (r *round) takeBeat(b *record.Beat, at time.Time) {
	g := r.g
	name := model.NodeName(b.Name)
	if name == g.name {
		g.count.invalid.Add(1)
		return
	}
	if g.watches.Overtaken(b) {
		g.count.old.Add(1)
		return
	}
	m := g.table.Merge(&record.Record{Name: b.Name, Inc: b.Inc, Entries: b.Entries}, at)
	r.after(name, m)
	if m.Stale != 0 {
		return
	}
	n := g.table.Node(name)
	if n == nil {
		return
	}
	if n.Left() {
		g.count.old.Add(1) // overtaken by its goodbye
		return
	}
	if g.watches.Suspected(name) {
		g.table.Suspect(name, time.Time{}, false)
	}
	if wasLate, leaseEnd := g.watches.Take(b, at); wasLate {
		g.table.InTime(name, at, leaseEnd)
	}
	g.sender.InStep()
	if !n.Present {
		g.join.met(n.Addr)
		g.table.Beating(name, !b.Final)
	}
	r.answer(name, b.Entries, at)
}

// takeDeadlines takes note of who is late or about to be, and returns the next deadline, zero if there is
// none.
func (r *round) takeDeadlines(now time.Time) (next time.Time) {
	late, next := r.g.watches.Deadlines(now)
	for _, x := range late {
		r.g.table.Late(x.Name, now, x.LeaseEnd)
	}
	suspects, at := r.g.watches.Suspects(now)
	for _, x := range suspects {
		r.g.table.Suspect(x.Name, now, x.Twice)
	}
	if next.IsZero() || !at.IsZero() && at.Before(next) {
		next = at
	}
	return next
}

// due tells whether something is to be done again for a node, and notes it.
func due(last map[model.NodeName]time.Time, name model.NodeName, now time.Time, every time.Duration) bool {
	if at, ok := last[name]; ok && now.Sub(at) < every && !now.Before(at) {
		return false
	}
	last[name] = now
	return true
}
