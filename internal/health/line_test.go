package health

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// counting starts a server that counts its connections.
func counting(t *testing.T, serve http.HandlerFunc) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(serve)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server, &connections
}

func probes(t *testing.T, server *httptest.Server) *httpProber {
	t.Helper()
	p := newHTTPProber(v1alpha1.HTTPCheck{Host: "127.0.0.1", Port: port(server.Listener.Addr()), Path: "/"})
	t.Cleanup(p.drop)
	return p
}

// stayYoung keeps the open connection, and the session to resume, from growing old
// while a busy machine does not come to the next probe.
func stayYoung(p *httpProber, resume *sessions) {
	later := time.Now().Add(time.Hour)
	if p.kept != nil {
		p.kept.since = later
	}
	if resume != nil {
		resume.until = later
	}
}

// A connection serves several probes, but not for ever: a server whose listener is
// gone although it goes on serving is found.
func TestLineGrowsOld(t *testing.T) {
	server, connections := counting(t, func(http.ResponseWriter, *http.Request) {})
	p := probes(t, server)
	for range 3 {
		stayYoung(p, nil)
		if got := probeOnce(t, p, long); got != "pass" {
			t.Fatal(got)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for 3 probes, want 1", n)
	}
	server.Listener.Close()
	stayYoung(p, nil)
	if got := probeOnce(t, p, long); got != "pass" {
		t.Errorf("while the connection is young: %s", got)
	}
	p.kept.since = time.Now().Add(-lineAge)
	if got := probeOnce(t, p, long); !strings.HasSuffix(got, "connection refused") {
		t.Errorf("probe = %s, want refused", got)
	}
}

// A server that ends its connections, with or without a word, is asked on a new one
// in the same probe; nothing is kept of an answer that does not pass.
func TestLineEnds(t *testing.T) {
	status := http.StatusOK
	server, connections := counting(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	p := probes(t, server)
	for i := range int32(3) {
		if got := probeOnce(t, p, long); got != "pass" {
			t.Fatal(got)
		}
		if n := connections.Load(); n != i+1 {
			t.Errorf("%d connections after probe %d", n, i+1)
		}
		server.CloseClientConnections()
	}
	server.Config.SetKeepAlivesEnabled(false) // "Connection: close"
	if got := probeOnce(t, p, long); got != "pass" || p.kept != nil {
		t.Errorf("%s, kept %v", got, p.kept)
	}
	server.Config.SetKeepAlivesEnabled(true)
	status = http.StatusInternalServerError
	if got := probeOnce(t, p, long); !strings.Contains(got, "status 500") || p.kept != nil {
		t.Errorf("%s, kept %v", got, p.kept)
	}
}

// A server that answers once and then hangs is asked once only.
func TestLineHangs(t *testing.T) {
	var asked atomic.Int32
	server, connections := counting(t, func(_ http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 {
			<-r.Context().Done()
		}
	})
	p := probes(t, server)
	if got := probeOnce(t, p, long); got != "pass" {
		t.Fatal(got)
	}
	stayYoung(p, nil)
	if got := probeOnce(t, p, short); !strings.HasSuffix(got, "no answer in time (waiting for an answer)") || p.kept != nil {
		t.Errorf("probe = %s, kept %v", got, p.kept)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A body that is too long to be read, or that only the end of the connection ends,
// leaves nothing to be asked again.
func TestLineWithRest(t *testing.T) {
	for name, say := range map[string]string{
		"long body":   "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 1000000),
		"no length":   "HTTP/1.1 200 OK\r\n\r\nwell",
		"more to say": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 500 Oops\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			port := listenRaw(t, func(c net.Conn) {
				_, _ = io.ReadFull(c, make([]byte, 20))
				_, _ = io.WriteString(c, say)
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
			})
			p := newHTTPProber(v1alpha1.HTTPCheck{Host: "127.0.0.1", Port: port, Path: "/"})
			defer p.drop()
			if got := probeTwice(t, p, long); got != "pass" || p.kept != nil {
				t.Errorf("%s, kept %v", got, p.kept)
			}
		})
	}
}

// What a server says without having been asked, such as that it has waited for too
// long (RFC 9110 section 15.5.9), is no answer.
func TestLineSpeaksUnasked(t *testing.T) {
	port := listenRaw(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 20))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		time.Sleep(50 * time.Millisecond) // so that it does not come with the answer
		_, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	p := newHTTPProber(v1alpha1.HTTPCheck{Host: "127.0.0.1", Port: port, Path: "/"})
	defer p.drop()
	for range 3 {
		if got := probeOnce(t, p, long); got != "pass" {
			t.Fatal(got)
		}
		for begin := time.Now(); p.kept != nil && len(p.kept.readable) == 0 && time.Since(begin) < time.Minute; {
			time.Sleep(time.Millisecond)
		}
	}
}

// A service that dies long before it would be asked is found to be dead.
func TestLostIsAskedAtOnce(t *testing.T) {
	server, _ := counting(t, func(http.ResponseWriter, *http.Request) {})
	c := v1alpha1.HealthCheck{HTTP: &v1alpha1.HTTPCheck{Host: "127.0.0.1", Port: port(server.Listener.Addr()), Path: "/"}}
	c.Default()
	c.Interval.Duration = time.Hour
	source := New(Options{})
	source.SetChecks(map[string]v1alpha1.HealthCheck{"api": c})
	states := make(chan model.HealthState, 10)
	go func() {
		_ = source.Run(t.Context(), func(change func(*model.View)) {
			var v model.View
			change(&v)
			states <- v.Health["api"]
		})
	}()
	for want := range slices.Values([]model.Health{model.HealthUnknown, model.HealthUp, model.HealthDown}) {
		select {
		case got := <-states:
			if got.State != want {
				t.Fatalf("state %v, want %v", got.State, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("waited in vain for %v", want)
		}
		if want == model.HealthUp {
			server.Listener.Close()
			server.CloseClientConnections()
		}
	}
}

// leaver is a service that ends each connection as soon as it has answered.
type leaver struct {
	*service
	gone    chan struct{}
	dropped int
}

func (l *leaver) lost() <-chan struct{} { return l.gone }
func (l *leaver) drop()                 { l.dropped++ }

func TestLostIsNotAskedWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &leaver{service: &service{}, gone: make(chan struct{})}
		close(api.gone)
		b := newBench(t, nil)
		b.newProber = func(v1alpha1.HealthCheck, *slog.Logger) prober { return api }
		b.SetChecks(map[string]v1alpha1.HealthCheck{"api": fakeCheck("api")})
		sleep(5*time.Second - 10*time.Millisecond)
		// At 0, 50, 500, 550 ms and so on.
		if n := len(api.starts()); n != 20 || api.dropped != 10 {
			t.Errorf("%d runs and %d ends in 5 s, want 20 and 10", n, api.dropped)
		}
		if gap := api.starts()[1].Sub(api.starts()[0]); gap != retrySpacing {
			t.Errorf("asked again after %v", gap)
		}
		b.SetChecks(nil)
		sleep(time.Second)
		if api.dropped != 11 {
			t.Error("a check that is not wanted any more leaves its connection open")
		}
	})
}

