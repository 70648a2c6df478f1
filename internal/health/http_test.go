package health

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/testnet"
)

// short is the timeout of probes that must time out, long of those that must not.
const (
	short = 60 * time.Millisecond
	long  = 5 * time.Second
)

// probeTwice probes twice and wants the same text, since a Detail that differs
// from one attempt to the next costs a decision each time.
func probeTwice(t *testing.T, p prober, timeout time.Duration) string {
	t.Helper()
	first, second := probeOnce(t, p, timeout), probeOnce(t, p, timeout)
	if first != second {
		t.Errorf("the detail is not stable: %q, then %q", first, second)
	}
	return first
}

func probeOnce(t *testing.T, p prober, timeout time.Duration) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	began := time.Now()
	err := p.probe(ctx)
	if took := time.Since(began); took > timeout+20*time.Second {
		t.Errorf("the probe took %v with a timeout of %v", took, timeout)
	}
	if err == nil {
		return "pass"
	}
	return err.Error()
}

// port is the port of a listener on 127.0.0.1.
func port(addr net.Addr) int32 { return int32(addr.(*net.TCPAddr).Port) }

// closedPort is one on which nobody listens, nor can: a socket has it, of both families.
func closedPort(t *testing.T) int32 {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet6{}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return int32(name.(*syscall.SockaddrInet6).Port)
}

// listenRaw runs serve for every connection to a new port.
func listenRaw(t *testing.T, serve func(net.Conn)) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return port(l.Addr())
}

// hold keeps a connection open and says nothing.
func hold(t *testing.T) func(net.Conn) {
	return func(conn net.Conn) {
		<-t.Context().Done()
		conn.Close()
	}
}

func TestHTTP(t *testing.T) {
	handler := http.NewServeMux()
	handler.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.RawQuery) })
	handler.HandleFunc("/hints", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(103)
		w.WriteHeader(200)
	})
	handler.HandleFunc("/204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	handler.HandleFunc("/401", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) })
	handler.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
	handler.HandleFunc("/500", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		io.WriteString(w, "[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok\nlivez check failed\n")
	})
	handler.HandleFunc("/binary", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(503)
		io.WriteString(w, "\x1b[31m\xff"+strings.Repeat("x", 1000))
	})
	handler.HandleFunc("/slowbody", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "partial")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	handler.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	handler.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 4096); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	server := httptest.NewServer(handler)
	defer server.Close()
	ok := port(server.Listener.Addr())
	silent := listenRaw(t, hold(t))
	hangup := listenRaw(t, func(c net.Conn) {
		http.ReadRequest(bufio.NewReader(c)) // unread bytes would make the close a reset
		c.Close()
	})
	reset := listenRaw(t, func(c net.Conn) {
		io.ReadFull(c, make([]byte, 4))
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	})
	header := listenRaw(t, func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for err := error(nil); err == nil; {
			_, err = io.WriteString(c, "X-Fill: "+strings.Repeat("x", 4096)+"\r\n")
		}
	})
	closed := closedPort(t)
	url := func(port int32, path string) string { return fmt.Sprintf("http://127.0.0.1:%d%s", port, path) }

	tests := []struct {
		name     string
		port     int32
		path     string
		expected []int32
		timeout  time.Duration
		want     string // after the URL; "pass" passes
	}{
		{name: "200", port: ok, path: "/ok", want: "pass"},
		{name: "query", port: ok, path: "/ok?verbose&x=%20", want: "pass"},
		{name: "early hints", port: ok, path: "/hints", want: "pass"},
		{name: "204", port: ok, path: "/204", want: "pass"},
		{name: "endless body is not read to its end", port: ok, path: "/endless", want: "pass"},
		{name: "expected 401", port: ok, path: "/401", expected: []int32{401, 403}, want: "pass"},
		{name: "200 not expected", port: ok, path: "/204", expected: []int32{200}, want: "status 204 No Content"},
		{name: "401", port: ok, path: "/401", want: "status 401 Unauthorized: the check may not read this path; give it certFile and keyFile"},
		{name: "404", port: ok, path: "/none", want: "status 404 Not Found: 404 page not found"},
		{name: "500 names the failing part", port: ok, path: "/500", want: "status 500 Internal Server Error: [-]etcd failed: reason withheld"},
		{name: "text is clipped and cleaned", port: ok, path: "/binary", want: "status 503 Service Unavailable: [31m?" + strings.Repeat("x", 195) + "..."},
		{name: "redirect is not followed", port: ok, path: "/redirect", want: "status 302 Found to /ok"},
		{name: "refused", port: closed, path: "/", want: "connection refused"},
		{name: "half open", port: silent, path: "/", timeout: short, want: "no answer in time (waiting for an answer)"},
		{name: "hang", port: ok, path: "/hang", timeout: short, want: "no answer in time (waiting for an answer)"},
		{name: "slow body", port: ok, path: "/slowbody", timeout: short, want: "no answer in time (reading the answer)"},
		{name: "hang up", port: hangup, path: "/", want: "connection closed before an answer (waiting for an answer)"},
		{name: "reset", port: reset, path: "/", want: "connection reset by peer"},
		{name: "endless header", port: header, path: "/", want: "the header of the answer is too long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newHTTPProber(v1alpha1.HTTPCheck{Host: "127.0.0.1", Port: tt.port, Path: tt.path, ExpectedStatus: tt.expected})
			want := tt.want
			if want != "pass" {
				want = url(tt.port, tt.path) + ": " + want
			}
			timeout := tt.timeout
			if timeout == 0 {
				timeout = long
			}
			if got := probeTwice(t, p, timeout); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		})
	}
}

