package control

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// letIn is an API server of three tokens.
func letIn(_ context.Context, token string) (int, error) {
	code, ok := map[string]int{"good": 200, "other": 403, "later": 503}[token]
	if !ok {
		code = 401
	}
	if code == 200 {
		return code, nil
	}
	return code, errors.New("the reason is nobody's business")
}

// secureOptions serve one metric by HTTPS.
func secureOptions(t *testing.T) Options {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "lbd_test_total", Help: "Test."}))
	opts := testOptions(t, &fakeBackend{})
	opts.HTTPAddress, opts.Gatherer, opts.Pprof = "127.0.0.1:0", registry, true
	opts.Metrics = &SecureMetrics{Address: "127.0.0.1:0", Authorize: letIn}
	return opts
}

func waitMetrics(t *testing.T, server *Server) string {
	t.Helper()
	eventually(t, "the HTTPS listener", func() bool { return server.MetricsAddr() != nil })
	return server.MetricsAddr().String()
}

// TestSecureMetrics: who has the right token gets the metrics and nothing else, and HTTP has
// them no more.
func TestSecureMetrics(t *testing.T) {
	server, _ := start(t, secureOptions(t))
	at := waitMetrics(t, server)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	for _, tt := range []struct {
		method, path, authorization string
		code                        int
	}{
		{"GET", "/metrics", "Bearer good", 200},
		{"GET", "/metrics", "Bearer other", 403},
		{"GET", "/metrics", "Bearer later", 503},
		{"GET", "/metrics", "Bearer wrong", 401},
		{"GET", "/metrics", "Bearer ", 401},
		{"GET", "/metrics", "Basic good", 401},
		{"GET", "/metrics", "good", 401},
		{"GET", "/metrics", "", 401},
		{"POST", "/metrics", "Bearer good", 405},
		{"GET", "/healthz", "Bearer good", 404},
		{"GET", "/debug/pprof/", "Bearer good", 404},
		{"GET", pathStatus, "Bearer good", 404},
	} {
		request, err := http.NewRequestWithContext(t.Context(), tt.method, "https://"+at+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", tt.authorization)
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if got := strings.Contains(string(text), "lbd_test_total 0"); answer.StatusCode != tt.code || got != (tt.code == 200) ||
			strings.Contains(string(text), "business") || answer.ProtoMajor != 1 {
			t.Errorf("%s %s %q: %s %s %s", tt.method, tt.path, tt.authorization, answer.Proto, answer.Status, text)
		}
	}
	if code, _ := get(t, "http://"+waitHTTP(t, server)+"/metrics"); code != 404 {
		t.Errorf("HTTP has metrics for everybody: %d", code)
	}
	if code, _ := get(t, "http://"+waitHTTP(t, server)+"/healthz"); code != 200 {
		t.Errorf("HTTP says nothing of health: %d", code)
	}
	if answer, err := http.Get("http://" + at + "/metrics"); err == nil && answer.StatusCode != 400 {
		t.Errorf("without TLS: %s", answer.Status)
	}
}

// pemPair writes a certificate for name and its key.
func pemPair(t *testing.T, dir string) {
	t.Helper()
	made, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{"crt": {Type: "CERTIFICATE", Bytes: made.Certificate[0]}, "key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoCertificate: without its files the listener is not open, the error names what is
// missing, and it opens when they come.
func TestNoCertificate(t *testing.T) {
	dir := t.TempDir()
	opts := secureOptions(t)
	opts.Metrics.CertFile, opts.Metrics.KeyFile = dir+"/crt", dir+"/key"
	server, _ := start(t, opts)
	eventually(t, "an error about the certificate", func() bool {
		err := server.HTTPError()
		return err != nil && strings.Contains(err.Error(), "https: certificate: ") && strings.Contains(err.Error(), "crt")
	})
	if server.MetricsAddr() != nil {
		t.Error("it listens all the same")
	}
	pemPair(t, dir)
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", waitMetrics(t, server))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	eventually(t, "an end of the error", func() bool { return server.HTTPError() == nil })
}

// TestCertificateChanges: files that changed are used within a minute; what cannot be used
// of them ends nothing.
func TestCertificateChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		pemPair(t, dir)
		c := &certificate{certFile: dir + "/crt", keyFile: dir + "/key"}
		serial := func() string {
			t.Helper()
			pair, err := c.get()
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(pair.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			return leaf.SerialNumber.String()
		}
		first := serial()
		if err := os.WriteFile(dir+"/crt", []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(certificateAge)
		if serial() != first {
			t.Error("a broken file was used")
		}
		pemPair(t, dir)
		time.Sleep(certificateAge - 1)
		if serial() != first {
			t.Error("the files are read all the time")
		}
		time.Sleep(time.Nanosecond)
		if serial() == first {
			t.Error("the new certificate is not used")
		}
	})
}

// TestMetricsPortInUse: that port has no say in the other one.
func TestMetricsPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	opts := secureOptions(t)
	opts.Metrics.Address = taken.Addr().String()
	server, _ := start(t, opts)
	eventually(t, "an error about the port", func() bool {
		return server.HTTPError() != nil && strings.HasPrefix(server.HTTPError().Error(), "https: listen tcp")
	})
	if code, _ := get(t, "http://"+waitHTTP(t, server)+"/healthz"); code != 200 {
		t.Errorf("healthz = %d", code)
	}
}
