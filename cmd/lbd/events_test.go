package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/api/v1alpha1"
)

// story answers like a daemon of which things are known that happen meanwhile.
type story struct {
	mu    sync.Mutex
	tell  v1alpha1.NodeEvents
	asked []string
}

func (s *story) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.URL.String())
	e := s.tell
	after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	e.Events = nil
	for _, x := range s.tell.Events {
		if x.Seq > after {
			e.Events = append(e.Events, x)
		}
	}
	_ = json.NewEncoder(w).Encode(e)
}

// happen adds a member that came, in a daemon that began at that time.
func (s *story) happen(began time.Time, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tell.Started.Equal(began) {
		s.tell = v1alpha1.NodeEvents{Node: "m1", Version: "v1", Started: began}
	}
	s.tell.Newest++
	s.tell.Events = append(s.tell.Events, v1alpha1.Event{Seq: s.tell.Newest, Time: began, Kind: v1alpha1.EventMember, Node: name, To: "alive"})
}

// listen serves the story on a socket.
func (s *story) listen(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

// TestEventsCommand: what the daemon is asked, and how the answer is shown.
func TestEventsCommand(t *testing.T) {
	var s story
	began := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	s.happen(began, "m2")
	socket := s.listen(t)
	for _, tt := range []struct {
		args  []string
		asked string
		want  string
	}{
		{nil, "/v1alpha1/events", "2026-11-21T10:00:00.000Z  member  m2     -        alive\n"},
		{[]string{"cp", "--since", "10m"}, "/v1alpha1/events?since=10m0s&vip=cp", "member  m2"},
		{[]string{"-o", "json"}, "/v1alpha1/events", `"time": "2026-11-21T10:00:00.000Z"`},
		{[]string{"-o", "yaml"}, "/v1alpha1/events", "kind: NodeEvents\n"},
	} {
		out, err := execute(t, newEvents(), append(tt.args, "--socket", socket)...)
		if err != nil || !strings.Contains(out, tt.want) || strings.HasPrefix(out, "---") {
			t.Errorf("%q: %v, %s", tt.args, err, out)
		}
		if got := s.asked[len(s.asked)-1]; got != tt.asked {
			t.Errorf("%q: asked for %s", tt.args, got)
		}
	}
	for _, args := range [][]string{{"a", "b"}, {"--since", "0s"}, {"--since", "-1m"}, {"-o", "xml"}} {
		if _, err := execute(t, newEvents(), append(args, "--socket", socket)...); !errors.As(err, new(usageError)) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if got, _, err := call(t, cobra.ShellCompRequestCmd, "events", "--socket", socket, ""); err != nil || !strings.Contains(got, ":4") {
		t.Errorf("completion: %q, %v", got, err)
	}
}

// TestEventsAreFollowed: each event once, also those of a daemon that was restarted, and of
// one that is gone for a while only that it is.
func TestEventsAreFollowed(t *testing.T) {
	var s story
	began := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	s.happen(began, "m2")
	socket := s.listen(t)
	for _, format := range []string{"table", "json"} {
		var out lockedBuffer
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		cmd := newEvents()
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs([]string{"-w", "-o", format, "--since", "1h", "--socket", socket})
		go func() { done <- cmd.ExecuteContext(ctx) }()
		names := func(want ...string) {
			t.Helper()
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				text, ok := out.String(), true
				for _, n := range want {
					ok = ok && strings.Contains(text, n)
				}
				if ok {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%q is not in\n%s", want, text)
				}
			}
			for _, n := range want {
				if strings.Count(out.String(), n) != 1 {
					t.Errorf("%s: %s more than once:\n%s", format, n, out.String())
				}
			}
		}
		names("m2")
		s.happen(began, "m3"+format)
		names("m2", "m3"+format)
		began = began.Add(time.Hour)
		s.happen(began, "m4"+format)
		names("m2", "m3"+format, "m4"+format)
		s.happen(began, "m5"+format)
		names("m4"+format, "m5"+format)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", format, err)
		}
		began = began.Add(time.Hour)
		s.happen(began, "m2")
	}
	if want := fmt.Sprintf("/v1alpha1/events?after=%d", 1); !strings.Contains(strings.Join(s.asked, "\n")+"\n", want+"\n") {
		t.Errorf("asked for %q, never for %s", s.asked, want)
	}
}

// lockedBuffer is written by a command and read by a test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
