package bfd

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// request is what a parent says. All fields zero: how is it?
type request struct {
	ID    uint64     `json:",omitempty"`
	Apply *[]Session `json:",omitempty"`
	Close bool       `json:",omitempty"`
	Beat  bool       `json:",omitempty"` // no answer
}

// answer is what a child says; ID is 0 if it was not asked.
type answer struct {
	ID     uint64   `json:",omitempty"`
	Error  string   `json:",omitempty"`
	Status []Status `json:",omitempty"` // of all, or of those that changed
	Stats  *Stats   `json:",omitempty"`
	Log    *line    `json:",omitempty"`
}

// line is a line of the log.
type line struct {
	Level   slog.Level
	Message string
	Keys    []string
	Values  []string
}

func (l *line) attrs() (attrs []slog.Attr) {
	for i := range min(len(l.Keys), len(l.Values)) {
		attrs = append(attrs, slog.String(l.Keys[i], l.Values[i]))
	}
	return attrs
}

var inChild struct{ armed atomic.Bool }

// Child has to be the first call of a program that uses Process. In the child
// it does all there is to do and never returns; elsewhere it returns at once.
func Child() {
	inChild.armed.Store(true)
	if os.Getenv(childEnv) == "" {
		return
	}
	prioritiseAll()
	// A signal for the whole group is for the parent, which says what follows.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	f := os.NewFile(childFD, "parent")
	conn, err := net.FileConn(f)
	if err != nil {
		os.Exit(2) // started by hand
	}
	_ = f.Close()
	(&service{conn: conn, out: json.NewEncoder(conn), known: map[Key]Status{}, news: make(chan struct{}, 1)}).run()
	os.Exit(0)
}

// service is the child.
type service struct {
	conn net.Conn
	mu   sync.Mutex // of out
	out  *json.Encoder
	news chan struct{}

	m     *Manager
	known map[Key]Status // as last told; of tell only
}

// run returns when the parent has gone, or has not run for the time of a lease.
// It says good-bye to nobody then: that is what the peers watch for.
func (s *service) run() {
	s.m = New(slog.New(&forward{s: s}), func() {
		select {
		case s.news <- struct{}{}:
		default:
		}
	})
	go s.tell()
	in := json.NewDecoder(s.conn)
	for {
		var r request
		_ = s.conn.SetReadDeadline(time.Now().Add(lease))
		if in.Decode(&r) != nil {
			return
		}
		if r.Beat {
			continue
		}
		if r.Close {
			// In the background: the parent's heart still beats, and counts.
			go func() {
				_ = s.m.Close(context.Background())
				s.say(func(a *answer) { a.ID = r.ID })
			}()
			continue
		}
		problem := ""
		if r.Apply != nil {
			if err := s.m.Apply(*r.Apply); err != nil {
				problem = err.Error()
			}
		}
		s.say(func(a *answer) {
			st := s.m.Stats()
			*a = answer{ID: r.ID, Error: problem, Status: s.m.Status(), Stats: &st}
		})
	}
}

// tell tells the parent at once which sessions have changed.
func (s *service) tell() {
	for range s.news {
		s.say(func(a *answer) {
			for _, st := range s.m.Status() {
				if old := s.known[st.Key]; old.Since != st.Since || old.State != st.State {
					s.known[st.Key] = st
					a.Status = append(a.Status, st)
				}
			}
		})
	}
}

// say sends what fill fills in. What is said later is never older.
func (s *service) say(fill func(*answer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var a answer
	fill(&a)
	_ = s.conn.SetWriteDeadline(time.Now().Add(lease))
	if s.out.Encode(a) != nil {
		os.Exit(1) // the parent does not read
	}
}

// forward is a slog.Handler that hands lines to the parent.
type forward struct {
	s     *service
	attrs []slog.Attr
}

// Enabled: the parent decides.
func (f *forward) Enabled(context.Context, slog.Level) bool { return true }

// Handle sends a line.
func (f *forward) Handle(_ context.Context, r slog.Record) error {
	l := &line{Level: r.Level, Message: r.Message}
	add := func(a slog.Attr) bool {
		l.Keys, l.Values = append(l.Keys, a.Key), append(l.Values, a.Value.String())
		return true
	}
	for _, a := range f.attrs {
		add(a)
	}
	r.Attrs(add)
	f.s.say(func(a *answer) { a.Log = l })
	return nil
}

// WithAttrs keeps attributes for later lines.
func (f *forward) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &forward{f.s, append(f.attrs[:len(f.attrs):len(f.attrs)], attrs...)}
}

// WithGroup is not needed here.
func (f *forward) WithGroup(string) slog.Handler { return f }
