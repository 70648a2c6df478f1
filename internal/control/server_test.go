package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/api/v1alpha1"
)

// fakeBackend is a daemon of values. During a drain, step changes the status
// each time that it is asked for.
type fakeBackend struct {
	mu       sync.Mutex
	status   v1alpha1.NodeStatus
	step     func(s *v1alpha1.NodeStatus)
	healthy  error
	ready    error
	setError error
	refused  error  // of Reload and Restart
	restart  func() // called by Restart
	events   v1alpha1.NodeEvents
	asked    EventQuery // of Events
	block    bool       // Status waits until it is given up
}

func (b *fakeBackend) Status(ctx context.Context) (v1alpha1.NodeStatus, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.block {
		<-ctx.Done()
		return v1alpha1.NodeStatus{}, ctx.Err()
	}
	if b.step != nil && b.status.Draining {
		b.step(&b.status)
	}
	return b.status, nil
}

func (b *fakeBackend) Explain(_ context.Context, vip, _ string) ([]v1alpha1.Explanation, error) {
	if vip != "10.0.0.200" {
		return nil, fmt.Errorf("VIP %q: %w", vip, ErrNotFound)
	}
	return []v1alpha1.Explanation{{Address: vip, Owner: "m1"}}, nil
}

func (b *fakeBackend) Events(_ context.Context, vip string, since time.Duration, after uint64) (v1alpha1.NodeEvents, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = EventQuery{vip, since, after}
	if vip == "nope" {
		return v1alpha1.NodeEvents{}, fmt.Errorf("VIP %q: %w", vip, ErrNotFound)
	}
	return b.events, nil
}

func (b *fakeBackend) SetDraining(_ context.Context, draining bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.setError != nil {
		return b.setError
	}
	b.status.Draining = draining
	return nil
}

func (b *fakeBackend) Reload(context.Context) error { return b.refused }

func (b *fakeBackend) Restart(context.Context) error {
	if b.refused == nil {
		b.restart()
	}
	return b.refused
}

func (b *fakeBackend) Healthy() error { return b.healthy }
func (b *fakeBackend) Ready() error   { return b.ready }

// testOptions has a socket in a short-lived directory: the path of a socket is
// limited, that of t.TempDir is not.
func testOptions(t *testing.T, backend Backend) Options {
	t.Helper()
	dir, err := os.MkdirTemp("", "lbdctl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return Options{
		Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
		Socket:  filepath.Join(dir, "run", "lbd.sock"),
		Backend: backend,
	}
}

// start runs a server until the test ends or stop is called.
func start(t *testing.T, opts Options) (server *Server, stop func()) {
	t.Helper()
	server = New(opts)
	return server, startServer(t, server)
}