func TestHTTPIgnoresTheProxyOfTheEnvironment(t *testing.T) {
	t.Setenv("HTTP_PROXY", fmt.Sprintf("http://127.0.0.1:%d", closedPort(t)))
	t.Setenv("HTTPS_PROXY", fmt.Sprintf("http://127.0.0.1:%d", closedPort(t)))
	p := newHTTPProber(v1alpha1.HTTPCheck{Host: "lbd-test.invalid", Port: 80, Path: "/"})
	if got := probeOnce(t, p, long); strings.Contains(got, "refused") || !strings.Contains(got, "lbd-test.invalid") {
		t.Errorf("probe = %s, want a failure of the name and not of the proxy", got)
	}
}

// startTLS serves with the certificate that the function returns.
func startTLS(t *testing.T, certificate func() tls.Certificate, clients *x509.CertPool) int32 {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	config := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair := certificate()
		return &pair, nil
	}}
	if clients != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, clients
	}
	listener := tls.NewListener(server.Listener, config)
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return port(listener.Addr())
}

func TestHTTPS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		write(t, path, content)
		return path
	}
	ca, stranger := newAuthority(t), newAuthority(t)
	certPEM, keyPEM := ca.valid(t)
	expiredCert, expiredKey := ca.issue(t, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC))
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	fixed := func(certPEM, keyPEM []byte) func() tls.Certificate {
		pair := keyPair(t, certPEM, keyPEM)
		return func() tls.Certificate { return pair }
	}
	good := startTLS(t, fixed(certPEM, keyPEM), nil)
	expired := startTLS(t, fixed(expiredCert, expiredKey), nil)
	private := startTLS(t, fixed(certPEM, keyPEM), pool)
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	silent := listenRaw(t, hold(t))

	caFile, strangerFile := file("ca.crt", ca.pem), file("stranger.crt", stranger.pem)
	clientCert, clientKey := file("client.crt", certPEM), file("client.key", keyPEM)
	garbage, missing := file("garbage", []byte("not PEM")), filepath.Join(dir, "missing")

	tests := []struct {
		name    string
		check   v1alpha1.HTTPSCheck
		timeout time.Duration
		want    string
	}{
		{name: "CA and server name", check: v1alpha1.HTTPSCheck{Port: good, CAFile: caFile}, want: "pass"},
		{name: "other name", check: v1alpha1.HTTPSCheck{Port: good, CAFile: caFile, ServerName: "127.0.0.1"},
			want: "x509: certificate is valid for 10.96.0.1, not 127.0.0.1"},
		{name: "CA of somebody else", check: v1alpha1.HTTPSCheck{Port: good, CAFile: strangerFile}, want: "certificate is signed by a CA that the check does not trust; see caFile"},
		{name: "CAs of the host", check: v1alpha1.HTTPSCheck{Port: good}, want: "certificate is signed by a CA that the check does not trust; see caFile"},
		{name: "no CA file yet", check: v1alpha1.HTTPSCheck{Port: good, CAFile: missing}, want: fmt.Sprintf("CA file %q does not exist yet", missing)},
		{name: "CA file without certificate", check: v1alpha1.HTTPSCheck{Port: good, CAFile: garbage}, want: fmt.Sprintf("CA file %q holds no PEM certificate", garbage)},
		{name: "CA file is a directory", check: v1alpha1.HTTPSCheck{Port: good, CAFile: dir}, want: fmt.Sprintf("CA file %q: is a directory", dir)},
		{name: "expired", check: v1alpha1.HTTPSCheck{Port: expired, CAFile: caFile},
			want: "certificate is expired or not yet valid: valid from 2020-01-01 00:00:00 UTC to 2021-01-01 00:00:00 UTC"},
		{name: "not verified", check: v1alpha1.HTTPSCheck{Port: expired, InsecureSkipVerify: true, CAFile: missing}, want: "pass"},
		{name: "client certificate", check: v1alpha1.HTTPSCheck{Port: private, CAFile: caFile, CertFile: clientCert, KeyFile: clientKey}, want: "pass"},
		{name: "client certificate is missing", check: v1alpha1.HTTPSCheck{Port: private, CAFile: caFile}, want: "remote error: tls: certificate required"},
		{name: "client key is not there", check: v1alpha1.HTTPSCheck{Port: private, CAFile: caFile, CertFile: clientCert, KeyFile: missing},
			want: fmt.Sprintf("client certificate %q does not exist yet", missing)},
		{name: "plain HTTP server", check: v1alpha1.HTTPSCheck{Port: port(plain.Listener.Addr()), CAFile: caFile}, want: "the server does not speak TLS"},
		{name: "hang in the handshake", check: v1alpha1.HTTPSCheck{Port: silent, CAFile: caFile}, timeout: short, want: "no answer in time (TLS handshake)"},
		{name: "refused", check: v1alpha1.HTTPSCheck{Port: closedPort(t), CAFile: caFile}, want: "connection refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			full := v1alpha1.HealthCheck{HTTPS: &tt.check}
			full.Default()
			want := tt.want
			if want != "pass" {
				want = fmt.Sprintf("https://127.0.0.1:%d/livez?exclude=etcd: %s", tt.check.Port, want)
			}
			timeout := tt.timeout
			if timeout == 0 {
				timeout = long
			}
			if got := probeTwice(t, newProber(full, slog.New(slog.DiscardHandler)), timeout); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		})
	}
}