// TestHTTPSResumes: a session is resumed, but not one that was made with other
// files, nor one that is too old.
func TestHTTPSResumes(t *testing.T) {
	ca := newAuthority(t)
	certPEM, keyPEM := ca.valid(t)
	pair := keyPair(t, certPEM, keyPEM)
	var full, resumed atomic.Int32
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair},
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.DidResume {
				resumed.Add(1)
			} else {
				full.Add(1)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = http.Serve(listener, http.NotFoundHandler()) }()
	t.Cleanup(func() { listener.Close() })
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	write(t, caFile, ca.pem)
	c := v1alpha1.HTTPSCheck{Host: "127.0.0.1", Port: port(listener.Addr()), Path: "/", CAFile: caFile, ServerName: "kubernetes", ExpectedStatus: []int32{404}}
	var resume sessions
	settings := newTLSSettings(c, &resume, slog.New(slog.DiscardHandler))
	p := newHTTPSProber(c, slog.New(slog.DiscardHandler))
	p.tls = settings
	probe := func(what string, wantFull, wantResumed int32) {
		t.Helper()
		p.drop() // on a connection that is open there is no handshake
		stayYoung(p, &resume)
		if got := probeOnce(t, p, long); got != "pass" {
			t.Fatalf("%s: %s", what, got)
		}
		if f, r := full.Load(), resumed.Load(); f != wantFull || r != wantResumed {
			t.Errorf("%s: %d full and %d resumed handshakes, want %d and %d", what, f, r, wantFull, wantResumed)
		}
	}
	probe("first", 1, 0)
	probe("second", 1, 1)
	probe("third", 1, 2)
	write(t, caFile, append(slices.Clone(ca.pem), '\n')) // as good, but not the same
	probe("with a new CA file", 2, 2)
	probe("and again", 2, 3)

	config, err := settings()
	if err != nil {
		t.Fatal(err)
	}
	s := sessions{}
	first := s.get(config)
	if s.get(config) != first {
		t.Error("a session that is young is not kept")
	}
	s.until = time.Now()
	if s.get(config) == first {
		t.Error("a session that is too old is kept")
	}
	second := s.get(config)
	config.Certificates = []tls.Certificate{pair}
	if s.get(config) == second {
		t.Error("a session of another client certificate is kept")
	}
}

func BenchmarkHTTPS(b *testing.B) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	p := newHTTPSProber(v1alpha1.HTTPSCheck{
		Host: "127.0.0.1", Port: port(server.Listener.Addr()), Path: "/", InsecureSkipVerify: true, ExpectedStatus: []int32{404},
	}, slog.New(slog.DiscardHandler))
	defer p.drop()
	for name, anew := range map[string]bool{"new connection": true, "open connection": false} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if anew {
					p.drop()
				} else if p.kept != nil {
					p.kept.since = time.Now()
				}
				if err := p.probe(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
