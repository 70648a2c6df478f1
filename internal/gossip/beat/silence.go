package beat

import (
	"log/slog"
	"time"

	"lbd.dev/lbd/internal/model"
)

const (
	// lasting is how long heartbeats must be overdue to be worth a line of their own.
	// On a host that is starved they come late many times a minute.
	lasting = 2 * time.Second
	// tellEvery bounds how often is told that they came late and arrived again.
	tellEvery = time.Minute
)

// silence decides what is logged about late heartbeats of one node.
type silence struct {
	said    bool          // a line says that they are overdue
	told    time.Time     // when the last line about short ones was logged
	times   int           // short ones since that line
	longest time.Duration // of them
}

// lasts logs, once, that heartbeats have been overdue for long, and returns when it has
// to look again; zero if it need not.
func (s *silence) lasts(log *slog.Logger, name model.NodeName, w *watch, now time.Time) (again time.Time) {
	if s.said {
		return time.Time{}
	}
	if due := w.late.Add(lasting); now.Before(due) {
		return due
	}
	s.said = true
	if w.awaiting {
		log.Info("no heartbeat has come from the owner of a VIP", "peer", name)
	} else {
		log.Info("heartbeats are overdue", "peer", name, "last", now.Sub(w.last))
	}
	return time.Time{}
}

// ended logs that heartbeats, late since then, have arrived again. Short ones are told
// once a minute, all in one line.
func (s *silence) ended(log *slog.Logger, name model.NodeName, since, now time.Time) {
	if s.said {
		s.said = false
		log.Info("heartbeats arrive again", "peer", name, "after", now.Sub(since))
		return
	}
	s.times++
	s.longest = max(s.longest, now.Sub(since))
	if !s.told.IsZero() && now.Sub(s.told) < tellEvery {
		return
	}
	log.Info("heartbeats came late", "peer", name, "times", s.times, "longest", s.longest)
	s.told, s.times, s.longest = now, 0, 0
}
