package health

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// TestClusterCheckTellsNoSecretOfTheNode: whoever may write an object of a cluster and
// read its status must not read what servers on loopback ports of the nodes answer.
func TestClusterCheckTellsNoSecretOfTheNode(t *testing.T) {
	const secret = "s3cret"
	var followed atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer elsewhere.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); io.WriteString(w, secret) })
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		io.WriteString(w, "[-]"+secret+" failed\n")
	})
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/"+secret, http.StatusFound)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	ca := newAuthority(t)
	certPEM, keyPEM := ca.valid(t)
	named := startTLS(t, func() tls.Certificate { return keyPair(t, certPEM, keyPEM) }, nil)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.crt"), ca.pem)
	raw := listenRaw(t, func(c net.Conn) {
		io.WriteString(c, "SSH-2.0-"+secret+"\r\n\r\n")
		_ = c.Close()
	})
	at := port(server.Listener.Addr())

	for name, tt := range map[string]struct {
		check v1alpha1.HealthCheck
		want  string
	}{
		"body":      {httpCheck(at, "/body"), "status 500 Internal Server Error"},
		"livez":     {httpCheck(at, "/livez"), "status 500 Internal Server Error"},
		"redirect":  {httpCheck(at, "/redirect"), "status 302 Found"},
		"other":     {httpCheck(raw, "/"), "the answer is none that the check can use"},
		"names":     {httpsCheck(named, filepath.Join(dir, "ca.crt"), "127.0.0.1"), "the answer is none that the check can use"},
		"its files": {httpsCheck(named, filepath.Join(dir, "ca.crt"), ""), "pass"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.check.Default()
			p := guarded(tt.check, dir, newProber(tt.check, slog.New(slog.DiscardHandler)))
			got := probeTwice(t, p, long)
			if strings.Contains(got, secret) || strings.Contains(got, "10.96.0.1") {
				t.Errorf("the check tells what was answered: %s", got)
			}
			if tt.want == "pass" && got != "pass" || !strings.HasSuffix(got, tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	if n := followed.Load(); n != 0 {
		t.Errorf("%d redirects to another host were followed", n)
	}
}

// TestClusterCheckReadsNoFileOfTheNode: nor may it have a node read its files, or
// prove itself with its certificates.
func TestClusterCheckReadsNoFileOfTheNode(t *testing.T) {
	outside := "a check of an object of a cluster reads only files below /etc/lbd/checks, which is clusterCheckFiles"
	for name, tt := range map[string]struct{ directory, file, want string }{
		"none allowed": {"", "/etc/kubernetes/pki/ca.crt", `caFile "/etc/kubernetes/pki/ca.crt": a check of an object of a cluster reads no files on this node: clusterCheckFiles is not set`},
		"outside":      {"/etc/lbd/checks", "/etc/kubernetes/pki/ca.crt", `caFile "/etc/kubernetes/pki/ca.crt": ` + outside},
		"up again":     {"/etc/lbd/checks", "/etc/lbd/checks/../gossip.key", `caFile "/etc/lbd/checks/../gossip.key": ` + outside},
		"beside":       {"/etc/lbd/checks", "/etc/lbd/checks2/x", `caFile "/etc/lbd/checks2/x": ` + outside},
		"below":        {"/etc/lbd/checks/", "/etc/lbd/checks/a/ca.crt", `CA file "/etc/lbd/checks/a/ca.crt" does not exist yet`},
	} {
		t.Run(name, func(t *testing.T) {
			c := httpsCheck(closedPort(t), tt.file, "")
			c.Default()
			err := guarded(c, tt.directory, newProber(c, slog.New(slog.DiscardHandler))).probe(t.Context())
			if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
	c := httpsCheck(1, "", "")
	c.HTTPS.CertFile, c.HTTPS.KeyFile = "/etc/kubernetes/pki/a.crt", "/etc/kubernetes/pki/a.key"
	if err := guarded(c, "/etc/lbd/checks", nil).probe(t.Context()); err == nil || !strings.Contains(err.Error(), "certFile") {
		t.Errorf("a client certificate of the node: %v", err)
	}
	program := v1alpha1.HealthCheck{Exec: &v1alpha1.ExecCheck{Command: []string{"/bin/true"}}}
	if err := guarded(program, "/", newProber(program, nil)).probe(t.Context()); err == nil {
		t.Error("a program ran")
	}
}

// TestChecksOfFilesCountMore: of a check of files and one of a cluster with one name
// that of files runs, without a guard; when it is gone the other one runs, with it.
func TestChecksOfFilesCountMore(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		io.WriteString(w, "words")
	}))
	defer server.Close()
	c := httpCheck(port(server.Listener.Addr()), "/")
	c.Interval.Duration = 50 * time.Millisecond
	c.Default()
	s := New(Options{})
	details := make(chan string, 100)
	go func() {
		_ = s.Run(t.Context(), func(change func(*model.View)) {
			v := model.View{}
			change(&v)
			details <- v.Health["api"].Detail
		})
	}()
	wait := func(want string) {
		t.Helper()
		for end := time.After(30 * time.Second); ; {
			select {
			case got := <-details:
				if strings.HasSuffix(got, want) {
					return
				}
			case <-end:
				t.Fatalf("after 30 s not yet %q", want)
			}
		}
	}
	s.SetClusterChecks(map[string]v1alpha1.HealthCheck{"api": c}, "")
	s.SetChecks(map[string]v1alpha1.HealthCheck{"api": c})
	wait("status 500 Internal Server Error: words")
	s.SetChecks(nil)
	wait("status 500 Internal Server Error")
}

func httpCheck(port int32, path string) v1alpha1.HealthCheck {
	return v1alpha1.HealthCheck{HTTP: &v1alpha1.HTTPCheck{Port: port, Path: path}}
}

func httpsCheck(port int32, caFile, name string) v1alpha1.HealthCheck {
	return v1alpha1.HealthCheck{HTTPS: &v1alpha1.HTTPSCheck{Port: port, CAFile: caFile, ServerName: name}}
}
