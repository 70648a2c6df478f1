package top

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/control"
)

// openPTY returns both ends of a terminal of 80 by 24.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close(); master.Close() })
	resize(t, master, 80, 24)
	return master, slave
}

func resize(t *testing.T, f *os.File, w, h uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: w, Row: h}); err != nil {
		t.Fatal(err)
	}
}

// seen is what the terminal was told since it was last looked at.
type seen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *seen) follow(master *os.File) {
	b := make([]byte, 1<<16)
	for {
		n, err := master.Read(b)
		s.mu.Lock()
		s.text.Write(b[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// wait waits until the terminal was told each of the texts, and forgets what it was told.
func (s *seen) wait(t *testing.T, texts ...string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		all, told := true, s.text.String()
		for _, text := range texts {
			all = all && strings.Contains(told, text)
		}
		if all {
			s.text.Reset()
		}
		s.mu.Unlock()
		if all {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q is not in %q", texts, told)
		}
	}
}

// serve answers as a daemon on the socket, until it is closed.
func serve(t *testing.T, socket string) *http.Server {
	t.Helper()
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	answer := func(path string, v any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) })
	}
	said := told()
	answer("/v1alpha1/status", said.Status)
	answer("/v1alpha1/events", v1alpha1.NodeEvents{Node: "m1", Newest: 2, Events: said.Events})
	mux.HandleFunc("/v1alpha1/explain", func(w http.ResponseWriter, r *http.Request) {
		e := v1alpha1.Explanation{Name: "n", Address: r.URL.Query().Get("vip"), Node: "m1", Owner: "m1", Reason: "Owner", Backends: said.Backends[0].Backends}
		_ = json.NewEncoder(w).Encode(map[string]any{"explanations": []v1alpha1.Explanation{e}})
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// TestOnATerminal: it draws, obeys keys and the size, tells when the daemon goes away and finds
// the next one, and leaves the terminal as it was.
func TestOnATerminal(t *testing.T) {
	master, slave := openPTY(t)
	socket := filepath.Join(t.TempDir(), "s")
	server := serve(t, socket)
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	var s seen
	go s.follow(master)
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), slave, slave, control.NewClient(socket), true) }()
	press := func(keys string) {
		t.Helper()
		if _, err := master.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}

	s.wait(t, begin, "> 10.0.0.200", "owner   ingress  m1 -> m2")
	press("\x1b[B")
	s.wait(t, ">!10.0.0.201")
	press("\r")
	s.wait(t, "10.0.0.201 (n), as m1 sees it")
	press("\x1b")
	s.wait(t, ">!10.0.0.201")
	resize(t, master, 60, 10)
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil { // the kernel tells only those whose terminal it is
		t.Fatal(err)
	}
	s.wait(t, home+"\x1b[1mlbd top: m1, lbd v0.1.0: settled; 2 of 3 nodes alive; 2 of …")
	_ = server.Close()
	s.wait(t, "! no answer")
	serve(t, socket)
	s.wait(t, "! (1 of ")
	press("q")
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("q does not end it")
	}
	s.wait(t, end)
	if now, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil || *now != *before {
		t.Errorf("the terminal is not as it was: %v, %v, %v", err, now, before)
	}
}

// TestAskerRemembers events, those of another process of the daemon in their place.
func TestAskerRemembers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	started, asked := noon, ""
	mux := http.NewServeMux()
	mux.HandleFunc("/v1alpha1/status", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v1alpha1.NodeStatus{}) })
	mux.HandleFunc("/v1alpha1/events", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = r.URL.RawQuery
		e := v1alpha1.NodeEvents{Started: started, Newest: 7}
		if asked == "" {
			e.Events = []v1alpha1.Event{{Seq: 7, Detail: started.String()}}
		}
		_ = json.NewEncoder(w).Encode(e)
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	a := asker{client: control.NewClient(socket)}
	for i := range 2 {
		got := a.ask(t.Context())
		mu.Lock()
		if got.Err != nil || len(got.Events) != 1 || asked != []string{"", "after=7"}[i] {
			t.Errorf("%v, asked for %q", got, asked)
		}
		mu.Unlock()
	}
	mu.Lock()
	started = noon.Add(time.Hour)
	mu.Unlock()
	if got := a.ask(t.Context()); got.Err != nil || len(got.Events) != 1 || got.Events[0].Detail != started.String() {
		t.Errorf("%v", got)
	}
}
