package main

import (
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervisor tells systemd how the daemon is, if it asked to be told. A systemd that
// hangs does not read its socket, so that is done in the background.
type supervisor struct {
	states chan string
}

func newSupervisor(log *slog.Logger) *supervisor {
	s := &supervisor{states: make(chan string, 8)}
	go func() { // ends with the process
		for state := range s.states {
			if _, err := daemon.SdNotify(false, state); err != nil {
				log.Warn("systemd notification", "err", err)
			}
		}
	}()
	return s
}

// notify never waits. What there is no room for systemd would not read in time.
func (s *supervisor) notify(state string) {
	select {
	case s.states <- state:
	default:
	}
}

// watchdog feeds systemd's watchdog from the loop itself, at a quarter of the interval
// that systemd asks for.
func (s *supervisor) watchdog() func() {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		return nil
	}
	var last time.Time
	return func() {
		if now := time.Now(); now.Sub(last) >= every/4 {
			last = now
			s.notify(daemon.SdNotifyWatchdog)
		}
	}
}
