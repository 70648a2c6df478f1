package machines

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

const (
	// statusPause is the time between two writes of the status of one balancer, and
	// hookPause that between two attempts to remove one hook.
	statusPause = 500 * time.Millisecond
	hookPause   = 2 * time.Second
	// retryPause is the time after a write that failed.
	retryPause = 300 * time.Millisecond
)

// reporter writes what the group says of its nodes, while this node is the writer.
type reporter struct {
	s   *Source
	set *Set
	w   writer
	pace
	voices machines.Voices
}

// pace keeps writes rare.
type pace struct {
	next map[string]time.Time // by UID: not before
}

// may tells whether something may be written about an object now, and notes that it
// is; wake is when it may be, if not.
func (p *pace) may(uid string, pause time.Duration, now time.Time, wake *time.Time) bool {
	if at := p.next[uid]; now.Before(at) {
		*wake = model.Earliest(*wake, at)
		return false
	}
	if p.next == nil || len(p.next) > 10_000 {
		p.next = map[string]time.Time{}
	}
	p.next[uid] = now.Add(pause)
	return true
}

// run writes after each change until ctx ends.
func (r *reporter) run(ctx context.Context) { turns(ctx, r.s.write, r.turn) }

// turns calls turn after each kick, and when the call before asked for it.
func turns(ctx context.Context, kick <-chan struct{}, turn func(context.Context, time.Time) time.Time) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-kick:
		case <-timer.C:
		}
		next := turn(ctx, time.Now())
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), time.Millisecond))
		}
	}
}

// turn writes what is to be written, and returns when to look again.
func (r *reporter) turn(ctx context.Context, now time.Time) (next time.Time) {
	r.s.mu.Lock()
	state := r.s.state
	r.s.mu.Unlock()
	if !state.Writer {
		r.voices = machines.Voices{} // another node of the group speaks meanwhile
	}
	if !state.Writer || !r.set.Synced() {
		return time.Time{}
	}
	balancers := r.set.Balancers()
	report := &machines.Report{Members: state.Members, Health: state.Health, Taken: state.Taken, Avoid: vipsOf(balancers)}
	unread := r.set.Unread(balancers)
	all := r.set.Machines()
	var cluster model.Key
	if self := machines.Self(all, r.s.me(state.Addrs), &r.s.rules, ""); self != nil {
		cluster = self.Cluster()
	}
	for _, b := range balancers {
		members := b.Members(all)
		if !b.Usable() || unread[b.Key] || !r.concerns(b, members, all, report, state.Addrs) {
			continue
		}
		if report.Others = map[model.Key]bool{}; !b.Forwarded() {
			report.Others = r.voices.Others(b, members, report, cluster)
		}
		members = b.WithUnseen(members, report, r.s.o.Spec.Namespaces)
		want := b.Summary(members, report, &r.s.rules, now)
		if due := b.Due(); due.After(now) {
			next = model.Earliest(next, due.Add(time.Millisecond))
		}
		if same, err := unchanged(b, want, now); same || err != nil || !r.may(b.UID, statusPause, now, &next) {
			continue
		}
		want.ReportedBy = r.w.host
		_, err := r.w.status(ctx, b, want, now)
		r.s.done("status", err)
		if err != nil {
			r.pace.next[b.UID] = now.Add(retryPause)
			next = model.Earliest(next, now.Add(retryPause))
			continue
		}
		r.voices.Said(b, &want)
	}
	return next
}

// done counts a write, and logs one that fails for another reason than a conflict,
// which only says that somebody else was first.
func (s *Source) done(what string, err error) {
	switch {
	case err == nil:
		s.count(what)
	case apierrors.IsConflict(err):
		s.count("conflict")
	default:
		s.count("error")
		s.o.Logger.Debug("writing to the management cluster", "err", err)
	}
}
