package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// logWriter receives memberlist's log. What memberlist says is of use to a
// developer only, so it goes out at level debug and at a bounded rate; but the
// log is also the only place where memberlist tells of messages that it could
// not decrypt, and those are counted.
type logWriter struct {
	log *slog.Logger

	mu         sync.Mutex
	window     time.Time
	lines      int
	suppressed uint64
	keys       Mismatch
	labels     Mismatch
	dropped    uint64
}

// linesPerSecond is how much of memberlist's log is passed on.
const linesPerSecond = 20

// Mismatch counts messages of nodes that are configured differently.
type Mismatch struct {
	Count uint64
	Peer  string // address and port of the last one
	At    time.Time
}

// Parts of memberlist's messages, tested against the library.
var (
	sayKey = []string{
		"no installed keys could decrypt", "Decrypt packet failed", "but remote state is not encrypted",
		"remote state is encrypted and encryption is not configured", "unsupported encryption version",
		"payload is too small to decrypt",
	}
	sayLabel = []string{"unacceptable label"}
	sayFull  = []string{"handler queue full"}
)

// Write takes one line.
func (w *logWriter) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	level, msg := slog.LevelDebug, text
	if rest, ok := strings.CutPrefix(msg, "["); ok {
		if _, after, ok := strings.Cut(rest, "] "); ok {
			msg = after
		}
	}
	msg = strings.TrimPrefix(msg, "memberlist: ")

	w.mu.Lock()
	now := time.Now()
	switch {
	case containsAny(msg, sayKey):
		w.keys.note(msg, now)
	case containsAny(msg, sayLabel):
		w.labels.note(msg, now)
	case containsAny(msg, sayFull):
		w.dropped++
	}
	if now.Sub(w.window) >= time.Second || now.Before(w.window) {
		w.window, w.lines = now, 0
	}
	w.lines++
	pass := w.lines <= linesPerSecond
	suppressed := w.suppressed
	if pass {
		w.suppressed = 0
	} else {
		w.suppressed++
	}
	w.mu.Unlock()

	if pass && w.log.Enabled(context.Background(), level) {
		if suppressed > 0 {
			w.log.Debug("memberlist log lines left out", "count", suppressed)
		}
		w.log.Debug("memberlist: " + msg)
	}
	return len(line), nil
}

// note takes the peer from memberlist's "from=10.0.0.1:7947".
func (m *Mismatch) note(msg string, now time.Time) {
	m.Count++
	m.At = now
	if _, from, ok := strings.Cut(msg, "from="); ok {
		m.Peer, _, _ = strings.Cut(from, " ")
	}
}

func (w *logWriter) counts() (keys, labels Mismatch, dropped uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys, w.labels, w.dropped
}

func containsAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}