// startServer runs a server until the test ends or stop is called.
func startServer(t *testing.T, server *Server) (stop func()) {
	t.Helper()
	server.httpRetry = 10 * time.Millisecond
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestSocketIsPrivateAndGoesAway(t *testing.T) {
	before := syscall.Umask(0) // the worst that a process can be started with
	defer syscall.Umask(before)
	opts := testOptions(t, &fakeBackend{})
	_, stop := start(t, opts)
	info, err := os.Stat(opts.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode(); got != os.ModeSocket|0o600 {
		t.Errorf("mode = %v, want a socket with 0600", got)
	}
	dir, err := os.Stat(filepath.Dir(opts.Socket))
	if err != nil {
		t.Fatal(err)
	}
	if got := dir.Mode().Perm(); got != 0o755 {
		t.Errorf("directory mode = %v, want 0755", got)
	}
	stop()
	if _, err := os.Stat(opts.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is there after Run returned: %v", err)
	}
	_, stop = start(t, opts) // the lock is free again
	stop()
}

func TestSocketOfADeadDaemonIsReplaced(t *testing.T) {
	opts := testOptions(t, &fakeBackend{status: v1alpha1.NodeStatus{Node: "new"}})
	if err := os.MkdirAll(filepath.Dir(opts.Socket), 0o755); err != nil {
		t.Fatal(err)
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: opts.Socket})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	start(t, opts)
	status, err := NewClient(opts.Socket).Status(t.Context())
	if err != nil || status.Node != "new" {
		t.Errorf("Status = %q, %v; want the new daemon", status.Node, err)
	}
}

func TestSocketRefused(t *testing.T) {
	backend := &fakeBackend{}
	t.Run("a daemon runs", func(t *testing.T) {
		opts := testOptions(t, backend)
		start(t, opts)
		err := New(opts).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "another lbd is running") {
			t.Fatalf("Run = %v, want another lbd is running", err)
		}
		if _, err := NewClient(opts.Socket).Status(t.Context()); err != nil {
			t.Errorf("the first daemon lost its socket: %v", err)
		}
	})
	t.Run("somebody without the lock listens", func(t *testing.T) {
		opts := testOptions(t, backend)
		if err := os.MkdirAll(filepath.Dir(opts.Socket), 0o755); err != nil {
			t.Fatal(err)
		}
		other, err := net.Listen("unix", opts.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if err := New(opts).Listen(); err == nil || !strings.Contains(err.Error(), "another lbd is running") {
			t.Errorf("Listen = %v, want another lbd is running", err)
		}
	})
	t.Run("a daemon starts that has no socket yet", func(t *testing.T) {
		opts := testOptions(t, backend)
		if err := os.MkdirAll(filepath.Dir(opts.Socket), 0o755); err != nil {
			t.Fatal(err)
		}
		lock, err := lockFile(opts.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := New(opts).Listen(); !errors.Is(err, ErrRunning) {
			t.Errorf("Listen = %v, want another lbd is running", err)
		}
	})
	t.Run("a file", func(t *testing.T) {
		opts := testOptions(t, backend)
		opts.Socket = filepath.Join(filepath.Dir(filepath.Dir(opts.Socket)), "file")
		if err := os.WriteFile(opts.Socket, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := New(opts).Listen(); err == nil || !strings.Contains(err.Error(), "not a socket") {
			t.Errorf("Listen = %v, want not a socket", err)
		}
		if content, err := os.ReadFile(opts.Socket); err != nil || string(content) != "precious" {
			t.Errorf("the file is now %q, %v", content, err)
		}
	})
	t.Run("long path", func(t *testing.T) {
		opts := testOptions(t, backend)
		opts.Socket = "/tmp/" + strings.Repeat("x", 200)
		if err := New(opts).Listen(); err == nil || !strings.Contains(err.Error(), "107") {
			t.Errorf("Listen = %v, want the limit of 107 bytes", err)
		}
	})
}

// TestOneOfManyStarts starts daemons at the same moment beside a stale socket:
// exactly one of them may have it.
func TestOneOfManyStarts(t *testing.T) {
	opts := testOptions(t, &fakeBackend{})
	if err := os.MkdirAll(filepath.Dir(opts.Socket), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		var (
			group sync.WaitGroup
			mu    sync.Mutex
			won   []*socket
		)
		for range 8 {
			group.Go(func() {
				if s, err := listenSocket(opts.Socket); err == nil {
					mu.Lock()
					won = append(won, s)
					mu.Unlock()
				}
			})
		}
		group.Wait()
		if len(won) != 1 {
			t.Fatalf("%d daemons got the socket, want 1", len(won))
		}
		won[0].listener.(*net.UnixListener).SetUnlinkOnClose(false) // leave a stale one
		_ = won[0].listener.Close()
		_ = won[0].lock.Close()
	}
}

func TestConcurrentClients(t *testing.T) {
	opts := testOptions(t, &fakeBackend{status: calm()})
	start(t, opts)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			client := NewClient(opts.Socket)
			for range 10 {
				status, err := client.Status(t.Context())
				if err != nil || len(status.VIPs) != 2 {
					t.Errorf("Status = %d VIPs, %v; want 2", len(status.VIPs), err)
					return
				}
				if found, err := client.Explain(t.Context(), "10.0.0.200", ""); err != nil || len(found) != 1 {
					t.Errorf("Explain = %v, %v; want one", found, err)
				}
			}
		})
	}
	group.Wait()
}

func TestStopIsBounded(t *testing.T) {
	opts := testOptions(t, &fakeBackend{block: true})
	_, stop := start(t, opts)
	answer := make(chan error, 1)
	go func() {
		_, err := NewClient(opts.Socket).Status(t.Context())
		answer <- err
	}()
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	stop()
	if took := time.Since(began); took > stopTimeout+20*time.Second {
		t.Errorf("stopping took %v with a request under way, want about %v", took, stopTimeout)
	}
	select {
	case err := <-answer:
		if err == nil {
			t.Error("the client got an answer from a backend that gave none")
		}
	case <-time.After(30 * time.Second):
		t.Error("the client was left waiting by a server that has stopped")
	}
}

func TestUnknownPathAndBadRequest(t *testing.T) {
	opts := testOptions(t, &fakeBackend{})
	start(t, opts)
	client := NewClient(opts.Socket)
	err := client.do(t.Context(), http.MethodGet, "/v2/status", nil, &struct{}{})
	if err == nil || !strings.Contains(err.Error(), "older than the command") {
		t.Errorf("unknown path: %v, want a hint to the version", err)
	}
	if err := client.do(t.Context(), http.MethodPut, pathDraining, "yes", &struct{}{}); err == nil {
		t.Error("a malformed body was accepted")
	}
}