// TestHTTPSFollowsItsFiles goes through the life of a control plane: lbd runs
// before kubeadm init, then the CA appears, then it is replaced.
func TestHTTPSFollowsItsFiles(t *testing.T) {
	var served atomic.Pointer[tls.Certificate]
	become := func(a *authority) {
		certPEM, keyPEM := a.valid(t)
		pair := keyPair(t, certPEM, keyPEM)
		served.Store(&pair)
	}
	first, second := newAuthority(t), newAuthority(t)
	become(first)
	port := startTLS(t, func() tls.Certificate { return *served.Load() }, nil)
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	check := v1alpha1.HealthCheck{HTTPS: &v1alpha1.HTTPSCheck{Port: port, CAFile: caFile}}
	check.Default()
	var logged strings.Builder
	p := newProber(check, slog.New(slog.NewTextHandler(&logged, nil)))

	if got := probeOnce(t, p, long); !strings.Contains(got, "does not exist yet") {
		t.Fatalf("before the CA: %s", got)
	}
	write(t, caFile, first.pem)
	if got := probeOnce(t, p, long); got != "pass" {
		t.Fatalf("with the CA: %s", got)
	}
	become(second) // of a server that runs on: its connection and its session stay good for a while
	got := probeOnce(t, p, long)
	for begin := time.Now(); got == "pass" && time.Since(begin) < fullHandshake+lineAge+30*time.Second; got = probeOnce(t, p, long) {
		time.Sleep(100 * time.Millisecond)
	}
	if !strings.Contains(got, "does not trust") {
		t.Fatalf("after the certificate was replaced: %s", got)
	}
	write(t, caFile, []byte("-----BEGIN CERT")) // half written
	become(first)
	for range 3 {
		p.(resident).drop()
		if got := probeOnce(t, p, long); got != "pass" {
			t.Fatalf("with a broken CA file the old one must count: %s", got)
		}
	}
	if n := strings.Count(logged.String(), "goes on with the certificates it had"); n != 1 {
		t.Errorf("the broken file was logged %d times, want once:\n%s", n, logged.String())
	}
	write(t, caFile, second.pem)
	become(second)
	p.(resident).drop()
	if got := probeOnce(t, p, long); got != "pass" {
		t.Fatalf("with the new CA: %s", got)
	}
}

