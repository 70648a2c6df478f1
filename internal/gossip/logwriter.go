package gossip

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"lbd.dev/lbd/internal/gossip/beat"
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
	strangers  map[string]time.Time // hosts with another key, when heard last
}

// linesPerSecond is how much of memberlist's log is passed on.
const linesPerSecond = 20

const (
	// strangerFor is how long a host with another key must have been silent to be
	// news again.
	strangerFor = 5 * time.Minute
	// maxStrangers bounds how many are remembered, and so how many warnings there
	// are in that time: a sender may be forged.
	maxStrangers = 16
)

// Mismatch counts messages of nodes that are configured differently.
type Mismatch struct {
	Count uint64
	Name  string // of the last one, if it is one of a node that is known
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
	stranger := false
	switch {
	case containsAny(msg, sayKey):
		w.keys.note(msg, now)
		stranger = w.isNews(peerIn(msg), now)
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
	suppressed, peer := w.suppressed, w.keys.Peer
	if pass {
		w.suppressed = 0
	} else {
		w.suppressed++
	}
	w.mu.Unlock()

	if stranger {
		w.warnStranger(peer)
	}
	if pass && w.log.Enabled(context.Background(), level) {
		if suppressed > 0 {
			w.log.Debug("memberlist log lines left out", "count", suppressed)
		}
		w.log.Debug("memberlist: " + msg)
	}
	return len(line), nil
}

// isNews tells whether the host of an address and port was not heard with
// another key for a while. The lock is held.
func (w *logWriter) isNews(peer string, now time.Time) bool {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return false
	}
	host := at.Addr().String() // its streams come from any port
	maps.DeleteFunc(w.strangers, func(_ string, last time.Time) bool { return now.Sub(last) >= strangerFor })
	_, known := w.strangers[host]
	if !known && len(w.strangers) >= maxStrangers {
		return false
	}
	if w.strangers == nil {
		w.strangers = map[string]time.Time{}
	}
	w.strangers[host] = now
	return !known
}

// mismatch counts a heartbeat of a node that is configured differently.
func (w *logWriter) mismatch(why error, from netip.AddrPort, now time.Time) {
	peer := from.String()
	w.mu.Lock()
	m := &w.labels
	if errors.Is(why, beat.ErrKey) {
		m = &w.keys
	}
	m.Count, m.At, m.Peer = m.Count+1, now, peer
	stranger := m == &w.keys && w.isNews(peer, now)
	w.mu.Unlock()
	if stranger {
		w.warnStranger(peer)
	}
}

func (w *logWriter) warnStranger(peer string) {
	w.log.Warn("gossip of a host cannot be decrypted: compare the key files of the nodes", "peer", peer)
}

func (m *Mismatch) note(msg string, now time.Time) {
	m.Count++
	m.At = now
	if peer := peerIn(msg); peer != "" {
		m.Peer = peer
	}
}

// peerIn takes the peer from memberlist's "from=10.0.0.1:7947", or from "failed to
// join 10.0.0.1:7947: ", where it is the answer that was not understood.
func peerIn(msg string) string {
	if _, from, ok := strings.Cut(msg, "from="); ok {
		from, _, _ = strings.Cut(from, " ")
		return from
	}
	if _, to, ok := strings.Cut(msg, "failed to join "); ok {
		to, _, _ = strings.Cut(to, ": ")
		return to
	}
	return ""
}

func (w *logWriter) counts() (keys, labels Mismatch, dropped uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys, w.labels, w.dropped
}

func containsAny(s string, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}