// TestJSONNames pins the names that programs depend on.
func TestJSONNames(t *testing.T) {
	for name, status := range map[string]v1alpha1.NodeStatus{"trouble": trouble(), "empty": {}} {
		t.Run(name, func(t *testing.T) {
			text, err := json.MarshalIndent(status, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "status-"+name+".json")
			if *update {
				if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(text) + "\n"; got != string(want) {
				t.Errorf("%s differs from\n%s", path, got)
			}
			var back v1alpha1.NodeStatus
			if err := json.Unmarshal(text, &back); err != nil {
				t.Fatal(err)
			}
			again, err := json.MarshalIndent(back, "", " ")
			if err != nil || string(again) != string(text) {
				t.Errorf("the status changes on its way through JSON (%v):\n%s", err, again)
			}
		})
	}
}

func TestHTTP(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "lbd_test_total", Help: "Test."})
	registry.MustRegister(counter)
	backend := &fakeBackend{ready: errors.New("not settled yet")}
	opts := testOptions(t, backend)
	opts.HTTPAddress = "127.0.0.1:0"
	opts.Gatherer = registry
	server, _ := start(t, opts)
	base := "http://" + waitHTTP(t, server)
	tests := []struct {
		path string
		code int
		text string
	}{
		{"/healthz", 200, "ok\n"},
		{"/readyz", 503, "not settled yet\n"},
		{"/metrics", 200, "lbd_test_total 0"},
		{"/debug/pprof/", 404, ""},
		{pathStatus, 404, ""}, // only on the socket
	}
	if text, err := NewClient(opts.Socket).Metrics(t.Context()); err != nil || !strings.Contains(string(text), "lbd_test_total 0") {
		t.Errorf("on the socket: %q, %v", text, err)
	}
	for _, tt := range tests {
		if code, text := get(t, base+tt.path); code != tt.code || !strings.Contains(text, tt.text) {
			t.Errorf("GET %s = %d %q, want %d %q", tt.path, code, text, tt.code, tt.text)
		}
	}
}

// TestReadyOfAPod: kubelet asks for a pod of the DaemonSet. The daemon of the host, which answers
// in its place, is not that pod, however ready it is.
func TestReadyOfAPod(t *testing.T) {
	for inDaemonSet, want := range map[bool]int{false: 503, true: 200} {
		opts := testOptions(t, &fakeBackend{})
		opts.HTTPAddress, opts.InDaemonSet = "127.0.0.1:0", inDaemonSet
		server, _ := start(t, opts)
		base := "http://" + waitHTTP(t, server)
		if code, text := get(t, base+"/readyz?daemon=pod"); code != want || (code == 503) != strings.Contains(text, "lbd.dev/daemon=host") {
			t.Errorf("in a pod %v: %d %q, want %d", inDaemonSet, code, text, want)
		}
		if code, _ := get(t, base+"/readyz"); code != 200 {
			t.Errorf("in a pod %v: /readyz = %d, want 200", inDaemonSet, code)
		}
	}
}

func TestPprofOnlyIfAsked(t *testing.T) {
	opts := testOptions(t, &fakeBackend{})
	opts.HTTPAddress, opts.Pprof = "127.0.0.1:0", true
	server, _ := start(t, opts)
	base := "http://" + waitHTTP(t, server)
	if code, _ := get(t, base+"/debug/pprof/"); code != 200 {
		t.Errorf("GET /debug/pprof/ = %d, want 200", code)
	}
	if code, _ := get(t, base+"/metrics"); code != 404 {
		t.Errorf("GET /metrics = %d without a gatherer, want 404", code)
	}
}

func TestHTTPPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opts := testOptions(t, &fakeBackend{})
	opts.HTTPAddress = taken.Addr().String()
	server, _ := start(t, opts)
	eventually(t, "an error about the port", func() bool {
		return server.HTTPError() != nil && strings.Contains(server.HTTPError().Error(), "address already in use")
	})
	if _, err := NewClient(opts.Socket).Status(t.Context()); err != nil {
		t.Errorf("Status = %v: the socket must go on working", err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	base := "http://" + waitHTTP(t, server)
	if code, _ := get(t, base+"/healthz"); code != 200 || server.HTTPError() != nil {
		t.Errorf("healthz = %d, HTTPError = %v once the port is free, want 200, nil", code, server.HTTPError())
	}
}

func TestHTTPOff(t *testing.T) {
	for _, address := range []string{"", "off"} {
		opts := testOptions(t, &fakeBackend{})
		opts.HTTPAddress = address
		server, stop := start(t, opts)
		if _, err := NewClient(opts.Socket).Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		if server.HTTPAddr() != nil || server.HTTPError() != nil {
			t.Errorf("%q: listener %v, error %v; want none", address, server.HTTPAddr(), server.HTTPError())
		}
		stop()
	}
}

func waitHTTP(t *testing.T, server *Server) string {
	t.Helper()
	eventually(t, "the HTTP listener", func() bool { return server.HTTPAddr() != nil })
	return server.HTTPAddr().String()
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
