package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
func hostWithSocket(t *testing.T, port int) (file, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "lbdaside")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file, socket = filepath.Join(dir, "lbd.yaml"), filepath.Join(dir, "lbd.sock")
	text := fmt.Sprintf("apiVersion: lbd.dev/v1alpha1\nkind: NodeConfiguration\nsocket: %s\nhttp: {address: \"off\"}\n"+
		"gossip: {bindAddress: 127.0.0.1, port: %d, insecure: true}\n", socket, port)
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
// waits; a unit or a static pod ends with an error, as before.
func TestPodStandsAside(t *testing.T) {
	free, used := 17947, taken(t)
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
			file, socket := hostWithSocket(t, c.port)
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
			if control.Listens(socket) != c.locked {
				t.Errorf("the socket is listened on: %v, want %v", !c.locked, c.locked)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("stopped: %v", err)
			}
		})
	}
}

// TestStandAsideEnds: a restart of the daemon of the host is no reason to take its place; once it
// is gone for a minute the pod begins anew.
func TestStandAsideEnds(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		there := func() bool {
			since := time.Since(begin)
			return since < 10*time.Minute && !(since > 2*time.Minute && since < 2*time.Minute+50*time.Second)
		}
		if err := standAside(t.Context(), "n1", control.ErrRunning, there, log); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 10*time.Minute+asideGone-asideLook || took > 10*time.Minute+asideGone+asideLook {
			t.Errorf("it ends after %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := standAside(t.Context(), "n1", errors.New("the port"), func() bool { t.Error("looked"); return false }, log); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != asidePort {
			t.Errorf("with the port taken it ends after %v, want %v", took, asidePort)
		}
	})
}

// TestNoteHost: where lbd runs already, the manifest of the DaemonSet comes with a note.
func TestNoteHost(t *testing.T) {
	_, socket := hostWithSocket(t, 17947)
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