// TestRealServerDies runs the whole source in real time against a TLS server
// that goes away and comes back.
func TestRealServerDies(t *testing.T) {
	ca := newAuthority(t)
	certPEM, keyPEM := ca.valid(t)
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	write(t, caFile, ca.pem)
	config := &tls.Config{Certificates: []tls.Certificate{keyPair(t, certPEM, keyPEM)}}
	serve := func(address string) *http.Server {
		listener, err := tls.Listen("tcp", address, config)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Addr: listener.Addr().String(), Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
		go server.Serve(listener)
		t.Cleanup(func() { server.Close() })
		return server
	}
	server := serve(netip.AddrPortFrom(testnet.Loopback(), 0).String())
	at := netip.MustParseAddrPort(server.Addr)
	check := v1alpha1.HealthCheck{HTTPS: &v1alpha1.HTTPSCheck{Host: at.Addr().String(), Port: int32(at.Port()), CAFile: caFile}}
	check.Default()

	states := make(chan model.HealthState, 100)
	source := New(Options{})
	source.SetChecks(map[string]v1alpha1.HealthCheck{"api": check})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- source.Run(ctx, func(change func(*model.View)) {
			var view model.View
			change(&view)
			states <- view.Health["api"]
		})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	}()
	await := func(want model.Health) model.HealthState {
		t.Helper()
		for {
			select {
			case got := <-states:
				if got.State == want {
					return got
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("waited in vain for %v", want)
			}
		}
	}
	for round := range 4 {
		await(model.HealthUp)
		time.Sleep(time.Duration(round) * 130 * time.Millisecond) // somewhere in the interval
		died := time.Now()
		server.Close()
		got := await(model.HealthDown)
		took := time.Since(died)
		t.Logf("round %d: down %v after the death: %s", round, took.Round(time.Millisecond), got.Detail)
		// 800 ms on a machine that does nothing else.
		if took > 8*time.Second || !strings.HasSuffix(got.Detail, "connection refused") {
			t.Errorf("down after %v with %q, want refused within 8s", took, got.Detail)
		}
		server = serve(server.Addr)
	}
	await(model.HealthUp)
}
