package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/control"
)

// hostWithSocket is the configuration of a daemon whose socket is in a directory of its own. The
// path of a socket is limited.
func hostWithSocket(t *testing.T, http, port int) (file, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "lbdaside")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file, socket = filepath.Join(dir, "lbd.yaml"), filepath.Join(dir, "lbd.sock")
	text := fmt.Sprintf("apiVersion: lbd.dev/v1alpha1\nkind: NodeConfiguration\nsocket: %s\nhttp: {address: 127.0.0.1:%d}\n"+
		"gossip: {bindAddress: 127.0.0.1, port: %d, insecure: true}\n", socket, http, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, socket
}

// taken is a TCP port of this host that somebody uses.
func taken(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// TestPodStandsAside: a pod of the DaemonSet on a host that runs lbd says once what to do and
// waits, and answers its probes where the host does not; a unit or a static pod ends with an error.
func TestPodStandsAside(t *testing.T) {
	free, used, probes := 17947, taken(t), 17477
	for _, c := range []struct {
		name   string
		locked bool // another daemon has the socket
		port   int
		want   string
	}{
		{"socket", true, free, `another lbd runs on this host, so this pod does nothing; if the host is to keep its own lbd, kubectl label node n1 lbd.dev/daemon=host`},
		{"gossip port", false, used, `something on this host has the gossip port, such as another lbd, so this pod does nothing; if the host is to keep its own lbd, kubectl label node n1 lbd.dev/daemon=host`},
	} {
		t.Run(c.name, func(t *testing.T) {
			file, socket := hostWithSocket(t, probes, c.port)
			if c.locked {
				other := control.New(control.Options{Logger: slog.New(slog.DiscardHandler), Socket: socket, Backend: backend{}})
				if err := other.Listen(); err != nil {
					t.Fatal(err)
				}
				defer other.Close()
			}
			t.Setenv(config.NodeNameVariable, "n1")
			if err := runDaemon(t.Context(), file, &lockedBuffer{}); err == nil || !another(err) {
				t.Errorf("without a pod: %v, want an error about the other daemon", err)
			}
			t.Setenv(serviceHostVariable, "10.96.0.1")
			var log lockedBuffer
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- runDaemon(ctx, file, &log) }()
			for end := time.Now().Add(30 * time.Second); !strings.Contains(log.String(), "level=WARN") && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			}
			select {
			case err := <-ended:
				t.Fatalf("it ends with %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, c.want) {
				t.Errorf("the log is %q, want one line with %q", text, c.want)
			}
			eventuallyAnswers(t, probes, http.StatusOK, http.StatusServiceUnavailable)
			if control.Listens(socket) != c.locked {
				t.Errorf("the socket is listened on: %v, want %v", !c.locked, c.locked)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("stopped: %v", err)
			}
			eventuallyAnswers(t, probes, 0, 0)
		})
	}
}

// eventuallyAnswers waits until the probes of liveness and readiness are answered so; 0: not at all.
func eventuallyAnswers(t *testing.T, port, live, ready int) {
	t.Helper()
	get := func(path string) int {
		r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
		if err != nil {
			return 0
		}
		_ = r.Body.Close()
		return r.StatusCode
	}
	var l, r int
	for end := time.Now().Add(25 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if l, r = get("/healthz"), get("/readyz?daemon=pod"); l == live && r == ready {
			return
		}
	}
	t.Errorf("liveness is answered with %d and readiness with %d, want %d and %d", l, r, live, ready)
}

// TestProbesAreLeftToTheHost: a pod does not mind that the daemon of the host has its address.
func TestProbesAreLeftToTheHost(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	answerProbes("", log)()
	answerProbes(fmt.Sprintf("127.0.0.1:%d", taken(t)), log)()
}

// TestStandAsideEnds: a restart of the daemon of the host is no reason to take its place; once it
// is gone for a minute the pod begins anew. Probes are answered while it is there, but each daemon
// finds the address of its HTTP listener free for some time.
func TestStandAsideEnds(t *testing.T) {
	for _, c := range []struct {
		name  string
		why   error
		other func(since time.Duration) string
		ends  time.Duration
		want  string // when probes are answered
	}{
		{"restarts", control.ErrRunning, func(since time.Duration) string {
			switch {
			case since < 2*time.Minute:
				return "a"
			case since < 2*time.Minute+50*time.Second, since >= 10*time.Minute:
				return ""
			case since < 5*time.Minute:
				return "b"
			}
			return "c"
		}, 11 * time.Minute, "6s-2m0s 2m55s-5m0s 5m5s-10m0s"},
		{"the port", errors.New("the port"), func(time.Duration) string { t.Error("looked"); return "" }, asidePort, "6s-5m0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			var answered []string
			a := &aside{
				node: "n1", why: c.why, log: slog.New(slog.DiscardHandler),
				other: func() string { return c.other(time.Since(begin)) },
				answer: func() func() {
					from := time.Since(begin)
					return func() { answered = append(answered, fmt.Sprintf("%v-%v", from, time.Since(begin))) }
				},
			}
			if err := a.wait(t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took < c.ends-asideLook || took > c.ends+asideLook {
				t.Errorf("%s: it ends after %v, want %v", c.name, took, c.ends)
			}
			if got := strings.Join(answered, " "); got != c.want {
				t.Errorf("%s: probes are answered at %s, want %s", c.name, got, c.want)
			}
		})
	}
}

// TestNoteHost: where lbd runs already, the manifest of the DaemonSet comes with a note.
func TestNoteHost(t *testing.T) {
	_, socket := hostWithSocket(t, 17477, 17947)
	var out bytes.Buffer
	if noteHost(&out, socket); out.Len() > 0 {
		t.Errorf("no daemon runs: %s", out.String())
	}
	s := control.New(control.Options{Logger: slog.New(slog.DiscardHandler), Socket: socket, Backend: backend{}})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	noteHost(&out, socket)
	if got := out.String(); !strings.HasPrefix(got, "note: this host runs lbd already; ") || !strings.HasSuffix(got, hostLabel+"\n") || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}
